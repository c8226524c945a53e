//! Access to a server. Loopback is open to this machine. Other addresses need a token and TLS, or an explicit
//! `--insecure`.

use crate::failure::Failure;
use crate::flags::security::{SecurityArgs, TlsClientArgs, TlsServerArgs};
use gannet::Transports;
use gannet::security::{TlsClient, TlsServer, Token};
use gannet::transport::Transport;
use std::path::Path;

/// A network, and the token for its sessions.
pub struct Secured {
    /// The transport, with TLS over TCP if flags request it.
    pub net: Transports,
    /// The token that both sides must prove to have.
    pub token: Option<Token>,
}

/// The security of a server at `listen`, the value of `flag`.
pub fn of_server(
    net: Transports,
    (flag, listen): (&str, &str),
    args: &SecurityArgs,
    tls_server: &TlsServerArgs,
) -> Result<Secured, Failure> {
    let tls = tls_of_server(args, tls_server)?;
    let token = token(args)?;
    if !is_loopback(listen) {
        let what = format!("{flag} {listen}");
        let tls = encrypts(&what, &net, args.insecure, tls.is_some())?;
        let flags = "--tls-cert FILE with --tls-key FILE";
        check_secrets(&what, args.insecure, token.is_some(), tls, flags, TABLES)?;
    }
    Ok(match tls {
        Some(tls) => Secured { net: net.with_tls_server(tls).with_token(token.is_some()), token },
        None => Secured { net: net.with_token(token.is_some()), token },
    })
}

/// The security of a server of HTTP: its certificate, and the token of requests.
pub fn of_http(
    (flag, listen): (&str, &str),
    args: &SecurityArgs,
    tls_server: &TlsServerArgs,
) -> Result<(Option<TlsServer>, Option<Token>), Failure> {
    let tls = tls_of_server(args, tls_server)?;
    let token = token(args)?;
    if !is_loopback(listen) {
        let what = format!("{flag} {listen}");
        let flags = "--tls-cert FILE with --tls-key FILE";
        check_secrets(
            &what,
            args.insecure,
            token.is_some(),
            tls.is_some(),
            flags,
            "may ask for predictions",
        )?;
    }
    Ok((tls, token))
}

fn tls_of_server(args: &SecurityArgs, tls_server: &TlsServerArgs) -> Result<Option<TlsServer>, Failure> {
    let tls = pair(args).map(|(cert, key)| TlsServer::load(cert, key, tls_server.tls_client_ca.as_deref()));
    tls.transpose().map_err(|error| Failure::input(error.to_string()))
}

/// The security of a worker of these servers.
pub fn of_worker(
    net: Transports,
    hosts: &[String],
    args: &SecurityArgs,
    tls_client: &TlsClientArgs,
) -> Result<Secured, Failure> {
    if tls_client.tls_ca.is_none() && args.tls_cert.is_some() {
        let text = "--tls-cert: a worker shows its certificate over TLS only: give --tls-ca too";
        return Err(Failure::input(text));
    }
    let (tls, token) = (tls_client_of(tls_client, args)?, token(args)?);
    if let Some(far) = hosts.iter().find(|host| !is_loopback(host)) {
        let what = format!("server {far}");
        let tls = encrypts(&what, &net, args.insecure, tls.is_some())?;
        check_secrets(&what, args.insecure, token.is_some(), tls, "--tls-ca FILE", TABLES)?;
    }
    Ok(match tls {
        Some(tls) => Secured { net: net.with_tls_client(tls).with_token(token.is_some()), token },
        None => Secured { net: net.with_token(token.is_some()), token },
    })
}

/// Makes a network speak TLS to other servers too, if flags name whom it trusts.
pub fn with_tls_client(
    net: Transports,
    args: &TlsClientArgs,
    own: &SecurityArgs,
) -> Result<Transports, Failure> {
    Ok(match tls_client_of(args, own)? {
        Some(tls) => net.with_tls_client(tls),
        None => net,
    })
}

fn tls_client_of(args: &TlsClientArgs, own: &SecurityArgs) -> Result<Option<TlsClient>, Failure> {
    let load = |ca| TlsClient::load(ca, args.tls_name.as_deref(), pair(own));
    args.tls_ca.as_deref().map(load).transpose().map_err(|error| Failure::input(error.to_string()))
}

/// The certificate and the key that a process shows.
pub fn pair(args: &SecurityArgs) -> Option<(&Path, &Path)> {
    args.tls_cert.as_deref().zip(args.tls_key.as_deref())
}

fn token(args: &SecurityArgs) -> Result<Option<Token>, Failure> {
    let token = args.token_file.as_deref().map(Token::load);
    token.transpose().map_err(|error| Failure::input(error.to_string()))
}

/// Whether traffic is encrypted, with TLS flags (`tls`) or without. RDMA (`--transport verbs`) is not encrypted: beyond
/// loopback it is refused, or with `--insecure` it is logged. `auto` does not choose RDMA if a flag requests TLS.
fn encrypts(what: &str, net: &Transports, insecure: bool, tls: bool) -> Result<bool, Failure> {
    match (net.transport(), insecure) {
        (Transport::Verbs, false) => Err(Failure::input(format!(
            "{what}: --transport verbs sends over RDMA, which no TLS flag encrypts: give --insecure on a network where \
             you trust everyone, or --transport tcp with a token and TLS"
        ))),
        (Transport::Verbs, true) => Ok(false),
        _ => Ok(tls),
    }
}

/// What peers of a server of tables can do.
const TABLES: &str = "may read and change the tables";

/// Beyond loopback requires a token and TLS, or `--insecure`. `may`: what whoever reaches the address can do.
fn check_secrets(
    what: &str,
    insecure: bool,
    token: bool,
    tls: bool,
    flags: &str,
    may: &str,
) -> Result<(), Failure> {
    let missing = match (token, tls) {
        (true, true) => return Ok(()),
        (true, false) => flags.to_owned(),
        (false, true) => "--token-file FILE".to_owned(),
        (false, false) => format!("--token-file FILE and {flags}"),
    };
    if !insecure {
        return Err(Failure::input(format!(
            "{what}: beyond loopback (127.0.0.1, [::1], localhost) a token and TLS are needed: give {missing}, or \
             --insecure on a network where you trust everyone"
        )));
    }
    let open = if token { String::new() } else { format!("; whoever reaches it {may}") };
    let plain = if tls { "" } else { "; what is sent can be read and changed on the way" };
    tracing::warn!("{what} with --insecure{open}{plain}");
    Ok(())
}

/// Refuses a plain connection beyond loopback to a peer that is no server, and so knows no token.
#[cfg(feature = "etcd")]
pub fn must_be_encrypted(what: &str, addr: &str, has_tls: bool, insecure: bool) -> Result<(), Failure> {
    match is_loopback(addr) || has_tls {
        true => Ok(()),
        false => check_secrets(what, insecure, true, false, "etcds:// and --tls-ca FILE", TABLES),
    }
}

/// Decides by the text, because a name may resolve to another address tomorrow.
fn is_loopback(addr: &str) -> bool {
    let host = addr.rsplit_once(':').map_or(addr, |(host, _)| host).trim_matches(['[', ']']);
    let ip = host.parse::<std::net::IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_told_by_what_is_written() {
        for near in ["127.0.0.1:1", "127.255.0.9:1", "[::1]:0", "localhost:7700", "[::ffff:127.0.0.1]:1"] {
            assert!(is_loopback(near), "{near}");
        }
        for far in
            ["0.0.0.0:1", "[::]:1", "10.0.0.1:7700", "localhost.example.org:1", "127.0.0.1.nip.io:1", ":1"]
        {
            assert!(!is_loopback(far), "{far}");
        }
    }
}

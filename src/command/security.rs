//! Who may talk to a server: loopback is open to this machine; other addresses want proof, or an explicit `--insecure`.

use super::Failure;
use super::args::security::SecurityArgs;
use gannet::Token;

/// What a server asks for at `listen`.
pub fn of_server(listen: &str, args: &SecurityArgs) -> Result<Option<Token>, Failure> {
    guard(&format!("--listen {listen}"), listen, args)
}

/// What a worker shows to these servers, and asks of them.
pub fn of_worker(hosts: &[String], args: &SecurityArgs) -> Result<Option<Token>, Failure> {
    let far = hosts.iter().find(|host| !is_loopback(host)).or(hosts.first());
    far.map_or(Ok(None), |host| guard(&format!("server {host}"), host, args))
}

fn guard(what: &str, addr: &str, args: &SecurityArgs) -> Result<Option<Token>, Failure> {
    let token = args.token_file.as_deref().map(Token::load).transpose();
    let token = token.map_err(|error| Failure::input(error.to_string()))?;
    if is_loopback(addr) {
        return Ok(token);
    }
    if !args.insecure {
        return Err(Failure::input(format!(
            "{what}: beyond loopback (127.0.0.1, [::1], localhost) nothing is encrypted yet: use an ssh tunnel, or give \
             --token-file FILE and --insecure on a network that you trust"
        )));
    }
    let open =
        if token.is_none() { "anyone who reaches it may read and change its tables, and " } else { "" };
    tracing::warn!("{what}, --insecure: {open}what is sent can be read and changed on the way");
    Ok(token)
}

/// By what is written, not by what a name resolves to today: a name may resolve to something else tomorrow.
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

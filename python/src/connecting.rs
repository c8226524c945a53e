//! The arguments of `gannet.connect`, and the network and configuration that they ask for. The rules about addresses
//! beyond loopback are those of the command (cli/src/security.rs).

use crate::failure::{CallFailure, with_arguments};
use gannet::backups::{
    Coordinator, CoordinatorAddr, CoordinatorError, EtcdCoordinator, EtcdTls, Places, RemoteCoordinator,
};
use gannet::runs::RunId;
use gannet::security::{TlsClient, Token};
use gannet::transport::Transport;
use gannet::worker::{NEXT_INCARNATION, OneSided};
use gannet::{Transports, WorkerConfig};
use pyo3::FromPyObject;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The run without a name, as of the command.
const DEFAULT_RUN: &str = "default";

/// The arguments.
#[derive(Clone, FromPyObject)]
#[pyo3(from_item_all)]
pub struct Connecting {
    servers: Vec<String>,
    /// Says which server has which place, as the flag `--coordinator` names it.
    coordinator: Option<String>,
    /// The run of the servers: the name under which the coordinator knows them.
    run: Option<String>,
    /// `None`: a number that no worker has.
    rank: Option<u32>,
    /// Seconds.
    timeout: f64,
    /// "auto", "tcp", "shm".
    transport: String,
    token_file: Option<PathBuf>,
    tls_ca: Option<PathBuf>,
    tls_name: Option<String>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    /// Allow servers on other machines without a token or without TLS.
    insecure: bool,
}

impl Connecting {
    /// The addresses of the servers.
    pub fn servers(&self) -> &[String] {
        &self.servers
    }
}

/// Checks the arguments, and reads the files.
pub fn configuration(asked: Connecting) -> Result<(Transports, WorkerConfig), CallFailure> {
    let Connecting { mut servers, rank, timeout, transport, token_file, insecure, .. } = asked;
    let coordinator = coordinator_of(asked.coordinator.as_deref(), asked.run.as_deref())?;
    let (ca, name, cert, key) = (asked.tls_ca, asked.tls_name, asked.tls_cert, asked.tls_key);
    check_servers(&servers)?;
    if !(timeout > 0.0 && timeout <= 86_400.0) {
        return Err(CallFailure::input(format!(
            "timeout is {timeout}; more than 0 s and at most a day is wanted"
        )));
    }
    let transport = match &*transport {
        "auto" => Transport::Auto,
        "tcp" => Transport::Tcp,
        "shm" => Transport::Shm,
        other => {
            return Err(CallFailure::input(format!(
                "transport is {other:?}; \"auto\", \"tcp\" or \"shm\" is wanted"
            )));
        }
    };
    let own = match (cert.as_deref(), key.as_deref()) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => return Err(CallFailure::input("tls_cert and tls_key belong together: give both, or neither")),
    };
    if ca.is_none() && (own.is_some() || name.is_some()) {
        let text = "tls_cert, tls_key and tls_name are for TLS, which needs tls_ca: give it too";
        return Err(CallFailure::input(text));
    }
    let tls = ca.as_deref().map(|ca| TlsClient::load(ca, name.as_deref(), own)).transpose();
    let tls = tls.map_err(|error| unreadable(&error.to_string()))?;
    let token = token_file.as_deref().map(Token::load).transpose();
    let token = token.map_err(|error| unreadable(&error.to_string()))?;
    let others = match &coordinator {
        Some((CoordinatorAddr::Scheduler(addr), _)) => std::slice::from_ref(addr),
        _ => &[],
    };
    if let Some(far) = servers.iter().chain(others).find(|server| !is_loopback(server))
        && !insecure
        && (tls.is_none() || token.is_none())
    {
        return Err(CallFailure::input(format!(
            "server {far}: beyond loopback (127.0.0.1, [::1], localhost) a token and TLS are needed: give token_file \
             and tls_ca, or insecure=True on a network where you trust everyone"
        )));
    }
    let mut net = Transports::new().with_transport(transport).with_token(token.is_some());
    if let Some(tls) = tls {
        net = net.with_tls_client(tls);
    }
    let tls_files = (ca.as_deref(), name.as_deref(), own);
    let places = coordinator.map(|of| places(of, (&net, token.as_ref()), tls_files, insecure)).transpose()?;
    if places.is_some() {
        // The places of a job are in this order.
        servers.sort();
    }
    let builder = WorkerConfig::builder(&servers).one_sided(OneSided::Auto);
    let mut config = builder.worker(rank.unwrap_or(0)).peer_timeout(Duration::from_secs_f64(timeout)).build();
    if rank.is_none() {
        config.pusher = 0;
    }
    (config.incarnation, config.token, config.places) = (NEXT_INCARNATION, token, places);
    Ok((net, config))
}

/// The coordinator, and the name of the run there.
fn coordinator_of(
    coordinator: Option<&str>,
    run: Option<&str>,
) -> Result<Option<(CoordinatorAddr, String)>, CallFailure> {
    let Some(text) = coordinator else {
        return match run {
            None => Ok(None),
            Some(run) => Err(CallFailure::input(format!(
                "run is {run:?}, which is the name of the servers' run at their coordinator: give the coordinator, too"
            ))),
        };
    };
    let addr = CoordinatorAddr::parse(text);
    let addr = addr.map_err(|why| CallFailure::input(format!("coordinator is {text:?}: {why}")))?;
    let run = run.unwrap_or(DEFAULT_RUN);
    RunId::check_name(run).map_err(|why| CallFailure::input(format!("run is {run:?}: {why}")))?;
    Ok(Some((addr, run.to_owned())))
}

/// The authority that is trusted, the name in certificates, and the own certificate with its key.
type TlsFiles<'a> = (Option<&'a Path>, Option<&'a str>, Option<(&'a Path, &'a Path)>);

/// Where the client learns which server has which place.
fn places(
    (addr, job): (CoordinatorAddr, String),
    (net, token): (&Transports, Option<&Token>),
    (ca, name, own): TlsFiles<'_>,
    insecure: bool,
) -> Result<Places, CallFailure> {
    let failed = |error: CoordinatorError| CallFailure::input(format!("coordinator: {}", error.0));
    let coordinator: Arc<dyn Coordinator> = match addr {
        CoordinatorAddr::Scheduler(addr) => {
            Arc::new(RemoteCoordinator::new(net.clone(), &addr, token.cloned()))
        }
        CoordinatorAddr::Etcd { members, has_tls } => {
            let tls = match (has_tls, ca) {
                (false, _) => None,
                (true, Some(ca)) => Some(EtcdTls::load(ca, name, own).map_err(failed)?),
                (true, None) => {
                    let text = "coordinator is etcds://...: give tls_ca, the authority that signed etcd's certificates";
                    return Err(CallFailure::input(text));
                }
            };
            if let Some(far) = members.iter().find(|member| !is_loopback(member))
                && !has_tls
                && !insecure
            {
                return Err(CallFailure::input(format!(
                    "member {far} of etcd: beyond loopback TLS is needed: write etcds://..., or give insecure=True on a \
                     network where you trust everyone"
                )));
            }
            Arc::new(EtcdCoordinator::new(&members, tls).map_err(failed)?)
        }
    };
    Ok(Places { coordinator, job })
}

/// A file that cannot be used. Messages name the command's flags.
fn unreadable(message: &str) -> CallFailure {
    const FLAGS: [(&str, &str); 4] = [
        ("--tls-ca ", "tls_ca="),
        ("--tls-cert ", "tls_cert="),
        ("--tls-key ", "tls_key="),
        ("--tls-name ", "tls_name="),
    ];
    // The first of each is the flag. Paths stay as they are.
    let text =
        FLAGS.iter().fold(message.to_owned(), |text, (flag, argument)| text.replacen(flag, argument, 1));
    CallFailure::input(if message.starts_with("--tls") { text } else { with_arguments(message) })
}

fn check_servers(servers: &[String]) -> Result<(), CallFailure> {
    if servers.is_empty() {
        return Err(CallFailure::input(
            "servers is empty; the address of each server is wanted: [\"127.0.0.1:7700\"]",
        ));
    }
    for (at, server) in servers.iter().enumerate() {
        if server.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok()).is_none() {
            return Err(CallFailure::input(format!(
                "server {server:?}: \"HOST:PORT\" is wanted, for example \"127.0.0.1:7700\""
            )));
        }
        if servers[..at].contains(server) {
            return Err(CallFailure::input(format!(
                "servers has {server} twice; each server once is wanted"
            )));
        }
    }
    Ok(())
}

/// Decides by the text, because a name may resolve to another address tomorrow.
fn is_loopback(addr: &str) -> bool {
    let host = addr.rsplit_once(':').map_or(addr, |(host, _)| host).trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

//! Servers: connects over each transport like a worker, with token and TLS.

use crate::doctor::finding::{Finding, Level};
use crate::failure::Failure;
use crate::flags::{DoctorArgs, IoArgs, IoName, TransportName};
use crate::security;
use clap::ValueEnum;
use gannet::worker::WorkerError;
use gannet::{Worker, WorkerConfig};
use std::time::{Duration, Instant};

/// Opens a session with each of the server's threads and closes it: over the transport that a worker would choose, then
/// over each transport. It pulls and pushes nothing, and opens no table.
pub fn findings(peer: &str, args: &DoctorArgs) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    match greet(peer, args, TransportName::Auto)? {
        Ok((over, how)) => {
            findings.push(Finding::ok(peer, format!("--transport auto reaches it over {over} ({how})")));
        }
        // `auto` has tried all transports.
        Err(error) => {
            let text = error.to_string();
            return Ok(vec![Finding::not(peer, Level::Unreachable, text, remedy(&error))]);
        }
    }
    for &transport in TransportName::value_variants() {
        if transport != TransportName::Auto {
            findings.push(match greet(peer, args, transport)? {
                Ok((over, how)) => Finding::ok(peer, format!("answers over {over} ({how})")),
                Err(error) => Finding::note(peer, format!("not over {}: {error}", transport.name()), ""),
            });
        }
    }
    Ok(findings)
}

/// The transport of the connection and how it went, or why there was none.
fn greet(
    peer: &str,
    args: &DoctorArgs,
    transport: TransportName,
) -> Result<Result<(String, String), WorkerError>, Failure> {
    let net = transport.net(IoArgs { io: IoName::Epoll });
    let secured = security::of_worker(net, &[peer.to_owned()], &args.security, &args.tls_client)?;
    let mut config = WorkerConfig::reader([peer]);
    config.peer_timeout = Duration::from_secs(args.peer_timeout);
    config.token = secured.token;
    let start = Instant::now();
    Ok(Worker::connect(secured.net, config).map(|worker| {
        let (threads, ms) = (worker.links(), start.elapsed().as_secs_f64() * 1e3);
        let s = if threads == 1 { "" } else { "s" };
        (worker.transport(), format!("{threads} thread{s}, greeted in {ms:.1} ms"))
    }))
}

/// The remedy for an error. A refusal says itself what to do.
fn remedy(error: &WorkerError) -> &'static str {
    match error {
        WorkerError::PeerLost { .. } => {
            "does `gannet server --listen` or a ps run there, is this its address, and do firewalls in between let the port through?"
        }
        _ => "",
    }
}

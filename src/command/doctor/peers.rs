//! Servers: greeted as a worker does it, token and TLS included.

use super::super::args::{DoctorArgs, IoArgs, IoName, TransportName};
use super::super::{Failure, security};
use super::finding::{Finding, Level};
use gannet::{Worker, WorkerConfig, WorkerError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A session with each of the server's threads, and its end, over what a worker would choose, and over tcp besides.
/// Nothing is pulled or pushed, no table is opened.
pub fn findings(peer: &str, args: &DoctorArgs) -> Result<Vec<Finding>, Failure> {
    let (chosen, first) = greet(peer, args, TransportName::Auto)?;
    let mut findings = vec![first];
    if chosen.is_some_and(|chosen| chosen != "tcp" && chosen != "tcp+tls") {
        let (over_tcp, finding) = greet(peer, args, TransportName::Tcp)?;
        findings.push(match over_tcp {
            Some(_) => finding,
            // On this host it answers.
            None => Finding::note(
                peer,
                "does not answer over tcp",
                "workers elsewhere need --transport auto or tcp there",
            ),
        });
    }
    Ok(findings)
}

/// What was used, if anything.
fn greet(
    peer: &str,
    args: &DoctorArgs,
    transport: TransportName,
) -> Result<(Option<String>, Finding), Failure> {
    let net = transport.net(IoArgs { io: IoName::Epoll });
    let secured = security::of_worker(net, &[peer.to_owned()], &args.security, &args.believing)?;
    // A name that no worker of a job has: those are small numbers.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (pusher, incarnation) = (u64::MAX - u64::from(std::process::id()), since.as_nanos() as u64);
    let mut config = WorkerConfig::new([peer], pusher, incarnation);
    config.peer_timeout = Duration::from_secs(args.peer_timeout);
    config.token = secured.token;
    let begun = Instant::now();
    Ok(match Worker::connect(secured.net, config) {
        Ok(worker) => {
            let (threads, ms) = (worker.links(), begun.elapsed().as_secs_f64() * 1e3);
            let s = if threads == 1 { "" } else { "s" };
            let over = worker.transport();
            let text = format!("answers over {over} ({threads} thread{s}, greeted in {ms:.1} ms)");
            (Some(over), Finding::ok(peer, text))
        }
        Err(error) => (None, Finding::not(peer, Level::Unreachable, error.to_string(), remedy(&error))),
    })
}

/// A refusal says itself what to do.
fn remedy(error: &WorkerError) -> &'static str {
    match error {
        WorkerError::PeerLost { .. } => {
            "does `gannet server --listen` or a ps run there, is this its address, and do firewalls in between let the port through?"
        }
        _ => "",
    }
}

//! `gannet forget`: deletes a run that nobody trains.

use super::args::ForgetArgs;
use super::report::counted;
use super::{Failure, backups, security};
use gannet::runs::Run;
use gannet::worker::{Refusal, WorkerError};
use gannet::{Transports, Worker, WorkerConfig};
use std::time::Duration;

/// Runs the command.
pub fn run(args: &ForgetArgs) -> Result<(), Failure> {
    let net = args.transport.transport.net(args.io);
    let (name, coordinator) = (args.run.as_str(), args.coordinator.as_deref());
    let mut hosts = args.ps_hosts.clone();
    if coordinator.is_some() {
        // The places of a job are in this order.
        hosts.sort();
    }
    let all: Vec<String> = hosts.iter().cloned().chain(backups::server_of(coordinator)).collect();
    let secured = security::of_worker(net, &all, &args.security, &args.tls_client)?;
    let of = |addr| {
        let net = (&secured.net, secured.token.as_ref());
        backups::places_of(addr, name, net, (&args.security, &args.tls_client))
    };
    let config = WorkerConfig {
        places: coordinator.map(of).transpose()?,
        token: secured.token,
        peer_timeout: Duration::from_secs(args.peer_timeout),
        ..WorkerConfig::reader(&hosts)
    };
    if Run::server(secured.net.clone(), &config, name)?.is_none() {
        return Err(Failure::input(unknown(name, &Run::all(secured.net, &config)?)));
    }
    // Only a process with an incarnation may drop tables.
    let incarnation = Worker::<Transports>::allocate_incarnation(secured.net.clone(), &config)?;
    let config = WorkerConfig { incarnation, ..config };
    let dropped = Run::forget(secured.net, &config, name).map_err(|error| match error {
        WorkerError::Refused { refusal: Refusal::Mismatch, text, .. } => Failure::input(text),
        error => error.into(),
    })?;
    let dropped = dropped.unwrap_or_default();
    let tables = counted(dropped.len() as u64, "table", "tables");
    say!("run {name} is forgotten: {tables} dropped");
    Ok(())
}

fn unknown(name: &str, known: &[Run]) -> String {
    let names: Vec<&str> = known.iter().map(|run| run.name.as_str()).collect();
    match names.is_empty() {
        true => format!("--run {name}: the servers know of no run"),
        false => format!("--run {name}: the servers know of no such run; they know of {}", names.join(", ")),
    }
}

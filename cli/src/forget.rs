//! `gannet forget`: deletes a run that nobody trains, or makes the servers forget clients that are gone.

use crate::failure::{Failure, PEER};
use crate::flags::ForgetArgs;
use crate::job::backups;
use crate::report::words::counted;
use crate::security;
use gannet::backups::{CoordinatorError, Places, PlacesForgotten, forget_places, place_statuses};
use gannet::runs::{Run, forget_clients, forget_run, known_runs, server_of_run};
use gannet::worker::{Refusal, WorkerError};
use gannet::{Transports, Worker, WorkerConfig};
use std::time::Duration;

/// Runs the command.
pub fn run_forget(args: &ForgetArgs) -> Result<(), Failure> {
    match &args.run {
        Some(name) => forget_one_run(args, name),
        None => forget_gone_clients(args),
    }
}

/// Makes all servers forget clients that have had no session for a minute.
fn forget_gone_clients(args: &ForgetArgs) -> Result<(), Failure> {
    let net = args.transport.transport.net(args.io);
    let secured = security::of_worker(net, &args.ps_hosts, &args.security, &args.tls_client)?;
    let config = WorkerConfig {
        token: secured.token,
        peer_timeout: Duration::from_secs(args.peer_timeout),
        ..WorkerConfig::reader(&args.ps_hosts)
    };
    let incarnation = Worker::<Transports>::allocate_incarnation(secured.net.clone(), &config)?;
    let config = WorkerConfig { incarnation, ..config };
    let (clients, pushers) = forget_clients(secured.net, &config).map_err(refused_request)?;
    let clients = counted(clients, "client that had", "clients that had");
    say!("{clients} no session for a minute: forgotten; the fullest shard still remembers {pushers} pushers");
    Ok(())
}

/// A run that is in use, or a checkpoint that is being written, is an error of the command line.
fn refused_request(error: WorkerError) -> Failure {
    match error {
        WorkerError::Refused { refusal: Refusal::Mismatch, text, .. } => Failure::input(text),
        error => error.into(),
    }
}

/// Deletes a run.
fn forget_one_run(args: &ForgetArgs, name: &str) -> Result<(), Failure> {
    let net = args.transport.transport.net(args.io);
    let coordinator = args.coordinator.as_deref();
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
    let places = coordinator.map(of).transpose()?;
    if let Some(places) = &places {
        match at_coordinator(places)? {
            Some(keys) => {
                let keys = counted(keys, "key", "keys");
                say!("run {name} is forgotten: no server of it lives, and the coordinator had {keys} of it");
                return Ok(());
            }
            None if hosts.is_empty() => hosts = owners(places)?,
            None => {}
        }
    }
    let config = WorkerConfig {
        places,
        token: secured.token,
        peer_timeout: Duration::from_secs(args.peer_timeout),
        ..WorkerConfig::reader(&hosts)
    };
    if server_of_run(secured.net.clone(), &config, name)?.is_none() {
        return Err(Failure::input(unknown(name, &known_runs(secured.net, &config)?)));
    }
    // Only a process with an incarnation may drop tables.
    let incarnation = Worker::<Transports>::allocate_incarnation(secured.net.clone(), &config)?;
    let config = WorkerConfig { incarnation, ..config };
    let dropped = forget_run(secured.net, &config, name).map_err(refused_request)?;
    let dropped = dropped.unwrap_or_default();
    let tables = counted(dropped.len() as u64, "table", "tables");
    say!("run {name} is forgotten: {tables} dropped");
    if coordinator.is_some() {
        notice!(
            "gannet: the servers of run {name} keep their places. If they had no --data-dir, the coordinator forgets these a \
             day after they have ended; the same command, given then, makes it forget them at once"
        );
    }
    Ok(())
}

/// Makes the coordinator forget a run of which no server lives. Returns how many keys it had of it. `None`: a server
/// lives.
fn at_coordinator(of: &Places) -> Result<Option<u64>, Failure> {
    match forget_places(&*of.coordinator, &of.job).map_err(silent)? {
        PlacesForgotten::Removed(keys) => Ok(Some(keys)),
        PlacesForgotten::Live(_) => Ok(None),
        PlacesForgotten::Unknown => {
            let name = &of.job;
            let text = format!(
                "--run {name}: the coordinator knows of no such run; it forgets a run whose rows were in memory a day after \
                 its servers have ended"
            );
            Err(Failure::input(text))
        }
    }
}

fn silent(error: CoordinatorError) -> Failure {
    Failure::new(PEER, format!("--coordinator: {error}"))
}

/// The server of each place.
fn owners(of: &Places) -> Result<Vec<String>, Failure> {
    let known = place_statuses(&*of.coordinator, &of.job).map_err(silent)?;
    let count = known.keys().last().map_or(0, |last| last + 1);
    let owner = |place| known.get(&place).map(|place| place.owner.clone());
    let owners: Option<Vec<String>> = (0..count).map(owner).collect();
    owners.filter(|owners| !owners.is_empty()).ok_or_else(|| {
        let name = &of.job;
        Failure::input(format!("--run {name}: its servers have not begun all places; name them: --ps-hosts"))
    })
}

fn unknown(name: &str, known: &[Run]) -> String {
    let names: Vec<&str> = known.iter().map(|run| run.name.as_str()).collect();
    match names.is_empty() {
        true => format!("--run {name}: the servers know of no run"),
        false => format!("--run {name}: the servers know of no such run; they know of {}", names.join(", ")),
    }
}

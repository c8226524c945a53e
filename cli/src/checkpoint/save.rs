//! `gannet checkpoint save`: saves the tables of running servers.

use crate::checkpoint_place::create_checkpoints;
use crate::failure::Failure;
use crate::flags::{DEFAULT_RUN, SaveArgs};
use crate::job::backups;
use crate::report::words::counted;
use crate::security;
use gannet::runs::known_runs;
use gannet::storage::{CheckpointOptions, save_checkpoint};
use gannet::{Transports, WorkerConfig};
use std::time::{Duration, Instant};

/// Runs the command.
pub fn run_save(args: &SaveArgs) -> Result<(), Failure> {
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
        let (run, net) = (args.run.as_deref().unwrap_or(DEFAULT_RUN), (&secured.net, secured.token.as_ref()));
        backups::places_of(addr, run, net, (&args.security, &args.tls_client))
    };
    let config = WorkerConfig {
        places: coordinator.map(of).transpose()?,
        token: secured.token,
        peer_timeout: Duration::from_secs_f64(timeout(args.peer_timeout)?),
        ..WorkerConfig::reader(&hosts)
    };
    let run = match &args.run {
        Some(run) => run.clone(),
        None => only_run(&secured.net, &config)?,
    };
    let directory = create_checkpoints(&args.dir)?;
    let options = CheckpointOptions {
        run,
        increment: args.increment,
        level: args.level,
        ..CheckpointOptions::default()
    };
    let from = Instant::now();
    let saved = save_checkpoint(secured.net, &config, &directory, &options)?;
    let (manifest, seconds) = (saved.manifest, from.elapsed().as_secs_f64());
    let kind = crate::checkpoint::chain::kind(&manifest);
    let (tables, rows) = (manifest.tables.len() as u64, manifest.rows());
    say!(
        "checkpoint {} ({kind}): {} of {}, {} bytes in {seconds:.2} s; pushes were held back for {:.1} ms",
        manifest.number,
        counted(rows, "row", "rows"),
        counted(tables, "table", "tables"),
        manifest.bytes(),
        saved.frozen.as_secs_f64() * 1e3
    );
    Ok(())
}

fn timeout(seconds: f64) -> Result<f64, Failure> {
    match seconds > 0.0 && seconds <= 86_400.0 {
        true => Ok(seconds),
        false => Err(Failure::input(format!("--peer-timeout {seconds}: more than 0 s and at most a day"))),
    }
}

/// The only run that the servers know. Empty: they know none, so all tables are saved.
fn only_run(net: &Transports, config: &WorkerConfig) -> Result<String, Failure> {
    let runs = known_runs(net.clone(), config)?;
    match &runs[..] {
        [] => Ok(String::new()),
        [run] => Ok(run.name.clone()),
        several => {
            let names: Vec<&str> = several.iter().map(|run| run.name.as_str()).collect();
            Err(Failure::input(format!(
                "the servers have the runs {}: choose one with --run",
                names.join(", ")
            )))
        }
    }
}

//! `gannet checkpoint save`: saves the tables of running servers.

use crate::checkpoint_place::create_checkpoints;
use crate::failure::Failure;
use crate::flags::SaveArgs;
use crate::job::servers_of_job::ServersOfJob;
use crate::report::words::counted;
use gannet::storage::{CheckpointOptions, save_checkpoint};
use std::time::{Duration, Instant};

/// Runs the command.
pub fn run_save(args: &SaveArgs) -> Result<(), Failure> {
    let servers = ServersOfJob {
        hosts: &args.ps_hosts,
        coordinator: args.coordinator.as_deref(),
        run: args.run.as_deref(),
        transport: args.transport,
        io: args.io,
        security: (&args.security, &args.tls_client),
        peer_timeout: Duration::from_secs_f64(timeout(args.peer_timeout)?),
    };
    let (net, config) = servers.reader()?;
    let run = servers.run(&net, &config)?;
    let directory = create_checkpoints(&args.dir)?;
    let options = CheckpointOptions {
        run,
        increment: args.increment,
        level: args.level,
        ..CheckpointOptions::default()
    };
    let from = Instant::now();
    let saved = save_checkpoint(net, &config, &directory, &options)?;
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

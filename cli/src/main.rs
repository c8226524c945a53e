//! The `gannet` command: parses the command line, sets up logs, and ends with a documented exit code. Each subcommand
//! turns its arguments into calls of the library, and prints the results.
#![forbid(unsafe_code)]

/// Prints a line on standard output. A closed standard output (`| head`) is ignored, so this does not panic.
macro_rules! say {
    ($($line:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($line)*);
    }};
}

/// Prints a line on standard error, as JSON with `--log-json`.
macro_rules! notice {
    ($($line:tt)*) => {
        $crate::log::notice(format_args!($($line)*))
    };
}

mod bench;
mod checkpoint;
mod checkpoint_place;
mod doctor;
mod export;
mod failure;
mod features;
mod flags;
mod forget;
mod input;
mod inspect;
mod job;
mod launch;
mod launched;
mod log;
mod metrics;
mod model;
mod predict;
mod report;
mod runs;
mod security;
mod serve;
mod server;
mod signals;
mod status;
mod train;
mod tune;

use failure::Failure;
use flags::{Cli, Command};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::read().unwrap_or_else(|error| log::misused(&error));
    match log::start(&cli.log).and_then(|()| run_command(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            log::fail(&failure);
            ExitCode::from(failure.code)
        }
    }
}

/// Runs a command.
///
/// # Errors
/// The error, with the exit code.
fn run_command(cli: Cli) -> Result<(), Failure> {
    signals::report_full_files()?;
    match cli.command {
        Command::Train(args) => train::run_train(*args),
        Command::Launch(args) => launch::run_launch(&args),
        Command::ClaimPorts(args) => launch::addresses::claim_ports(&args),
        Command::Server(args) => server::run_server(&args),
        Command::Scheduler(args) => server::schedule(&args),
        Command::Status(args) => status::run_status(&args),
        Command::Forget(args) => forget::run_forget(&args),
        Command::Predict(args) => predict::run_predict(&args),
        Command::Serve(args) => serve::run_serve(&args),
        Command::Tune(args) => tune::run_tune(&args),
        Command::Inspect(args) => inspect::run_inspect(&args),
        Command::Export(args) => export::run_export(&args),
        Command::Checkpoint(args) => checkpoint::run_checkpoint(&args),
        Command::Doctor(args) => doctor::run_doctor(&args),
        Command::Bench(args) => bench::run_bench(&args, &cli.log),
    }
}

//! The commands: each turns its arguments into calls of the library and prints what came of it.

pub mod args;
mod bench;
mod caching;
mod doctor;
mod failure;
mod fed;
mod feeding;
mod growing;
mod input;
mod job;
mod keeping;
mod kept;
mod lbfgs;
pub mod log;
mod look;
mod metrics;
mod model;
mod models;
mod optimizer;
mod predict;
mod report;
mod runs;
mod security;
mod server;
mod settings;
mod signals;
mod status;
mod tasks;
mod train;
mod warm;
mod watching;

pub use failure::Failure;

/// Runs a command.
///
/// # Errors
/// What went wrong, with the exit code.
pub fn run(cli: args::Cli) -> Result<(), Failure> {
    match cli.command {
        args::Command::Train(args) => train::run(*args),
        args::Command::Server(args) => server::run(&args),
        args::Command::Scheduler(args) => server::schedule(&args),
        args::Command::Status(args) => status::run(&args),
        args::Command::Predict(args) => predict::run(&args),
        args::Command::Doctor(args) => doctor::run(&args),
        args::Command::Bench(args) => bench::run(&args, &cli.log),
    }
}

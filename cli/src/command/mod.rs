//! The commands. Each turns its arguments into calls of the library, and prints the results.

pub mod args;
mod awaited_worker;
mod backups;
mod bench;
mod bench_growth;
mod bench_small;
mod cache_flags;
mod checkpoint;
mod checkpoint_place;
mod checkpoint_saver;
mod data_server;
mod doctor;
mod failure;
mod features;
mod fixed_share;
mod forget;
mod image_check;
mod input;
mod input_check;
mod job;
mod job_end;
mod launch;
mod launched;
mod lbfgs;
pub mod log;
mod lr_worker;
mod metrics;
mod model;
mod models;
mod optimizer;
mod out_folder;
mod predict;
mod remote_worker;
mod report;
mod restore;
mod row_state;
mod row_type_flag;
mod runs;
mod saved_model;
mod security;
mod server;
mod settings;
mod signals;
mod status;
mod sync_flags;
mod tasks;
mod train;
mod validation;
mod warm_source;
mod warm_start;
mod wire_flag;

pub use failure::Failure;

/// Runs a command.
///
/// # Errors
/// The error, with the exit code.
pub fn run(cli: args::Cli) -> Result<(), Failure> {
    signals::report_full_files()?;
    match cli.command {
        args::Command::Train(args) => train::run(*args),
        args::Command::Launch(args) => launch::run(&args),
        args::Command::ClaimPorts(args) => launch::claim_ports(&args),
        args::Command::Server(args) => server::run(&args),
        args::Command::Scheduler(args) => server::schedule(&args),
        args::Command::Status(args) => status::run(&args),
        args::Command::Forget(args) => forget::run(&args),
        args::Command::Predict(args) => predict::run(&args),
        args::Command::Checkpoint(args) => checkpoint::run(&args),
        args::Command::Doctor(args) => doctor::run(&args),
        args::Command::Bench(args) => bench::run(&args, &cli.log),
    }
}

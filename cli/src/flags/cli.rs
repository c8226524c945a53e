//! The command line: all commands.

use crate::features;
use crate::flags::bench::BenchArgs;
use crate::flags::checkpoints::CheckpointArgs;
use crate::flags::doctor::DoctorArgs;
use crate::flags::job::TypedFlags;
use crate::flags::launch::{ClaimPortsArgs, LaunchArgs};
use crate::flags::log::LogArgs;
use crate::flags::scores::{InspectArgs, ModelExportArgs, PredictArgs};
use crate::flags::serve::ServeArgs;
use crate::flags::server::{SchedulerArgs, ServerArgs};
use crate::flags::status::{ForgetArgs, StatusArgs};
use crate::flags::training::TrainArgs;
use crate::flags::tune::TuneArgs;
use crate::flags::words::short_help::spelled;
use crate::flags::words::{environment, foreign, numbers, short_help};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;

/// A parameter server for sparse models. Servers keep hash-partitioned tables in memory-mapped shards, and run the
/// optimizer.
#[derive(Parser, Debug)]
#[command(name = "gannet", version = features::version(), max_term_width = 110)]
#[command(
    after_help = "Exit codes: 0 done; 1 an error of the system (disk, memory); 2 bad input or a bad flag; \
3 a peer could not be reached or stalled; 130 stopped by Ctrl-C.\nResults go to standard output. Logs, progress and \
warnings go to standard error."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// What is logged.
    #[command(flatten)]
    pub log: LogArgs,
}

impl Cli {
    /// Reads the command line of this process.
    ///
    /// # Errors
    /// It cannot be read, or asks for help.
    pub fn read() -> Result<Cli, clap::Error> {
        let words = spelled(std::env::args_os());
        let words = environment::with_job(words, |name| std::env::var(name).ok())
            .map_err(|why| clap::Error::raw(clap::error::ErrorKind::ValueValidation, format!("{why}\n")))?;
        Cli::of(words)
    }

    /// Reads these words. The first one is the program.
    ///
    /// # Errors
    /// They cannot be read, or ask for help.
    pub fn of(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
        let mut command = short_help::arranged(Cli::command());
        let arguments = short_help::spelled(arguments.into_iter());
        let words: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let matches = command.try_get_matches_from_mut(arguments);
        let read = matches.and_then(|matches| {
            let mut cli = Cli::from_arg_matches(&matches)?;
            let train = command.find_subcommand("train").zip(matches.subcommand_matches("train"));
            if let (Command::Train(args), Some((train, typed))) = (&mut cli.command, train) {
                args.job.typed = TypedFlags::of(train, typed);
            }
            Ok(cli)
        });
        read.map_err(|error| {
            numbers::explained(foreign::explained(error.with_cmd(&command), &mut command, &words))
        })
    }
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Train a model, in this process or as one process of a job.
    Train(Box<TrainArgs>),
    /// Run a whole job, on this machine or on several: start its servers and workers, watch them, and print one report.
    Launch(LaunchArgs),
    /// Print free ports and claim them until standard input ends: what `gannet launch --hosts` runs on each host.
    #[command(hide = true)]
    ClaimPorts(ClaimPortsArgs),
    /// Serve tables until stopped.
    Server(ServerArgs),
    /// Track a job's workers and hand out its data, without tables.
    Scheduler(SchedulerArgs),
    /// Show the progress of a job, its workers, and who waits for whom.
    Status(StatusArgs),
    /// Delete a run that nobody trains: its rows, its job, and its name at the servers.
    Forget(ForgetArgs),
    /// Score examples with a trained model.
    Predict(PredictArgs),
    /// Answer requests for predictions over HTTP, with trained models.
    Serve(ServeArgs),
    /// Look for good settings of a training: try some side by side, on one reading of its data.
    Tune(TuneArgs),
    /// Show what a trained model has learned: its largest weights by name, and those of each field.
    Inspect(InspectArgs),
    /// Write a trained model as a file that other programs serve: ONNX.
    Export(ModelExportArgs),
    /// Save, list, check, compare, restore, export and prune the checkpoints of a job.
    Checkpoint(CheckpointArgs),
    /// Measure this machine's limit, and the server beside it.
    Bench(BenchArgs),
    /// Check what this machine supports, and say what to do about problems.
    Doctor(DoctorArgs),
}

//! The flags of `gannet serve` for learning from requests.

use crate::flags::serve::seconds;
use crate::flags::words::numbers::size;
use bytesize::ByteSize;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// How a process that serves learns.
#[derive(Args, Debug)]
#[command(next_help_heading = "Learning")]
pub struct LearnArgs {
    /// Learn the examples that POST /v1/learn brings, for the first model. DIR keeps them: examples/ is a folder that
    /// grows (train --follow), and journal/ has the ids that have come.
    #[arg(long, value_name = "DIR")]
    pub learn: Option<PathBuf>,
    /// The servers of the job that trains DIR/examples. They say what is learned. Without this flag the command runs
    /// the job itself, from the model of --model: its rows are in DIR/rows, and its checkpoints, which are served from
    /// then on, in DIR/checkpoints.
    #[arg(long, value_name = "HOST:PORT,..", value_delimiter = ',', requires = "learn")]
    pub job: Vec<String>,
    /// The run of that job.
    #[arg(long, value_name = "NAME", default_value = "default", requires = "learn")]
    pub job_run: String,
    /// How many ids are known: an example whose id is among the last N that came is not learned again.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000), requires = "learn")]
    pub id_window: u64,
    /// The most bytes of examples that wait to be learned. A further one gets status 503.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size, requires = "learn")]
    pub learn_bytes: ByteSize,
    /// Keep the features of a prediction with an id (X-Request-Id) for so long, so that its label can come later.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, requires = "learn")]
    pub join_window: Option<f64>,
    /// The most bytes of these features. Beyond it the oldest go first.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size, requires = "join_window")]
    pub join_bytes: ByteSize,
    /// Without --job: flags of `gannet train` for the training, such as --alpha 0.05.
    #[arg(last = true, value_name = "FLAGS OF TRAIN", requires = "learn", conflicts_with = "job")]
    pub train: Vec<OsString>,
}

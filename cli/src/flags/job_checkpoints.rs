//! `--checkpoint` and its companions.

use clap::Args;
use std::path::PathBuf;

/// The checkpoints of a job.
#[derive(Args, Debug)]
pub struct JobCheckpointArgs {
    /// Checkpoints of the whole job in this folder or bucket (s3://BUCKET/PATH, gs://, az://), which every process of
    /// the job must reach. Worker 0 saves them while the job trains. A ps without rows begins with the newest valid
    /// one. A directory with checkpoints of another run is refused.
    #[arg(long, value_name = "DIR|URL")]
    pub checkpoint: Option<PathBuf>,
    /// Seconds between two checkpoints.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, requires = "checkpoint",
        value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub checkpoint_secs: u64,
    /// Keep this many checkpoints, and those that they need.
    #[arg(long, value_name = "N", default_value_t = 3, requires = "checkpoint",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub checkpoint_keep: u32,
}

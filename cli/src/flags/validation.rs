//! `--validate-every` and `--save-secs`.

use clap::Args;

/// What the chief of a job does while the model is trained. It is worker 0, or with --tasks on the worker that the
/// scheduler has chosen.
#[derive(Args, Debug)]
pub struct WatchArgs {
    /// Every N steps score the data of --test. Prints the step, the loss since the last validation, and the quality;
    /// with --json they are part of the report. A step is a batch of this worker; for a client, of any worker.
    #[arg(long, value_name = "N", requires = "test", value_parser = clap::value_parser!(u64).range(1..))]
    pub validate_every: Option<u64>,
    /// Save the model to --out every SECONDS.
    #[arg(long, value_name = "SECONDS", requires = "out", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub save_secs: Option<u64>,
}

//! What is done now and then while a model is trained.

use clap::Args;

/// Now and then, and by the chief of a job: worker 0, or with --tasks on whom the scheduler has for it.
#[derive(Args, Debug)]
pub struct WatchArgs {
    /// Every N steps (batches of this worker; of a client of all workers) score the data of --test, and print the step, the loss of the examples since then and
    /// what the model is worth; with --json all of it is in the report.
    #[arg(long, value_name = "N", requires = "test", value_parser = clap::value_parser!(u64).range(1..))]
    pub validate_every: Option<u64>,
    /// Every so many seconds save the model so far in --out.
    #[arg(long, value_name = "SECONDS", requires = "out", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub save_secs: Option<u64>,
}

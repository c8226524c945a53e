//! In-graph: one client has the data and feeds it to the workers.

use clap::Args;

/// Who feeds a job.
#[derive(Args, Debug, Clone)]
pub struct FeedingArgs {
    /// Job whose data one process has (--job-name client) and feeds to workers without DATA: where the client listens, the same for it
    /// and for its workers.
    #[arg(long, value_name = "HOST:PORT", requires = "job_name")]
    pub feed: Option<String>,
}

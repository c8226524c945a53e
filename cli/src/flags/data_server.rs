//! `--feed`: one process has the data and sends it to the workers (in-graph replication).

use clap::Args;

/// Where the data of a job comes from.
#[derive(Args, Debug, Clone)]
pub struct FeedingArgs {
    /// Job: address of the client (--job-name client), which reads DATA and sends it to the workers. The client listens
    /// there. Its workers get the same flag and no DATA.
    #[arg(long, value_name = "HOST:PORT", requires = "job_name")]
    pub feed: Option<String>,
}

//! How a job's table is cut.

use clap::Args;

/// The table.
#[derive(Args, Debug, Clone)]
pub struct TableArgs {
    /// Job: shards of the table, a power of two up to 4096; each is owned by one server thread, so that more threads than
    /// shards have nothing to do. Default: 64. The same for all workers, and for good.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub shards: Option<u32>,
}

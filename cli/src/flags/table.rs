//! `--shards`: how many shards the table has.

use clap::Args;

/// The shards of the table.
#[derive(Args, Debug, Clone)]
pub struct TableArgs {
    /// Job: shards of the table, a power of two up to 4096. One server thread owns each shard, so threads beyond that
    /// number are idle. All workers need the same value, and it cannot be changed later. Default, and meaning of 64: as
    /// many as the threads of the servers use evenly, at most 64.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub shards: Option<u32>,
}

//! The worker's row cache: `--cache-bytes`, `--cache-use`, `--cache-staleness`, `--sync-rows`, `--active-pull`.

use crate::flags::memory::size;
use bytesize::ByteSize;
use clap::{Args, ValueEnum};
use gannet::sync::Staleness;
use std::time::Duration;

/// What `--sync-rows` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncRowsName {
    /// The server sends the whole row.
    Full,
    /// The server sends the row only if it has changed.
    Incremental,
}

/// What `--cache-use` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheUseName {
    /// While it costs less time than requests. The worker measures both from time to time.
    Auto,
    /// Always: where bytes are scarcer than time.
    Always,
}

/// The cache of a worker.
#[derive(Args, Debug, Clone, Copy)]
pub struct CacheArgs {
    /// Cache rows in the worker, up to this size, instead of pulling them each time. 0 means no cache. The cache keeps
    /// the rows that are pulled often [default: 0]
    #[arg(long, value_name = "SIZE", value_parser = size_or_none)]
    pub cache_bytes: Option<ByteSize>,
    /// When pulls go through the cache [default: auto]
    #[arg(long, value_enum, value_name = "WHEN")]
    pub cache_use: Option<CacheUseName>,
    /// How long a cached row may be used: a number of this worker's batches (8), or a time (250ms, 2s). The bound of
    /// --sync ssp:N holds as well [default: 8]
    #[arg(long, value_name = "BATCHES|TIME", value_parser = staleness)]
    pub cache_staleness: Option<Staleness>,
    /// How a cached row that is too old is pulled again: whole, or only if it has changed [default: incremental]
    #[arg(long, value_enum, value_name = "HOW")]
    pub sync_rows: Option<SyncRowsName>,
    /// Servers send changes of cached rows that were used again, every MS milliseconds, without a request.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub active_pull: Option<u32>,
}

fn size_or_none(text: &str) -> Result<ByteSize, String> {
    if text == "0" { Ok(ByteSize(0)) } else { size(text) }
}

fn staleness(text: &str) -> Result<Staleness, String> {
    let time = |number: &str, unit: u64| {
        let number = number.parse::<u64>().ok()?.checked_mul(unit)?;
        (number <= 86_400_000).then_some(Staleness::Time(Duration::from_millis(number)))
    };
    let read = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => time(number, 1),
        (_, Some(number)) => time(number, 1000),
        _ => text.parse().ok().map(Staleness::Pulls),
    };
    read.ok_or_else(|| "batches (8) or a time up to a day (250ms, 2s)".into())
}

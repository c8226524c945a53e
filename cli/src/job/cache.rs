//! Turns the flags of the cache into its configuration, and refuses flags that they cannot be combined with.

use crate::failure::Failure;
use crate::flags::{CacheUseName, JobArgs, SyncRowsName};
use gannet::Schema;
use gannet::sync::{Staleness, SyncMode};
use gannet::table::Admission;
use gannet::train::PushContent;
use gannet::worker::{CACHE_BYTES_MIN, CacheConfig, CacheUse};
use std::time::Duration;

/// Batches for which a cached row may be used. docs/benchmarks.md compares other values.
const STALENESS: u64 = 8;

/// The cache that the flags request.
fn config(job: &JobArgs) -> Result<Option<CacheConfig>, Failure> {
    let args = &job.cache;
    let bytes = args.cache_bytes.map_or(0, |bytes| bytes.as_u64());
    if bytes == 0 {
        return Ok(None);
    }
    if bytes < CACHE_BYTES_MIN {
        let text = format!("--cache-bytes {bytes}: at least {CACHE_BYTES_MIN} bytes are needed");
        return Err(Failure::input(text));
    }
    let staleness = args.cache_staleness.unwrap_or(Staleness::Pulls(STALENESS));
    let when = match args.cache_use {
        Some(CacheUseName::Always) => CacheUse::Always,
        Some(CacheUseName::Auto) | None => CacheUse::Auto,
    };
    let incremental = args.sync_rows != Some(SyncRowsName::Full);
    let active = args.active_pull.map(|ms| Duration::from_millis(ms.into()));
    Ok(Some(CacheConfig { bytes, when, staleness, incremental, active }))
}

/// The cache of a worker that trains, which pushes to the rows that it has pulled.
pub fn of_training(
    job: &JobArgs,
    schema: &Schema,
    push: PushContent,
    mode: SyncMode,
) -> Result<Option<CacheConfig>, Failure> {
    let Some(config) = config(job)? else { return Ok(None) };
    let refused = |why: &str| Err(Failure::input(format!("--cache-bytes cannot be combined with {why}")));
    if job.sync.deterministic {
        return refused("--deterministic: a step must read the rows of the step before; leave one out");
    }
    if matches!(mode, SyncMode::Bsp(_)) {
        return refused(
            "--sync bsp: a step must read the rows of the step before; --sync ssp:N uses a cache within its bound",
        );
    }
    if push == PushContent::Gradient {
        return refused(
            "pushes of gradients (--push): only the servers know the new row, so the worker cannot cache it",
        );
    }
    if schema.admission != Admission::All {
        return refused(
            "--admit-count or --admit-probability: only the servers know whether a push creates its row",
        );
    }
    Ok(Some(config))
}

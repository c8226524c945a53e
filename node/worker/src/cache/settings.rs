//! How rows are cached.

use std::time::Duration;

/// How long a cached row may be used. [`CacheConfig`] has an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Staleness {
    /// For so many pulls after the one that read it. The pulls of all workers that share the cache count.
    Pulls(u64),
    /// For so long after the pull that read it began.
    Time(Duration),
}

/// When pulls go through a cache of rows. [`CacheConfig`] has an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheUse {
    /// While it costs less time than requests for all rows. The worker measures both from time to time. A cache that
    /// several workers share, or whose rows servers keep fresh, is always used.
    Auto,
    /// Always: where bytes are scarcer than time.
    Always,
}

/// How rows are cached.
///
/// ```
/// use gannet_core::{Read, Schema};
/// use gannet_worker::{CacheConfig, CacheUse, RowCache, Staleness};
/// use gannet_optim::{Add, Rule};
///
/// // At most 64 MiB. A cached row answers the 8 pulls after the one that read it.
/// let staleness = Staleness::Pulls(8);
/// let (when, active) = (CacheUse::Always, None);
/// let config = CacheConfig { bytes: 64 << 20, when, staleness, incremental: true, active };
/// let cache = RowCache::new(&Schema::scalar("clicks", Rule::Add(Add)), Read::Weights, config)?;
/// assert!(cache.rows() == 0 && cache.rows_max() > 300_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct CacheConfig {
    /// Bytes that the cache may take, including the map and the counts of frequency.
    pub bytes: u64,
    /// When pulls go through the cache.
    pub when: CacheUse,
    /// How long a row may be used.
    pub staleness: Staleness,
    /// The request for a row that is too old names the cached version, and the row comes only if it has changed.
    /// Otherwise the row always comes whole.
    pub incremental: bool,
    /// If set: how often servers send the changes of rows that were used again.
    pub active: Option<Duration>,
}

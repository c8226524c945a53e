//! The rows of a part of a pull that the cache did not have.

use crate::cache::rows::{CacheReader, RowCache};
use gannet_core::{CachedVersion, NewerRow};
use gannet_wire::frames::pull_newer::{CachedRows, bit};
use std::sync::Arc;

/// The rows of a part of a pull that are requested because the cache does not have them.
#[derive(Debug)]
pub(crate) struct CacheMisses {
    pub(crate) cached: CachedRows,
    pub(crate) rows: Arc<RowCache>,
    pub(crate) reader: CacheReader,
    /// For each requested key the cached version, and whether the answer goes into the cache.
    pub(crate) versions: Vec<CachedVersion>,
    pub(crate) fills: Vec<u64>,
}

/// What a server says of the requested rows.
pub(crate) struct NewerAnswer<'a> {
    pub(crate) newer: &'a [NewerRow],
    /// The snapshot version of the answer.
    pub(crate) version: u64,
    /// The lowest step of the workers, if they keep step.
    pub(crate) lowest: Option<u64>,
}

impl CacheMisses {
    /// Stores an answer in the cache: what it says of each of `keys`, whose rows are now at `places` of `values`.
    pub(crate) fn fill(&self, keys: &[u64], places: &[u32], values: &[f32], answer: &NewerAnswer<'_>) {
        let &NewerAnswer { newer, version, lowest } = answer;
        let floats = self.rows.floats;
        for (i, ((&key, &place), newer)) in keys.iter().zip(places).zip(newer).enumerate() {
            if bit(&self.fills, i) {
                let held = match (newer, self.versions[i]) {
                    (NewerRow::NoRow, _) | (NewerRow::Same, CachedVersion::NoRow) => CachedVersion::NoRow,
                    _ => CachedVersion::Row(version),
                };
                let row = &values[place as usize * floats..][..floats];
                self.rows.fill(key, &self.reader, row, held, lowest);
            }
        }
    }
}

//! Rows that die, in slices between requests.

use crate::limits::CUT_SAVED_BYTES_MAX;
use crate::requests::cuts::slices::saved_bytes;
use crate::server_tables::ServerTables;
use gannet_core::CutReader;
use std::time::Duration;

/// Evicts some rows of each table in which rows may die. Returns whether there is more to do at once.
///
/// Only an owner evicts, and only while its lease lasts. It waits while backups are far behind, and while a checkpoint
/// keeps many old rows, as pushes do. Copies decide nothing: they replay the deletions.
pub(crate) fn evict_rows(tables: &mut ServerTables, now: Duration) -> bool {
    if !tables.all.iter().any(|table| table.evictor.is_some()) {
        return false;
    }
    let is_silent = tables.standing.as_ref().is_some_and(|standing| standing.is_silent(now));
    if is_silent || tables.backups.replication.as_mut().is_some_and(|replication| replication.is_full()) {
        return false;
    }
    if saved_bytes(&tables.all, CutReader::Checkpoint) > CUT_SAVED_BYTES_MAX / 2 {
        return false;
    }
    let mut more = false;
    for table in tables.all.iter_mut().filter(|table| !table.keeps_pushes()) {
        let Some((evictor, shards)) = table.evictor.as_mut().zip(table.shards.as_mut()) else { continue };
        let evicted = evictor.slice(shards, now);
        table.counters.count_evicted(&evicted);
        more |= evicted.more;
    }
    more
}

//! One thread's part of a restore: it opens its shards of each table and loads their rows.

use crate::peers::outcome::RequestFailure;
use crate::restore::error::RestoreError;
use crate::restore::plan::RestorePlan;
use crate::server_tables::ServerTables;
use crate::steps::step_files;
use crate::tables::identities::IdentityClaim;
use gannet_core::{
    CLIENTS, Cursor, DATA_PUSHERS, RowBlock, SavedRowFile, ShardSet, Shards, TableCut, TableIdentity,
};
use gannet_wire::refusal::Refusal;
use gannet_wire::share_pushers::AGGREGATE;
use std::ops::Range;

/// The shards of a table of `saved` shards that hold keys of these shards of a table of `shards` shards. Both numbers
/// are powers of two: a shard is a range of hashes.
pub(crate) fn saved_shards(own: &ShardSet, shards: u32, saved: u32) -> ShardSet {
    let at = |shard: u32| u64::from(shard) * u64::from(saved);
    let of_run = |run: Range<u32>| {
        let (from, to) = (at(run.start) / u64::from(shards), at(run.end).div_ceil(u64::from(shards)));
        from as u32..to as u32
    };
    ShardSet::of(own.runs().into_iter().flat_map(of_run))
}

/// Opens the shards of this thread of every table of the plan, and loads them. Returns the number of their rows.
pub(crate) fn restore_tables(tables: &mut ServerTables, plan: &RestorePlan) -> Result<u64, RestoreError> {
    let mut rows = 0;
    for saved in plan.tables() {
        let schema = plan.schema(saved);
        let table = schema.name.clone();
        let identity = TableIdentity { uid: plan.uid(saved), server: plan.server, servers: plan.servers };
        let claim = IdentityClaim { identity, make_in: tables.home.identities.incarnation() };
        let failed = |why: String| RestoreError::Table { table: table.clone(), why, system: false };
        let number = tables.open(schema, claim).map_err(|failure| not_opened(&table, failure))?;
        let store = tables.home.identities.store_of(identity);
        let opened = &mut tables.all[number];
        let Some(shards) = &mut opened.shards else { continue };
        load_rows(plan, saved, shards)?;
        set_cursors(saved, shards).map_err(|error| failed(error.to_string()))?;
        opened.recovered = step_files::finish(&store, shards, AGGREGATE).map_err(failed)?;
        rows += shards.stats().rows;
    }
    tables.publish();
    Ok(rows)
}

/// The error for a table that cannot be opened.
fn not_opened(table: &str, failure: RequestFailure) -> RestoreError {
    let (why, system) = match failure {
        RequestFailure::Refused(refusal, why) => (why, matches!(refusal, Refusal::Images | Refusal::NoSpace)),
        RequestFailure::Full | RequestFailure::Parked(_) => ("it cannot be opened".into(), true),
    };
    RestoreError::Table { table: table.to_owned(), why, system }
}

/// Opens the shards of this thread of every table in the data folder. They have another history from now on.
/// Returns the number of their rows.
pub(crate) fn open_folder(tables: &mut ServerTables, epoch: u64) -> Result<u64, RestoreError> {
    let (store, mut rows) = (tables.store().clone(), 0);
    for table in store.tables() {
        let (Some(held), Some(schema)) = (store.held(&table)?, store.held_schema(&table)?) else {
            continue;
        };
        let claim = IdentityClaim { identity: held.identity, make_in: tables.home.identities.incarnation() };
        let number = tables.open(schema, claim).map_err(|failure| not_opened(&table, failure))?;
        if let Some(shards) = &mut tables.all[number].shards {
            shards.begin_epoch(epoch);
            rows += shards.stats().rows;
        }
    }
    tables.publish();
    Ok(rows)
}

/// Notes in every image that the restore has come to its end.
pub(crate) fn confirm_restored(tables: &ServerTables) {
    for table in tables.all.iter() {
        if let Some(shards) = &table.shards {
            shards.confirm();
        }
        tables.home.identities.confirm(&table.schema.name, table.identity());
    }
}

/// Loads the rows and the admission sketches of these shards.
fn load_rows(plan: &RestorePlan, saved: &TableCut, shards: &mut Shards) -> Result<(), RestoreError> {
    let (own, count) = (shards.set().clone(), shards.schema().shards);
    for from in saved_shards(&own, count, saved.schema.shards).iter() {
        let mut sketch = None;
        for file in plan.directory.shard_files(&plan.chain, &saved.schema.name, from) {
            load_file(&file, shards, &mut sketch)?;
        }
        let Some(sketch) = sketch else { continue };
        for shard in saved_shards(&ShardSet::of([from]), saved.schema.shards, count).iter() {
            shards.merge_sketch(shard, &sketch);
        }
    }
    Ok(())
}

/// Loads a row file: first its deletions, then its rows. Keeps its admission sketch, if it has one.
fn load_file(
    file: &SavedRowFile,
    shards: &mut Shards,
    sketch: &mut Option<Vec<u8>>,
) -> Result<(), RestoreError> {
    let mut left = file.entry.deletions;
    let mut reader = file.open()?;
    while left > 0
        && let Some(block) = reader.next()?
    {
        if let RowBlock::Deletions { keys } = block {
            shards.restore_deletions(keys);
            left = left.saturating_sub(keys.len() as u64);
        }
    }
    let mut reader = file.open()?;
    while let Some(block) = reader.next()? {
        match block {
            RowBlock::Rows { keys, floats } => {
                let restored = shards.restore_rows(keys, floats);
                restored.map_err(|source| RestoreError::Rows { file: file.path.clone(), source })?;
            }
            RowBlock::Deletions { .. } => {}
            RowBlock::Sketch(bytes) => *sketch = Some(bytes.to_vec()),
        }
    }
    Ok(())
}

/// Records the last push of every pusher. Splits of data that are closed come first: their entries may be used again.
/// Clients that are forgotten need no entry.
fn set_cursors(saved: &TableCut, shards: &mut Shards) -> Result<(), gannet_core::PushError> {
    let reusable = |cursor: &&Cursor| cursor.closed && cursor.pusher >= DATA_PUSHERS;
    let forgotten = saved.cursors.iter().find(|cursor| cursor.pusher == CLIENTS);
    let forgotten = forgotten.map_or(0, |cursor| cursor.incarnation);
    let cursors = saved.cursors.iter().filter(|cursor| !cursor.is_forgotten(forgotten));
    let (closed, open): (Vec<&Cursor>, Vec<&Cursor>) = cursors.partition(reusable);
    closed.into_iter().chain(open).try_for_each(|cursor| shards.set_cursor(cursor))
}

#[cfg(test)]
mod tests {
    use super::saved_shards;
    use gannet_core::ShardSet;
    use std::ops::Range;

    #[test]
    fn a_set_of_shards_names_the_saved_shards_with_its_keys() {
        let of = |own: Range<u32>, shards, saved| saved_shards(&own.into(), shards, saved);
        assert_eq!(of(0..4, 4, 4), (0..4).into());
        assert_eq!(of(1..3, 4, 16), (4..12).into());
        assert_eq!(of(5..7, 8, 2), (1..2).into());
        assert_eq!(of(3..5, 8, 2), (0..2).into());
        assert_eq!(of(0..1, 1, 4096), (0..4096).into());
        assert_eq!(of(4095..4096, 4096, 1), (0..1).into());
        assert_eq!(saved_shards(&ShardSet::of([0, 3, 5]), 8, 4).numbers(), [0, 1, 2]);
        for (shards, saved) in [(8, 2), (2, 8), (4, 4)] {
            for key in 0..500 {
                let of = |shards| gannet_core::shard_of(gannet_core::hash(key), shards);
                let own = of(shards);
                assert!(saved_shards(&ShardSet::of([own]), shards, saved).contains(of(saved)));
            }
        }
    }
}

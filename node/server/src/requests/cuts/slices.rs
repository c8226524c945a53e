//! Reads the rows of a cut in slices between requests, and gives them to the writer.

use crate::counters::cut::CutCounters;
use crate::cuts::state::{CutTurn, Writing};
use crate::cuts::writer::{CutBlock, WriterState};
use crate::limits::CUT_SAVED_BYTES_MAX;
use crate::server_tables::ServerTables;
use crate::tables::table_list::TableList;
use gannet_core::{CutProgress, CutReader};
use std::time::Duration;

/// Writes a slice of the cut. `clock` says what time it is.
pub(crate) fn write_cut(tables: &mut ServerTables, clock: impl Fn() -> Duration) -> CutTurn {
    let counters = &tables.counters.threads[tables.home.thread as usize].cuts;
    let Some(writing) = tables.checkpoints.cuts.writing() else { return CutTurn::Idle };
    let from = clock();
    let saved = |tables: &TableList| saved_bytes(tables, CutReader::Checkpoint);
    let before = saved(&tables.all);
    let turn = next_slice(writing, &mut tables.all, before > CUT_SAVED_BYTES_MAX / 2, counters);
    counters.saved_bytes.set(saved(&tables.all) as u64);
    if turn != CutTurn::Idle {
        counters.slices.observe(clock().saturating_sub(from), 1);
    }
    tables.waits.group_changed |= before > CUT_SAVED_BYTES_MAX;
    turn
}

/// Bytes of all tables that are saved for a reader.
pub(crate) fn saved_bytes(tables: &TableList, reader: CutReader) -> usize {
    tables.iter().filter_map(|table| table.shards.as_ref()).map(|shards| shards.saved_bytes(reader)).sum()
}

/// Ends the cuts of a reader in all tables.
pub(crate) fn end_cuts_of(tables: &mut TableList, reader: CutReader) {
    tables.iter_mut().filter_map(|table| table.shards.as_mut()).for_each(|shards| shards.end_cut(reader));
}

/// Reads a slice of the first shard, or of all shards with saved rows, and gives it to the writer.
fn next_slice(writing: &mut Writing, tables: &mut TableList, saved: bool, counters: &CutCounters) -> CutTurn {
    writing.writer.look();
    if let Some(block) = writing.waiting.take()
        && let Err(block) = writing.writer.put(block)
    {
        writing.waiting = Some(block);
        return CutTurn::Behind;
    }
    if !matches!(writing.writer.state(), WriterState::Writing { .. }) {
        writing.left.clear();
        end_cuts_of(tables, CutReader::Checkpoint);
        return CutTurn::Idle;
    }
    if saved {
        for place in (0..writing.left.len()).rev() {
            if read_slice(writing, tables, place, 0, counters) == CutTurn::Behind {
                return CutTurn::Behind;
            }
        }
    }
    match writing.left.len() {
        // A server without threads comes back for the next block.
        0 if writing.writer.has_turns() => CutTurn::Behind,
        0 => CutTurn::Idle,
        _ => read_slice(writing, tables, 0, writing.writer.slice_bytes(), counters),
    }
}

/// Reads about so many bytes of one of the shards that are left, and all its saved rows.
fn read_slice(
    writing: &mut Writing,
    tables: &mut TableList,
    place: usize,
    bytes: usize,
    counters: &CutCounters,
) -> CutTurn {
    let (file, floats) = writing.left[place];
    let Some(shards) = tables.get_mut(file.table as usize).and_then(|table| table.shards.as_mut()) else {
        writing.writer.fail("a table was dropped while it was written".into());
        return CutTurn::Idle;
    };
    let (mut keys, mut rows) = (Vec::new(), Vec::new());
    let most = bytes / (8 + 4 * floats as usize);
    let progress = shards.read_cut(CutReader::Checkpoint, file.shard, most, |block_keys, block_rows| {
        keys.extend_from_slice(block_keys);
        rows.extend_from_slice(block_rows);
    });
    counters.rows.add(keys.len() as u64);
    counters.bytes.add((keys.len() * 8 + rows.len() * 4) as u64);
    let end = progress == CutProgress::End;
    if end {
        writing.left.swap_remove(place);
    }
    if keys.is_empty() && !end {
        return CutTurn::More;
    }
    match writing.writer.put(CutBlock { file, keys, rows, end }) {
        Ok(()) => CutTurn::More,
        Err(block) => {
            writing.waiting = Some(block);
            CutTurn::Behind
        }
    }
}

//! Cuts that followers read: they are marked as those of checkpoints are, and their rows travel to the follower instead
//! of into files.

use crate::cuts::state::ThreadCut;
use crate::cuts::stream::{CutStream, StreamBlock};
use crate::cuts::writer::CutFileId;
use crate::limits::{CUT_SLICE_BYTES, FOLLOWER_SAVED_BYTES_MAX};
use crate::peers::outcome::{RequestFailure, RequestOutcome, refuse};
use crate::peers::pusher::Pusher;
use crate::requests::cuts::holding::{end_cut, must_be_current, must_hold_all};
use crate::requests::cuts::slices::saved_bytes;
use crate::requests::cuts::tables::{cut_pushes, positions_of_bases, steps_of_cut};
use crate::server_tables::ServerTables;
use crate::tables::table_list::TableList;
use gannet_core::{CutProgress, CutReader, MarkedShard, Position};
use gannet_transport::{Frame, Full, Transmit};
use gannet_wire::frames::cuts::{CutRowsFrame, ReadCutFrame};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::limits::PART_BYTES_MAX;
use gannet_wire::messages::cuts::{AGE, CutReplyV1, CutShardV1, FollowerMarkV1, ROWS_POSITION};
use gannet_wire::messages::runs::RUNS;
use gannet_wire::refusal::Refusal;
use std::collections::HashMap;
use std::time::Duration;

/// Marks the cut of all shards here that are of these tables.
pub(crate) fn mark_for_follower(
    tables: &mut ServerTables,
    mark: &FollowerMarkV1,
    mut states: Vec<(String, Vec<u8>)>,
    now: Duration,
) -> Result<CutReplyV1, RequestFailure> {
    let places: HashMap<&str, u32> = mark.tables.iter().map(String::as_str).zip(0..).collect();
    must_hold_all(tables)?;
    let pushes = cut_pushes(&tables.all, |number| places.get(&*tables.all[number].schema.name).copied());
    let steps = steps_of_cut(tables);
    let Some(reader) = tables.checkpoints.cuts.cut.as_ref().map(ThreadCut::reader) else {
        return Ok(CutReplyV1::Failed { why: "the cut is not begun".into() });
    };
    let (mut shards, mut stream) = (Vec::new(), CutStream::default());
    for (number, table) in tables.all.numbered_mut() {
        let place = places.get(&*table.schema.name).copied();
        let (Some(own), Some(place)) = (table.shards.as_mut(), place) else { continue };
        let floats = own.schema().floats() as u32;
        for marked in own.mark_cut(reader, &positions_of_bases(&mark.bases, place)) {
            let MarkedShard { position, from, deletions: keys, .. } = marked;
            let Position { shard, birth, epoch, command, .. } = position;
            if !keys.is_empty() {
                let rows = Vec::new();
                stream.blocks.push_back(StreamBlock { place, shard, keys, rows, floats: 0 });
            }
            stream.left.push((CutFileId { table: number as u32, place, shard }, floats));
            shards.push(CutShardV1 { table: place, shard, birth, epoch, from, to: command });
        }
    }
    if let Some(cut) = &mut tables.checkpoints.cuts.cut {
        cut.stream = Some(stream);
    }
    // What else a checkpoint saves is for servers that go on with the job.
    states.retain(|(name, _)| name == RUNS);
    if let Some(mirror) = &tables.mirror {
        let Some((age, (commands, history))) = mirror.taken(now) else {
            return refuse(Refusal::Cut, "this follower has no rows yet: try again later");
        };
        states.push((AGE.to_owned(), (age.as_nanos() as u64).to_le_bytes().to_vec()));
        let position = [commands.to_le_bytes(), history.to_le_bytes()].concat();
        states.push((ROWS_POSITION.to_owned(), position));
    }
    Ok(CutReplyV1::Marked { shards, pushes, states, steps })
}

/// Answers the next block of a follower's cut.
pub(crate) fn answer_read_cut(
    tables: &mut ServerTables,
    frame: &Frame<'_>,
    pusher: &Pusher,
    now: Duration,
    transmit: &mut Transmit,
) -> RequestOutcome {
    let ReadCutFrame { cut: number } = ReadCutFrame::decode(&frame.head)?;
    must_be_current(tables, number, pusher.session, now)?;
    // Space for the reply comes first: a block is taken once.
    let out = transmit.reserve(PART_BYTES_MAX).ok_or(Full)?;
    let cut = tables.checkpoints.cuts.get_mut(number);
    let marked = cut.and_then(|cut| Some((cut.reader(), cut.stream.as_mut()?)));
    let Some((reader, stream)) = marked else {
        return refuse(Refusal::Malformed, "the cut is not marked for a follower");
    };
    let block = next_block(stream, &mut tables.all, reader)?;
    let is_last = stream.blocks.is_empty() && stream.left.is_empty();
    let mut answer =
        CutRowsFrame { flags: if is_last { CutRowsFrame::LAST } else { 0 }, ..CutRowsFrame::default() };
    let mut bytes = 0;
    if let Some(StreamBlock { place, shard, keys, rows, floats }) = block {
        let of_keys = keys.len() * 8;
        bytes = of_keys + rows.len() * 4;
        out[..of_keys].copy_from_slice(bytemuck::cast_slice(&keys));
        out[of_keys..bytes].copy_from_slice(bytemuck::cast_slice(&rows));
        answer.flags |= if floats == 0 { CutRowsFrame::DELETED } else { 0 };
        (answer.rows, answer.floats) = (keys.len() as u32, floats as u32);
        (answer.table, answer.shard) = (place, shard);
    }
    transmit.commit(answer.encode(frame.head.id), bytes);
    Ok(())
}

/// The next block that fits a frame. `None`: there is none, or the next shards have no rows in the cut.
fn next_block(
    stream: &mut CutStream,
    tables: &mut TableList,
    reader: CutReader,
) -> Result<Option<StreamBlock>, RequestFailure> {
    let mut visits = stream.left.len();
    while stream.blocks.is_empty() && visits > 0 {
        visits -= 1;
        read_slice(stream, tables, reader)?;
    }
    let Some(mut block) = stream.blocks.pop_front() else { return Ok(None) };
    if let Some(rest) = block.split(PART_BYTES_MAX) {
        stream.blocks.push_front(rest);
    }
    Ok(Some(block))
}

/// Reads a slice of the last shard that is left.
fn read_slice(
    stream: &mut CutStream,
    tables: &mut TableList,
    reader: CutReader,
) -> Result<(), RequestFailure> {
    let Some(&(CutFileId { table, place, shard }, floats)) = stream.left.last() else { return Ok(()) };
    let floats = floats as usize;
    let (mut keys, mut rows) = (Vec::new(), Vec::new());
    let shards = tables.get_mut(table as usize).and_then(|table| table.shards.as_mut());
    let Some(shards) = shards.filter(|shards| shards.has_cut(reader, shard)) else {
        return refuse(Refusal::Cut, "a table was dropped while it was read: begin again");
    };
    let most = CUT_SLICE_BYTES / (8 + 4 * floats);
    let progress = shards.read_cut(reader, shard, most, |block_keys, block_rows| {
        keys.extend_from_slice(block_keys);
        rows.extend_from_slice(block_rows);
    });
    if !keys.is_empty() {
        stream.blocks.push_back(StreamBlock { place, shard, keys, rows, floats });
    }
    if progress == CutProgress::End {
        stream.left.pop();
    }
    Ok(())
}

/// Ends the cuts of followers that read too slowly: pushes do not wait for them.
pub(crate) fn end_slow_followers(tables: &mut ServerTables, now: Duration) {
    let followers = tables.checkpoints.cuts.released.iter().filter(|cut| cut.for_follower);
    let is_slow = |cut: &&ThreadCut| {
        saved_bytes(&tables.all, cut.reader()) > FOLLOWER_SAVED_BYTES_MAX || !cut.is_busy(now)
    };
    let slow: Vec<u64> = followers.filter(is_slow).map(|cut| cut.number).collect();
    for number in slow {
        tracing::warn!(
            thread = tables.thread(),
            "the cut of a follower was given up: it reads too slowly, and begins again"
        );
        end_cut(tables, number, now);
    }
}

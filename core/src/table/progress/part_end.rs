//! The end of a part of a push: what the shard remembers of it, and what the listener hears.

use crate::error::PushError;
use crate::push_name::PushName;
use crate::table::commands::command_record::{CommandChange, Listener, PushPart};
use crate::table::owned::shard::Shard;
use crate::table::progress::part_progress::PartProgress;
use crate::table::pushes::read_write::Write;

/// A part whose rows were applied, up to the first refused one.
pub(crate) struct PartEnd<'a> {
    pub(crate) name: &'a PushName,
    /// It is the first run of the call.
    pub(crate) first: bool,
    /// The clock of its learning rate.
    pub(crate) clock: u64,
    /// Rows of the whole push.
    pub(crate) total: u64,
    pub(crate) write: Write,
    pub(crate) keys: &'a [u64],
    pub(crate) values: &'a [f32],
    /// Rows behind its keys that were refused before.
    pub(crate) refused: u32,
}

/// Ends a part, and tells the listener.
#[inline(never)] // within the loop of runs it would take registers from the loop of rows
pub(crate) fn end_run(
    shard: &mut Shard,
    part: PartProgress,
    result: &Result<(), (u32, PushError)>,
    listener: &mut Listener,
    end: PartEnd<'_>,
) {
    let PartEnd { name, first, total, clock, write, keys, values, refused } = end;
    let rows = keys.len() as u32;
    let applied = result.as_ref().map_or_else(|(row, _)| *row, |()| rows);
    let whole = applied == rows && refused == 0;
    shard.end_part(part, (!whole).then_some(applied));
    listener.tell(shard, shard.before_part, || {
        let name = if first { *name } else { PushName { row: 0, ..*name } };
        let floats = values.len().checked_div(keys.len()).unwrap_or(0);
        let (keys, values) = (&keys[..applied as usize], &values[..applied as usize * floats]);
        CommandChange::Part(PushPart { name, clock, total, write, rows: rows + refused, keys, values })
    });
}

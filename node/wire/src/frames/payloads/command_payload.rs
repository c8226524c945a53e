//! Commands of shards as words: what a server sends to the servers that keep copies of its shards.
//!
//! ```text
//! head:     shard u32, kind u8, write u8, two bytes of 0; words of the command, with this head, u64;
//!           previous, before, after u64 each
//! write:    0 gradient, 1 change, 2 sum, 3 damped, 4 row, 5 delete
//! part:     (kind 0) pusher, incarnation, seq u64 each; row, rows u32; clock, total u64; keys, floats of a key u32;
//!           then the keys, u64 each; the values, f32 each
//! pusher:   (kind 1) pusher, incarnation, seq u64 each; done, rows u32; total u64; closed u64 (0 or 1)
//! deletion: (kind 2) the key u64
//! program:  (kind 3) pusher, incarnation, seq u64 each; then `VectorV1`
//! rows:     (kind 4) piece u64; keys, keys without a row u32; then both u64 each; the rows, f32 each
//! memory:   (kind 5) piece u64; pushers, bytes of the sketch u32; then each pusher as above; the sketch
//! ```
//! All numbers are little-endian. Floats and bytes are padded to 8 bytes. docs/wire.md says what the fields mean.

use crate::frames::word::{pair_of_words, unpair};
use crate::messages::control;
use crate::messages::control::VectorV1;
use crate::vectors;
use bytemuck::{cast_slice, cast_slice_mut};
use gannet_core::{
    CommandChange, CommandRecord, PushName, PushPart, PusherRecord, RowStates, ShardMemory, Write,
};

/// Words of the head.
const HEAD: usize = 5;
/// Words of the fields of a part.
const PART: usize = 7;
/// Words of a pusher.
const PUSHER: usize = 6;
/// Words of the fields of rows and of a memory.
const COUNTED: usize = 2;

/// What the values of a part are, by number.
const WRITES: [Write; 6] =
    [Write::Gradient, Write::Change, Write::Sum, Write::Damped, Write::Row, Write::Delete];

/// Why the words of commands cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// A command is longer than the frame, or its fields do not fit its length.
    #[error("command {0} of the frame has a wrong length")]
    Length(usize),
    /// A field has a value that no command has.
    #[error("command {0} of the frame has an unknown {1}")]
    Field(usize, &'static str),
}

/// Appends a command to `words`.
pub fn put_command(words: &mut Vec<u64>, command: &CommandRecord<'_>) {
    let CommandRecord { shard, previous, before, after, change } = *command;
    let start = words.len();
    let (kind, write) = match change {
        CommandChange::Part(part) => (0, number_of(part.write)),
        CommandChange::Pusher(_) => (1, 0),
        CommandChange::Deletion(_) => (2, 0),
        CommandChange::Program(..) => (3, 0),
        CommandChange::Rows(_) => (4, 0),
        CommandChange::Memory(_) => (5, 0),
    };
    words.extend([pair_of_words(shard, kind | write << 8), 0, previous, before, after]);
    match change {
        CommandChange::Part(part) => put_part(words, &part),
        CommandChange::Pusher(record) => put_pusher(words, &record),
        CommandChange::Deletion(key) => words.push(key),
        CommandChange::Program(name, program) => {
            words.extend([name.pusher, name.incarnation, name.seq]);
            put_bytes(words, &control::seal(&vectors::vector_request(shard, name.seq, program)));
        }
        CommandChange::Rows(RowStates { piece, keys, rows, gone }) => {
            words.extend([piece, pair_of_words(keys.len() as u32, gone.len() as u32)]);
            words.extend_from_slice(keys);
            words.extend_from_slice(gone);
            put_bytes(words, cast_slice(rows));
        }
        CommandChange::Memory(ShardMemory { piece, pushers, sketch }) => {
            words.extend([piece, pair_of_words(pushers.len() as u32, sketch.len() as u32)]);
            pushers.iter().for_each(|record| put_pusher(words, record));
            put_bytes(words, sketch);
        }
    }
    words[start + 1] = (words.len() - start) as u64;
}

fn put_part(words: &mut Vec<u64>, part: &PushPart<'_>) {
    let PushPart {
        name: PushName { pusher, incarnation, seq, row }, clock, total, rows, keys, values, ..
    } = *part;
    let floats = values.len().checked_div(keys.len()).unwrap_or(0) as u32;
    words.extend([
        pusher,
        incarnation,
        seq,
        pair_of_words(row, rows),
        clock,
        total,
        pair_of_words(keys.len() as u32, floats),
    ]);
    words.extend_from_slice(keys);
    put_bytes(words, cast_slice(values));
}

fn put_pusher(words: &mut Vec<u64>, record: &PusherRecord) {
    let PusherRecord { pusher, incarnation, seq, done, rows, total, closed } = *record;
    words.extend([pusher, incarnation, seq, pair_of_words(done, rows), total, u64::from(closed)]);
}

fn put_bytes(words: &mut Vec<u64>, bytes: &[u8]) {
    let start = words.len();
    words.resize(start + bytes.len().div_ceil(8), 0);
    cast_slice_mut::<u64, u8>(&mut words[start..])[..bytes.len()].copy_from_slice(bytes);
}

/// Calls `take` with each command, until it returns an error. `floats`: floats of a row of the table.
pub fn for_each<E: From<CommandError>>(
    mut words: &[u64],
    floats: usize,
    mut take: impl FnMut(&CommandRecord<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut number = 0;
    while !words.is_empty() {
        let length = words.get(1).map_or(0, |length| usize::try_from(*length).unwrap_or(usize::MAX));
        if length < HEAD || length > words.len() {
            return Err(CommandError::Length(number).into());
        }
        let (command, rest) = words.split_at(length);
        take_one(number, command, floats, &mut take)?;
        (words, number) = (rest, number + 1);
    }
    Ok(())
}

/// Reads one command, and calls `take` with it.
fn take_one<E: From<CommandError>>(
    number: usize,
    command: &[u64],
    floats: usize,
    take: &mut impl FnMut(&CommandRecord<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let (shard, kind) = unpair(command[0]);
    let (kind, write) = (kind & 0xFF, kind >> 8);
    let (previous, before, after, body) = (command[2], command[3], command[4], &command[HEAD..]);
    let (field, wrong) = (|what| CommandError::Field(number, what), CommandError::Length(number));
    if kind != 0 && write != 0 || previous > before || before > after {
        return Err(field("head").into());
    }
    let (program, pushers);
    let change = match kind {
        0 => {
            let write = write_of(write).ok_or(field("kind of push"))?;
            CommandChange::Part(part(body, write).ok_or(wrong)?)
        }
        1 => CommandChange::Pusher(pusher(body).ok_or(wrong)?),
        2 if body.len() == 1 => CommandChange::Deletion(body[0]),
        3 if body.len() > 3 => {
            let name = PushName { pusher: body[0], incarnation: body[1], seq: body[2], row: 0 };
            let request = control::open::<VectorV1>(cast_slice(&body[3..])).ok();
            program = request.and_then(vectors::vector_program).ok_or(field("program"))?;
            CommandChange::Program(name, &program)
        }
        4 => CommandChange::Rows(rows_in(body, floats).ok_or(wrong)?),
        5 => {
            let (piece, sketch);
            (piece, pushers, sketch) = memory_in(body).ok_or(wrong)?;
            CommandChange::Memory(ShardMemory { piece, pushers: &pushers, sketch })
        }
        2 | 3 => return Err(wrong.into()),
        _ => return Err(field("kind").into()),
    };
    take(&CommandRecord { shard, previous, before, after, change })
}

/// The number of a kind of push.
fn number_of(write: Write) -> u32 {
    WRITES.into_iter().position(|known| known == write).unwrap_or(0) as u32
}

/// The kind of push of this number.
fn write_of(number: u32) -> Option<Write> {
    WRITES.get(number as usize).copied()
}

/// A part; `None` if its fields do not fit the length of the command.
fn part(body: &[u64], write: Write) -> Option<PushPart<'_>> {
    let (&[pusher, incarnation, seq, run, clock, total, sizes], rest) = body.split_first_chunk::<PART>()?;
    let ((row, rows), (keys, floats)) = (unpair(run), unpair(sizes));
    let (keys, values) = rest.split_at_checked(keys as usize)?;
    let values = floats_of(values, keys.len().checked_mul(floats as usize)?)?;
    let name = PushName { pusher, incarnation, seq, row };
    (rows as usize >= keys.len()).then_some(PushPart { name, clock, total, write, rows, keys, values })
}

/// A record of a pusher; `None` if the command has another length or says neither that it is closed nor that it is not.
fn pusher(body: &[u64]) -> Option<PusherRecord> {
    let &[pusher, incarnation, seq, progress, total, closed] = <&[u64; PUSHER]>::try_from(body).ok()?;
    let (done, rows) = unpair(progress);
    (closed <= 1).then_some(PusherRecord { pusher, incarnation, seq, done, rows, total, closed: closed == 1 })
}

/// Rows; `None` if their fields do not fit the length of the command.
fn rows_in(body: &[u64], floats: usize) -> Option<RowStates<'_>> {
    let (&[piece, counts], rest) = body.split_first_chunk::<COUNTED>()?;
    let (keys, gone) = unpair(counts);
    let (keys, rest) = rest.split_at_checked(keys as usize)?;
    let (gone, rows) = rest.split_at_checked(gone as usize)?;
    let rows = floats_of(rows, keys.len().checked_mul(floats)?)?;
    Some(RowStates { piece, keys, rows, gone })
}

/// Piece, pushers and sketch of a memory; `None` if its fields do not fit the length of the command.
fn memory_in(body: &[u64]) -> Option<(u64, Vec<PusherRecord>, &[u8])> {
    let (&[piece, counts], rest) = body.split_first_chunk::<COUNTED>()?;
    let (pushers, sketch) = unpair(counts);
    let (pushers, rest) = rest.split_at_checked((pushers as usize).checked_mul(PUSHER)?)?;
    let pushers = pushers.chunks_exact(PUSHER).map(pusher).collect::<Option<Vec<_>>>()?;
    if rest.len() != (sketch as usize).div_ceil(8) {
        return None;
    }
    Some((piece, pushers, &cast_slice(rest)[..sketch as usize]))
}

/// So many floats, which all of these words hold.
fn floats_of(words: &[u64], count: usize) -> Option<&[f32]> {
    let floats: &[f32] = cast_slice(words);
    (floats.len() == count.next_multiple_of(2)).then(|| &floats[..count])
}

//! Commands are read as they were written, and other words are refused.

use crate::frames::payloads::command_payload::{CommandError, for_each, put_command};
use gannet_core::*;
use proptest::prelude::*;

/// Floats of a row.
const FLOATS: usize = 3;

/// A command that owns what a record borrows.
#[derive(Clone, Debug)]
enum Owned {
    Part { name: PushName, numbers: [u64; 2], write: Write, more: u32, keys: Vec<u64>, values: Vec<f32> },
    Pusher(PusherRecord),
    Deletion(u64),
    Program(PushName, Program),
    Rows { piece: u64, keys: Vec<u64>, rows: Vec<f32>, gone: Vec<u64> },
    Memory { piece: u64, pushers: Vec<PusherRecord>, sketch: Vec<u8> },
}

impl Owned {
    fn change(&self) -> CommandChange<'_> {
        match self {
            Owned::Part { name, numbers: [clock, total], write, more, keys, values } => {
                let rows = keys.len() as u32 + more;
                let (clock, total) = (*clock, *total);
                CommandChange::Part(PushPart { name: *name, clock, total, write: *write, rows, keys, values })
            }
            Owned::Pusher(record) => CommandChange::Pusher(*record),
            Owned::Deletion(key) => CommandChange::Deletion(*key),
            Owned::Program(name, program) => CommandChange::Program(*name, program),
            Owned::Rows { piece, keys, rows, gone } => {
                CommandChange::Rows(RowStates { piece: *piece, keys, rows, gone })
            }
            Owned::Memory { piece, pushers, sketch } => {
                CommandChange::Memory(ShardMemory { piece: *piece, pushers, sketch })
            }
        }
    }
}

fn name() -> impl Strategy<Value = PushName> {
    any::<(u64, u64, u64)>().prop_map(|(pusher, incarnation, seq)| PushName {
        pusher,
        incarnation,
        seq,
        row: 0,
    })
}

fn record() -> impl Strategy<Value = PusherRecord> {
    (name(), any::<(u32, u32, u64, bool)>()).prop_map(|(name, (done, rows, total, closed))| {
        let PushName { pusher, incarnation, seq, .. } = name;
        PusherRecord { pusher, incarnation, seq, done, rows, total, closed }
    })
}

fn floats(count: usize) -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(-9.0f32..9.0, count)
}

fn write() -> impl Strategy<Value = Write> {
    use Write::*;
    prop::sample::select(vec![Gradient, Change, Sum, Damped, Row, Delete])
}

fn owned() -> impl Strategy<Value = Owned> {
    let keys = || prop::collection::vec(any::<u64>(), 0..9);
    let part = (keys(), 0usize..4, name(), any::<([u64; 2], u32)>(), write(), 0u32..9);
    let part = part.prop_flat_map(|(keys, floats_of, name, (numbers, row), write, more)| {
        floats(keys.len() * floats_of).prop_map(move |values| {
            let name = PushName { row, ..name };
            Owned::Part { name, numbers, write, more, keys: keys.clone(), values }
        })
    });
    let rows = (keys(), keys(), any::<u64>()).prop_flat_map(|(keys, gone, piece)| {
        floats(keys.len() * FLOATS).prop_map(move |rows| Owned::Rows {
            piece,
            keys: keys.clone(),
            rows,
            gone: gone.clone(),
        })
    });
    let memory =
        (any::<u64>(), prop::collection::vec(record(), 0..4), prop::collection::vec(any::<u8>(), 0..30));
    let memory = memory.prop_map(|(piece, pushers, sketch)| Owned::Memory { piece, pushers, sketch });
    let program = (name(), any::<(u64, Option<u64>, u16)>()).prop_map(|(name, (pass, free, to))| {
        let steps = vec![ProgramStep::Combine { to, terms: vec![Term::new(1.5, 0)] }];
        let sums = vec![ColumnSum::Dot { a: 1, b: 2, penalised: true }];
        Owned::Program(name, Program { pass, free, steps, sums })
    });
    let deletion = any::<u64>().prop_map(Owned::Deletion);
    prop_oneof![part, record().prop_map(Owned::Pusher), deletion, program, rows, memory]
}

fn commands() -> impl Strategy<Value = Vec<(u32, [u64; 3], Owned)>> {
    let numbers = any::<[u32; 3]>().prop_map(|mut numbers| {
        numbers.sort_unstable();
        numbers.map(u64::from)
    });
    prop::collection::vec((any::<u32>(), numbers, owned()), 0..6)
}

fn record_of((shard, [previous, before, after], owned): &(u32, [u64; 3], Owned)) -> CommandRecord<'_> {
    let (previous, before, after) = (*previous, *before, *after);
    CommandRecord { shard: *shard, previous, before, after, change: owned.change() }
}

proptest! {
    #[test]
    fn commands_are_read_as_they_were_written(commands in commands()) {
        let mut words = Vec::new();
        commands.iter().for_each(|command| put_command(&mut words, &record_of(command)));
        let mut read = 0;
        let all = for_each(&words, FLOATS, |command| {
            assert_eq!(*command, record_of(&commands[read]));
            read += 1;
            Ok::<(), CommandError>(())
        });
        prop_assert_eq!((all, read), (Ok(()), commands.len()));
    }

    /// Words that were damaged, or never were commands, end with an error or as other commands, and with no panic.
    #[test]
    fn other_words_are_refused_or_read(
        commands in commands(), damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 0..4),
        cut in any::<prop::sample::Index>(), any in prop::collection::vec(any::<u64>(), 0..40),
    ) {
        let mut words = Vec::new();
        commands.iter().for_each(|command| put_command(&mut words, &record_of(command)));
        if !words.is_empty() {
            for (at, word) in &damage {
                let at = at.index(words.len());
                // Small numbers are more likely to be lengths and counts.
                words[at] = if word % 2 == 0 { word % 64 } else { *word };
            }
            words.truncate(cut.index(words.len() + 1));
        }
        for words in [words, any] {
            let _ = for_each(&words, FLOATS, |_| Ok::<(), CommandError>(()));
        }
    }
}

#[test]
fn a_command_that_is_cut_short_is_refused_by_its_place() {
    let mut words = Vec::new();
    let deletion =
        |shard| CommandRecord { shard, previous: 1, before: 1, after: 2, change: CommandChange::Deletion(7) };
    put_command(&mut words, &deletion(3));
    put_command(&mut words, &deletion(4));
    for end in words.len() / 2 + 1..words.len() {
        let mut shards = Vec::new();
        let read = for_each(&words[..end], FLOATS, |command| {
            shards.push(command.shard);
            Ok::<(), CommandError>(())
        });
        assert_eq!((read, shards), (Err(CommandError::Length(1)), vec![3]));
    }
    words[0] |= 9 << 32;
    let read = for_each(&words, FLOATS, |_| Ok::<(), CommandError>(()));
    assert_eq!(read.unwrap_err().to_string(), "command 0 of the frame has an unknown kind");
}

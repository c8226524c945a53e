//! Commands as their listener heard them, kept for later.

use gannet_core::*;
use std::sync::{Arc, Mutex};

/// A command, and what it changes.
#[derive(Clone, Debug)]
pub struct ToldCommand {
    /// Its change is without keys, values and other slices.
    pub numbers: CommandRecord<'static>,
    change: ToldChange,
}

#[derive(Clone, Debug)]
enum ToldChange {
    Part(Vec<u64>, Vec<f32>),
    Program(PushName, Program),
    Rows { piece: u64, keys: Vec<u64>, rows: Vec<f32>, gone: Vec<u64> },
    Memory { piece: u64, pushers: Vec<PusherRecord>, sketch: Vec<u8> },
    Else,
}

impl ToldCommand {
    pub fn of(command: &CommandRecord<'_>) -> ToldCommand {
        let CommandRecord { shard, previous, before, after, change } = *command;
        let nothing = CommandChange::Deletion(0);
        let (apart, change) = match change {
            CommandChange::Part(part) => {
                let (keys, values) = (part.keys.to_vec(), part.values.to_vec());
                let part = PushPart { keys: &[], values: &[], ..part };
                (CommandChange::Part(part), ToldChange::Part(keys, values))
            }
            CommandChange::Pusher(record) => (CommandChange::Pusher(record), ToldChange::Else),
            CommandChange::Deletion(key) => (CommandChange::Deletion(key), ToldChange::Else),
            CommandChange::Program(name, program) => (nothing, ToldChange::Program(name, program.clone())),
            CommandChange::Rows(RowStates { piece, keys, rows, gone }) => {
                let (keys, rows, gone) = (keys.to_vec(), rows.to_vec(), gone.to_vec());
                (nothing, ToldChange::Rows { piece, keys, rows, gone })
            }
            CommandChange::Memory(ShardMemory { piece, pushers, sketch }) => {
                let (pushers, sketch) = (pushers.to_vec(), sketch.to_vec());
                (nothing, ToldChange::Memory { piece, pushers, sketch })
            }
        };
        ToldCommand { numbers: CommandRecord { shard, previous, before, after, change: apart }, change }
    }

    pub fn replay_on(&self, copy: &mut Shards) -> Result<(), ReplayError> {
        let change = match (&self.change, self.numbers.change) {
            (ToldChange::Part(keys, values), CommandChange::Part(part)) => {
                CommandChange::Part(PushPart { keys, values, ..part })
            }
            (ToldChange::Program(name, program), _) => CommandChange::Program(*name, program),
            (ToldChange::Rows { piece, keys, rows, gone }, _) => {
                CommandChange::Rows(RowStates { piece: *piece, keys, rows, gone })
            }
            (ToldChange::Memory { piece, pushers, sketch }, _) => {
                CommandChange::Memory(ShardMemory { piece: *piece, pushers, sketch })
            }
            (_, other) => other,
        };
        copy.replay(&CommandRecord { change, ..self.numbers })
    }
}

/// A listener that keeps all commands.
#[derive(Clone, Default)]
pub struct Told(pub Arc<Mutex<Vec<ToldCommand>>>);

impl CommandListener for Told {
    fn hear(&mut self, command: &CommandRecord<'_>, _: &mut ToldShard<'_>) {
        self.0.lock().unwrap().push(ToldCommand::of(command));
    }
}

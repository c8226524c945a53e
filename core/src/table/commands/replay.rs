//! Copies of shards: a copy replays the commands that the owner of the shards has told ([`CommandListener`]). It then
//! has the same rows, the same pushers and the same command numbers, bit by bit: a rule changes a row in the same way
//! on every CPU.

use crate::error::PushError;
use crate::table::commands::command::ShardCommand;
use crate::table::commands::command_record::{
    CommandChange, CommandListener, CommandRecord, Listener, PushPart, PusherRecord, RowStates, ShardMemory,
};
use crate::table::cuts::copy_state::CopyState;
use crate::table::owned::shard::Shard;
use crate::table::owned::shards::Shards;
use crate::table::progress::part_progress::PartStart;
use crate::table::pushes::push_request::PushOptions;

/// Why a copy cannot replay a command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The shard is not here.
    #[error("shard {0} is not here")]
    NotHere(u32),
    /// The shard has changes that its owner does not have.
    #[error(
        "shard {shard} has command {has}, but its owner went on after command {before}: this copy has another history; \
         fill it again"
    )]
    OtherHistory {
        /// The shard.
        shard: u32,
        /// The number of its last command.
        has: u64,
        /// The number of the owner's last command before the one to replay.
        before: u64,
    },
    /// The copy has not heard of all earlier commands.
    #[error(
        "shard {shard} has command {has} here, and its owner's next command came after command {previous}: this copy \
         missed commands; fill it again"
    )]
    Missed {
        /// The shard.
        shard: u32,
        /// The number of its last command.
        has: u64,
        /// The number of the owner's last command before the one to replay.
        previous: u64,
    },
    /// The copy is not filled.
    #[error("shard {0} was told a command, but this copy of it has not all rows yet: tell it rows")]
    Filling(u32),
    /// The rows of the owner are not rows of this table, or its admission sketch has another length.
    #[error("shard {0} was told rows that its table cannot have: fill this copy again")]
    Rows(u32),
    /// An earlier command could not be replayed.
    #[error("an earlier command of shard {0} failed on this copy: fill it again")]
    Broken(u32),
    /// The command had another effect than on the owner.
    #[error("command {want} of shard {shard} became command {got} of this copy: fill it again")]
    OtherEffect {
        /// The shard.
        shard: u32,
        /// The number that the command has on the owner.
        want: u64,
        /// The number of the copy's last command.
        got: u64,
    },
    /// The copy cannot apply the command: most often there is no space.
    #[error(transparent)]
    Push(#[from] PushError),
}

impl Shards {
    /// From now on `listener` hears of every command of the shards here. It replaces the listener before it. `None`:
    /// nobody listens. [`CommandListener`] has an example.
    pub fn tell(&mut self, listener: Option<Box<dyn CommandListener>>) {
        let floats = self.schema.floats();
        self.listener = Listener(listener.map(|listener| (listener, floats)));
    }

    /// Applies a change to a shard, and tells the listener.
    pub(crate) fn apply_at(&mut self, at: usize, command: ShardCommand) -> Result<bool, PushError> {
        let Shards { shards, listener, .. } = self;
        let shard = &mut shards[at];
        let before = shard.command;
        let change = match &command {
            ShardCommand::Remember(entry) => CommandChange::Pusher(PusherRecord::of(entry)),
            ShardCommand::Delete(key) => CommandChange::Deletion(*key),
        };
        let changed = shard.apply(command)?;
        listener.tell(shard, before, || change);
        Ok(changed)
    }

    /// Applies a command of these shards' owner to this copy of them. A command that the copy has is skipped. Commands
    /// of one shard must come in their order. Those of several shards may come in any order, so a fence in one shard
    /// does not refuse what another shard had accepted. [`CommandListener`] has an example.
    ///
    /// # Errors
    /// The copy missed commands or has another history than the owner, or there is no space. If a command fails while
    /// it is applied, the copy of the shard may have a part of it. It then refuses all later commands.
    pub fn replay(&mut self, command: &CommandRecord<'_>) -> Result<(), ReplayError> {
        let number = command.shard;
        let Some(shard) = self.shard_mut(number) else { return Err(ReplayError::NotHere(number)) };
        if shard.has(command)? {
            return Ok(());
        }
        let replayed = self.replay_change(command);
        if let (Err(_), Some(shard)) = (&replayed, self.shard_mut(number)) {
            shard.copy = CopyState::Broken;
        }
        replayed
    }

    fn replay_change(&mut self, command: &CommandRecord<'_>) -> Result<(), ReplayError> {
        let CommandRecord { shard: number, before, after, change, .. } = *command;
        let Some(shard) = self.shard_mut(number) else { return Err(ReplayError::NotHere(number)) };
        let is_state = matches!(change, CommandChange::Rows(_) | CommandChange::Memory(_));
        shard.raise_command(if is_state { after } else { before });
        let filling = shard.copy != CopyState::Whole;
        match change {
            CommandChange::Part(part) => self.replay_part(number, &part)?,
            CommandChange::Pusher(record) => {
                self.replay_one(number, ShardCommand::Remember(record.entry()))?;
                self.incarnations.raise(record.pusher, record.incarnation);
            }
            CommandChange::Deletion(key) => self.replay_one(number, ShardCommand::Delete(key))?,
            CommandChange::Program(name, program) => {
                self.run_program_in(number, &name, program)?;
            }
            CommandChange::Rows(states) => self.replay_rows(number, &states)?,
            CommandChange::Memory(memory) => self.replay_memory(number, &memory)?,
        }
        let Some(shard) = self.shard_mut(number) else { return Err(ReplayError::NotHere(number)) };
        if filling {
            // A program takes no more numbers than on the owner if some rows are not here yet.
            shard.raise_command(after);
        }
        match shard.command {
            got if got == after => Ok(()),
            got => Err(ReplayError::OtherEffect { shard: number, want: after, got }),
        }
    }

    fn replay_one(&mut self, number: u32, command: ShardCommand) -> Result<(), PushError> {
        let at = self.places.place(number) as usize;
        self.apply_at(at, command).map(|_| ())
    }

    fn replay_part(&mut self, number: u32, part: &PushPart<'_>) -> Result<(), PushError> {
        let &PushPart { name, clock, total, write, rows, keys, values } = part;
        // The owner has marked the changes that it has refused.
        let options = PushOptions { clock, total, since: None };
        let refused = rows.saturating_sub(keys.len() as u32);
        if !keys.is_empty() {
            return self.push_part(&name, (options, refused), write, keys, None, values).map(|_| ());
        }
        let Shards { places, shards, listener, incarnations, .. } = self;
        let shard = &mut shards[places.place(number) as usize];
        if let PartStart::From(progress) = shard.begin_part(&name, rows, total)? {
            incarnations.raise(name.pusher, name.incarnation);
            shard.end_part(progress, Some(0));
            listener.tell(shard, shard.before_part, || CommandChange::Part(*part));
        }
        Ok(())
    }
}

impl Shard {
    /// Whether this copy has a command already. If not, it can take the command now.
    fn has(&mut self, command: &CommandRecord<'_>) -> Result<bool, ReplayError> {
        let CommandRecord { shard, previous, before, after, change } = *command;
        let has = self.command;
        let piece = match change {
            CommandChange::Rows(RowStates { piece, .. })
            | CommandChange::Memory(ShardMemory { piece, .. }) => piece,
            _ => 0,
        };
        let is_first = match (self.copy, piece) {
            (CopyState::Broken, _) => return Err(ReplayError::Broken(shard)),
            (CopyState::Whole, 1..) => return Ok(true),
            (CopyState::Filling(pieces), 1..) if piece <= pieces => return Ok(true),
            (CopyState::Filling(pieces), 1..) if piece > pieces + 1 => {
                return Err(ReplayError::Missed { shard, has, previous });
            }
            // This copy is empty, so the first piece may come after any number of commands.
            (CopyState::Filling(0), _) => piece == 1 && has == 0,
            _ => false,
        };
        if piece == 0 && has >= after {
            return Ok(true);
        }
        if has > before {
            return Err(ReplayError::OtherHistory { shard, has, before });
        }
        if has < previous && !is_first {
            return Err(ReplayError::Missed { shard, has, previous });
        }
        let rows = matches!(change, CommandChange::Rows(_) | CommandChange::Program(..));
        if piece == 0 && matches!(self.copy, CopyState::Filling(pieces) if pieces == 0 || !rows) {
            return Err(ReplayError::Filling(shard));
        }
        if piece > 0 {
            self.copy = CopyState::Filling(piece);
        }
        Ok(false)
    }
}

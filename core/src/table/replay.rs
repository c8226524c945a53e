//! Commands as values: what the owner of some shards tells a listener, and what a copy of these shards replays.
//!
//! The owner tells each command once, after it is applied. Commands of one shard come in their order. A copy that
//! replays all of them has the same rows, the same pushers and the same command numbers, bit by bit: a rule changes a
//! row in the same way on every CPU.
//!
//! Not told: what a restore puts into shards ([`Shards::restore_rows`], [`Shards::set_cursor`],
//! [`Shards::merge_sketch`]), and numbers that a reader skips ([`Shards::snapshot_version`]). A copy begins after a
//! restore, and a command brings the number before it.

use crate::error::PushError;
use crate::push_name::PushName;
use crate::table::command::ShardCommand;
use crate::table::part_progress::PartStart;
use crate::table::program::Program;
use crate::table::push::PushOptions;
use crate::table::pushers::{CLOSED, PusherEntry};
use crate::table::read_write::Write;
use crate::table::shard::Shard;
use crate::table::shards::Shards;

/// One change of a shard. [`CommandListener`] has an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Command<'a> {
    /// The number of the shard.
    pub shard: u32,
    /// The number of the shard's last command before this one.
    pub before: u64,
    /// The number of this command. It is `before + 1`, unless a key occurs several times in a part.
    pub after: u64,
    /// What changes.
    pub change: CommandChange<'a>,
}

/// What a [`Command`] changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CommandChange<'a> {
    /// A part of a push, or of a deletion.
    Part(PushPart<'a>),
    /// What the shard remembers of a pusher.
    Pusher(PusherRecord),
    /// The row of this key is deleted.
    Deletion(u64),
    /// A program runs on all rows.
    Program(PushName, &'a Program),
}

/// The rows of a push in one shard that travelled together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PushPart<'a> {
    /// The name of the push. `row` is the number of rows of its run in this shard that came before this part.
    pub name: PushName,
    /// The clock that the schedule of the learning rate follows, and the rows of the whole push.
    pub options: PushOptions,
    /// What the values are.
    pub write: Write,
    /// Rows of the part. If the shard refused one of them, `keys` has only the rows before it.
    pub rows: u32,
    /// The keys of the rows.
    pub keys: &'a [u64],
    /// [`Schema::write_floats`](crate::Schema::write_floats) floats for each key.
    pub values: &'a [f32],
}

/// What a shard remembers of a pusher, whatever it remembered before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PusherRecord {
    /// The pusher's number.
    pub pusher: u64,
    /// Its incarnation.
    pub incarnation: u64,
    /// Its last push.
    pub seq: u64,
    /// Rows of that push's run in the shard that are applied.
    pub done: u32,
    /// Rows of the run that the shard knows of.
    pub rows: u32,
    /// Rows of the whole push, over all shards; 0: unknown.
    pub total: u64,
    /// The pusher will push no more.
    pub closed: bool,
}

/// Hears of the commands of some shards.
///
/// ```
/// use gannet_core::{Command, CommandListener, PushName, Schema, Shards, Store, Write};
/// use gannet_optim::{Add, Rule};
///
/// /// A copy of the shards.
/// struct Copy(Shards);
///
/// impl CommandListener for Copy {
///     fn hear(&mut self, command: &Command<'_>) {
///         self.0.replay(command).expect("the copy has all earlier commands");
///     }
/// }
///
/// let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
/// let mut shards = Shards::open(&Store::memory(), &schema, 0..1)?;
/// let copy = Copy(Shards::open(&Store::memory(), &schema, 0..1)?);
/// shards.tell(Some(Box::new(copy)));
/// shards.push(&PushName { pusher: 1, incarnation: 1, seq: 1, row: 0 }, Write::Gradient, &[7], None, &[1.0])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait CommandListener: Send {
    /// A command was applied.
    fn hear(&mut self, command: &Command<'_>);
}

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

impl PusherRecord {
    fn of(entry: &PusherEntry) -> PusherRecord {
        let PusherEntry { pusher, incarnation, seq, done, rows, total, .. } = *entry;
        PusherRecord { pusher, incarnation, seq, done, rows, total, closed: entry.is_closed() }
    }

    fn entry(&self) -> PusherEntry {
        let PusherRecord { pusher, incarnation, seq, done, rows, total, closed } = *self;
        let flags = if closed { CLOSED } else { 0 };
        PusherEntry { pusher, incarnation, seq, done, rows, total, flags, ..PusherEntry::default() }
    }
}

/// The listener of some shards.
#[derive(Default)]
pub(crate) struct Listener(Option<Box<dyn CommandListener>>);

impl Listener {
    /// Tells what a call did, if somebody listens. It began after command `before` of the shard.
    #[inline(always)]
    pub(crate) fn tell<'a>(
        &mut self,
        shard: &Shard,
        before: u64,
        change: impl FnOnce() -> CommandChange<'a>,
    ) {
        if let Some(listener) = &mut self.0 {
            tell(&mut **listener, shard, before, change());
        }
    }
}

#[cold]
#[inline(never)]
fn tell(listener: &mut dyn CommandListener, shard: &Shard, before: u64, change: CommandChange<'_>) {
    listener.hear(&Command { shard: shard.number, before, after: shard.command, change });
}

impl Shards {
    /// From now on `listener` hears of every command of the shards here. It replaces the listener before it. `None`:
    /// nobody listens. [`CommandListener`] has an example.
    pub fn tell(&mut self, listener: Option<Box<dyn CommandListener>>) {
        self.listener = Listener(listener);
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
    /// of one shard must come in their order. [`CommandListener`] has an example.
    ///
    /// # Errors
    /// The copy has another history than the owner, or there is no space. After an error about the history, the copy
    /// must not be used any more.
    pub fn replay(&mut self, command: &Command<'_>) -> Result<(), ReplayError> {
        let Command { shard: number, before, after, change } = *command;
        let Some(shard) = self.shard_mut(number) else { return Err(ReplayError::NotHere(number)) };
        if shard.command >= after {
            return Ok(());
        }
        if shard.command > before {
            return Err(ReplayError::OtherHistory { shard: number, has: shard.command, before });
        }
        shard.raise_command(before);
        match change {
            CommandChange::Part(part) => self.replay_part(number, &part)?,
            CommandChange::Pusher(record) => {
                self.replay_one(number, ShardCommand::Remember(record.entry()))?;
                self.incarnations.raise(record.pusher, record.incarnation);
            }
            CommandChange::Deletion(key) => self.replay_one(number, ShardCommand::Delete(key))?,
            CommandChange::Program(name, program) => {
                self.run_program(number, &name, program)?;
            }
        }
        match self.shard_mut(number).map_or(0, |shard| shard.command) {
            got if got == after => Ok(()),
            got => Err(ReplayError::OtherEffect { shard: number, want: after, got }),
        }
    }

    fn replay_one(&mut self, number: u32, command: ShardCommand) -> Result<(), PushError> {
        let at = self.places.place(number) as usize;
        self.apply_at(at, command).map(|_| ())
    }

    fn replay_part(&mut self, number: u32, part: &PushPart<'_>) -> Result<(), PushError> {
        let &PushPart { name, options, write, rows, keys, values } = part;
        let refused = rows.saturating_sub(keys.len() as u32);
        if !keys.is_empty() {
            return self.push_part(&name, (options, refused), write, keys, None, values).map(|_| ());
        }
        if let Some(shard) = self.shard_mut(number)
            && let PartStart::From(part) = shard.begin_part(&name, rows, options.total)?
        {
            shard.end_part(part, Some(0));
        }
        Ok(())
    }
}

//! Commands as values, and their listener: what the owner of some shards tells of each command.
//!
//! The owner tells each command once, after it is applied. Commands of one shard come in their order. The owner does
//! not tell what a restore puts into shards ([`Shards::restore_rows`](crate::Shards::restore_rows) and others), nor
//! numbers that a reader skips ([`Shards::snapshot_version`](crate::Shards::snapshot_version)). So a listener begins
//! after a restore, and each command brings the number of the one before it: a copy notices that it missed one.

use crate::index::hash_index::NONE;
use crate::push_name::PushName;
use crate::table::commands::program::Program;
use crate::table::owned::shard::Shard;
use crate::table::progress::pushers::{CLOSED, PusherEntry};
use crate::table::pushes::read_write::Write;

/// One change of a shard. [`CommandListener`] has an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CommandRecord<'a> {
    /// The number of the shard.
    pub shard: u32,
    /// The number of the shard's last command before this one. It is lower than `before` if readers have skipped
    /// numbers.
    pub previous: u64,
    /// The shard's number when this command began.
    pub before: u64,
    /// The number of this command. It is `before + 1`, unless a key occurs several times in a part.
    pub after: u64,
    /// What changes.
    pub change: CommandChange<'a>,
}

/// What a [`CommandRecord`] changes.
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
    /// Rows as they are after the command: what a copy gets that does not have all rows yet. Owners do not tell it by
    /// themselves ([`Shards::fill`](crate::Shards::fill)).
    Rows(RowStates<'a>),
    /// All else that a shard holds. Then the copy is whole.
    Memory(ShardMemory<'a>),
}

/// The rows of a push in one shard that travelled together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PushPart<'a> {
    /// The name of the push. `row` is the number of rows of its run in this shard that came before this part.
    pub name: PushName,
    /// The clock that the schedule of the learning rate follows.
    pub clock: u64,
    /// Rows of the whole push, over all shards; 0: unknown.
    pub total: u64,
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

/// Rows of a shard as they are after a command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowStates<'a> {
    /// The number of this piece in the fill of its shard, from 1. 0: these are the rows that the command has changed.
    pub piece: u64,
    /// The keys of the rows.
    pub keys: &'a [u64],
    /// [`Schema::floats`](crate::Schema::floats) floats for each key.
    pub rows: &'a [f32],
    /// Keys that have no row.
    pub gone: &'a [u64],
}

/// What a shard holds beside its rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShardMemory<'a> {
    /// The number of this last piece in the fill of its shard.
    pub piece: u64,
    /// What the shard remembers of each pusher, in the order of their places in the shard.
    pub pushers: &'a [PusherRecord],
    /// The bytes of the admission sketch; empty without admission by count.
    pub sketch: &'a [u8],
}

/// Hears of the commands of some shards.
///
/// ```
/// use gannet_core::{CommandListener, CommandRecord, PushName, Schema, Shards, Store, ToldShard, Write};
/// use gannet_optim::{Add, Rule};
///
/// /// A copy of the shards.
/// struct Copy(Shards);
///
/// impl CommandListener for Copy {
///     fn hear(&mut self, command: &CommandRecord<'_>, _: &mut ToldShard<'_>) {
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
    /// A command was applied to this shard.
    fn hear(&mut self, command: &CommandRecord<'_>, shard: &mut ToldShard<'_>);
}

/// A shard right after a command.
pub struct ToldShard<'a> {
    pub(crate) shard: &'a mut Shard,
    /// Floats of a row.
    pub(crate) floats: usize,
}

impl ToldShard<'_> {
    /// The rows of `of` as they are now: adds the keys that have a row to `keys`, their floats to `rows`, and the other
    /// keys to `gone`.
    pub fn states(&mut self, of: &[u64], keys: &mut Vec<u64>, rows: &mut Vec<f32>, gone: &mut Vec<u64>) {
        for &key in of {
            match self.shard.find(key) {
                NONE => gone.push(key),
                slot => {
                    keys.push(key);
                    rows.extend_from_slice(self.shard.image.row(slot).floats(self.floats));
                }
            }
        }
    }
}

impl PusherRecord {
    pub(crate) fn of(entry: &PusherEntry) -> PusherRecord {
        let PusherEntry { pusher, incarnation, seq, done, rows, total, .. } = *entry;
        PusherRecord { pusher, incarnation, seq, done, rows, total, closed: entry.is_closed() }
    }

    pub(crate) fn entry(&self) -> PusherEntry {
        let PusherRecord { pusher, incarnation, seq, done, rows, total, closed } = *self;
        let flags = if closed { CLOSED } else { 0 };
        PusherEntry { pusher, incarnation, seq, done, rows, total, flags, ..PusherEntry::default() }
    }
}

/// The listener of some shards, and the floats of their rows.
#[derive(Default)]
pub(crate) struct Listener(pub(crate) Option<(Box<dyn CommandListener>, usize)>);

impl Listener {
    /// Tells what a call did, if somebody listens. It began after command `before` of the shard.
    #[inline(always)]
    pub(crate) fn tell<'a>(
        &mut self,
        shard: &mut Shard,
        before: u64,
        change: impl FnOnce() -> CommandChange<'a>,
    ) {
        if let Some((listener, floats)) = &mut self.0 {
            tell(&mut **listener, &mut ToldShard { shard, floats: *floats }, before, change());
        }
    }
}

#[cold]
#[inline(never)]
fn tell(
    listener: &mut dyn CommandListener,
    told: &mut ToldShard<'_>,
    before: u64,
    change: CommandChange<'_>,
) {
    let shard = &*told.shard;
    let (number, previous, after) = (shard.number, shard.last_change(before), shard.command);
    listener.hear(&CommandRecord { shard: number, previous, before, after, change }, told);
}

//! Copies of another server's shards, as the backup holds them.

use gannet_core::{ReplayError, Shards, TableIdentity};
use gannet_wire::frames::command_payload;
use gannet_wire::frames::command_payload::CommandError;

/// Who began a stream: the epoch of the owner's place, and the session. A stream of a later one replaces it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StreamOrigin {
    pub(crate) epoch: u64,
    pub(crate) session: u32,
}

impl StreamOrigin {
    /// Whether a stream of this origin is older than one of another. An owner begins a stream when it has given up the
    /// link before, and what it sent over that link may come later. So may what an earlier owner sent.
    pub(crate) fn is_before(self, other: StreamOrigin) -> bool {
        let is_earlier = (other.session.wrapping_sub(self.session) as i32) > 0;
        self.epoch < other.epoch || self.epoch == other.epoch && is_earlier
    }
}

/// The copies of one stream.
pub(crate) struct Copies {
    pub(crate) stream: u64,
    pub(crate) origin: StreamOrigin,
    pub(crate) shards: Shards,
    /// As in `TableOpenedV4`.
    pub(crate) confirmed: bool,
    pub(crate) all_births: u64,
    /// A command failed. The copies stay until others replace them, so that nobody takes this for a backup without the
    /// table.
    pub(crate) has_failed: bool,
    /// Frames of the stream that came.
    pub(crate) frames: u64,
    /// The beginning of a command whose end has not come.
    pub(crate) words: Vec<u64>,
}

/// Why commands are refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
    #[error("commands cannot be read: {0}")]
    Command(#[from] CommandError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

impl Copies {
    pub(crate) fn identity(&self) -> TableIdentity {
        self.shards.identity()
    }

    /// The table's name.
    pub(crate) fn table(&self) -> &str {
        &self.shards.schema().name
    }

    /// Whether these are copies of the same shards as others, perhaps of another table of that name: a table may be
    /// made anew.
    pub(crate) fn is_about(&self, other: &Copies) -> bool {
        let part = |of: &Copies| (of.identity().server, of.identity().servers);
        let (own, others) = (self.shards.set(), other.shards.set());
        (self.table(), part(self)) == (other.table(), part(other)) && own.iter().any(|at| others.contains(at))
    }

    /// Whether the copies have all rows.
    pub(crate) fn are_whole(&self) -> bool {
        !self.has_failed && self.shards.are_whole()
    }

    /// Takes a frame of commands.
    pub(crate) fn take(&mut self, words: &[u64], more: bool) -> Result<(), CopyError> {
        let Copies { shards, words: begun, .. } = self;
        let floats = shards.schema().floats();
        let mut replay = |words: &[u64]| {
            command_payload::for_each(words, floats, |command| Ok::<(), CopyError>(shards.replay(command)?))
        };
        if begun.is_empty() && !more {
            return replay(words);
        }
        begun.extend_from_slice(words);
        if more {
            return Ok(());
        }
        let whole = std::mem::take(begun);
        replay(&whole)
    }
}

//! Changes of state that were computed before their row died. A change holds only together with the row that its worker
//! has read. So a shard refuses it if the row was deleted since.
//!
//! A refused row travels on as a row that is not finite: its first float is [`REFUSED`]. So the loop of a push has no
//! case for it, and a copy that replays the push refuses the same rows without deciding anything.

use crate::hash::{hash, shard_of};
use crate::image::layout::*;
use crate::limits::DELETIONS_MAX;
use crate::table::owned::shard::Shard;
use crate::table::owned::shards::Shards;
use crate::table::pushes::push_request::ReadAt;
use std::sync::atomic::Ordering::Relaxed;

/// The first float of a refused change: a NaN that no computation makes.
const REFUSED: u32 = 0x7fad_dead;

/// Whether the values of a row say that it was refused.
#[cold]
pub fn is_refused(value: &[f32]) -> bool {
    value.first().is_some_and(|first| first.to_bits() == REFUSED)
}

/// Keys that a shard has deleted since a command, sorted, and a filter before them: most keys are not among them.
enum Deleted {
    /// The shard remembers them no more: any key may be one.
    Any,
    These {
        filter: Box<[u64; FILTER_WORDS]>,
        keys: Vec<u64>,
    },
}

const FILTER_WORDS: usize = 256;

impl Deleted {
    fn since(shard: &Shard, since: u64) -> Deleted {
        let Some(mut keys) = shard.deletions_since(since) else { return Deleted::Any };
        keys.sort_unstable();
        let mut filter = Box::new([0; FILTER_WORDS]);
        for &key in &keys {
            let (word, bit) = place(hash(key));
            filter[word] |= bit;
        }
        Deleted::These { filter, keys }
    }

    fn has(&self, key: u64, hash: u64) -> bool {
        match self {
            Deleted::Any => true,
            Deleted::These { filter, keys } => {
                let (word, bit) = place(hash);
                filter[word] & bit != 0 && keys.binary_search(&key).is_ok()
            }
        }
    }
}

/// The bit of a key in the filter. The highest bits of a hash choose the shard, so these are lower ones.
fn place(hash: u64) -> (usize, u64) {
    ((hash >> 6) as usize % FILTER_WORDS, 1 << (hash % 64))
}

impl Shard {
    /// The command up to which the deletions of this shard were in rows that were read then.
    fn command_at(&self, read: ReadAt) -> u64 {
        if read.here { read.version } else { read.version.min(self.taken) }
    }

    /// The number of the last command that has deleted a row.
    fn last_deletion(&self) -> u64 {
        let forgotten = self.image.word(FORGOTTEN).load(Relaxed);
        let deleted = self.image.word(DELETED).load(Relaxed);
        let last = deleted.checked_sub(1).map_or(0, |last| {
            let [_, command] = self.image.deletion((last % DELETIONS_MAX as u64) as usize);
            command.load(Relaxed)
        });
        last.max(forgotten)
    }
}

impl Shards {
    /// The values of a push of changes that were computed from rows that were read `since`: those of rows that
    /// were deleted since are marked as refused. `None`: no row was.
    ///
    /// [`Shards::push_at`] does it by itself. A server that keeps changes for a later push does it when they come.
    pub fn refuse_changes(&self, since: ReadAt, keys: &[u64], values: &[f32]) -> Option<Vec<f32>> {
        if self.shards.iter().all(|shard| shard.last_deletion() <= shard.command_at(since)) {
            return None;
        }
        let floats = values.len().checked_div(keys.len())?;
        let (mut marked, mut at, mut deleted) = (None, usize::MAX, Deleted::Any);
        for (i, &key) in keys.iter().enumerate() {
            let hash = hash(key);
            let owner = self.places.place(shard_of(hash, self.schema.shards)) as usize;
            if owner != at {
                // The push itself refuses a shard that is not here.
                let shard = self.shards.get(owner)?;
                deleted = Deleted::since(shard, shard.command_at(since));
                at = owner;
            }
            if deleted.has(key, hash) {
                marked.get_or_insert_with(|| values.to_vec())[i * floats] = f32::from_bits(REFUSED);
            }
        }
        marked
    }
}

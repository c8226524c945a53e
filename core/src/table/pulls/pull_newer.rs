//! Pulls of changed rows: a row is answered only if it has changed since the reader last read it.
//!
//! Each answer has a snapshot version, and every later change of a row gets a higher row version. To ensure
//! this, a pull first raises the version counters of all shards here to the highest of them. So one number
//! tells how old all rows of an answer are: a row has changed since an answer exactly when its row version is
//! above the answer's snapshot version.
//!
//! Counters only grow while shards are open: pushes, frees and reused slots all raise them. Only a lost image
//! makes a counter start again. The shards then have another incarnation, in which older snapshot versions mean
//! nothing. So a reader stores the incarnation beside the snapshot version.
//!
//! A key without a row reads as its initial value, even if it once had a row, because shards do not remember
//! freed rows. A reader that caches the row learns that it is gone. A reader that already knows this gets no
//! answer for the key.

use crate::error::PullError;
use crate::hash::{hash, shard_of};
use crate::index::hash_index::NONE;
use crate::schema::segment::Segments;
use crate::table::owned::shards::Shards;
use crate::table::pushes::read_write::Read;

/// What a reader has cached of a key's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedVersion {
    /// Nothing is cached.
    Nothing,
    /// The reader knows that the key has no row.
    NoRow,
    /// The row is cached from an answer with this snapshot version, of this incarnation of the shards.
    Row(u64),
}

/// The answer for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewerRow {
    /// The cached state is still current.
    Same,
    /// The row has changed. The answer has its floats.
    Row,
    /// The key has no row. The answer has its initial value.
    NoRow,
}

impl Shards {
    /// A snapshot version: every later change gets a higher row version, and no earlier change has a higher
    /// one. This raises the version counters of all shards here to the snapshot version.
    pub fn snapshot_version(&mut self) -> u64 {
        let highest = self.shards.iter().map(|shard| shard.command).max().unwrap_or(0);
        self.shards.iter_mut().for_each(|shard| shard.raise_command(highest));
        highest
    }

    /// [`Shards::pull_segments`], but only of the rows that differ from what the reader has cached. `cached`
    /// has one entry for each key. Appends the answer for each key to `answers`, and its slot to `slots`. The
    /// floats of answered rows come first in `out`, one row after another. Returns the number of answered rows,
    /// and the snapshot version.
    ///
    /// # Errors
    /// As [`Shards::pull_segments`], or `cached` has another length than `keys`.
    #[allow(clippy::too_many_arguments)]
    pub fn pull_newer(
        &mut self,
        keys: &[u64],
        cached: &[CachedVersion],
        (read, segments): (Read, Segments),
        out: &mut [f32],
        slots: &mut Vec<u32>,
        answers: &mut Vec<NewerRow>,
    ) -> Result<(usize, u64), PullError> {
        if cached.len() != keys.len() {
            let (got, want) = (cached.len(), keys.len());
            return Err(PullError::Length { what: "cached row versions", got, want });
        }
        let from = slots.len();
        self.pull_segments(keys, read, segments, out, Some(slots))?;
        let floats = self.schema.read_floats_of(read, segments)?;
        let mut rows = 0;
        for (i, ((&key, &cached), &slot)) in keys.iter().zip(cached).zip(&slots[from..]).enumerate() {
            let newer = match (cached, slot) {
                (CachedVersion::NoRow, NONE) => NewerRow::Same,
                (_, NONE) => NewerRow::NoRow,
                (CachedVersion::Row(snapshot), slot) if self.version_of(key, slot) <= snapshot => {
                    NewerRow::Same
                }
                _ => NewerRow::Row,
            };
            answers.push(newer);
            if newer != NewerRow::Same {
                if rows != i {
                    out.copy_within(i * floats..(i + 1) * floats, rows * floats);
                }
                rows += 1;
            }
        }
        Ok((rows, self.snapshot_version()))
    }

    /// The row version of `key`, whose row is in this slot.
    fn version_of(&mut self, key: u64, slot: u32) -> u64 {
        let shard = self.places.place(shard_of(hash(key), self.schema.shards));
        self.shards[shard as usize].image.row(slot).version() >> 2
    }
}

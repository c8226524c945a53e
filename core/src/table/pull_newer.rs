//! Pulls of what is newer: a row is answered only if it has changed since whoever asks has read it.
//!
//! Each answer is stamped with a number, below which the version of no later change lies: the version counters of all shards
//! here are raised to the highest of them first. So one number says of every row of an answer how old it is, and a row is
//! newer than a stamp exactly when its version is above it. Counters only grow while shards are open, through pushes, frees
//! and new rows in old slots alike; a counter that begins anew (an image that was lost) is another life's, whose stamps mean
//! nothing here: whoever keeps stamps keeps the life beside them.
//!
//! A key without a row reads as its initial value, whatever it had before. Nobody remembers rows that are gone, so who holds
//! a row is told that there is none, and who holds none has nothing to hear.

use crate::error::PullError;
use crate::hash::{hash, shard_of};
use crate::image::layout::VERSION;
use crate::index::hash_index::NONE;
use crate::schema::segment::Segments;
use crate::table::read_write::Read;
use crate::table::shards::Shards;
use std::sync::atomic::Ordering::Release;

/// What whoever pulls holds of a key's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedVersion {
    /// Nothing.
    Nothing,
    /// That there was none.
    NoRow,
    /// The row as an answer with this stamp, of this life of the shards, has told.
    Row(u64),
}

/// What a pull tells of a key's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewerRow {
    /// It is as it is held.
    Same,
    /// The row.
    Row,
    /// There is none: its initial value.
    NoRow,
}

impl Shards {
    /// A number below the version of every change to come, and not below that of any that was.
    pub fn stamp(&mut self) -> u64 {
        let highest = self.shards.iter().map(|shard| shard.version).max().unwrap_or(0);
        for shard in self.shards.iter_mut().filter(|shard| shard.version < highest) {
            shard.version = highest;
            shard.image.word(VERSION).store(highest, Release);
        }
        highest
    }

    /// [`Shards::pull_segments`] of those rows that are not as they are `held`: appends to `told` what there is to tell of each
    /// key, and to `slots` its slot; the rows that are told of come first in `out`, one behind the other. Answers how many they
    /// are, and the answer's stamp.
    ///
    /// # Errors
    /// As [`Shards::pull_segments`], `held` too having an entry for each key.
    #[allow(clippy::too_many_arguments)]
    pub fn pull_newer(
        &mut self,
        keys: &[u64],
        held: &[CachedVersion],
        (read, segments): (Read, Segments),
        out: &mut [f32],
        slots: &mut Vec<u32>,
        told: &mut Vec<NewerRow>,
    ) -> Result<(usize, u64), PullError> {
        if held.len() != keys.len() {
            let (got, want) = (held.len(), keys.len());
            return Err(PullError::Length { what: "rows that are held", got, want });
        }
        let from = slots.len();
        self.pull_segments(keys, read, segments, out, Some(slots))?;
        let floats = self.schema.read_floats_of(read, segments)?;
        let mut rows = 0;
        for (i, ((&key, &held), &slot)) in keys.iter().zip(held).zip(&slots[from..]).enumerate() {
            let newer = match (held, slot) {
                (CachedVersion::NoRow, NONE) => NewerRow::Same,
                (_, NONE) => NewerRow::NoRow,
                (CachedVersion::Row(stamp), slot) if self.version_of(key, slot) <= stamp => NewerRow::Same,
                _ => NewerRow::Row,
            };
            told.push(newer);
            if newer != NewerRow::Same {
                if rows != i {
                    out.copy_within(i * floats..(i + 1) * floats, rows * floats);
                }
                rows += 1;
            }
        }
        Ok((rows, self.stamp()))
    }

    /// When the row of `key`, which is in this slot, changed last.
    fn version_of(&mut self, key: u64, slot: u32) -> u64 {
        let shard = shard_of(hash(key), self.schema.shards) - self.first;
        self.shards[shard as usize].image.row(slot).version() >> 2
    }
}

//! Cuts: the state of a shard at one command, which is read while the shard goes on changing.
//!
//! A cut is marked between two commands. From then on a reader takes its rows in slices, in the order of the slots. A
//! row that is about to change before the reader has reached it is saved first. So the reader gets every row as it was
//! at the mark, once, and the shard needs no copy of itself.
//!
//! A cut can be a *delta*: the rows and deletions above an earlier position. Pages of slots without such rows are
//! skipped. If the ring of deletions has forgotten what the delta needs, the cut is full instead, and says so.

use crate::image::layout::*;
use crate::image::row_version::LIVE;
use crate::index::hash_index::NONE;
use crate::table::cuts::saved_rows::{Cut, CutReader};
use crate::table::owned::position::Position;
use crate::table::owned::shard::Shard;
use crate::table::owned::shards::Shards;
use crate::table::owned::slots::SlotRange;
use std::sync::atomic::Ordering::Relaxed;

/// The latest cuts of a shard for checkpoints at which a delta can begin.
const BASES_MAX: usize = 64;

/// The latest cuts for followers at which a delta can begin. Followers cut several times a second.
const FOLLOWED_MAX: usize = 1024;

/// How many slots a slice visits for each row that it may return.
const VISITS_A_ROW: usize = 16;

/// What a cut contains of a shard. [`Shards::mark_cut`] has an example.
#[derive(Clone, Debug, PartialEq)]
pub struct MarkedShard {
    /// The place of the cut in the shard's history.
    pub position: Position,
    /// The cut holds what changed above this command; 0: all rows.
    pub from: u64,
    /// The keys of a delta whose rows were deleted, in ascending order. None of them has a row in the cut.
    pub deletions: Vec<u64>,
    /// For a checkpoint: the bytes of the admission sketch. Empty without admission by count.
    pub sketch: Vec<u8>,
}

/// How much of a cut has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutProgress {
    /// There may be more rows.
    More,
    /// The reader has all rows.
    End,
}

impl Shard {
    /// Marks a cut. An earlier cut of the same reader ends.
    fn mark_cut(&mut self, reader: CutReader, from: u64, floats: usize, sketch: usize) -> MarkedShard {
        let known = if self.is_base(from) { self.deletions_since(from) } else { None };
        let (from, mut deletions) = known.map_or((0, Vec::new()), |deletions| (from, deletions));
        // A key that has a row again is among the rows of the delta.
        deletions.sort_unstable();
        deletions.dedup();
        deletions.retain(|&key| self.find(key) == NONE);
        let end = self.image.word(HIGH_WATER).load(Relaxed) as u32;
        let (at, slots) = (self.command, SlotRange { next: 0, end });
        self.end_cut(reader);
        self.cuts.push(Cut { reader, from, at, slots, floats, keys: Vec::new(), rows: Vec::new() });
        self.mark();
        self.note_base(reader);
        let sketch = match reader {
            CutReader::Checkpoint => self.sketch_bytes(sketch),
            CutReader::Follower(_) => Vec::new(),
        };
        MarkedShard { position: self.position(), from, deletions, sketch }
    }

    /// Notes that a delta can begin at this command. Followers do not displace what checkpoints begin at.
    fn note_base(&mut self, reader: CutReader) {
        match reader {
            CutReader::Checkpoint => {
                if self.bases.len() == BASES_MAX {
                    self.bases.remove(1);
                }
                self.bases.push(self.command);
            }
            CutReader::Follower(_) => {
                if self.followed.len() == FOLLOWED_MAX {
                    self.followed.pop_front();
                }
                self.followed.push_back(self.command);
            }
        }
    }

    /// Whether a delta can begin at this command: a cut was marked there, or the shard was not open yet. Pages of slots
    /// tell nothing about other commands.
    fn is_base(&self, from: u64) -> bool {
        let is_marked = || self.bases.contains(&from) || self.followed.binary_search(&from).is_ok();
        from > 0 && (from <= self.bases[0] || is_marked())
    }

    /// Ends the cut of a reader: rows are not saved for it any more.
    fn end_cut(&mut self, reader: CutReader) {
        self.cuts.retain(|cut| cut.reader != reader);
    }

    /// Saves the row in `slot`, which is about to change, for the cuts that need it.
    pub(crate) fn save_for_cuts(&mut self, slot: u32) {
        if self.cuts.is_empty() {
            return;
        }
        let row = self.image.row(slot);
        let (version, key) = (row.version(), row.key());
        let counter = version >> 2;
        for cut in &mut self.cuts {
            let contains = version & LIVE != 0 && counter > cut.from && counter <= cut.at;
            if contains && slot >= cut.slots.next && slot < cut.slots.end {
                cut.keys.push(key);
                cut.rows.extend_from_slice(self.image.row(slot).floats(cut.floats));
            }
        }
    }

    /// Passes up to `most` rows of a reader's cut to `row`.
    fn read_cut(
        &mut self,
        reader: CutReader,
        most: usize,
        mut row: impl FnMut(&[u64], &[f32]),
    ) -> CutProgress {
        let Some(at) = self.cuts.iter().position(|cut| cut.reader == reader) else { return CutProgress::End };
        let mut cut = self.cuts.swap_remove(at);
        row(&cut.keys, &cut.rows);
        let mut rows = cut.keys.len();
        (cut.keys, cut.rows) = (Vec::new(), Vec::new());
        let mut visits = most.saturating_mul(VISITS_A_ROW);
        while rows < most
            && let Some((slot, version)) = self.next_changed(cut.from, &mut cut.slots, &mut visits)
        {
            let r = self.image.row(slot);
            if version & LIVE != 0 && version >> 2 <= cut.at {
                row(&[r.key()], r.floats(cut.floats));
                rows += 1;
            }
        }
        if cut.slots.next < cut.slots.end {
            self.cuts.push(cut);
            return CutProgress::More;
        }
        CutProgress::End
    }

    /// Floats of saved rows that the reader has not taken yet.
    fn saved_floats(&self, reader: CutReader) -> usize {
        self.cuts.iter().filter(|cut| cut.reader == reader).map(|cut| cut.rows.len()).sum()
    }
}

impl Shards {
    /// The place of each shard in its history, in the order of the shards.
    pub fn positions(&self) -> Vec<Position> {
        self.shards.iter().map(Shard::position).collect()
    }

    /// Marks a cut of all shards here for a reader, which [`read_cut`](Self::read_cut) reads while pushes go on. `from`
    /// has the position of an earlier cut for some of the shards: where it is of the same history, the new cut is a
    /// delta above it. A position from before the shards were opened is one, too. The other shards are cut in full. An
    /// earlier cut of the same reader is given up. Cuts of several readers may be read at once.
    ///
    /// ```
    /// # use gannet_core::{CutProgress, CutReader, PushName, Schema, Shards, Store, Write};
    /// # use gannet_optim::{Add, Rule};
    /// let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
    /// let mut shards = Shards::open(&Store::memory(), &schema, 0..1)?;
    /// let name = |seq| PushName { pusher: 1, incarnation: 1, seq, row: 0 };
    /// shards.push(&name(1), Write::Gradient, &[7, 8], None, &[1.0, 2.0])?;
    ///
    /// let reader = CutReader::Checkpoint;
    /// let full = shards.mark_cut(reader, &[]);
    /// shards.push(&name(2), Write::Gradient, &[8], None, &[5.0])?; // after the mark: not in the cut
    /// let mut sum = 0.0;
    /// while shards.read_cut(reader, 0, 1000, |_keys, rows| sum += rows.iter().sum::<f32>()) == CutProgress::More {}
    /// assert_eq!(sum, 3.0);
    ///
    /// shards.mark_cut(reader, &[full[0].position]);
    /// let mut changed = Vec::new();
    /// while shards.read_cut(reader, 0, 1000, |keys, _rows| changed.extend_from_slice(keys)) == CutProgress::More {}
    /// assert_eq!(changed, [8]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mark_cut(&mut self, reader: CutReader, from: &[Position]) -> Vec<MarkedShard> {
        let (floats, sketch) = (self.schema.floats(), self.schema.admission.sketch_bytes());
        let mark = |shard: &mut Shard| {
            let now = shard.position();
            let known = from.iter().find(|p| p.is_comparable(&now) && p.command <= now.command);
            shard.mark_cut(reader, known.map_or(0, |p| p.command), floats, sketch)
        };
        self.shards.iter_mut().map(mark).collect()
    }

    /// Whether a reader has a cut of this shard, of which it has not read all.
    pub fn has_cut(&self, reader: CutReader, shard: u32) -> bool {
        let at = self.places.place(shard) as usize;
        self.shards.get(at).is_some_and(|shard| shard.cuts.iter().any(|cut| cut.reader == reader))
    }

    /// Passes about `most` rows of a reader's cut of a shard to `rows`, in one or several calls: keys, and
    /// [`Schema::floats`] floats for each. Rows that were saved since the last call all come first. A shard that is not
    /// here, or has no cut, has no rows.
    ///
    /// [`Schema::floats`]: crate::Schema::floats
    pub fn read_cut(
        &mut self,
        reader: CutReader,
        shard: u32,
        most: usize,
        rows: impl FnMut(&[u64], &[f32]),
    ) -> CutProgress {
        match self.shard_mut(shard) {
            Some(shard) => shard.read_cut(reader, most, rows),
            None => CutProgress::End,
        }
    }

    /// Gives up a reader's cuts of all shards here.
    pub fn end_cut(&mut self, reader: CutReader) {
        self.shards.iter_mut().for_each(|shard| shard.end_cut(reader));
    }

    /// Bytes of the rows that were saved for a reader's cuts and that it has not taken yet. Who reads a cut keeps this
    /// bounded: it reads before it lets more pushes in, or gives the cut up.
    pub fn saved_bytes(&self, reader: CutReader) -> usize {
        self.shards.iter().map(|shard| shard.saved_floats(reader) * 4).sum()
    }
}

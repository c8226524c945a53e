//! Which thread of a backup keeps the copy of which shard of a table, and how far the copies are filled.

use super::queue::ThreadStream;
use crate::frames::control::CopyV1;

/// How much of a shard is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    NotBegun,
    /// The rows before this slot, in so many pieces.
    Upto {
        slot: u32,
        piece: u64,
    },
    /// All: from now on its commands are told.
    Whole,
}

/// The stream of a table to one backup.
pub(super) struct TableStream {
    id: u64,
    /// One for each thread of the backup.
    threads: Vec<ThreadStream>,
    /// Shard, the thread that keeps it, and how far it is, in ascending order.
    shards: Vec<(u32, usize, Fill)>,
    /// Shards that are not whole.
    unfilled: usize,
}

impl TableStream {
    /// `threads` has the copies that each thread of the backup keeps.
    pub(super) fn new(stream: u64, threads: &[CopyV1]) -> TableStream {
        let of = |(thread, copies): (usize, &CopyV1)| {
            copies.births.iter().map(move |&(shard, _)| (shard, thread, Fill::NotBegun)).collect::<Vec<_>>()
        };
        let mut shards: Vec<_> = threads.iter().enumerate().flat_map(of).collect();
        shards.sort_unstable_by_key(|(shard, ..)| *shard);
        let unfilled = shards.len();
        TableStream {
            id: stream,
            threads: vec![ThreadStream { stream, number: 0 }; threads.len()],
            shards,
            unfilled,
        }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    fn place(&self, shard: u32) -> Option<usize> {
        self.shards.binary_search_by_key(&shard, |(shard, ..)| *shard).ok()
    }

    /// The thread that keeps a shard, and the stream to it.
    pub(super) fn thread(&mut self, shard: u32) -> Option<(usize, &mut ThreadStream)> {
        let (_, thread, _) = self.shards[self.place(shard)?];
        Some((thread, &mut self.threads[thread]))
    }

    /// How much of a shard is told.
    pub(super) fn fill(&self, shard: u32) -> Fill {
        self.place(shard).map_or(Fill::NotBegun, |place| self.shards[place].2)
    }

    pub(super) fn set_fill(&mut self, shard: u32, fill: Fill) {
        if let Some(place) = self.place(shard) {
            self.shards[place].2 = fill;
            self.unfilled -= usize::from(fill == Fill::Whole);
        }
    }

    /// The first shard that is not whole.
    pub(super) fn next_fill(&self) -> Option<(u32, Fill)> {
        if self.is_whole() {
            return None;
        }
        let unfilled = self.shards.iter().find(|(.., fill)| *fill != Fill::Whole);
        unfilled.map(|&(shard, _, fill)| (shard, fill))
    }

    pub(super) fn is_whole(&self) -> bool {
        self.unfilled == 0
    }
}

//! Which thread of a backup keeps the copy of which shard of a table, and how far the copies are filled.

use crate::replication::queue::ThreadStream;
use gannet_wire::messages::control::CopyV1;

/// How much of a shard is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
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
pub(crate) struct TableStream {
    id: u64,
    /// One for each thread of the backup.
    threads: Vec<ThreadStream>,
    /// Shard, the thread that keeps it, and how far it is, in ascending order.
    shards: Vec<(u32, usize, Fill)>,
    /// Shards that are not whole.
    unfilled: usize,
    /// The backup may take the place of this table already. So workers wait until it has all rows: a new table has
    /// none.
    is_awaited: bool,
    /// How many commands and pieces were told when the last shard became whole.
    whole_at: u64,
}

impl TableStream {
    /// `threads` has the copies that each thread of the backup keeps.
    pub(crate) fn new(stream: u64, threads: &[CopyV1], is_awaited: bool) -> TableStream {
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
            is_awaited,
            whole_at: 0,
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    fn place(&self, shard: u32) -> Option<usize> {
        self.shards.binary_search_by_key(&shard, |(shard, ..)| *shard).ok()
    }

    /// The thread that keeps a shard, and the stream to it.
    pub(crate) fn thread(&mut self, shard: u32) -> Option<(usize, &mut ThreadStream)> {
        let (_, thread, _) = self.shards[self.place(shard)?];
        Some((thread, &mut self.threads[thread]))
    }

    /// How much of a shard is told.
    pub(crate) fn fill(&self, shard: u32) -> Fill {
        self.place(shard).map_or(Fill::NotBegun, |place| self.shards[place].2)
    }

    /// `told`: how many commands and pieces were told until now.
    pub(crate) fn set_fill(&mut self, shard: u32, fill: Fill, told: u64) {
        if let Some(place) = self.place(shard) {
            self.shards[place].2 = fill;
            self.unfilled -= usize::from(fill == Fill::Whole);
            self.whole_at = told;
        }
    }

    /// Whether workers wait until the backup has all rows.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// How many commands and pieces the backup must have acknowledged to have all rows that were there before it had
    /// each command. `None`: some rows are not told.
    pub(crate) fn whole_at(&self) -> Option<u64> {
        self.is_whole().then_some(self.whole_at)
    }

    /// The first shard that is not whole.
    pub(crate) fn next_fill(&self) -> Option<(u32, Fill)> {
        if self.is_whole() {
            return None;
        }
        let unfilled = self.shards.iter().find(|(.., fill)| *fill != Fill::Whole);
        unfilled.map(|&(shard, _, fill)| (shard, fill))
    }

    /// Shards that are whole, of how many.
    pub(crate) fn progress(&self) -> (u64, u64) {
        ((self.shards.len() - self.unfilled) as u64, self.shards.len() as u64)
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.unfilled == 0
    }
}

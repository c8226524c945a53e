//! The cut of a thread: which pushes it holds back, and what is being written.

use crate::cuts::absences::Absences;
use crate::cuts::parts::CutParts;
use crate::cuts::stream::CutStream;
use crate::cuts::writer::{CutBlock, CutExecutor, CutFileId, CutWriter, WriterState};
use crate::limits::{CUT_SAVED_BYTES_MAX, CUT_UNASKED};
use crate::tables::table::ServerTable;
use gannet_core::{CutReader, PushName, Shards};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// A cut that is being written.
pub(crate) struct Writing {
    pub(crate) writer: CutWriter,
    /// The shards that are not read to their end: table on this thread, shard, floats of a row.
    pub(crate) left: Vec<(CutFileId, u32)>,
    /// A block that the writer could not take yet.
    pub(crate) waiting: Option<CutBlock>,
}

/// What a thread's turn of writing came to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CutTurn {
    /// There is nothing to write.
    Idle,
    /// There is more to write at once.
    More,
    /// The writer is behind.
    Behind,
}

/// The cut of a thread, and where its rows are written.
#[derive(Default)]
pub(crate) struct Checkpoints {
    pub(crate) cuts: Cuts,
    /// Where checkpoints are written.
    pub(crate) directory: Option<gannet_core::CheckpointDir>,
    /// Where their files are written.
    pub(crate) executor: CutExecutor,
}

/// The cuts of this thread.
#[derive(Default)]
pub(crate) struct Cuts {
    /// The cut that holds pushes back, or is to be released.
    pub(crate) cut: Option<ThreadCut>,
    /// Cuts that are marked and released: that of a checkpoint which is written, and those that followers read.
    pub(crate) released: Vec<ThreadCut>,
    /// Which pushers have no session here.
    pub(crate) absences: Absences,
}

#[derive(Default)]
pub(crate) struct ThreadCut {
    pub(crate) number: u64,
    /// The run whose tables are cut; empty: all tables.
    pub(crate) run: String,
    /// The session of the coordinator. The cut ends with it.
    pub(crate) session: u32,
    /// Pushes are held back until then, at the latest; `None`: they are not held back.
    pub(crate) until: Option<Duration>,
    /// Since when pushes are held back, or were.
    pub(crate) since: Duration,
    /// When the coordinator last asked for something.
    pub(crate) asked: Duration,
    /// The tables that are cut. Pushes to other tables are not held back.
    pub(crate) tables: HashSet<u32>,
    /// The last push of each table's pushers that is let in while pushes are held back.
    pub(crate) admitted: HashMap<(u32, u64), (u64, u64)>,
    /// The steps below these may be applied meanwhile, by table.
    pub(crate) steps: HashMap<u32, u64>,
    /// Pushes that were held back, one for each pusher.
    pub(crate) held: HashMap<(u32, u64), (u64, u64)>,
    /// Pushers of data whose end was held back.
    pub(crate) closing: HashSet<u64>,
    /// Pushers of data whose end is let in while pushes are held back.
    pub(crate) closes: HashSet<u64>,
    /// A follower reads it.
    pub(crate) for_follower: bool,
    pub(crate) writing: Option<Writing>,
    pub(crate) stream: Option<CutStream>,
    pub(crate) parts: CutParts,
}

impl Cuts {
    /// Whether this push must wait: a cut holds it back, or the rows saved for a checkpoint are too many.
    #[inline]
    pub(crate) fn holds(&mut self, table: u32, name: &PushName, shards: &Shards) -> bool {
        let held = self.cut.as_mut().is_some_and(|cut| cut.holds(table, name));
        held || (!self.released.is_empty() && self.is_behind(shards))
    }

    /// Whether the writer of a checkpoint is so far behind that pushes to these shards wait for it.
    #[cold]
    fn is_behind(&self, shards: &Shards) -> bool {
        self.checkpoint().is_some() && shards.saved_bytes(CutReader::Checkpoint) > CUT_SAVED_BYTES_MAX
    }

    /// The checkpoint that is being written.
    pub(crate) fn checkpoint(&self) -> Option<&ThreadCut> {
        self.released.iter().chain(&self.cut).find(|cut| cut.writing.is_some())
    }

    /// What is being written.
    pub(crate) fn writing(&mut self) -> Option<&mut Writing> {
        self.released.iter_mut().chain(&mut self.cut).find_map(|cut| cut.writing.as_mut())
    }

    /// The cut with this number.
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut ThreadCut> {
        self.released.iter_mut().chain(&mut self.cut).find(|cut| cut.number == number)
    }

    /// Whether a checkpoint is being taken.
    pub(crate) fn is_taken(&self) -> bool {
        self.cut.is_some() || self.checkpoint().is_some()
    }

    /// The numbers of the cuts that a session has.
    pub(crate) fn of_session(&self, session: u32) -> Vec<u64> {
        let own = self.released.iter().chain(&self.cut).filter(|cut| cut.session == session);
        own.map(|cut| cut.number).collect()
    }

    /// Takes the cut with this number out.
    pub(crate) fn take(&mut self, number: u64) -> Option<ThreadCut> {
        if self.cut.as_ref().is_some_and(|cut| cut.number == number) {
            return self.cut.take();
        }
        let at = self.released.iter().position(|cut| cut.number == number)?;
        Some(self.released.swap_remove(at))
    }

    /// Whether shards of a table here are part of the cut.
    pub(crate) fn covers(&self, table: &ServerTable) -> bool {
        table.shards.is_some() && self.cut.as_ref().is_some_and(|cut| cut.covers(table))
    }

    /// Whether the end of this data must wait: the cut has it on all threads, or on none.
    pub(crate) fn holds_close(&mut self, table: u32, pusher: u64) -> bool {
        let held = self.is_held(table);
        let Some(cut) = self.cut.as_mut().filter(|cut| held && !cut.closes.contains(&pusher)) else {
            return false;
        };
        cut.closing.insert(pusher);
        true
    }

    /// Whether pushes to a table are held back now.
    pub(crate) fn is_held(&self, table: u32) -> bool {
        self.cut.as_ref().is_some_and(|cut| cut.until.is_some() && cut.tables.contains(&table))
    }

    /// The first synchronous step of a table that must wait for the cut.
    pub(crate) fn step_limit(&self, table: u32) -> Option<u64> {
        let cut = self.cut.as_ref().filter(|cut| cut.until.is_some())?;
        cut.steps.get(&table).copied()
    }
}

impl ThreadCut {
    /// Whether a table belongs to the run. The table may have no shard here.
    pub(crate) fn covers(&self, table: &ServerTable) -> bool {
        let name = &table.schema.name;
        let own = name.strip_prefix(&self.run).is_some_and(|rest| rest.starts_with('.'));
        !name.is_empty() && (self.run.is_empty() || own)
    }

    /// Whether this push must wait until the cut is released.
    #[cold]
    fn holds(&mut self, table: u32, name: &PushName) -> bool {
        let last = (name.incarnation, name.seq);
        if self.until.is_some() && self.tables.contains(&table) {
            let admitted = self.admitted.get(&(table, name.pusher));
            if admitted.is_none_or(|&admitted| last > admitted) {
                self.held.insert((table, name.pusher), last);
                return true;
            }
        }
        false
    }

    /// Who reads the rows of the cut.
    pub(crate) fn reader(&self) -> CutReader {
        if self.for_follower { CutReader::Follower(self.number) } else { CutReader::Checkpoint }
    }
}

impl ThreadCut {
    /// Whether its coordinator asks. If it does not, another one may take its place: the connection of a coordinator
    /// whose host has vanished ends much later.
    pub(crate) fn is_busy(&self, now: Duration) -> bool {
        self.until.is_some() || now < self.asked + CUT_UNASKED
    }

    pub(crate) fn is_written(&self) -> bool {
        self.writing.as_ref().is_some_and(|writing| matches!(writing.writer.state(), WriterState::Written(_)))
    }
}

//! How a worker gets its incarnation: a server hands it out, of one counter for the run, and no clock is asked.

use super::tables::{ControlReply, ControlRequest, Recipients};
use super::{Worker, WorkerConfig};
use crate::counters::WorkerCounters;
use crate::error::WorkerError;
use crate::frames::{AllocateFrame, AllocatedFrame, FrameKind};
use gannet_transport::Net;
use std::sync::Arc;

/// What a session says that has no incarnation yet, or needs none: it may read and ask, and a push is refused.
pub const NO_INCARNATION: u64 = 0;

/// What asks [`Worker::connect`] to have the servers number this life, by [`Worker::allocate_incarnation`].
pub const NEXT_INCARNATION: u64 = u64::MAX;

impl WorkerConfig {
    /// Of one who reads and asks, and never pushes: it needs no incarnation.
    pub fn reader(servers: impl IntoIterator<Item = impl Into<String>>) -> WorkerConfig {
        WorkerConfig::new(servers, u64::from(u32::MAX), NO_INCARNATION)
    }
}

impl<N: Net> Worker<N> {
    /// Takes an incarnation that no life of any worker has had on these servers, larger than all before: one process
    /// asks once, when it starts. Two that ask at once get two numbers.
    ///
    /// `config.servers` are all servers of the run in any order, and its scheduler if it is a process of its own. Of
    /// those that have tables, the one whose address comes first in the order of text hands the number out, above what
    /// the others know of: so all workers must write the addresses alike.
    ///
    /// # Errors
    /// One of them could not be reached for `peer_timeout`, or it refused: its counter cannot be kept.
    pub fn allocate_incarnation(net: N, config: &WorkerConfig) -> Result<u64, WorkerError> {
        Worker::allocate_incarnation_told(net, config, Arc::default())
    }

    /// [`Worker::allocate_incarnation`] with its counts in `tally`, which can be told of while it waits for a server.
    /// The tally may be that of a worker of the same thread.
    ///
    /// # Errors
    /// As [`Worker::allocate_incarnation`].
    pub fn allocate_incarnation_told(
        net: N,
        config: &WorkerConfig,
        tally: Arc<WorkerCounters>,
    ) -> Result<u64, WorkerError> {
        let (links, wanted) = (tally.links.get(), tally.links_wanted.get());
        let config = WorkerConfig { incarnation: NO_INCARNATION, one_thread: true, ..config.clone() };
        let allocated =
            Worker::connect_told(net, config, tally.clone()).and_then(|mut worker| worker.number());
        // The links of this call are gone.
        tally.links.set(links);
        tally.links_wanted.set(wanted);
        allocated
    }

    /// The next number that the servers hand out.
    fn number(&mut self) -> Result<u64, WorkerError> {
        let all: Vec<usize> = (0..self.peers.len()).collect();
        let known = self.allocate(0, true, &all)?;
        let floor = known.iter().map(|answer| answer.0).max().unwrap_or(0);
        // All ask the same one, in whatever order they name the servers. Where none hands out any, the first one says
        // why.
        let addr = |&at: &usize| &self.peers[at].addr;
        let chosen = (0..known.len()).filter(|&at| known[at].1).min_by_key(addr).unwrap_or(0);
        match *self.allocate(floor, false, &[chosen])? {
            [(number, _)] if number > floor => Ok(number),
            ref other => Err(self.no_incarnation(chosen, format!("incarnations {other:?} above {floor}"))),
        }
    }

    /// Asks thread 0 of each of these servers: a number, and whether it hands out any.
    fn allocate(&mut self, floor: u64, look: bool, of: &[usize]) -> Result<Vec<(u64, bool)>, WorkerError> {
        let ask = ControlRequest::new(&AllocateFrame { floor, look });
        let answers = self.ask(&ask, Recipients::Links(of))?;
        if answers.len() != of.len() {
            return Err(self.no_incarnation(of[0], "fewer answers than requests".into()));
        }
        let read = |answer: &ControlReply| match AllocatedFrame::decode(&answer.head) {
            Ok(AllocatedFrame { incarnation, hands_out }) => Ok((incarnation, hands_out)),
            Err(error) => Err(self.no_incarnation(answer.link, error.to_string())),
        };
        answers.iter().map(read).collect()
    }

    fn no_incarnation(&self, peer: usize, what: String) -> WorkerError {
        WorkerError::Protocol { peer: self.peers[peer].name.clone(), what }
    }
}

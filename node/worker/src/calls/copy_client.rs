//! What a server's replicator asks of a backup: its blocks of commands, many at a time.

use crate::error::WorkerError;
use crate::limits::IDLE_PINGS;
use crate::links::attempts::check_wait;
use crate::links::control::post_on;
use crate::links::owners::move_server;
use crate::links::peer::Peer;
use crate::requests::control::{ControlReply, ControlRequest, Recipients};
use crate::requests::ids::InFlightId;
use crate::requests::in_flight::ControlInFlight;
use crate::worker::Worker;
use bytemuck::cast_slice;
use gannet_transport::{Net, Poll};
use gannet_wire::command_block::Block;
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::replication::{CommandsFrame, CopyFrame, PromoteFrame, PromotedFrame, StateFrame};
use gannet_wire::frames::unsent::UnsentFrame;
use std::time::Duration;

/// The links to a backup.
#[derive(Debug, Clone, Copy)]
pub struct BackupLinks {
    /// Threads of the backup.
    pub threads: usize,
    /// The incarnation of the backup.
    pub incarnation: u64,
    layout: u64,
}

/// A block under way.
#[derive(Debug, Clone, Copy)]
pub struct BlockRequest(InFlightId);

impl<N: Net> Worker<N> {
    /// Makes the copies that the connected servers keep of server `server` of `servers` the owner of its shards.
    /// `epoch` must be above that of the owner before, which must not serve any more. Returns the number of tables.
    ///
    /// # Errors
    /// A thread does not have all rows of all of its copies, or a peer is lost for good.
    pub fn promote_backup(&mut self, server: u32, servers: u32, epoch: u64) -> Result<u32, WorkerError> {
        let replies =
            self.ask(&ControlRequest::new(&PromoteFrame { server, servers, epoch }), Recipients::All)?;
        let tables =
            |reply: &ControlReply| PromotedFrame::decode(&reply.head).map_or(0, |frame| frame.tables);
        Ok(replies.iter().map(tables).max().unwrap_or(0))
    }

    /// From now on the server at address `from` is at address `to`. The worker makes the links to it again, and sends
    /// unacknowledged requests again.
    pub fn replace_server(&mut self, from: &str, to: &str) {
        let all = 0..self.links.config.servers.len();
        let moved: Vec<usize> = all.filter(|server| self.links.config.servers[*server] == from).collect();
        moved.into_iter().for_each(|server| move_server(&mut self.links, server, to));
    }

    /// The links to the backup, as they are now.
    #[doc(hidden)]
    pub fn backup_links(&self) -> BackupLinks {
        let incarnation = self.links.peers[0].session.incarnation;
        BackupLinks { threads: self.links.wanted().count(), layout: self.links.layout, incarnation }
    }

    /// Wakes this worker while it waits.
    #[doc(hidden)]
    pub fn waker(&self) -> N::Waker {
        self.links.poll.waker()
    }

    /// Sends a block to a thread of the backup.
    ///
    /// # Errors
    /// A link failed for good.
    #[doc(hidden)]
    pub fn begin_block(&mut self, thread: usize, block: Block) -> Result<BlockRequest, WorkerError> {
        let (frame, payload) = match block {
            Block::Copy { stream, epoch, keeps, payload } => {
                (UnsentFrame::new(&CopyFrame { stream, epoch, keeps }), payload)
            }
            Block::State { stream, number, more, epoch, payload } => {
                (UnsentFrame::new(&StateFrame { stream, number, more, epoch }), payload)
            }
            Block::Commands { stream, number, more, words } => {
                let frame = CommandsFrame { stream, number, more };
                (UnsentFrame::new(&frame), cast_slice(&words).to_vec())
            }
        };
        let (now, bytes) = (self.links.net.now(), payload.len());
        let control = ControlInFlight { frame, payloads: vec![payload], ..ControlInFlight::default() };
        post_on(&mut self.links, thread, control, bytes, now).map(BlockRequest)
    }

    /// Waits until something has happened, at most for `patience`.
    ///
    /// # Errors
    /// The backup refused a block, stayed away for the peer timeout, or was started again: it has no copies any more.
    #[doc(hidden)]
    pub fn wait_for_blocks(&mut self, links: BackupLinks, patience: Duration) -> Result<(), WorkerError> {
        self.pump(patience)?;
        self.check_idle_links()?;
        let other = self.links.layout != links.layout;
        match self.links.peers.iter().find(|peer| peer.session.incarnation != links.incarnation || other) {
            None => Ok(()),
            Some(peer) => Err(WorkerError::Protocol {
                peer: peer.name.clone(),
                what: "the backup was started again, and has no copies".into(),
            }),
        }
    }

    /// Notices a backup that dies while nothing is under way. Otherwise it would stay in the set of backups, and the
    /// next command would wait for it for the whole time limit, after all that the same death has delayed before.
    fn check_idle_links(&mut self) -> Result<(), WorkerError> {
        let now = self.links.net.now();
        for number in 0..self.links.peers.len() {
            let Peer { link, health, requests, .. } = &self.links.peers[number];
            let silent = now.saturating_sub(health.worked_at().max(health.linked_at));
            if !self.links.peers[number].is_wanted() {
                continue;
            }
            if link.is_none() || !requests.queue.is_empty() {
                check_wait(&mut self.links, &self.tables, number, now)?;
            } else if silent >= self.links.config.peer_timeout / IDLE_PINGS {
                self.links.ping(number, now)?;
            }
        }
        Ok(())
    }

    /// Whether a block is acknowledged. If so, the request is over.
    #[doc(hidden)]
    pub fn finish_block(&mut self, BlockRequest(id): BlockRequest) -> bool {
        let over = self.links.flights.get(id).is_some_and(|flight| flight.left == 0);
        over && self.links.flights.take(id.index).is_some()
    }
}

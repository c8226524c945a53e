//! One thread of one server as the worker sees it: a link while there is one, and the requests that wait for replies.
//!
//! No request is lost with the link. The worker resends the pushes first, in order and by their names: the server drops
//! the rows that it has applied. The worker then sends the other unanswered requests. So a pull that the worker resends
//! reads every push before it, and some pushes after it.

use crate::cache::following::{Delta, Followed};
use crate::counters::WorkerCounters;
use crate::error::WorkerError;
use crate::links::opening::Opening;
use crate::links::peer_state::{KeysetNumbers, PeerHealth, PeerSession, PeerSteps};
use crate::links::replies;
use crate::links::replies::{ReplyContext, ReplyResult};
use crate::reads::one_sided::OneSidedReads;
use crate::requests::ids::Request;
use crate::requests::in_flight::{InFlight, RequestWork};
use crate::requests::request_queue::RequestQueue;
use crate::tables::opened_as::ServerThread;
use crate::tables::table::Tables;
use gannet_transport::{Filled, Link, Stream};
use gannet_wire::frames;
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::subscriptions::DeltaFrame;
use gannet_wire::frames::sync::WaitsFrame;
use std::sync::Arc;
use std::time::Duration;

/// How often one turn receives from a link before the other links have their turn.
const FILLS_PER_TURN: usize = 8;

/// One thread of one server.
pub(crate) struct Peer<S> {
    pub(crate) addr: String,
    /// Address and thread, for messages.
    pub(crate) name: Arc<str>,
    pub(crate) server: u32,
    pub(crate) thread: u32,
    /// Threads of the server; 0 while the worker does not know.
    pub(crate) threads: u32,
    pub(crate) link: Option<Link<S>>,
    /// A connection that becomes the link once the server has welcomed the worker.
    pub(crate) opening: Option<Opening<S>>,
    pub(crate) session: PeerSession,
    pub(crate) requests: RequestQueue,
    pub(crate) steps: PeerSteps,
    pub(crate) health: PeerHealth,
    /// By table: the rows that the peer keeps fresh in the worker's cache.
    pub(crate) followed: Vec<Followed>,
    /// The server's images, when it is on this host.
    pub(crate) near: OneSidedReads,
    pub(crate) keysets: KeysetNumbers,
}

impl<S: Stream> Peer<S> {
    pub(crate) fn new(addr: &str, server: u32, thread: u32, threads: u32, now: Duration) -> Peer<S> {
        Peer {
            addr: addr.to_owned(),
            name: format!("{addr} (thread {thread})").into(),
            server,
            thread,
            threads,
            link: None,
            opening: None,
            session: PeerSession::default(),
            requests: RequestQueue::default(),
            steps: PeerSteps::default(),
            health: PeerHealth::new(now),
            followed: Vec::new(),
            near: OneSidedReads::new(),
            keysets: KeysetNumbers::default(),
        }
    }

    /// The server is at another address from now on.
    pub(crate) fn replace(&mut self, addr: &str) {
        (self.addr, self.name) = (addr.to_owned(), format!("{addr} (thread {})", self.thread).into());
        (self.opening, self.health.attempts) = (None, 0);
    }

    /// The server has this thread, as far as the worker knows.
    pub(crate) fn is_wanted(&self) -> bool {
        self.threads == 0 || self.thread < self.threads
    }

    /// Queues a request.
    pub(crate) fn enqueue(&mut self, request: Request, now: Duration) {
        self.note_first_request(now);
        self.requests.queue.push_back(request);
    }

    /// The time limit of a peer that had nothing to do begins with its first request.
    fn note_first_request(&mut self, now: Duration) {
        if self.requests.queue.is_empty() {
            self.health.good_at = now;
        }
    }

    /// Receives and sends what it can without waiting. `true`: bytes moved.
    pub(crate) fn turn(
        &mut self,
        flights: &mut InFlight,
        counters: &WorkerCounters,
        results: &mut Vec<ReplyResult>,
        now: Duration,
    ) -> Result<bool, WorkerError> {
        let mut moved = false;
        for _ in 0..FILLS_PER_TURN {
            let Some(link) = self.link.as_mut().filter(|link| link.is_readable()) else { break };
            let filled = link.fill(&mut self.requests.owner(flights))?;
            moved |= matches!(filled, Filled::Bytes(_));
            while self.take_frame(flights, counters, results, now)? {}
        }
        moved |= self.post(flights, counters)?;
        Ok(moved)
    }

    /// Handles the next frame that has come whole; `false` when there is none.
    fn take_frame(
        &mut self,
        flights: &mut InFlight,
        counters: &WorkerCounters,
        results: &mut Vec<ReplyResult>,
        now: Duration,
    ) -> Result<bool, WorkerError> {
        let Peer { link: Some(link), requests, steps, health, .. } = self else { return Ok(false) };
        let (receive, _) = link.halves();
        let Some(frame) = receive.peek(&mut requests.owner(flights))? else { return Ok(false) };
        match frame.head.kind {
            WaitsFrame::KIND => {
                steps.waits = Some(replies::read_waits(&frame, requests.posted, &self.name)?);
                results.push(ReplyResult::Waits);
                health.note_report(now);
            }
            DeltaFrame::KIND => {
                let payload = bytemuck::cast_slice(frame.payload).to_vec();
                results.push(ReplyResult::Delta(Box::new(Delta { head: frame.head, payload })));
                counters.bytes_received.add(u64::from(frame.head.len));
            }
            _ => {
                let context = ReplyContext {
                    name: &self.name,
                    session_epoch: self.session.epoch,
                    incarnation: self.session.incarnation,
                    clocks: &mut steps.clocks,
                    near: &mut self.near,
                };
                let (at, result) = replies::reply(&frame, context, flights, requests, counters)?;
                results.push(result);
                let of_link = flights.kind(requests.queue[at].index).is_some_and(frames::is_of_link);
                requests.finish(at);
                steps.waits = None;
                // What the server says about a new link is no answer to the requests for which the link was made.
                if !(of_link && health.answered_nothing()) {
                    health.note_reply(now);
                }
                counters.frames_received.add(1);
            }
        }
        receive.consume();
        Ok(true)
    }

    /// Posts as many requests as the credit allows, and sends them. `true`: bytes moved.
    pub(crate) fn post(
        &mut self,
        flights: &mut InFlight,
        counters: &WorkerCounters,
    ) -> Result<bool, WorkerError> {
        let Some(link) = &mut self.link else { return Ok(false) };
        Ok(self.requests.post(link, &self.session.tables, flights, counters)?)
    }

    /// The link is lost. The worker resends the whole queue over the next one, except requests about this link.
    pub(crate) fn lose(
        &mut self,
        why: String,
        flights: &mut InFlight,
        counters: &WorkerCounters,
        now: Duration,
    ) {
        if self.link.take().is_some() {
            counters.links.sub(1);
            counters.links_lost.add(1);
            counters.resends.add(self.requests.posted as u64);
        }
        self.health.note_loss();
        (self.health.trouble, self.health.attempt_at) = (why, now);
        (self.steps.waits, self.steps.pushed) = (None, (0, 0));
        self.near.lose();
        self.followed.iter_mut().for_each(Followed::lose);
        self.requests.lose_link(flights);
        for push in self.requests.queue.iter().filter(|request| request.push) {
            if let Some(RequestWork::Push(flight)) = flights.at(push.index).map(|flight| &mut flight.work) {
                flight.keysets[push.chunk as usize] = 0;
            }
        }
    }

    /// The rows of a table that the peer keeps fresh.
    pub(crate) fn followed_of(&mut self, table: usize) -> &mut Followed {
        if self.followed.len() <= table {
            self.followed.resize_with(table + 1, Followed::default);
        }
        &mut self.followed[table]
    }

    /// Which thread of which server it is.
    pub(crate) fn thread(&self) -> ServerThread {
        ServerThread { server: self.server, thread: self.thread, threads: self.threads }
    }

    /// Stores changes that the server has sent of rows that it keeps fresh. Returns how many rows are fresh now; `None`
    /// if the changes cannot be read.
    pub(crate) fn take_delta(&mut self, tables: &Tables, Delta { head, payload }: &Delta) -> Option<u64> {
        let frame = DeltaFrame::decode(head).ok()?;
        let table = self.session.tables.iter().position(|&table| table == frame.table)?;
        let Some(caching) = tables.get(table).and_then(|table| table.cache.as_ref()) else { return Some(0) };
        let last_answered = self.near.last_answered();
        let touched = self.near.own_pushes.open();
        let followed = self.followed.get_mut(table).filter(|of| of.generation == frame.set);
        let Some(followed) = followed else { return Some(0) };
        let touched = |key: u64| touched.is_some_and(|touched| touched.has(key));
        followed.take(caching, &frame, payload, last_answered, touched)
    }

    /// The server cannot keep more rows fresh: the worker stops following its rows.
    pub(crate) fn follow_refused(&mut self) {
        for followed in &mut self.followed {
            followed.lose();
            followed.refused = true;
        }
    }
}

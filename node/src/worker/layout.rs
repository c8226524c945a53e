//! Which of the worker's links are of which thread of which server, and what becomes of all that waits on them when a
//! server is started again with another number of threads.
//!
//! A server has a place among the links (`peers`) for each thread that it ever had: the one for thread t is its t-th.
//! Places of threads that it has no more rest until it has them again; a server has at most `THREADS_MAX` of them. So
//! the number of a link (its token at the poll, the owner of a shard, the peer of a chunk) means the same server for
//! ever, and the same thread.
//!
//! What a change means:
//! - all links of the server are of a life of it that is over: they end, whatever they had not yet been told;
//! - rows of pulls and pushes that are not answered are cut anew for the threads that own their shards now, and go with
//!   their keys: keysets and slots were of the threads before. A push names its rows by where they stand in their
//!   shard's run, so a shard drops what it has, however the push is cut;
//! - ticks and what else is said to each thread is said to each of the new ones, in its order among the pushes;
//! - requests whose answers are about the threads that there were are made again by those who wait for them (`ask`);
//! - a new thread has been told by this worker what all threads before it had acknowledged: the lowest clock of them;
//! - images, regions and subscriptions end with their link, as ever. What the cache asked for is of no link that there
//!   will be.

use super::in_flight::{PullPart, Request, RequestWork};
use super::own_push_filter::OwnPushFilter;
use super::peer::Peer;
use super::{Worker, WorkerTable};
use crate::error::WorkerError;
use crate::frames::{self};
use gannet_transport::Net;
use std::ops::Range;

/// A request for one of the new threads, and what its place among the others depends on.
struct RequestOrder {
    /// Pushes and ticks go first; then the oldest do, in the order of their rows.
    unordered: bool,
    younger: u32,
    start: u32,
    peer: usize,
    request: Request,
}

impl WorkerTable {
    /// Which of the shards each of a server's links has now.
    fn own(&mut self, shards: Range<u32>, link: usize) {
        self.owners[shards.start as usize..shards.end as usize].fill(link as u32);
        self.one_owner = self.owners.iter().all(|owner| *owner == self.owners[0]);
    }
}

impl<N: Net> Worker<N> {
    /// The links that there are to be, of all servers.
    pub(super) fn links_now(&self) -> impl Iterator<Item = usize> {
        (0..self.peers.len()).filter(|&number| self.peers[number].is_wanted())
    }

    /// All places of a server, in the order of its threads.
    fn places(&self, server: u32) -> Vec<usize> {
        (0..self.peers.len()).filter(|&number| self.peers[number].server == server).collect()
    }

    /// A server has so many threads; it had none before, or another number.
    pub(super) fn lay_out(&mut self, server: u32, threads: u32) -> Result<(), WorkerError> {
        let (now, mut places) = (self.net.now(), self.places(server));
        let before: Vec<usize> =
            places.iter().copied().filter(|&number| self.peers[number].is_wanted()).collect();
        let first = &self.peers[places[0]];
        let (addr, had) = (first.addr.clone(), first.threads);
        if had != 0 {
            tracing::warn!(server = addr, had, threads, "a server came back with another number of threads");
        }
        let clocks = self.clocks_of_all(&before);
        let why = format!("{addr} came back with {threads} threads");
        let mut waiting = Vec::new();
        for &number in &places {
            let peer = &mut self.peers[number];
            if peer.opening.as_ref().is_some_and(super::opening::Opening::is_welcome) {
                peer.opening = None;
            }
            peer.lose(why.clone(), &mut self.flights, &self.tally, now);
            waiting.extend(peer.queue.drain(..).map(|request| (number, request)));
        }
        while places.len() < threads as usize {
            places.push(self.peers.len());
            self.peers.push(Peer::new(&addr, server, places.len() as u32 - 1, threads, now));
        }
        let epoch = places.iter().map(|&number| self.peers[number].epoch).max();
        for &number in &places {
            let peer = &mut self.peers[number];
            (peer.threads, peer.clocks) = (threads, clocks.clone());
            // No link of the server is called as one before it was.
            peer.epoch = epoch.unwrap_or(0);
            peer.near.stamps = OwnPushFilter::new();
            (peer.good_at, peer.attempt_at, peer.wait_logged) = (now, now, false);
            if !peer.is_wanted() {
                peer.opening = None;
            }
        }
        self.layout += 1;
        let own = &places[..threads as usize];
        for table in &mut self.tables {
            for &link in own {
                table.own(table.opened.range(&self.peers[link]), link);
            }
        }
        self.tally.links_wanted.set(self.links_now().count() as u64);
        self.hand_on(waiting, own);
        Ok(())
    }

    /// What was not answered goes to those who are responsible now.
    fn hand_on(&mut self, mut waiting: Vec<(usize, Request)>, own: &[usize]) {
        waiting.sort_by_key(|(_, request)| request.index);
        let mut sorted: Vec<RequestOrder> = Vec::with_capacity(waiting.len());
        for flight in waiting.chunk_by(|a, b| a.1.index == b.1.index) {
            self.hand_on_flight(flight, own, &mut sorted);
        }
        sorted.sort_by_key(|sorted| (sorted.unordered, sorted.younger, sorted.start));
        let now = self.net.now();
        for RequestOrder { peer, request, .. } in sorted {
            self.peers[peer].enqueue(request, now);
            if let Some(RequestWork::Push(push)) = self.flights.at(request.index).map(|flight| &flight.work) {
                let chunk = push.laid.chunks()[request.chunk as usize];
                self.peers[peer].near.stamps.begin(&push.laid.cut, &chunk);
            }
        }
    }

    /// The requests that a flight's are now.
    fn hand_on_flight(
        &mut self,
        waiting: &[(usize, Request)],
        own: &[usize],
        sorted: &mut Vec<RequestOrder>,
    ) {
        let index = waiting[0].1.index;
        let next = self.flights.next_generation;
        let Worker { flights, tables, peers, .. } = self;
        let Some(flight) = flights.at(index) else { return };
        let younger = u32::MAX - flight.age(next);
        let numbers: Vec<u32> = waiting.iter().map(|(_, request)| request.chunk).collect();
        let before = sorted.len();
        let mut add = |unordered: bool, start: u32, peer: usize, chunk: u32, push: bool, bytes: u32| {
            let request = Request { index, chunk, push, bytes };
            sorted.push(RequestOrder { unordered, younger, start, peer, request });
        };
        match &mut flight.work {
            RequestWork::Pull(pull) => {
                let table = &tables[pull.laid.table()];
                for (peer, request) in waiting {
                    let part = std::mem::take(&mut pull.parts[request.chunk as usize]);
                    peers[*peer].give_keyset(part.keep);
                }
                let new = pull.laid.cut_anew(&numbers, &table.schema, &table.owners);
                let saw = table.last_seq;
                pull.parts.resize_with(new.end as usize, || PullPart { saw, ..PullPart::default() });
                for number in new {
                    let chunk = pull.laid.chunks()[number as usize];
                    let bytes = chunk.len * (8 + 4 * pull.floats as u32);
                    add(true, chunk.start, chunk.peer as usize, number, false, bytes);
                }
            }
            RequestWork::Push(push) => {
                let table = &tables[push.laid.table()];
                let new = push.laid.cut_anew(&numbers, &table.schema, &table.owners);
                let parts = new.end as usize;
                push.keysets.resize(parts, 0);
                if !push.slots.is_empty() {
                    numbers.iter().for_each(|&number| push.slots[number as usize] = Vec::new());
                    push.slots.resize(parts, Vec::new());
                }
                if !push.some.is_empty() {
                    push.some.resize_with(parts, || None);
                }
                for number in new {
                    let chunk = push.laid.chunks()[number as usize];
                    let bytes = chunk.len * (8 + 4 * push.floats as u32);
                    add(false, chunk.start, chunk.peer as usize, number, true, bytes);
                }
            }
            RequestWork::Control(control) if frames::is_for_each(control.kind()) => {
                let (first, unordered) = (control.answers.len(), !frames::is_ordered(control.kind()));
                control.answers.resize(first + own.len(), None);
                // What each link is asked alike has a payload for each.
                if let Some(payload) = control.payloads.first().cloned() {
                    control.payloads.resize(first + own.len(), payload);
                }
                for (number, &peer) in (first as u32..).zip(own) {
                    add(unordered, 0, peer, number, false, 0);
                }
            }
            RequestWork::Control(control) => control.again = true,
        }
        let added = (sorted.len() - before) as u32;
        flight.left = flight.left - numbers.len() as u32 + added;
    }

    /// By table, the clock that all of these links have acknowledged, and who had left as any of them said: who has
    /// left had everything acknowledged, everywhere.
    fn clocks_of_all(&self, links: &[usize]) -> Vec<(u64, u64)> {
        let of = |link: &usize, table| self.peers[*link].clocks.get(table).copied().unwrap_or((0, 0));
        let both = |a: (u64, u64), b: (u64, u64)| (a.0.min(b.0), a.1 | b.1);
        (0..self.tables.len())
            .map(|table| links.iter().map(|link| of(link, table)).reduce(both).unwrap_or((0, 0)))
            .collect()
    }
}

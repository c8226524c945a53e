//! Which thread of which server each of the worker's links belongs to, and what happens to waiting requests when a
//! server restarts with another number of threads.
//!
//! A server has an entry among the links (`peers`) for each thread that it ever had, at most `THREADS_MAX`; the one for
//! thread t is its t-th. The entry of a thread that no longer exists stays unused until the server has that thread
//! again. So the number of a link (its token at the poll, the owner of a shard, the peer of a chunk) always means the
//! same server and the same thread.
//!
//! What a change means:
//! - All links of the server belong to an incarnation that has ended: the worker closes them, even those that do not
//!   know it yet.
//! - Rows of unanswered pulls and pushes are cut again for the threads that own their shards now. They travel with
//!   their keys, because keysets and slots belonged to the old threads. A push names its rows by their positions in the
//!   run of their shard, so a shard drops rows that it has, however the push is cut.
//! - Ticks, and other requests that each thread gets, go to each of the new threads, in their order among the pushes.
//! - Requests whose answers describe the old threads are made again by the calls that wait for them (`ask`).
//! - A new thread counts as having acknowledged what all threads before it had acknowledged: the lowest of their
//!   clocks.
//! - Images, regions and subscriptions end with their link, as always. What the cache requested over an old link is
//!   void.

use crate::error::WorkerError;
use crate::links::attempts::back_off;
use crate::links::keysets::{ReadChunks, read_at_of};
use crate::links::opening::Opening;
use crate::links::peer::Peer;
use crate::links::state::Links;
use crate::reads::own_push_filter::OwnPushFilter;
use crate::requests::ids::Request;
use crate::requests::in_flight::{PullPart, PushInFlight, RequestWork};
use crate::tables::table::{Tables, WorkerTable};
use gannet_transport::Net;
use gannet_wire::frames;
use std::ops::Range;
use std::time::Duration;

/// A request for one of the new threads, and what decides its position among the others.
struct RequestOrder {
    /// False for pushes and ticks, which go first. Then older requests go first, and their parts in the order of rows.
    unordered: bool,
    younger: u32,
    start: u32,
    peer: usize,
    request: Request,
}

/// All entries of a server, in the order of its threads.
fn layout_places<N: Net>(links: &Links<N>, server: u32) -> Vec<usize> {
    (0..links.peers.len()).filter(|&number| links.peers[number].server == server).collect()
}

/// Lays the links out for a server with so many threads, if it had none before or another number.
pub(crate) fn lay_out<N: Net>(
    links: &mut Links<N>,
    tables: &mut Tables,
    server: u32,
    threads: u32,
) -> Result<(), WorkerError> {
    let (now, mut places) = (links.net.now(), layout_places(links, server));
    let before: Vec<usize> =
        places.iter().copied().filter(|&number| links.peers[number].is_wanted()).collect();
    let first = &links.peers[places[0]];
    let (addr, previous) = (first.addr.clone(), first.threads);
    let in_vain = previous != 0 && note_change_of_threads(links, tables, &places, now)?;
    if previous != 0 && !in_vain {
        tracing::warn!(server = addr, previous, threads, "a server came back with another number of threads");
    }
    let clocks = clocks_of_all(links, tables.len(), &before);
    let why = format!("{addr} came back with {threads} threads");
    let mut waiting = Vec::new();
    for &number in &places {
        let peer = &mut links.peers[number];
        if peer.opening.as_ref().is_some_and(Opening::is_welcome) {
            peer.opening = None;
        }
        peer.lose(why.clone(), &mut links.flights, &links.counters, now);
        waiting.extend(peer.requests.queue.drain(..).map(|request| (number, request)));
    }
    while places.len() < threads as usize {
        places.push(links.peers.len());
        links.peers.push(Peer::new(&addr, server, places.len() as u32 - 1, threads, now));
    }
    let epoch = places.iter().map(|&number| links.peers[number].session.epoch).max();
    for &number in &places {
        let peer = &mut links.peers[number];
        (peer.threads, peer.steps.clocks) = (threads, clocks.clone());
        // No new link of the server has the epoch of an old one.
        peer.session.epoch = epoch.unwrap_or(0);
        peer.near.own_pushes = OwnPushFilter::new();
        (peer.health.good_at, peer.health.attempt_at, peer.health.wait_logged) = (now, now, false);
        if !peer.is_wanted() {
            peer.opening = None;
        }
    }
    links.layout += 1;
    let own = &places[..threads as usize];
    for table in tables.iter_mut() {
        for &link in own {
            table.own(&table.opened.shards(links.peers[link].thread()), link);
        }
    }
    links.counters.links_wanted.set(links.wanted().count() as u64);
    reassign(links, tables, waiting, own);
    if in_vain {
        places.into_iter().for_each(|number| back_off(links, number, now));
    }
    Ok(())
}

/// Notes that a server has come back with another number of threads. Returns whether it has already done so without
/// an answer since.
///
/// # Errors
/// It does nothing else for too long.
fn note_change_of_threads<N: Net>(
    links: &mut Links<N>,
    tables: &Tables,
    places: &[usize],
    now: Duration,
) -> Result<bool, WorkerError> {
    let heard = places.iter().map(|&number| links.peers[number].health.heard_at).max();
    let patience = tables.patience(links.config.peer_timeout);
    let first = &mut links.peers[places[0]];
    match first.health.other_threads_at.filter(|at| heard < Some(*at)) {
        Some(at) if now > at + patience => {
            let (peer, waited) = (first.name.clone(), now.saturating_sub(at));
            let why = "it greets with another number of threads again and again, but completes no request";
            Err(WorkerError::PeerLost { peer, waited, why: why.to_owned() })
        }
        Some(_) => Ok(true),
        None => {
            first.health.other_threads_at = Some(now);
            Ok(false)
        }
    }
}

/// Queues unanswered requests for the threads that own their shards now.
fn reassign<N: Net>(
    links: &mut Links<N>,
    tables: &Tables,
    mut waiting: Vec<(usize, Request)>,
    own: &[usize],
) {
    waiting.sort_by_key(|(_, request)| request.index);
    let mut sorted: Vec<RequestOrder> = Vec::with_capacity(waiting.len());
    for flight in waiting.chunk_by(|a, b| a.1.index == b.1.index) {
        reassign_flight(links, tables, flight, own, &mut sorted);
    }
    sorted.sort_by_key(|sorted| (sorted.unordered, sorted.younger, sorted.start));
    let now = links.net.now();
    for RequestOrder { peer, request, .. } in sorted {
        links.peers[peer].enqueue(request, now);
        if let Some(RequestWork::Push(push)) = links.flights.at(request.index).map(|flight| &flight.work) {
            let chunk = push.laid.chunks()[request.chunk as usize];
            links.peers[peer].near.own_pushes.begin(&push.laid.cut, &chunk);
        }
    }
}

/// Adds the new requests of a request in flight to `sorted`.
fn reassign_flight<N: Net>(
    links: &mut Links<N>,
    tables: &Tables,
    waiting: &[(usize, Request)],
    own: &[usize],
    sorted: &mut Vec<RequestOrder>,
) {
    let index = waiting[0].1.index;
    let next = links.flights.next_generation;
    let Links { flights, peers, .. } = links;
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
                peers[*peer].keysets.release(part.keep);
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
            for number in cut_push_anew(push, &numbers, &tables[push.laid.table()]) {
                let chunk = push.laid.chunks()[number as usize];
                let bytes = chunk.len * (8 + 4 * push.floats as u32);
                add(false, chunk.start, chunk.peer as usize, number, true, bytes);
            }
        }
        RequestWork::Control(control) if frames::is_for_each(control.kind()) => {
            let (first, unordered) = (control.answers.len(), !frames::is_ordered(control.kind()));
            control.answers.resize(first + own.len(), None);
            // A request that all links get alike has one payload for each.
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

/// Cuts these chunks of a push again, for shards with other owners. Returns the numbers of the new chunks.
fn cut_push_anew(push: &mut PushInFlight, numbers: &[u32], table: &WorkerTable) -> Range<u32> {
    let read: ReadChunks = push.laid.chunks().iter().copied().zip(push.since.iter().copied()).collect();
    let new = push.laid.cut_anew(numbers, &table.schema, &table.owners);
    let parts = new.end as usize;
    push.keysets.resize(parts, 0);
    if !read.is_empty() {
        let chunks = &push.laid.chunks()[push.since.len()..];
        push.since.extend(chunks.iter().map(|chunk| read_at_of(chunk, &read)));
    }
    if !push.slots.is_empty() {
        numbers.iter().for_each(|&number| push.slots[number as usize] = Vec::new());
        push.slots.resize(parts, Vec::new());
    }
    if !push.some.is_empty() {
        push.some.resize_with(parts, || None);
    }
    new
}

/// For each table, the clock that all of these links have acknowledged, and the workers that had left as any of
/// them reported: when a worker has left, everything of it has been acknowledged everywhere.
fn clocks_of_all<N: Net>(links: &Links<N>, tables: usize, of: &[usize]) -> Vec<(u64, u64)> {
    let clock = |link: &usize, table| links.peers[*link].steps.clocks.get(table).copied().unwrap_or((0, 0));
    let both = |a: (u64, u64), b: (u64, u64)| (a.0.min(b.0), a.1 | b.1);
    (0..tables).map(|table| of.iter().map(|link| clock(link, table)).reduce(both).unwrap_or((0, 0))).collect()
}

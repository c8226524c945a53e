//! Pulls whose rows the worker reads without a request.

use crate::calls::clocks::note_lowest;
use crate::config::worker_config::OneSided;
use crate::error::WorkerError;
use crate::limits::LEASE_PINGS;
use crate::links::peer::Peer;
use crate::links::read_paths::refresh_read_paths;
use crate::reads::one_sided::{ReadPath, known_since};
use crate::reads::path_choice::{ALL_QUARTERS, ChoiceOf};
use crate::reads::spec::{PullSpec, ReadPathChoice};
use crate::requests::in_flight::{LocalHits, PullPart};
use crate::requests::names::TableId;
use crate::worker::Worker;
use gannet_core::{Read, Segments};
use gannet_transport::Net;
use gannet_wire::frames::f16;
use gannet_wire::sharded_keys::Chunk;
use std::time::Duration;

/// How often a worker that only reads receives frames.
pub(crate) const RECEIVE_EVERY: Duration = Duration::from_millis(5);

impl<N: Net> Worker<N> {
    /// How [`Worker::begin_pull`] now gets the rows of a table that will be pushed back, or not (`kept`).
    pub fn read_path_choice(&self, table: TableId, kept: bool) -> ReadPathChoice {
        let of = ChoiceOf::reads(table.0, kept);
        let readable = is_readable(self, table.0);
        let share = match self.links.config.one_sided {
            _ if !readable => 0.0,
            OneSided::Always => 1.0,
            _ => f32::from(self.reads.choices.quarters(of)) / f32::from(ALL_QUARTERS),
        };
        let settled = self.links.config.one_sided != OneSided::Auto || self.reads.choices.is_settled(of);
        ReadPathChoice { readable, share, settled }
    }
}

pub(crate) fn pull_spec<N: Net>(
    worker: &Worker<N>,
    table: TableId,
    read: Read,
    segments: Segments,
    floats: usize,
    keep: bool,
    clock: Option<u64>,
) -> PullSpec {
    let least = worker.tables.least(table.0, clock);
    PullSpec { table: table.0, read, segments, floats, keep, least }
}

/// Whether some rows of the table can be read without a request.
fn is_readable<N: Net>(worker: &Worker<N>, table: usize) -> bool {
    let linked = worker.links.peers.iter().filter(|peer| peer.link.is_some());
    linked.flat_map(|peer| peer.near.tables.get(table)).flatten().next().is_some()
}

/// Before a pull: whether it may read rows without a request. The choice of paths counts the pull.
pub(crate) fn begin_reads<N: Net>(
    worker: &mut Worker<N>,
    spec: &PullSpec,
    rows: usize,
    now: Duration,
) -> Result<bool, WorkerError> {
    if !is_readable(worker, spec.table) {
        return Ok(false);
    }
    if worker.links.config.one_sided == OneSided::Auto {
        worker.reads.choices.enter(now);
        worker.reads.choices.begin_pull(spec.choice(), rows, now);
    }
    keep_leases(worker, now)?;
    Ok(true)
}

/// Whether the next chunk of such a pull is read.
pub(crate) fn reads_next<N: Net>(worker: &mut Worker<N>, spec: &PullSpec) -> bool {
    worker.links.config.one_sided == OneSided::Always || worker.reads.choices.reads_next(spec.choice())
}

/// A call of the program that moves rows begins.
pub(crate) fn begin_call<N: Net>(worker: &mut Worker<N>) {
    if worker.reads.choices.is_timed() {
        worker.reads.choices.enter(worker.links.net.now());
    }
}

/// A call of the program that moved rows ends. While a choice of paths is measured, the program's own time does not
/// count.
pub(crate) fn end_call<N: Net>(worker: &mut Worker<N>) {
    if worker.reads.choices.is_timed() && !worker.links.in_flight() {
        worker.reads.choices.leave(worker.links.net.now());
    }
}

/// Before rows are read: receives frames, and pings servers that would not be believed any longer.
pub(crate) fn keep_leases<N: Net>(worker: &mut Worker<N>, now: Duration) -> Result<(), WorkerError> {
    for number in 0..worker.links.peers.len() {
        let Peer { link, near, .. } = &mut worker.links.peers[number];
        let quiet = now.saturating_sub(near.last_answered.max(near.last_ping)) >= near.trust / LEASE_PINGS;
        if link.is_some() && near.is_on() && quiet {
            near.last_ping = now;
            worker.links.ping(number, now)?;
        }
    }
    if worker.links.in_flight() || now >= worker.reads.next_receive {
        worker.reads.next_receive = now + RECEIVE_EVERY;
        worker.receive()?;
        refresh_read_paths(&mut worker.links, &worker.tables, now)?;
    }
    Ok(())
}

/// Reads what it can of a chunk's rows into `values`.
pub(crate) fn read_one_sided<N: Net>(
    worker: &mut Worker<N>,
    chunk: &Chunk,
    keys: &[u64],
    spec: &PullSpec,
    values: &mut [f32],
    now: Duration,
) -> Result<Option<Box<LocalHits>>, WorkerError> {
    let (number, timeout) = (chunk.peer as usize, worker.links.config.stall_timeout);
    let near = match worker.links.peers[number].read_one_sided(keys, spec, values, now, timeout) {
        Ok(Some(near)) => near,
        Ok(None) => return Ok(None),
        Err(error) => return worker.links.lose(number, error, now).map(|()| None),
    };
    let requested = near.keys.len() as u64;
    // READs take time: rows that were read when that time was over may be stale.
    if !worker.links.peers[number].near.is_trusted(worker.links.net.now()) {
        return Ok(None);
    }
    worker.links.counters.near_rows.add(keys.len() as u64 - requested);
    worker.links.counters.near_requested_rows.add(requested);
    Ok(Some(near))
}

/// Answers a whole small pull from one thread's images, in the order of the keys. Returns `false` if it must be
/// requested.
pub(crate) fn pull_one_sided<N: Net>(
    worker: &mut Worker<N>,
    table: TableId,
    keys: &[u64],
    read: Read,
    segments: Segments,
    out: &mut [f32],
) -> Result<bool, WorkerError> {
    let Some(&owner) = worker.tables[table.0].owners.first() else { return Ok(false) };
    if !worker.tables[table.0].one_owner || !worker.links.peers[owner as usize].near.is_on() {
        return Ok(false);
    }
    let of = ChoiceOf::reads(table.0, false);
    let always = worker.links.config.one_sided == OneSided::Always;
    if !always && !worker.reads.choices.would_read(of) {
        return Ok(false);
    }
    let (now, clock) = (worker.links.net.now(), worker.tables.pull_clock(table.0, 0)?);
    worker.reads.choices.enter(now);
    let least = worker.tables.least(table.0, clock);
    keep_leases(worker, now)?;
    let Peer { link: Some(_), near, .. } = &mut worker.links.peers[owner as usize] else {
        return Ok(false);
    };
    if near.own_pushes.any() {
        return Ok(false);
    }
    let Some(ReadPath::Images(images)) = near.fresh(table.0, now) else { return Ok(false) };
    let lowest = images.lowest();
    if lowest < least {
        return Ok(false);
    }
    worker.reads.found_slots.clear();
    // The server was the owner when the pull began, so its rows have all that was acknowledged before.
    let whole = matches!(images.pull(keys, read, segments, out, &mut worker.reads.found_slots), Ok(0));
    worker.links.counters.near_rows.add(if whole { keys.len() as u64 } else { 0 });
    if whole {
        if !always {
            worker.reads.choices.reads_next(of);
            worker.reads.choices.begin_pull(of, keys.len(), now);
        }
        if worker.tables[table.0].rounds(read) {
            f16::round(out);
        }
        end_call(worker);
        note_lowest(
            worker,
            table,
            clock,
            &[PullPart { lowest: known_since(lowest), ..PullPart::default() }],
        )?;
    }
    Ok(whole)
}

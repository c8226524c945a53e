//! What a worker does for checkpoints: the steps of a cut, if it is the coordinator, and the order of its own pushes.

use crate::error::WorkerError;
use crate::links::control::all_threads;
use crate::requests::control::{ControlReply, ControlRequest, Recipients};
use crate::requests::names::TableId;
use crate::worker::Worker;
use gannet_transport::Net;
use gannet_wire::frames::cuts::CutFrame;
use gannet_wire::limits::{CUT_BYTES_MAX, CUT_MESSAGE_BYTES_MAX, CUT_PART_BYTES};
use gannet_wire::messages::control;
use gannet_wire::messages::cuts::{CutActionV1, CutReplyV1, CutRequestV1};
use gannet_wire::sharded_keys::ShardedKeys;
use std::sync::Arc;

/// Which cut of which run a step belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CutName<'a> {
    /// The random number of the cut.
    pub(crate) number: u64,
    pub(crate) run: &'a str,
}

/// Sends a step of a cut to every thread, and returns the reply of each.
pub(crate) fn cut_step<N: Net>(
    worker: &mut Worker<N>,
    cut: CutName<'_>,
    action: &CutActionV1,
) -> Result<Vec<CutReplyV1>, WorkerError> {
    let CutName { number, run } = cut;
    let request = |action: CutActionV1| control::seal(&CutRequestV1 { cut: number, run: run.into(), action });
    let mut payload = request(action.clone());
    if payload.len() > CUT_MESSAGE_BYTES_MAX {
        let mut parts = payload.chunks(CUT_PART_BYTES).peekable();
        let (mut left, mut last) = (payload.len(), Vec::new());
        while let Some(part) = parts.next() {
            left -= part.len();
            last = request(CutActionV1::Part { bytes: part.to_vec(), left: left as u64 });
            if parts.peek().is_some() {
                cut_answers(worker, &last, None)?;
            }
        }
        payload = last;
    }
    let mut replies = Vec::new();
    for (link, mut reply) in cut_answers(worker, &payload, None)? {
        let mut whole = Vec::new();
        while let CutReplyV1::Part { bytes, left } = reply {
            whole.extend(bytes);
            if left.saturating_add(whole.len() as u64) > CUT_BYTES_MAX as u64 {
                let what = format!("a reply about a cut of more than {CUT_BYTES_MAX} bytes");
                return Err(worker.links.nonsense(link, what));
            }
            reply = match left {
                0 => open_cut(worker, link, &std::mem::take(&mut whole))?,
                _ => cut_answers(worker, &request(CutActionV1::More), Some(link))?.remove(0).1,
            };
        }
        replies.push(reply);
    }
    Ok(replies)
}

/// Sends a message of a cut over one link, or to every thread. Returns the reply of each link.
fn cut_answers<N: Net>(
    worker: &mut Worker<N>,
    payload: &[u8],
    link: Option<usize>,
) -> Result<Vec<(usize, CutReplyV1)>, WorkerError> {
    let threads = link.map_or_else(|| all_threads(&worker.links), |link| vec![link]);
    let to = match link.is_some() || worker.links.config.places.is_some() {
        true => Recipients::Links(&threads),
        false => Recipients::All,
    };
    let make = |_: usize, _: u32| payload.to_vec();
    let replies = worker.ask(&ControlRequest::with_payload(&CutFrame {}, None, &make), to)?;
    let wanted = if link.is_some() { 1 } else { all_threads(&worker.links).len() };
    if replies.len() != wanted {
        return Err(WorkerError::Call(format!(
            "{} of {wanted} server threads answered a step of a cut: a server restarted meanwhile: begin again",
            replies.len()
        )));
    }
    let open =
        |ControlReply { link, payload, .. }: &ControlReply| Ok((*link, open_cut(worker, *link, payload)?));
    replies.iter().map(open).collect()
}

fn open_cut<N: Net>(worker: &Worker<N>, link: usize, payload: &[u8]) -> Result<CutReplyV1, WorkerError> {
    control::open(payload).map_err(|error| worker.links.nonsense(link, error.to_string()))
}

/// Waits for earlier pushes to the table that have rows on a link where this batch has none. So whoever has the
/// last push of a worker, whole, has all earlier ones, too: a checkpoint relies on that. A batch with rows on every
/// link waits for nothing.
pub(crate) fn wait_for_other_links<N: Net>(
    worker: &mut Worker<N>,
    table: TableId,
    cut: &Arc<ShardedKeys>,
) -> Result<(), WorkerError> {
    let laid = worker.laid(table, cut.clone());
    let mut has = vec![false; worker.links.peers.len()];
    laid.chunks().iter().filter(|chunk| chunk.len > 0).for_each(|chunk| has[chunk.peer as usize] = true);
    if worker.links.wanted().all(|link| has[link]) {
        return Ok(());
    }
    while worker.links.flights.has_push_elsewhere(table.0, &has) {
        worker.pump(worker.links.config.peer_timeout)?;
    }
    Ok(())
}

/// Waits, and keeps the links alive.
pub(crate) fn cut_wait<N: Net>(worker: &mut Worker<N>, time: std::time::Duration) -> Result<(), WorkerError> {
    let until = worker.links.net.now() + time;
    while worker.links.net.now() < until {
        worker.pump(until.saturating_sub(worker.links.net.now()))?;
    }
    Ok(())
}

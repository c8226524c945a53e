//! Control requests on their way: which links they go to, and how they are queued there.

use crate::error::WorkerError;
use crate::links::state::Links;
use crate::requests::control::Recipients;
use crate::requests::ids::{InFlightId, Request};
use crate::requests::in_flight::{ControlInFlight, RequestWork};
use crate::requests::names::TableId;
use crate::tables::table::Tables;
use gannet_transport::Net;
use std::collections::HashSet;
use std::time::Duration;

/// Queues a part of a request on each of these links, and sends what can be sent.
pub(crate) fn post_requests<N: Net>(
    of: &mut Links<N>,
    control: ControlInFlight,
    links: &[usize],
    now: Duration,
) -> Result<InFlightId, WorkerError> {
    let control = ControlInFlight { answers: vec![None; links.len()], ..control };
    let id = of.flights.add(RequestWork::Control(control), links.len(), 0, now);
    for (chunk, &link) in links.iter().enumerate() {
        let request = Request { index: id.index, chunk: chunk as u32, push: false, bytes: 0 };
        of.peers[link].enqueue(request, now);
        of.send(link)?;
    }
    Ok(id)
}

/// Queues a request on one link, and sends what can be sent. `bytes` count against the credit.
pub(crate) fn post_on<N: Net>(
    links: &mut Links<N>,
    link: usize,
    control: ControlInFlight,
    bytes: usize,
    now: Duration,
) -> Result<InFlightId, WorkerError> {
    let control = ControlInFlight { answers: vec![None], ..control };
    let id = links.flights.add(RequestWork::Control(control), 1, bytes, now);
    let request = Request { index: id.index, chunk: 0, push: false, bytes: bytes as u32 };
    links.peers[link].enqueue(request, now);
    links.send(link).map(|()| id)
}

/// The links that a request goes to now.
pub(crate) fn links_of<N: Net>(
    of: &Links<N>,
    tables: &Tables,
    table: Option<TableId>,
    to: Recipients<'_>,
) -> Vec<usize> {
    let owners = table.map_or(&[][..], |table| &tables[table.0].owners);
    match to {
        Recipients::All => of.wanted().collect(),
        Recipients::Owner(shard) => {
            owners.get(shard as usize).map(|&owner| owner as usize).into_iter().collect()
        }
        Recipients::Owners => owners.iter().map(|&owner| owner as usize).collect(),
        Recipients::First(times) => vec![0; times],
        Recipients::Links(links) => links.to_vec(),
    }
}

/// A link to each thread of each server. A server that has several places has links for each of them.
pub(crate) fn all_threads<N: Net>(links: &Links<N>) -> Vec<usize> {
    let mut seen = HashSet::new();
    let mut is_first =
        |link: &usize| seen.insert((links.peers[*link].addr.as_str(), links.peers[*link].thread));
    links.wanted().filter(|link| is_first(link)).collect()
}

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

impl<N: Net> Links<N> {
    /// Queues a part of a request on each of these links, and sends what can be sent.
    pub(crate) fn post(
        &mut self,
        control: ControlInFlight,
        links: &[usize],
        now: Duration,
    ) -> Result<InFlightId, WorkerError> {
        let control = ControlInFlight { answers: vec![None; links.len()], ..control };
        let id = self.flights.add(RequestWork::Control(control), links.len(), 0, now);
        for (chunk, &link) in links.iter().enumerate() {
            let request = Request { index: id.index, chunk: chunk as u32, push: false, bytes: 0 };
            self.peers[link].enqueue(request, now);
            self.send(link)?;
        }
        Ok(id)
    }

    /// Queues a request on one link, and sends what can be sent. `bytes` count against the credit.
    pub(crate) fn post_on(
        &mut self,
        link: usize,
        control: ControlInFlight,
        bytes: usize,
        now: Duration,
    ) -> Result<InFlightId, WorkerError> {
        let control = ControlInFlight { answers: vec![None], ..control };
        let id = self.flights.add(RequestWork::Control(control), 1, bytes, now);
        let request = Request { index: id.index, chunk: 0, push: false, bytes: bytes as u32 };
        self.peers[link].enqueue(request, now);
        self.send(link).map(|()| id)
    }

    /// The links that a request goes to now.
    pub(crate) fn links_of(&self, tables: &Tables, table: Option<TableId>, to: Recipients<'_>) -> Vec<usize> {
        let owners = table.map_or(&[][..], |table| &tables[table.0].owners);
        match to {
            Recipients::All => self.wanted().collect(),
            Recipients::Owner(shard) => {
                owners.get(shard as usize).map(|&owner| owner as usize).into_iter().collect()
            }
            Recipients::Owners => owners.iter().map(|&owner| owner as usize).collect(),
            Recipients::First(times) => vec![0; times],
            Recipients::Links(links) => links.to_vec(),
        }
    }

    /// A link to each thread of each server. A server that has several places has links for each of them.
    pub(crate) fn all_threads(&self) -> Vec<usize> {
        let mut seen = HashSet::new();
        let mut is_first =
            |link: &usize| seen.insert((self.peers[*link].addr.as_str(), self.peers[*link].thread));
        self.wanted().filter(|link| is_first(link)).collect()
    }
}

//! What tests in other crates see of a worker: a client of the counter of incarnations that never waits, and what a
//! heartbeat reports.

use crate::clients::heartbeat::Heartbeat;
use crate::config::worker_config::WorkerConfig;
use crate::error::WorkerError;
use crate::requests::ids::{InFlightId, Request};
use crate::requests::in_flight::{ControlInFlight, RequestWork};
use crate::worker::Worker;
use gannet_transport::Net;
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::runs::{AllocateFrame, AllocatedFrame};
use gannet_wire::frames::unsent::UnsentFrame;
use gannet_wire::messages::member::Activity;
use std::sync::atomic::Ordering::Relaxed;

/// A client that asks without ever waiting: first all servers for what they know, then the first for a number.
pub struct IncarnationClient<N: Net> {
    worker: Worker<N>,
    looks: Option<InFlightId>,
    asks: Option<InFlightId>,
    /// The highest number that had been answered to any client when it began.
    before: u64,
}

impl<N: Net> IncarnationClient<N> {
    /// Asks all servers.
    ///
    /// # Errors
    /// The servers cannot be connected to.
    pub fn begin(net: N, servers: &[String], before: u64) -> Result<IncarnationClient<N>, WorkerError> {
        let config = WorkerConfig { one_thread: true, ..WorkerConfig::reader(servers) };
        let worker = Worker::connect(net, config)?;
        let mut client = IncarnationClient { worker, looks: None, asks: None, before };
        let all: Vec<usize> = (0..servers.len()).collect();
        client.looks = Some(client.post(AllocateFrame { floor: 0, look: true }, &all)?);
        Ok(client)
    }

    fn post(&mut self, request: AllocateFrame, peers: &[usize]) -> Result<InFlightId, WorkerError> {
        let (worker, answers) = (&mut self.worker, vec![None; peers.len()]);
        let now = worker.links.net.now();
        let frame = UnsentFrame::new(&request);
        let control = ControlInFlight { frame, answers, ..ControlInFlight::default() };
        let id = worker.links.flights.add(RequestWork::Control(control), peers.len(), 0, now);
        for (chunk, &number) in peers.iter().enumerate() {
            let request = Request { index: id.index, chunk: chunk as u32, push: false, bytes: 0 };
            worker.links.peers[number].enqueue(request, now);
            worker.links.send(number)?;
        }
        Ok(id)
    }

    /// The numbers in the answers to a request, if all have come.
    fn taken(&mut self, id: Option<InFlightId>) -> Option<Vec<u64>> {
        let id = id.filter(|id| self.worker.links.flights.get(*id).is_some_and(|flight| flight.left == 0))?;
        let RequestWork::Control(control) = self.worker.links.flights.take(id.index)?.work else {
            return None;
        };
        let number = |head: &gannet_transport::Head| AllocatedFrame::decode(head).unwrap().incarnation;
        Some(control.answers.iter().flatten().map(|answer| number(&answer.head)).collect())
    }

    /// The client's number, once it has come.
    ///
    /// # Errors
    /// A server is lost.
    pub fn step(&mut self) -> Result<Option<u64>, WorkerError> {
        self.worker.poll()?;
        if let Some(known) = self.taken(self.looks) {
            let floor = known.into_iter().max().unwrap_or(0);
            (self.looks, self.asks) = (None, Some(self.post(AllocateFrame { floor, look: false }, &[0])?));
        }
        Ok(self.taken(self.asks).and_then(|numbers| numbers.first().copied()))
    }

    /// The worker that asks.
    pub fn worker(&self) -> &Worker<N> {
        &self.worker
    }

    /// What [`begin`](Self::begin) was told.
    pub fn before(&self) -> u64 {
        self.before
    }
}

#[doc(hidden)]
impl<N: Net> Heartbeat<N> {
    /// Whether a thread waits for a server or for the scheduler.
    pub fn is_asking(&self) -> bool {
        self.shared.asking.load(Relaxed) > 0
    }

    /// The work that the next heartbeat reports.
    pub fn reported_work(&self) -> Activity {
        self.shared.progress().1
    }
}

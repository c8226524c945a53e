//! What a worker holds of its links: the peers behind them, the requests in flight over them, and the loop's own times.

use crate::config::worker_config::WorkerConfig;
use crate::counters::WorkerCounters;
use crate::error::WorkerError;
use crate::links::peer::Peer;
use crate::links::replies::ReplyResult;
use crate::requests::in_flight::{ControlInFlight, InFlight};
use crate::requests::push_rows::PushRows;
use gannet_transport::{Event, Net, Prng};
use gannet_wire::spin::Spin;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// What the links bring that is not theirs to handle. The worker takes it in the order of arrival.
pub(crate) enum Arrived {
    /// A link has been made. Its server may let the worker read rows itself.
    Opened { link: usize },
    /// The answer to a request for a read path.
    ReadPath { link: usize, control: Box<ControlInFlight> },
    /// The server of this link lets the worker read no rows itself.
    ReadPathRefused { link: usize, why: String },
    /// The next reply of this link waits for other workers.
    Waits { link: usize },
    /// A push has been answered in full, and its rows are free. Some came too `late` for their step.
    PushEnded { table: usize, seq: u64, late: bool, rows: PushRows },
}

/// Who owns the places of the servers, as the coordinator last said. Nothing, if there is none.
#[derive(Default)]
pub(crate) struct PlaceOwners {
    pub(crate) next_lookup: Duration,
    /// Servers whose owners the coordinator has named.
    pub(crate) found: usize,
    /// The incarnation of the owner of each place.
    pub(crate) of: HashMap<u32, u64>,
}

/// The links to each thread of each server. They know tables by what their calls are given of them.
pub(crate) struct Links<N: Net> {
    pub(crate) net: N,
    pub(crate) config: WorkerConfig,
    pub(crate) poll: N::Poll,
    pub(crate) events: Vec<Event>,
    pub(crate) peers: Vec<Peer<N::Stream>>,
    /// Counts the changes of the layout of links.
    pub(crate) layout: u64,
    pub(crate) flights: InFlight,
    pub(crate) counters: Arc<WorkerCounters>,
    /// What one turn of a link has brought. Memory that is used again.
    pub(crate) answers: Vec<ReplyResult>,
    /// What has arrived for the worker, until it takes it.
    pub(crate) arrived: VecDeque<Arrived>,
    /// Errors of pushes and pulls that were refused for good, until a call returns them.
    pub(crate) refused: VecDeque<WorkerError>,
    pub(crate) owners: PlaceOwners,
    pub(crate) next_check: Duration,
    /// When time limits were last checked.
    pub(crate) checked_at: Duration,
    pub(crate) spin: Spin,
    pub(crate) prng: Prng,
}

impl<N: Net> Links<N> {
    /// No link yet.
    ///
    /// # Errors
    /// The system gives no poll.
    pub(crate) fn new(
        net: N,
        config: WorkerConfig,
        counters: Arc<WorkerCounters>,
    ) -> Result<Links<N>, WorkerError> {
        let (poll, checked_at) = (net.poll()?, net.now());
        let (prng, spin) = (Prng::new(config.seed), Spin::new(config.spin));
        Ok(Links {
            net,
            config,
            poll,
            events: Vec::new(),
            peers: Vec::new(),
            layout: 0,
            flights: InFlight::new(counters.clone()),
            counters,
            answers: Vec::new(),
            arrived: VecDeque::new(),
            refused: VecDeque::new(),
            owners: PlaceOwners::default(),
            next_check: Duration::ZERO,
            checked_at,
            spin,
            prng,
        })
    }

    /// The links that should exist, of all servers.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = usize> {
        (0..self.peers.len()).filter(|&number| self.peers[number].is_wanted())
    }

    /// Whether any request waits for its answer.
    pub(crate) fn in_flight(&self) -> bool {
        self.peers.iter().any(|peer| !peer.requests.queue.is_empty())
    }

    /// The error of a peer whose answer makes no sense.
    pub(crate) fn nonsense(&self, link: usize, what: String) -> WorkerError {
        WorkerError::Protocol { peer: self.peers[link].name.clone(), what }
    }
}

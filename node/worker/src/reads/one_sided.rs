//! One-sided pulls: the worker reads rows itself, without a request, in the images of a server on this host or over
//! RDMA.
//!
//! A row must prove itself: it has the right key, and the same version before and after. The worker requests rows that
//! it did not find, because only the owner knows that a key has no row. It reads nothing of a server that answered no
//! request of the last [`trust_time`], counted from when the request was sent: the server may have been replaced. It
//! reads no rows that unacknowledged own pushes touch (own_push_filter.rs). links/read_paths.rs says how it finds
//! images and regions.

use crate::limits::trust_time;
use crate::reads::own_push_filter::OwnPushFilter;
use crate::reads::query::ReadPathQuery;
use crate::reads::rdma_reads::RdmaTable;
use crate::reads::spec::PullSpec;
use crate::requests::in_flight::LocalHits;
use gannet_core::{MappedShards, NO_CLOCK, NO_SLOT};
use std::time::Duration;

/// What this worker can read of one server thread.
pub(crate) struct OneSidedReads {
    /// By table.
    pub(crate) tables: Vec<Option<ReadPath>>,
    pub(crate) query: Option<ReadPathQuery>,
    /// The server does not let this worker read over this link.
    pub(crate) refused: bool,
    /// The send time of the latest request that has been answered.
    pub(crate) last_answered: Duration,
    pub(crate) last_ping: Duration,
    /// For how long after `last_answered` the worker reads.
    pub(crate) trust: Duration,
    /// When the worker last asked what the server has registered since.
    pub(crate) last_asked: Duration,
    pub(crate) own_pushes: OwnPushFilter,
}

/// How the worker reads rows of a table.
pub(crate) enum ReadPath {
    /// In the server's images.
    Images(Box<MappedShards>),
    /// With RDMA READs.
    Rdma(Box<RdmaTable>),
}

impl OneSidedReads {
    pub(crate) fn new() -> OneSidedReads {
        OneSidedReads {
            tables: Vec::new(),
            query: None,
            refused: false,
            last_answered: Duration::ZERO,
            last_ping: Duration::ZERO,
            trust: Duration::ZERO,
            last_asked: Duration::ZERO,
            own_pushes: OwnPushFilter::new(),
        }
    }

    /// There is a link to a server whose leases have this time.
    pub(crate) fn begin(&mut self, lease: Option<Duration>) {
        self.trust = trust_time(lease);
    }

    /// The link is lost, and with it what was known of the server's memory. The next link may be to another server.
    pub(crate) fn lose(&mut self) {
        self.tables.clear();
        (self.query, self.refused, self.trust) = (None, false, Duration::ZERO);
    }

    /// Whether the server was the owner at this time.
    pub(crate) fn is_trusted(&self, now: Duration) -> bool {
        now.saturating_sub(self.last_answered) < self.trust
    }

    /// A request that was sent at `begun` has been answered.
    pub(crate) fn note_answer(&mut self, begun: Duration) {
        self.last_answered = self.last_answered.max(begun);
    }

    /// The send time of the latest request that has been answered.
    pub(crate) fn last_answered(&self) -> Duration {
        self.last_answered
    }

    /// Learns from an answer where rows are.
    pub(crate) fn learn(&mut self, table: usize, keys: &[u64], slots: &[u32]) {
        if let Some(Some(ReadPath::Rdma(rdma))) = self.tables.get_mut(table) {
            rdma.learn(keys, slots);
        }
    }

    /// Whether the worker can read any table itself.
    pub(crate) fn is_on(&self) -> bool {
        self.tables.iter().any(Option::is_some)
    }

    /// How a table is read, if the server is believed now.
    pub(crate) fn fresh(&mut self, table: usize, now: Duration) -> Option<&mut ReadPath> {
        let is_trusted = self.is_trusted(now);
        self.tables.get_mut(table)?.as_mut().filter(|_| is_trusted)
    }

    /// What must be requested of a chunk whose rows were found in these slots.
    pub(crate) fn left_to_ask(
        &mut self,
        keys: &[u64],
        slots: Vec<u32>,
        spec: &PullSpec,
        with_slots: bool,
    ) -> Box<LocalHits> {
        let mut near = LocalHits { slots, with_slots, ..LocalHits::default() };
        let touched = self.own_pushes.open();
        for (place, (&key, &slot)) in keys.iter().zip(&near.slots).enumerate() {
            if slot == NO_SLOT || touched.is_some_and(|touched| touched.has(key)) {
                near.keys.push(key);
                near.places.push(place as u32);
            }
        }
        near.rows.resize(near.keys.len() * (spec.floats + usize::from(with_slots)), 0.0);
        if !spec.keep {
            near.slots = Vec::new();
        }
        Box::new(near)
    }
}

/// The clock in an image, if it has one.
pub(crate) fn known_since(lowest: u64) -> Option<u64> {
    (lowest != NO_CLOCK).then_some(lowest)
}

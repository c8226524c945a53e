//! The worker of a session, and whether its pushes are accepted.

use crate::limits::TABLES_MAX;
use crate::peers::outcome::{RequestFailure, RequestOutcome, refuse};
use gannet_core::{DATA_PUSHERS, PushError, Shards};
use gannet_wire::incarnation::NO_INCARNATION;
use gannet_wire::messages::member::WorkerIncarnation;
use gannet_wire::refusal::Refusal;
use gannet_wire::share_pushers::AGGREGATE;

/// The worker of a session, and whether its pushes are accepted.
pub(crate) struct Pusher {
    pub(crate) pusher: u64,
    pub(crate) incarnation: u64,
    /// The tables whose shards all know this pusher, and 1: each at its place in the list of tables.
    pub(crate) introduced: Vec<u64>,
    /// The session's number.
    pub(crate) session: u32,
    /// A push was refused, and the worker will resend it. A later push must not be applied first: the resend would look
    /// like a duplicate.
    pub(crate) blocked: bool,
    /// The tables over which the worker keeps step with others, each with the worker's rank.
    pub(crate) ranks: Vec<(u32, u32)>,
}

impl Pusher {
    /// Refuses a fenced worker, whatever name its push has. Before the worker's first push to a table, introduces the
    /// pusher to the table's shards.
    pub(crate) fn enter_table(&mut self, table: u32, shards: &mut Shards) -> RequestOutcome {
        let refused = |error: PushError| RequestFailure::Refused(Refusal::of_push(&error), error.to_string());
        if !self.is_introduced(table) {
            shards.introduce_pusher(self.pusher, self.incarnation).map_err(refused)?;
            let place = place_of(table);
            self.introduced.resize(self.introduced.len().max(place + 1), 0);
            self.introduced[place] = u64::from(table) + 1;
        }
        shards.check_pusher(self.pusher, self.incarnation).map_err(refused)
    }

    /// Whether the worker has pushed to a table, or keeps step over it.
    pub(crate) fn is_of(&self, table: u32) -> bool {
        self.is_introduced(table) || self.rank(table).is_some()
    }

    #[inline]
    fn is_introduced(&self, table: u32) -> bool {
        self.introduced.get(place_of(table)).is_some_and(|known| *known == u64::from(table) + 1)
    }

    /// Refuses a session without an incarnation: it may not push.
    pub(crate) fn must_have_incarnation(&self) -> Result<(), RequestFailure> {
        if self.incarnation == NO_INCARNATION {
            let text = "this session has no incarnation (0), so it may not push: allocate one when the worker starts";
            return refuse(Refusal::Name, text);
        }
        Ok(())
    }

    /// The worker's rank among those that keep step over a table.
    pub(crate) fn rank(&self, table: u32) -> Option<u32> {
        self.ranks.iter().find(|(of, _)| *of == table).map(|(_, rank)| *rank)
    }

    /// Notes that the worker keeps step over a table, with this rank.
    pub(crate) fn enter(&mut self, table: u32, rank: u32) {
        self.ranks.retain(|(of, _)| *of != table);
        self.ranks.push((table, rank));
    }
}

/// Whether this is a pusher of data: pushes can be named by the data that they come from.
pub(crate) fn is_data(pusher: u64) -> bool {
    (DATA_PUSHERS..AGGREGATE).contains(&pusher)
}

/// The place of a table with this number.
pub(crate) fn place_of(number: u32) -> usize {
    number as usize % TABLES_MAX
}

/// The worker that pushes under this number: its rank is that number less 1.
pub(crate) fn worker_of(pusher: u64, incarnation: u64) -> Option<WorkerIncarnation> {
    let rank = pusher.checked_sub(1).and_then(|rank| u32::try_from(rank).ok())?;
    Some(WorkerIncarnation { rank, incarnation })
}

//! What a server is to a place, and what it knows of a place that nobody has.

use crate::restore::place::PlaceLoader;
use gannet_wire::coordinator::CoordinatorError;
use gannet_wire::messages::control::PlaceV3;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a server is to a place.
pub(crate) enum Role {
    /// It takes the place if nobody has it and this server has all of its rows, or nobody has them.
    Backup { vacancy: Option<Vacancy> },
    Owner {
        lease: u64,
        place: PlaceV3,
        version: u64,
        /// The lease was granted or kept in this round, so no other server has the place.
        may_write: bool,
    },
}

impl Role {
    pub(crate) const BACKUP: Role = Role::Backup { vacancy: None };

    pub(crate) fn is_owner(&self) -> bool {
        matches!(self, Role::Owner { .. })
    }
}

/// Who has the lease of a place.
pub(crate) enum LeaseHolder {
    /// This server. The lease, and when it ends.
    Here(u64, Duration),
    /// This server, by an earlier call whose answer was lost. The lease will end.
    Lost,
    /// Another server.
    Other,
}

/// Why a membership is over.
pub(crate) struct Deposed(pub(crate) String);

/// The outcome of a step: the coordinator may give no answer, and another server may own the place.
pub(crate) type StepOutcome<T> = Result<Result<T, Deposed>, CoordinatorError>;

/// A time in which nobody had the lease of a place and nobody changed the place, by all answers of the coordinator.
#[derive(Clone, Copy)]
pub(crate) struct Vacancy {
    /// How long. Time without answers does not count: a backup may have been cut off from the coordinator, too.
    pub(crate) seen: Duration,
    /// When the coordinator answered last. `None`: it did not answer the last time.
    pub(crate) at: Option<Duration>,
    /// Of the place in the coordinator.
    pub(crate) version: u64,
}

impl Vacancy {
    /// The coordinator has given the same answers at `now` as before.
    pub(crate) fn goes_on(self, now: Duration, lease: Duration) -> Vacancy {
        let more = self.at.map_or(Duration::ZERO, |at| now.saturating_sub(at).min(lease / 4));
        Vacancy { seen: self.seen + more, at: Some(now), ..self }
    }
}

/// How rows are loaded.
pub(crate) struct Loading {
    pub(crate) loader: PlaceLoader,
    /// On a thread of their own. Otherwise the membership loads them itself.
    pub(crate) on_thread: bool,
}

/// The keys of the owners that have a lease, each with the incarnation of the owner.
pub(crate) type Owners = BTreeMap<String, Vec<u8>>;

/// Whether a membership goes on. If the coordinator gave no answer, it asks again.
pub(crate) fn goes_on(outcome: StepOutcome<()>, place: u32) -> Result<(), (u32, Deposed)> {
    let outcome = outcome.unwrap_or_else(|error| {
        tracing::warn!(%error, place, "this server asks again");
        Ok(())
    });
    outcome.map_err(|deposed| (place, deposed))
}

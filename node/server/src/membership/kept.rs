//! A server has taken a place, and other backups of the owner before have everything that was acknowledged, too. They
//! stay in the set of the place, so that the next death loses nothing.
//!
//! 1. Before any thread has the place, the server *holds* it: it acknowledges nothing, and shows nobody a row.
//! 2. It is ready, with these backups in the set. In the coordinator `since` is below the epoch. If the server dies
//!    now, each of them may take the place with what earlier owners have told it.
//! 3. It fills them. A backup keeps its whole copies until the new ones are whole. Some copies may be ahead of this
//!    server, or behind it, by pushes that nobody has acknowledged.
//! 4. All have joined: workers wait for them from now on. Or the time for that is over, and those that have not joined
//!    leave the set. Then `since` is the epoch, and the server goes on.

use crate::limits::KEPT_LEASES;
use crate::membership::Membership;
use crate::membership::registry::members_of;
use crate::membership::role::{Role, StepOutcome};
use crate::membership::slot::Slot;
use gannet_transport::Net;
use gannet_wire::coordinator::CoordinatorError;
use gannet_wire::messages::control::PlaceV3;
use gannet_wire::messages::members::ServerV1;
use gannet_wire::place_keys::PlaceKeys;
use std::time::Duration;

/// The backups of a place that is held: address and incarnation.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    backups: Vec<(String, u64)>,
    /// When those leave that have not joined. `None`: the place is not ready.
    until: Option<Duration>,
}

impl<N: Net> Membership<N> {
    /// Holds a place that this server takes, if other backups of the owner before may stay. Returns whether it does.
    pub(crate) fn keep_backups(&self, keys: &PlaceKeys, before: &[(String, u64)]) -> bool {
        let mut backups = before.to_vec();
        backups.retain(|(_, incarnation)| *incarnation != self.incarnation);
        if backups.is_empty() || self.slots.is_empty() {
            return false;
        }
        self.standing.hold(keys.number);
        self.kept.borrow_mut().insert(keys.number, Kept { backups, until: None });
        true
    }

    /// The backups of a place that are to be in its set when it is ready: those that live.
    pub(crate) fn kept_backups(&self, keys: &PlaceKeys) -> Result<Vec<(String, u64)>, CoordinatorError> {
        let Some(Kept { mut backups, .. }) = self.kept.borrow().get(&keys.number).cloned() else {
            return Ok(Vec::new());
        };
        let members = members_of(&*self.config.coordinator, &self.config.job)?;
        backups.retain(|(addr, incarnation)| {
            // An owner from before that waits is no backup.
            let may = |server: &ServerV1| {
                server.incarnation == *incarnation && !server.owned.contains(&keys.number)
            };
            members.get(addr).is_some_and(may)
        });
        Ok(backups)
    }

    /// The server acknowledges pushes to the place from now on.
    pub(crate) fn end_hold(&self, keys: &PlaceKeys) {
        if self.kept.borrow_mut().remove(&keys.number).is_some() {
            self.standing.release(keys.number);
        }
    }

    /// Whether a backup has yet to be filled that stays in the set of a place.
    pub(crate) fn keeps(&self, addr: &str) -> bool {
        self.kept.borrow().values().any(|kept| kept.backups.iter().any(|(of, _)| of == addr))
    }

    /// Whether this server holds this place.
    pub(crate) fn holds_place(&self, keys: &PlaceKeys) -> bool {
        self.kept.borrow().contains_key(&keys.number)
    }

    /// Whether this server holds a place.
    pub(crate) fn holds(&self) -> bool {
        !self.kept.borrow().is_empty()
    }

    /// Goes on with a place that is held if all backups in its set have joined, or the time for that is over.
    pub(crate) fn settle_kept(
        &self,
        slots: &[Slot],
        keys: &PlaceKeys,
        place: &mut PlaceV3,
        version: &mut u64,
    ) -> StepOutcome<()> {
        let now = self.net.now();
        let until = match self.kept.borrow_mut().get_mut(&keys.number) {
            Some(kept) => *kept.until.get_or_insert(now + self.config.lease * KEPT_LEASES),
            None => return Ok(Ok(())),
        };
        let (mut backups, all) = (place.backups.clone(), place.backups.len());
        backups.retain(|backup| slots.iter().any(|slot| slot.has_joined(backup)));
        if backups.len() < all && now < until {
            return Ok(Ok(()));
        }
        let without = all - backups.len();
        // Only behind this write no backup goes on with what an earlier owner has told it.
        let since = self.standing.epoch(keys.number);
        let next = PlaceV3 { backups, since, ..place.clone() };
        match self.set(keys, *version, &next)? {
            Some(at) => (*place, *version) = (next, at),
            None => match self.own_place(keys)? {
                Some(known) => (*place, *version) = known,
                None => return Ok(Err(self.deposed(keys)?)),
            },
        }
        if place.since == since {
            self.end_hold(keys);
            self.wake();
            let place = keys.number;
            match without {
                0 => tracing::info!(place, "the other backups have all rows of the new owner"),
                _ => tracing::warn!(
                    place,
                    without,
                    "backups of the owner before have left: they are not filled yet"
                ),
            }
        }
        Ok(Ok(()))
    }

    /// As [`settle_kept`](Self::settle_kept), for all places of this server.
    pub(crate) fn settle_all_kept(
        &self,
        slots: &[Slot],
        places: &mut [(PlaceKeys, Role)],
    ) -> Result<(), (u32, crate::membership::role::Deposed)> {
        for (keys, role) in places {
            if let Role::Owner { place, version, .. } = role
                && place.ready
            {
                crate::membership::role::goes_on(self.settle_kept(slots, keys, place, version), keys.number)?;
            }
        }
        Ok(())
    }
}

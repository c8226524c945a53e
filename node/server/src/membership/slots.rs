//! The backup slots of a server: which servers are its backups, and which of them have everything that was
//! acknowledged.
//!
//! A server begins with the backups that its configuration names. If one of them stays away from the registry, or
//! cannot be filled, another server gets its slot: one without a place, if there is one, or the one with the fewest
//! copies.
//! Workers stop waiting for a backup only when it has left the sets of all places of the server, by compare-and-set.
//! Only then can the slot be given to another server.

use crate::limits::{BACKUP_AWAY_LEASES, BACKUP_FAILURES_MAX};
use crate::membership::Membership;
use crate::membership::registry::Members;
use crate::membership::role::{Role, StepOutcome};
use crate::membership::slot::Slot;
use crate::replication::slot::SlotHolder;
use gannet_transport::Net;
use gannet_wire::coordinator::CoordinatorWrite;
use gannet_wire::limits::COORDINATOR_WRITES_MAX;
use gannet_wire::messages::control::PlaceV3;
use gannet_wire::messages::members::ServerV1;
use gannet_wire::place_keys::PlaceKeys;
use std::collections::BTreeSet;
use std::time::Duration;

/// The server for a free backup slot of the server at `own`: one that stays in a set, then one without a place, then
/// the one with the fewest copies. Of equals it is the next behind `own` in alphabetical order, so that not all owners
/// take the same.
fn best<'a>(
    own: &str,
    members: &'a Members,
    taken: &BTreeSet<String>,
    stays: impl Fn(&str) -> bool,
) -> Option<(&'a String, &'a ServerV1)> {
    let copies = |addr: &String| {
        members.values().flat_map(|server| &server.slots).filter(|slot| slot.addr == *addr).count()
    };
    let may = members.iter().filter(|(addr, _)| *addr != own && !taken.contains(*addr));
    may.min_by_key(|(addr, server)| {
        (!stays(addr), !server.owned.is_empty(), copies(addr), addr.as_str() < own, *addr)
    })
}

impl<N: Net> Membership<N> {
    /// Gives the backup slots to servers of the registry, if this server has a place. `elapsed`: how long it is since
    /// the registry was read last, as far as that counts.
    pub(crate) fn choose(&self, slots: &mut [Slot], members: &Members, elapsed: Duration, owns: bool) {
        // A server that was told another number of places knows other tables.
        let mut members = members.clone();
        members.retain(|_, server| server.places == self.config.place.1);
        for at in 0..slots.len() {
            let known = slots[at].addr().and_then(|addr| members.get_key_value(&addr));
            let Some((addr, server)) = known else {
                slots[at].away += elapsed;
                continue;
            };
            slots[at].away = Duration::ZERO;
            let holder = slots[at].holder();
            let is_taken = holder.is_none() && holders(slots).contains(addr);
            let has = holder.and_then(|holder| holder.incarnation);
            if owns && !is_taken && has != Some(server.incarnation) && slots[at].is_idle() {
                slots[at].give(addr, server);
            }
        }
        for at in (0..slots.len()).filter(|_| owns) {
            let taken = holders(slots);
            let slot = &mut slots[at];
            slot.is_leaving = false;
            let Some((addr, server)) = best(&self.config.addr, &members, &taken, |addr| self.keeps(addr))
                .filter(|(addr, _)| {
                    // Workers wait for a backup that stays, so it needs not wait for one that is away.
                    let is_free = slot.is_idle() && !slot.away.is_zero();
                    self.is_gone(slot, &taken) || is_free && self.keeps(addr)
                })
            else {
                continue;
            };
            match slot.is_idle() {
                true => slot.give(addr, server),
                // It leaves the sets of all places first.
                false => slot.is_leaving = true,
            }
        }
    }

    /// Whether a slot needs another server than the one in it, or its first choice.
    fn is_gone(&self, slot: &Slot, taken: &BTreeSet<String>) -> bool {
        let has_failed = slot.shared.failures() >= BACKUP_FAILURES_MAX * slot.queues.len() as u64;
        let has_none =
            slot.holder().is_none() && slot.first.as_ref().is_none_or(|first| taken.contains(first));
        has_none || has_failed || slot.away > self.config.lease * BACKUP_AWAY_LEASES
    }

    /// Adds the backup in a slot to the sets of all places of this server, if it has everything that was acknowledged.
    /// Takes one that was lost, or that is to leave, out of all these sets. Then workers wait for it no more.
    ///
    /// All sets change at once. Otherwise another server could take a place of this one between two writes. This
    /// server would end, and nobody could take a place whose set the backup has left.
    pub(crate) fn settle(&self, slot: &Slot, places: &mut [(PlaceKeys, Role)]) -> StepOutcome<()> {
        let Some(SlotHolder { addr, incarnation: Some(incarnation) }) = slot.holder() else {
            return Ok(Ok(()));
        };
        let is_lost = slot.queues.iter().any(|queue| queue.is_lost());
        let leaves = is_lost || slot.is_leaving && !slot.is_idle();
        // Workers need not wait for a backup before there is a place that names it.
        let serves = |(_, role): &(PlaceKeys, Role)| matches!(role, Role::Owner { place, .. } if place.ready);
        let joined = !leaves && !slot.is_leaving && places.iter().any(serves) && slot.join(incarnation);
        if joined {
            slot.shared.forget_failures();
        }
        if !leaves && !joined {
            return Ok(Ok(()));
        }
        let backup = (addr.clone(), incarnation);
        // A backup that leaves does so with a write, also if it is in no set. An earlier write whose answer was lost
        // could still put it there. No such write succeeds behind this one.
        let wanted = |keys: &PlaceKeys, place: &PlaceV3| {
            let mut wanted = place.backups.clone();
            wanted.retain(|known| known.0 != addr || joined && *known == backup);
            // Who comes while a place is held may have copies of tables that were dropped since.
            if joined && !wanted.contains(&backup) && !self.holds_place(keys) {
                wanted.push(backup.clone());
            }
            (leaves || wanted != place.backups).then_some(wanted)
        };
        // The set of a place that is not ready yet changes later.
        let changes = |keys: &PlaceKeys, place: &PlaceV3| wanted(keys, place).filter(|_| place.ready);
        match self.write_sets(places, changes)? {
            Err(deposed) => return Ok(Err(deposed)),
            Ok(written) if written && leaves => {
                slot.queues.iter().for_each(|queue| queue.leave());
                tracing::warn!(backup = addr, "a backup has left: workers do not wait for it any more");
            }
            Ok(_) => {}
        }
        Ok(Ok(()))
    }

    /// Gives places of this server other sets of backups: all at once, or 64 at once if it has more. Returns whether
    /// all are written.
    fn write_sets(
        &self,
        places: &mut [(PlaceKeys, Role)],
        changes: impl Fn(&PlaceKeys, &PlaceV3) -> Option<Vec<(String, u64)>>,
    ) -> StepOutcome<bool> {
        let mut changed = Vec::new();
        for (keys, role) in places {
            if let Role::Owner { place, version, .. } = role
                && let Some(backups) = changes(keys, place)
            {
                let next = PlaceV3 { backups, ..place.clone() };
                changed.push((&*keys, place, version, next));
            }
        }
        let mut are_written = true;
        for group in changed.chunks_mut(COORDINATOR_WRITES_MAX) {
            let write = |(keys, _, version, next): &(&PlaceKeys, _, &mut u64, PlaceV3)| {
                self.write_of(keys, **version, next)
            };
            let writes: Vec<CoordinatorWrite> = group.iter().map(write).collect();
            let written = self.config.coordinator.compare_and_set_all(&writes)?;
            are_written &= written.is_some();
            for (keys, place, version, next) in group {
                (**place, **version) = match written {
                    Some(at) => (next.clone(), at),
                    // An earlier write had no answer, or another server has the place.
                    None => match self.own_place(keys)? {
                        Some(now) => now,
                        None => return Ok(Err(self.deposed(keys)?)),
                    },
                };
            }
        }
        Ok(Ok(are_written))
    }
}

/// The addresses of the servers in these slots.
fn holders(slots: &[Slot]) -> BTreeSet<String> {
    slots.iter().filter_map(|slot| slot.holder()).map(|holder| holder.addr).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_wire::messages::members::SlotV1;

    fn member(owned: &[u32], backups: &[&str]) -> ServerV1 {
        let slot = |addr: &&str| SlotV1 {
            addr: (*addr).to_owned(),
            incarnation: 1,
            joined: true,
            filled: 0,
            shards: 0,
            commands: 0,
            bytes: 0,
        };
        let slots = backups.iter().map(slot).collect();
        ServerV1 { incarnation: 1, places: 4, owned: owned.to_vec(), slots }
    }

    #[test]
    fn a_slot_goes_to_a_server_without_a_place_then_to_the_one_with_the_fewest_copies() {
        let all = [
            ("a", member(&[0], &["b"])),
            ("b", member(&[1], &["c"])),
            ("c", member(&[2], &["b"])),
            ("d", member(&[3], &["a"])),
            ("e", member(&[], &[])),
        ];
        let members: Members = all.into_iter().map(|(addr, of)| (addr.to_owned(), of)).collect();
        let mut taken = BTreeSet::new();
        let mut order = Vec::new();
        while let Some((addr, _)) = best("b", &members, &taken, |_| false) {
            order.push(addr.as_str());
            taken.insert(addr.clone());
        }
        // D has no copies. C and A have one each, and C is the next behind B.
        assert_eq!(order, ["e", "d", "c", "a"]);
        // A stays in the set of a place that B has taken.
        let first = best("b", &members, &BTreeSet::new(), |addr| addr == "a");
        assert_eq!(first.map(|(addr, _)| addr.as_str()), Some("a"));
    }
}

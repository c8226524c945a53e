//! An owner keeps its lease, or gets it again.
//!
//! A backup that takes the place may die before it is ready. Then nobody has acknowledged anything since the owner
//! before, who may live: it was only cut off. So as long as the backup is not ready, the owner before waits in silence.
//! If the backup dies, it takes its place back and goes on, with the sessions, images and backups that it had. In the
//! coordinator the place has the next epoch. What the owner tells its backups stays of the epoch in which it began.

use crate::membership::Membership;
use crate::membership::role::{LeaseHolder, StepOutcome};
use crate::places::folder::{Claim, PlaceFolder};
use gannet_transport::Net;
use gannet_wire::coordinator::CoordinatorError;
use gannet_wire::messages::control::PlaceV3;
use gannet_wire::place_keys::PlaceKeys;

impl<N: Net> Membership<N> {
    /// An owner's step: keeps its lease. Returns whether it has the lease, and may write the place.
    pub(crate) fn keep(
        &self,
        keys: &PlaceKeys,
        lease: &mut u64,
        place: &mut PlaceV3,
        version: &mut u64,
    ) -> StepOutcome<bool> {
        let from = self.net.now();
        let is_kept = self.config.coordinator.keep_alive(*lease)?;
        self.note_answer();
        if is_kept {
            self.standing.renew(keys.number, self.until(from));
        } else {
            // No backup has taken the place if this server makes the owner's key again: a backup makes it first.
            let (again, until) = match self.acquire(keys)? {
                LeaseHolder::Here(again, until) => (again, until),
                LeaseHolder::Lost => return Ok(Ok(false)),
                // A backup takes the place, or has died before it had it. This server waits in silence.
                LeaseHolder::Other => match self.own_or_begun(keys)? {
                    Some(_) => return Ok(Ok(false)),
                    None => return Ok(Err(self.deposed(keys)?)),
                },
            };
            let Some((now, at)) = self.own_or_begun(keys)? else { return Ok(Err(self.deposed(keys)?)) };
            let Some(next) = self.taken_back(keys, now, place.ready) else { return Ok(Ok(false)) };
            // A backup may have begun to take the place meanwhile, and its write may still come. Behind this one it
            // fails. Otherwise this server would keep a lease for a place that the coordinator says is another's.
            match self.set(keys, at, &next)? {
                Some(at) => (*place, *version) = (next, at),
                None => return Ok(Ok(false)),
            }
            // Not before it is clear that the place is still that of this server. Without an answer the new lease ends.
            *lease = again;
            self.standing.renew(keys.number, until);
        }
        self.wake();
        Ok(Ok(true))
    }

    /// What the coordinator knows of the place, if this server has it, or has all of its rows while the server that
    /// takes it is not ready.
    fn own_or_begun(&self, keys: &PlaceKeys) -> Result<Option<(PlaceV3, u64)>, CoordinatorError> {
        let may_go_on = |(place, _): &(PlaceV3, u64)| {
            place.incarnation == self.incarnation || !place.ready && self.has_all(place)
        };
        Ok(keys.get(&*self.config.coordinator)?.filter(may_go_on))
    }

    /// The place as this server keeps it, or takes it back. `None`: the data folder cannot say so, and it tries again.
    fn taken_back(&self, keys: &PlaceKeys, now: PlaceV3, ready: bool) -> Option<PlaceV3> {
        if now.incarnation == self.incarnation {
            return Some(now);
        }
        let (owner, epoch, incarnation) = (self.config.addr.clone(), now.epoch + 1, self.incarnation);
        if let Some(folder) = self.folder_of(keys).filter(|folder| PlaceFolder::has_rows(folder)) {
            let claim = Claim { epoch, incarnation };
            if let Err(error) = folder.claim_with_rows(claim, Some(&now), now.generation) {
                self.warn(
                    keys.number,
                    format!("this server cannot take its place back, and tries again: {error}"),
                );
                return None;
            }
        }
        let (place, by) = (keys.number, &now.owner);
        tracing::warn!(place, by, "this server takes its place back: the one that took it was not ready");
        let mut backups = now.backups.clone();
        backups.retain(|(_, of)| *of != incarnation);
        Some(PlaceV3 { epoch, owner, incarnation, ready, backups, ..now })
    }
}

//! All servers of a job replicate in the same way: a server that differs from the owner of a place ends.

use crate::membership::Membership;
use crate::membership::role::{Deposed, StepOutcome};
use crate::membership::status::mode_of;
use gannet_transport::Net;
use gannet_wire::place_keys::PlaceKeys;

impl<N: Net> Membership<N> {
    /// Checks that the owner of a place replicates as this server does. Of two servers that begin at once and differ,
    /// one goes on: that of the lower place. `holder`: the incarnation that has the lease.
    pub(crate) fn must_agree(&self, keys: &PlaceKeys, holder: &[u8]) -> StepOutcome<()> {
        let goes_on = keys.number > self.config.place.0 && self.standing.owns(self.config.place.0);
        if goes_on || self.agreed.borrow().contains(&keys.number) {
            return Ok(Ok(()));
        }
        let Some((place, _)) = keys.get(&*self.config.coordinator)? else { return Ok(Ok(())) };
        // A server that has just got the lease has not yet said how it replicates.
        if place.incarnation.to_le_bytes() != holder {
            return Ok(Ok(()));
        }
        let (its, own) = (mode_of(place.is_async), self.mode);
        if its != own {
            let why = format!(
                "{} replicates with --replication {}, and this server with {}: start all servers of a job with the same",
                place.owner,
                its.name(),
                own.name()
            );
            return Ok(Err(Deposed(why)));
        }
        self.agreed.borrow_mut().insert(keys.number);
        Ok(Ok(()))
    }
}

//! A backup that was lost leaves the sets of all places of this server.

use super::{Membership, PlaceKeys, Role};
use gannet_transport::Net;
use std::collections::BTreeSet;

impl<N: Net> Membership<N> {
    /// Lets workers wait no more for a backup that was lost, once it has left all places of this server: it can take
    /// none of them any more.
    pub(super) fn leave_lost(&self, places: &[(PlaceKeys, Role)]) {
        let owned = |(keys, role): &(PlaceKeys, Role)| {
            matches!(role, Role::Owner { place, .. } if place.ready).then_some(keys.number)
        };
        let owned: BTreeSet<u32> = places.iter().filter_map(owned).collect();
        for ((addr, queues), left) in self.backups.iter().zip(self.left.borrow_mut().iter_mut()) {
            if !queues.iter().any(|queue| queue.is_lost()) {
                left.clear();
            } else if left.is_superset(&owned) {
                left.clear();
                queues.iter().for_each(|queue| queue.leave());
                self.wake();
                tracing::warn!(backup = addr, "a backup has left: workers do not wait for it any more");
            }
        }
    }
}

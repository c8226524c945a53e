//! Where the owner of a place is: a backup may have taken it.

use super::Worker;
use crate::coordinator::Coordinator;
use crate::limits::PLACE_LOOKUP_EVERY;
use crate::server::PlaceKeys;
use gannet_transport::Net;
use std::fmt;
use std::sync::Arc;

/// Says where the servers of a job are. A worker asks when it has lost one.
#[derive(Clone)]
pub struct Places {
    /// Says who owns what.
    pub coordinator: Arc<dyn Coordinator>,
    /// The name of the job.
    pub job: String,
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("job", &self.job).finish_non_exhaustive()
    }
}

impl<N: Net> Worker<N> {
    /// Asks who owns the place of a server before the first connection to it. Returns whether there is an answer.
    pub(super) fn find_owner(&mut self, number: usize) -> bool {
        let found = self.ask_for_owner(number);
        self.places_found += usize::from(found);
        found
    }

    /// Asks now and then whether another server has the place of one that is lost, and goes there.
    pub(super) fn look_for_owner(&mut self, number: usize) {
        let now = self.net.now();
        if self.config.places.is_some() && now >= self.next_place_lookup {
            self.next_place_lookup = now + PLACE_LOOKUP_EVERY;
            self.ask_for_owner(number);
        }
    }

    /// Asks who owns the place of a server, and goes there. Returns whether there is an answer.
    fn ask_for_owner(&mut self, number: usize) -> bool {
        let Some(places) = &self.config.places else { return true };
        let peer = &self.peers[number];
        let place = PlaceKeys::new(&places.job, peer.server).get(&*places.coordinator);
        let trouble = match place {
            Ok(Some((place, _))) if place.ready => {
                let from = peer.addr.clone();
                if place.owner != from {
                    let (owner, epoch) = (place.owner, place.epoch);
                    tracing::warn!(server = from, owner, epoch, "another server has the place of this one");
                    let server = peer.server as usize;
                    self.move_server(server, &owner);
                }
                return true;
            }
            Ok(_) => format!("place {} of job {:?} has no owner", peer.server, places.job),
            Err(error) => error.to_string(),
        };
        self.peers[number].health.trouble = trouble;
        false
    }
}

//! Where the owner of a place is: a backup may have taken it.

use crate::limits::PLACE_LOOKUP_EVERY;
use crate::links::peer::Peer;
use crate::links::state::Links;
use gannet_transport::Net;
use gannet_wire::place_keys::PlaceKeys;

impl<N: Net> Links<N> {
    /// Asks who owns the place of a server before the first connection to it. Returns whether there is an answer.
    pub(crate) fn find_owner(&mut self, number: usize) -> bool {
        let found = self.ask_for_owner(number);
        self.owners.found += usize::from(found);
        found
    }

    /// Asks now and then whether another server has the place of one that is lost, and goes there.
    pub(crate) fn look_for_owner(&mut self, number: usize) {
        let now = self.net.now();
        if self.config.places.is_some() && now >= self.owners.next_lookup {
            self.owners.next_lookup = now + PLACE_LOOKUP_EVERY;
            self.ask_for_owner(number);
        }
    }

    /// Whether the server that has greeted is the owner of its place, or the coordinator has never named one. Another
    /// server may have got the address of one that has died, even one of another job.
    pub(crate) fn is_owner(&mut self, number: usize, incarnation: u64) -> bool {
        let Peer { addr, server, .. } = &self.peers[number];
        let (addr, server) = (addr.clone(), *server);
        if self.config.places.is_none() || self.owners.of.get(&server) == Some(&incarnation) {
            return true;
        }
        self.ask_for_owner(number);
        let owner = self.owners.of.get(&server);
        self.peers[number].addr == addr && owner.is_none_or(|owner| *owner == incarnation)
    }

    /// Asks who owns the place of a server, and goes there. Returns whether there is an answer.
    fn ask_for_owner(&mut self, number: usize) -> bool {
        let Some(places) = &self.config.places else { return true };
        let peer = &self.peers[number];
        let place = PlaceKeys::new(&places.job, peer.server).get(&*places.coordinator);
        let trouble = match place {
            Ok(Some((place, _))) if place.ready => {
                self.owners.of.insert(peer.server, place.incarnation);
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

    /// From now on this server is at address `to`.
    pub(crate) fn move_server(&mut self, server: usize, to: &str) {
        let now = self.net.now();
        let from = std::mem::replace(&mut self.config.servers[server], to.to_owned());
        for peer in self.peers.iter_mut().filter(|peer| peer.server as usize == server) {
            peer.replace(to);
            peer.lose(format!("{from} is replaced by {to}"), &mut self.flights, &self.counters, now);
        }
    }
}

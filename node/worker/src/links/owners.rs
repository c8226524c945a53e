//! Where the owner of a place is: a backup may have taken it.

use crate::limits::PLACE_LOOKUP_EVERY;
use crate::links::peer::Peer;
use crate::links::state::Links;
use gannet_transport::Net;
use gannet_wire::place_keys::PlaceKeys;

/// Asks who owns the place of a server before the first connection to it. Returns whether there is an answer.
pub(crate) fn find_owner<N: Net>(links: &mut Links<N>, number: usize) -> bool {
    let found = ask_for_owner(links, number);
    links.owners.found += usize::from(found);
    found
}

/// Asks now and then whether another server has the place of one that is lost, and goes there.
pub(crate) fn look_for_owner<N: Net>(links: &mut Links<N>, number: usize) {
    let now = links.net.now();
    if links.config.places.is_some() && now >= links.owners.next_lookup {
        links.owners.next_lookup = now + PLACE_LOOKUP_EVERY;
        ask_for_owner(links, number);
    }
}

/// Whether the server that has greeted is the owner of its place, or the coordinator has never named one. Another
/// server may have got the address of one that has died, even one of another job.
pub(crate) fn is_owner<N: Net>(links: &mut Links<N>, number: usize, incarnation: u64) -> bool {
    let Peer { addr, server, .. } = &links.peers[number];
    let (addr, server) = (addr.clone(), *server);
    if links.config.places.is_none() || links.owners.of.get(&server) == Some(&incarnation) {
        return true;
    }
    ask_for_owner(links, number);
    let owner = links.owners.of.get(&server);
    links.peers[number].addr == addr && owner.is_none_or(|owner| *owner == incarnation)
}

/// Asks who owns the place of a server, and goes there. Returns whether there is an answer.
fn ask_for_owner<N: Net>(links: &mut Links<N>, number: usize) -> bool {
    let Some(places) = &links.config.places else { return true };
    let peer = &links.peers[number];
    let place = PlaceKeys::new(&places.job, peer.server).get(&*places.coordinator);
    let trouble = match place {
        Ok(Some((place, _))) if place.ready => {
            links.owners.of.insert(peer.server, place.incarnation);
            let from = peer.addr.clone();
            if place.owner != from {
                let (owner, epoch) = (place.owner, place.epoch);
                tracing::warn!(server = from, owner, epoch, "another server has the place of this one");
                let server = peer.server as usize;
                move_server(links, server, &owner);
            }
            return true;
        }
        Ok(_) => format!("place {} of job {:?} has no owner", peer.server, places.job),
        Err(error) => error.to_string(),
    };
    links.peers[number].health.trouble = trouble;
    false
}

/// From now on this server is at address `to`.
pub(crate) fn move_server<N: Net>(links: &mut Links<N>, server: usize, to: &str) {
    let now = links.net.now();
    let from = std::mem::replace(&mut links.config.servers[server], to.to_owned());
    for peer in links.peers.iter_mut().filter(|peer| peer.server as usize == server) {
        peer.replace(to);
        peer.lose(format!("{from} is replaced by {to}"), &mut links.flights, &links.counters, now);
    }
}

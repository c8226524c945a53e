//! How links are made and made again (the cold part): attempts, pauses between them, and errors that end the attempts.

use crate::error::WorkerError;
use crate::limits::{BACKOFF, CHECK_EVERY, PLACE_LOOKUP_EVERY, WAIT_LOGGED};
use crate::links::greeting::{advance_opening, begin_opening};
use crate::links::opening::OpeningStep;
use crate::links::owners::{find_owner, look_for_owner};
use crate::links::peer::Peer;
use crate::links::state::Links;
use crate::requests::ids::Request;
use crate::requests::in_flight::RequestWork;
use crate::tables::table::Tables;
use gannet_transport::Net;
use gannet_wire::refusal::Refusal;
use std::time::Duration;

/// Makes the first links to all threads of a server.
pub(crate) fn connect_server<N: Net>(
    links: &mut Links<N>,
    tables: &mut Tables,
    server: u32,
) -> Result<(), WorkerError> {
    let addr = links.config.servers[server as usize].clone();
    links.peers.push(Peer::new(&addr, server, 0, 0, links.net.now()));
    links.counters.links_wanted.set(links.wanted().count() as u64);
    // The first thread says how many there are. Each thread has the whole time limit.
    let mut furthest = None;
    while let Some(number) = not_linked(links, server) {
        if furthest < Some(number) {
            (furthest, links.peers[number].health.good_at) = (Some(number), links.net.now());
        }
        let now = links.net.now();
        if links.owners.found <= server as usize && !find_owner(links, number) {
            check_wait(links, tables, number, now)?;
            links.wait(PLACE_LOOKUP_EVERY)?;
            continue;
        }
        try_connect(links, tables, number)?;
        let now = links.net.now();
        check_wait(links, tables, number, now)?;
        let Peer { link, opening, health, .. } = &links.peers[number];
        if link.is_none() {
            // The pause between two attempts is not added to the time limit.
            let left = (health.good_at + tables.patience(links.config.peer_timeout)).saturating_sub(now)
                + Duration::from_millis(1);
            let pause = match opening {
                Some(_) => CHECK_EVERY,
                None => health.attempt_at.saturating_sub(now).min(left),
            };
            links.wait(pause)?;
        }
    }
    Ok(())
}

/// The first thread of a server without a link.
fn not_linked<N: Net>(links: &Links<N>, server: u32) -> Option<usize> {
    let missing = |number: &usize| {
        let peer = &links.peers[*number];
        peer.server == server && peer.is_wanted() && peer.link.is_none()
    };
    (0..links.peers.len()).find(missing)
}

/// Takes a step towards a link, if there is none and it is time. An error means that no further attempt can
/// succeed.
pub(crate) fn try_connect<N: Net>(
    links: &mut Links<N>,
    tables: &mut Tables,
    number: usize,
) -> Result<(), WorkerError> {
    let peer = &links.peers[number];
    if peer.link.is_some() || peer.opening.is_none() && links.net.now() < peer.health.attempt_at {
        return Ok(());
    }
    look_for_owner(links, number);
    let peer = &links.peers[number];
    let begun = if peer.opening.is_none() { begin_opening(links, number) } else { Ok(()) };
    let step = links.peers[number].opening.as_ref().map(|opening| opening.step);
    let error = match begun.and_then(|()| advance_opening(links, tables, number)) {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    // A server without memory for another session may have some later.
    let full = matches!(error, WorkerError::Refused { refusal: Refusal::Limit, .. });
    // A server that does not know this thread has fewer threads than before. Its first thread says how many.
    let gone = matches!(error, WorkerError::Refused { refusal: Refusal::Unknown, .. })
        && links.peers[number].thread > 0;
    if !(is_temporary(&error) || (full || gone) && step == Some(OpeningStep::Hello)) {
        return Err(error);
    }
    let now = links.net.now();
    if gone {
        let (server, text) = (links.peers[number].server, error.to_string());
        let first = links.peers.iter_mut().find(|peer| peer.server == server && peer.link.is_some());
        if let Some(first) = first.filter(|peer| peer.thread == 0) {
            first.lose(text, &mut links.flights, &links.counters, now);
        }
    }
    links.peers[number].health.trouble = error.to_string();
    back_off(links, number, now);
    Ok(())
}

/// Delays the next attempt. The pause doubles each time, and half of it is random, so that workers that lost a
/// server together do not return together.
pub(crate) fn back_off<N: Net>(links: &mut Links<N>, number: usize, now: Duration) {
    let peer = &mut links.peers[number];
    let half = peer.health.backoff / 2;
    peer.health.attempt_at = now + half + Duration::from_nanos(links.prng.below(half.as_nanos() as u64 + 1));
    peer.health.backoff = (peer.health.backoff * 2).min(BACKOFF.1);
}

/// Waiting pulls on this link are sent after all pushes so far, so their answers include those pushes. The worker
/// drops rows that it read without a request, and requests them.
pub(crate) fn see_all_pushes<N: Net>(links: &mut Links<N>, tables: &Tables, number: usize) {
    for Request { index, chunk, bytes, .. } in &mut links.peers[number].requests.queue {
        if let Some(RequestWork::Pull(pull)) = links.flights.at(*index).map(|flight| &mut flight.work) {
            let (part, len) = (&mut pull.parts[*chunk as usize], pull.laid.chunks()[*chunk as usize].len);
            part.saw = tables[pull.laid.table()].last_seq;
            part.near = None;
            *bytes = len * (8 + 4 * pull.floats as u32);
        }
    }
}

/// Fails if this peer has been away, or silent, for too long. Logs once if it has been for a while. An attempt to
/// connect that began after that time may end first, and a link that was made after it has some time to answer: the
/// peer may be back. There is no second such attempt, because the worker pauses after a link that answered nothing.
pub(crate) fn check_wait<N: Net>(
    links: &mut Links<N>,
    tables: &Tables,
    number: usize,
    now: Duration,
) -> Result<(), WorkerError> {
    let patience = tables.patience(links.config.peer_timeout);
    let peer = &links.peers[number];
    let waited = now.saturating_sub(peer.health.worked_at());
    let silent = "it is connected but does not answer";
    let why = if peer.health.trouble.is_empty() { silent } else { &peer.health.trouble };
    let since = peer.health.worked_at() + patience;
    let linked = peer.health.linked_at;
    let tries_again = match &peer.opening {
        Some(opening) => opening.begun > since,
        None => peer.link.is_some() && linked > since && now <= linked + links.config.stall_timeout,
    };
    if waited > patience && !tries_again {
        let why = match peer.health.answered_nothing() && !peer.requests.queue.is_empty() {
            true => format!("it greets this worker, but completes no request: {why}"),
            false => why.to_owned(),
        };
        return Err(WorkerError::PeerLost { peer: peer.name.clone(), waited, why });
    }
    if waited > WAIT_LOGGED && !peer.health.wait_logged && peer.steps.waits.is_none() {
        let (seconds, server) = (waited.as_secs_f64(), peer.server);
        let (peer, requests) = (&peer.name, peer.requests.queue.len());
        // Threads of one server are away together: the log names one of them.
        let logged = links.config.secondary
            || links.peers.iter().any(|peer| peer.server == server && peer.health.wait_logged);
        match logged {
            true => tracing::debug!(%peer, seconds, requests, why, "waiting for a peer"),
            false => tracing::warn!(%peer, seconds, requests, why, "waiting for a peer"),
        }
        links.peers[number].health.wait_logged = true;
    }
    Ok(())
}

/// Whether another attempt may succeed.
fn is_temporary(error: &WorkerError) -> bool {
    use gannet_transport::tls::TlsError;
    use gannet_transport::{HeadError, LinkError, NetError};
    match error {
        WorkerError::Link(LinkError::Frame { source, .. }) => !matches!(
            source,
            HeadError::Version { .. } | HeadError::Magic { .. } | HeadError::TlsServer | HeadError::TlsClient
        ),
        // Certificates and flags stay as they are until someone changes them.
        WorkerError::Link(LinkError::Tls { source, .. }) | WorkerError::Net(NetError::Tls { source, .. }) => {
            matches!(source, TlsError::Other(_))
        }
        WorkerError::Unproved { source, .. } => is_temporary(source),
        WorkerError::Link(_) | WorkerError::Protocol { .. } => true,
        WorkerError::Net(NetError::Connect { .. } | NetError::Address { .. }) => true,
        _ => false,
    }
}

//! How links are made and made again (the cold part): attempts, pauses between them, and errors that end the attempts.

use crate::error::WorkerError;
use crate::limits::{BACKOFF, CHECK_EVERY, PLACE_LOOKUP_EVERY, WAIT_LOGGED};
use crate::links::opening::OpeningStep;
use crate::links::peer::Peer;

use crate::links::state::Links;
use crate::requests::ids::Request;
use crate::requests::in_flight::RequestWork;
use crate::tables::table::Tables;
use gannet_transport::Net;
use gannet_wire::refusal::Refusal;
use std::time::Duration;

impl<N: Net> Links<N> {
    /// Makes the first links to all threads of a server.
    pub(crate) fn connect_server(&mut self, tables: &mut Tables, server: u32) -> Result<(), WorkerError> {
        let addr = self.config.servers[server as usize].clone();
        self.peers.push(Peer::new(&addr, server, 0, 0, self.net.now()));
        self.counters.links_wanted.set(self.wanted().count() as u64);
        // The first thread says how many there are. Each thread has the whole time limit.
        let mut furthest = None;
        while let Some(number) = self.not_linked(server) {
            if furthest < Some(number) {
                (furthest, self.peers[number].health.good_at) = (Some(number), self.net.now());
            }
            let now = self.net.now();
            if self.owners.found <= server as usize && !self.find_owner(number) {
                self.check_wait(tables, number, now)?;
                self.wait(PLACE_LOOKUP_EVERY)?;
                continue;
            }
            self.try_connect(tables, number)?;
            let now = self.net.now();
            self.check_wait(tables, number, now)?;
            let Peer { link, opening, health, .. } = &self.peers[number];
            if link.is_none() {
                // The pause between two attempts is not added to the time limit.
                let left = (health.good_at + tables.patience(self.config.peer_timeout)).saturating_sub(now)
                    + Duration::from_millis(1);
                let pause = match opening {
                    Some(_) => CHECK_EVERY,
                    None => health.attempt_at.saturating_sub(now).min(left),
                };
                self.wait(pause)?;
            }
        }
        Ok(())
    }

    /// The first thread of a server without a link.
    fn not_linked(&self, server: u32) -> Option<usize> {
        let missing = |number: &usize| {
            let peer = &self.peers[*number];
            peer.server == server && peer.is_wanted() && peer.link.is_none()
        };
        (0..self.peers.len()).find(missing)
    }

    /// Takes a step towards a link, if there is none and it is time. An error means that no further attempt can
    /// succeed.
    pub(crate) fn try_connect(&mut self, tables: &mut Tables, number: usize) -> Result<(), WorkerError> {
        let peer = &self.peers[number];
        if peer.link.is_some() || peer.opening.is_none() && self.net.now() < peer.health.attempt_at {
            return Ok(());
        }
        self.look_for_owner(number);
        let peer = &self.peers[number];
        let begun = if peer.opening.is_none() { self.begin_opening(number) } else { Ok(()) };
        let step = self.peers[number].opening.as_ref().map(|opening| opening.step);
        let error = match begun.and_then(|()| self.advance(tables, number)) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        // A server without memory for another session may have some later.
        let full = matches!(error, WorkerError::Refused { refusal: Refusal::Limit, .. });
        // A server that does not know this thread has fewer threads than before. Its first thread says how many.
        let gone = matches!(error, WorkerError::Refused { refusal: Refusal::Unknown, .. })
            && self.peers[number].thread > 0;
        if !(is_temporary(&error) || (full || gone) && step == Some(OpeningStep::Hello)) {
            return Err(error);
        }
        let now = self.net.now();
        if gone {
            let (server, text) = (self.peers[number].server, error.to_string());
            let first = self.peers.iter_mut().find(|peer| peer.server == server && peer.link.is_some());
            if let Some(first) = first.filter(|peer| peer.thread == 0) {
                first.lose(text, &mut self.flights, &self.counters, now);
            }
        }
        self.peers[number].health.trouble = error.to_string();
        self.back_off(number, now);
        Ok(())
    }

    /// Delays the next attempt. The pause doubles each time, and half of it is random, so that workers that lost a
    /// server together do not return together.
    pub(crate) fn back_off(&mut self, number: usize, now: Duration) {
        let peer = &mut self.peers[number];
        let half = peer.health.backoff / 2;
        peer.health.attempt_at =
            now + half + Duration::from_nanos(self.prng.below(half.as_nanos() as u64 + 1));
        peer.health.backoff = (peer.health.backoff * 2).min(BACKOFF.1);
    }

    /// Waiting pulls on this link are sent after all pushes so far, so their answers include those pushes. The worker
    /// drops rows that it read without a request, and requests them.
    pub(crate) fn see_all_pushes(&mut self, tables: &Tables, number: usize) {
        for Request { index, chunk, bytes, .. } in &mut self.peers[number].requests.queue {
            if let Some(RequestWork::Pull(pull)) = self.flights.at(*index).map(|flight| &mut flight.work) {
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
    pub(crate) fn check_wait(
        &mut self,
        tables: &Tables,
        number: usize,
        now: Duration,
    ) -> Result<(), WorkerError> {
        let patience = tables.patience(self.config.peer_timeout);
        let peer = &self.peers[number];
        let waited = now.saturating_sub(peer.health.good_at);
        let silent = "it is connected but does not answer";
        let why = if peer.health.trouble.is_empty() { silent } else { &peer.health.trouble };
        let since = peer.health.good_at + patience;
        let linked = peer.health.linked_at;
        let tries_again = match &peer.opening {
            Some(opening) => opening.begun > since,
            None => peer.link.is_some() && linked > since && now <= linked + self.config.stall_timeout,
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
            let logged = self.config.secondary
                || self.peers.iter().any(|peer| peer.server == server && peer.health.wait_logged);
            match logged {
                true => tracing::debug!(%peer, seconds, requests, why, "waiting for a peer"),
                false => tracing::warn!(%peer, seconds, requests, why, "waiting for a peer"),
            }
            self.peers[number].health.wait_logged = true;
        }
        Ok(())
    }
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

//! How links come about and come back (the cold part): connect, hello, tables opened again.

use super::Worker;
use super::flights::{Request, Work};
use super::peer::Peer;
use crate::control::{self, HelloV1, OpenTableV1, RefusedV1, TableOpenedV1, WelcomeV1};
use crate::error::{Refusal, WorkerError};
use crate::limits::{ATTEMPT_TIME, BACKOFF, THREADS_MAX, WAIT_LOGGED};
use crate::message;
use gannet_core::Schema;
use gannet_transport::{Head, Link, Net, Nothing, Poll};
use std::sync::Arc;
use std::time::Duration;

impl<N: Net> Worker<N> {
    /// Links to all threads of a server, at first.
    pub(super) fn connect_server(&mut self, server: u32) -> Result<(), WorkerError> {
        let addr = self.config.servers[server as usize].clone();
        let now = self.net.now();
        let first = self.peers.len();
        self.peers.push(Peer::new(&addr, server, 0, 0, now));
        self.tally.links_wanted.set(self.peers.len() as u64);
        self.connect_until_timeout(first)?;
        for thread in 1..self.peers[first].threads {
            self.peers.push(Peer::new(&addr, server, thread, self.peers[first].threads, self.net.now()));
            self.tally.links_wanted.set(self.peers.len() as u64);
            self.connect_until_timeout(first + thread as usize)?;
        }
        Ok(())
    }

    fn connect_until_timeout(&mut self, peer: usize) -> Result<(), WorkerError> {
        while self.peers[peer].link.is_none() {
            self.try_connect(peer)?;
            let now = self.net.now();
            self.check_wait(peer, now)?;
            if self.peers[peer].link.is_none() {
                let pause = self.peers[peer].attempt_at.saturating_sub(now);
                self.wait(pause)?;
            }
        }
        Ok(())
    }

    /// One attempt, when it is time for one. An error is one that no further attempt mends.
    pub(super) fn try_connect(&mut self, number: usize) -> Result<(), WorkerError> {
        let now = self.net.now();
        if self.peers[number].link.is_some() || now < self.peers[number].attempt_at {
            return Ok(());
        }
        match self.attempt(number) {
            Ok(()) => {
                let peer = &mut self.peers[number];
                if peer.epoch > 1 {
                    tracing::info!(peer = %peer.name, waiting = peer.queue.len(), "connected again");
                }
                Ok(())
            }
            Err(error) if mends(&error) => {
                let now = self.net.now();
                let peer = &mut self.peers[number];
                peer.trouble = error.to_string();
                peer.attempt_at = now + peer.backoff;
                peer.backoff = (peer.backoff * 2).min(BACKOFF.1);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn attempt(&mut self, number: usize) -> Result<(), WorkerError> {
        let deadline = self.net.now() + ATTEMPT_TIME.min(self.config.peer_timeout);
        let Peer { addr, name, thread, threads, .. } = &self.peers[number];
        let (addr, name, thread, before) = (addr.clone(), name.clone(), *thread, *threads);
        let stream = self.net.connect(&addr, deadline.saturating_sub(self.net.now()))?;
        let mut link = Link::new(stream);
        self.poll.add(link.stream(), number as u64)?;
        let hello = HelloV1 { pusher: self.config.pusher, incarnation: self.config.incarnation, thread };
        let welcome: WelcomeV1 =
            self.converse(&mut link, number, message::HELLO, &control::seal(&hello), &name, deadline)?;
        if welcome.threads == 0 || welcome.threads as usize > THREADS_MAX || thread >= welcome.threads {
            return Err(WorkerError::Protocol { peer: name, what: format!("{} threads", welcome.threads) });
        }
        if before != 0 && before != welcome.threads {
            return Err(WorkerError::Threads { peer: addr.as_str().into(), before, now: welcome.threads });
        }
        let (server, servers) = (self.peers[number].server, self.config.servers.len() as u32);
        let mut numbers = Vec::with_capacity(self.tables.len());
        for table in 0..self.tables.len() {
            let request = open_request(&self.tables[table].schema, server, servers);
            let opened: TableOpenedV1 =
                self.converse(&mut link, number, message::OPEN_TABLE, &request, &name, deadline)?;
            if !opened.known && self.peers[number].acked.get(table) == Some(&true) {
                let table = self.tables[table].schema.name.clone();
                return Err(WorkerError::Forgot { peer: name, table });
            }
            numbers.push(opened.table);
        }
        let peer = &mut self.peers[number];
        (peer.session, peer.threads, peer.tables) = (welcome.session, welcome.threads, numbers);
        peer.epoch += 1;
        self.tally.links.add(1);
        if peer.epoch > 1 {
            self.tally.reconnects.add(1);
            let again = peer.queue.len();
            tracing::warn!(peer = %peer.name, again, "the peer is back; what it had not acknowledged goes again");
        }
        peer.link = Some(link);
        peer.linked_at = self.net.now();
        peer.reorder();
        self.see_all_pushes(number);
        self.peers[number].post(&mut self.flights, &self.tally)?;
        Ok(())
    }

    /// Pulls that wait on this link go after all pushes that were begun: their answers include those.
    fn see_all_pushes(&mut self, number: usize) {
        for &Request { place, chunk, .. } in &self.peers[number].queue {
            if let Some(Work::Pull(pull)) = self.flights.at(place).map(|flight| &mut flight.work) {
                pull.parts[chunk as usize].saw = self.tables[pull.cut.table].last_seq;
            }
        }
    }

    /// Sends one request over a link that nothing else is under way on, and waits for its answer.
    fn converse<T>(
        &mut self,
        link: &mut Link<N::Stream>,
        number: usize,
        kind: u16,
        payload: &[u8],
        name: &Arc<str>,
        deadline: Duration,
    ) -> Result<T, WorkerError>
    where
        T: rkyv::Archive,
        T::Archived: for<'a> rkyv::bytecheck::CheckBytes<rkyv::api::high::HighValidator<'a, rkyv::rancor::Error>>
            + rkyv::Deserialize<T, rkyv::api::high::HighDeserializer<rkyv::rancor::Error>>,
    {
        let nonsense = |what: String| WorkerError::Protocol { peer: name.clone(), what };
        let sent = link.transmit().send_copy(Head::new(kind, 0, 0, [0; 4]), payload);
        sent.map_err(|full| WorkerError::Call(full.to_string()))?;
        loop {
            link.flush(&mut Nothing)?;
            if link.is_readable() {
                link.fill(&mut Nothing)?;
            }
            if let Some(frame) = link.receive().peek(&mut Nothing)? {
                let (head, answer) = (frame.head, frame.payload.to_vec());
                link.receive().consume();
                return match head.kind {
                    message::REFUSED => Err(refused(name, kind, head.aux, &answer)),
                    answered if answered == message::answer_to(kind) => {
                        control::open(&answer).map_err(|error| nonsense(error.to_string()))
                    }
                    other => Err(nonsense(format!("kind {other} in answer to kind {kind}"))),
                };
            }
            let now = self.net.now();
            if now >= deadline {
                return Err(nonsense(format!(
                    "nothing, for {:.1} s, to a greeting",
                    ATTEMPT_TIME.as_secs_f64()
                )));
            }
            if !link.is_readable() {
                self.poll.wait(deadline - now, &mut self.events)?;
                for event in &self.events {
                    if event.token == number as u64 {
                        link.note(event);
                    } else if let Some(Some(other)) =
                        self.peers.get_mut(event.token as usize).map(|peer| &mut peer.link)
                    {
                        other.note(event);
                    }
                }
            }
        }
    }

    /// Fails when this peer has been away, or silent, for too long; logs when it has been for a while.
    pub(super) fn check_wait(&mut self, number: usize, now: Duration) -> Result<(), WorkerError> {
        let peer = &mut self.peers[number];
        let waited = now.saturating_sub(peer.good_at);
        let silent = "it is connected but does not answer";
        let why = if peer.trouble.is_empty() { silent } else { &peer.trouble };
        if waited > self.config.peer_timeout {
            return Err(WorkerError::PeerLost { peer: peer.name.clone(), waited, why: why.to_owned() });
        }
        if waited > WAIT_LOGGED && !peer.wait_logged {
            peer.wait_logged = true;
            let seconds = waited.as_secs_f64();
            tracing::warn!(peer = %peer.name, seconds, requests = peer.queue.len(), why, "waiting for a peer");
        }
        Ok(())
    }
}

/// The payload of a request to open a table.
pub(super) fn open_request(schema: &Schema, server: u32, servers: u32) -> Vec<u8> {
    control::seal(&OpenTableV1 { schema: schema.encode(), server, servers })
}

/// The error that a refusal frame means.
pub(super) fn refused(peer: &Arc<str>, kind: u16, code: u16, payload: &[u8]) -> WorkerError {
    let text =
        control::open::<RefusedV1>(payload).map_or_else(|error| error.to_string(), |refused| refused.text);
    let what = match kind {
        message::HELLO => "the connection",
        message::OPEN_TABLE => "to open the table",
        message::PULL => "a pull",
        message::PUSH => "a push",
        _ => "a request",
    };
    WorkerError::Refused { peer: peer.clone(), what: what.into(), refusal: Refusal::of(code), text }
}

/// Whether another attempt may mend it.
fn mends(error: &WorkerError) -> bool {
    match error {
        WorkerError::Link(gannet_transport::LinkError::Frame { source, .. }) => !matches!(
            source,
            gannet_transport::HeadError::Version { .. } | gannet_transport::HeadError::Magic { .. }
        ),
        WorkerError::Link(_) | WorkerError::Protocol { .. } => true,
        WorkerError::Net(
            gannet_transport::NetError::Connect { .. } | gannet_transport::NetError::Address { .. },
        ) => true,
        _ => false,
    }
}

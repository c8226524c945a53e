//! Accepts connections, greets them within a time limit, and passes each to the thread that it asks for.

use crate::counters::server::ServerCounters;
use crate::error::ServerError;
use crate::limits::{GREETING_MAX, GREETING_TIME};
use crate::sessions::context::GreetedConnection;
use crate::sessions::greeting::{Greeter, GreetingError, Stage};
use gannet_transport::{Event, Link, Listener, Net, Poll, Waker};
use gannet_wire::limits::TICK;
use gannet_wire::refusal::Refusal;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

const LISTENER: u64 = u64::MAX - 1;

/// How to reach a thread: its bounded inbox, and its waker.
pub(crate) struct ThreadInbox<N: Net> {
    pub(crate) inbox: SyncSender<GreetedConnection<N::Stream>>,
    pub(crate) waker: N::Waker,
}

struct PendingConnection<S> {
    link: Link<S>,
    stage: Stage,
    deadline: Duration,
    token: u64,
}

pub(crate) struct Acceptor<N: Net> {
    net: N,
    poll: N::Poll,
    events: Vec<Event>,
    listener: N::Listener,
    threads: Vec<ThreadInbox<N>>,
    greeter: Greeter,
    connections: Vec<PendingConnection<N::Stream>>,
    /// Connections that are greeted, and found the inbox of their thread full.
    waiting: Vec<GreetedConnection<N::Stream>>,
    next_token: u64,
    counters: Arc<ServerCounters>,
}

impl<N: Net> Acceptor<N> {
    pub(crate) fn new(
        net: N,
        listener: N::Listener,
        threads: Vec<ThreadInbox<N>>,
        greeter: Greeter,
        counters: Arc<ServerCounters>,
    ) -> Result<Self, ServerError> {
        let mut poll = net.poll()?;
        poll.add_listener(&listener, LISTENER)?;
        let (connections, waiting) = (Vec::new(), Vec::new());
        Ok(Acceptor {
            net,
            poll,
            events: Vec::new(),
            listener,
            threads,
            greeter,
            connections,
            waiting,
            next_token: 0,
            counters,
        })
    }

    pub(crate) fn waker(&self) -> N::Waker {
        self.poll.waker()
    }

    /// One round. Sleeps at most `sleep` if nothing comes.
    pub(crate) fn run_once(&mut self, sleep: Duration) -> Result<(), ServerError> {
        let sleep =
            if self.waiting.is_empty() { sleep.min(TICK) } else { sleep.min(Duration::from_millis(1)) };
        let mut events = std::mem::take(&mut self.events);
        self.poll.wait(sleep, &mut events)?;
        for event in &events {
            if let Some(connection) =
                self.connections.iter_mut().find(|connection| connection.token == event.token)
            {
                connection.link.note(event);
            }
        }
        self.events = events;
        self.accept();
        self.greet();
        for greeted in std::mem::take(&mut self.waiting) {
            self.hand_over(greeted);
        }
        self.counters.acceptor.greeting.set((self.connections.len() + self.waiting.len()) as u64);
        Ok(())
    }

    fn accept(&mut self) {
        // Bounded: the acceptor hears each connection once before newer ones can displace it.
        for _ in 0..GREETING_MAX {
            if self.waiting.len() >= GREETING_MAX {
                break;
            }
            let stream = match self.listener.accept() {
                Ok(Some(stream)) => stream,
                Ok(None) => break,
                Err(error) => {
                    let now = self.net.now();
                    self.greeter.complain(now, |others| {
                        tracing::warn!(%error, others, "a connection was not accepted");
                    });
                    break;
                }
            };
            self.counters.acceptor.accepted.add(1);
            let (link, token) = (Link::new(stream), self.next_token);
            self.next_token += 1;
            match self.poll.add(link.stream(), token) {
                Ok(()) => {
                    self.drop_oldest();
                    let deadline = self.net.now() + GREETING_TIME;
                    self.connections.push(PendingConnection { link, stage: Stage::New, deadline, token });
                }
                Err(error) => {
                    let (peer, now) = (link.peer(), self.net.now());
                    self.greeter.complain(now, |others| {
                        tracing::warn!(%peer, %error, others, "a connection was not accepted");
                    });
                }
            }
        }
    }

    fn greet(&mut self) {
        let now = self.net.now();
        for mut connection in std::mem::take(&mut self.connections) {
            match self.greeter.hear(&mut connection.link, &mut connection.stage) {
                Ok(Some((hello, hello_id))) => {
                    if let Err(error) = self.poll.remove(connection.link.stream()) {
                        tracing::warn!(peer = %connection.link.peer(), %error, "a connection was dropped");
                        self.counters.acceptor.dropped.add(1);
                        continue;
                    }
                    self.hand_over(GreetedConnection { link: connection.link, hello, hello_id });
                }
                Ok(None) if now < connection.deadline => self.connections.push(connection),
                Ok(None) => {
                    let peer = connection.link.peer();
                    self.counters.acceptor.dropped.add(1);
                    let seconds = GREETING_TIME.as_secs();
                    self.greeter.complain(now, |others| {
                        tracing::warn!(%peer, others, "a connection did not greet within {seconds} s and was dropped");
                    });
                }
                // A worker of another version learns from the head of the answer what is wrong.
                Err(error) => self.greeter.refuse(&mut connection.link, error, now),
            }
        }
    }

    fn hand_over(&mut self, mut greeted: GreetedConnection<N::Stream>) {
        let Some(thread) = self.threads.get(greeted.hello.thread as usize) else {
            let (threads, requested) = (self.threads.len(), greeted.hello.thread);
            let why = format!(
                "thread {requested} was requested, but the number of threads of this server is {threads}"
            );
            let error = GreetingError { refusal: Refusal::Unknown, id: greeted.hello_id, why };
            return self.greeter.refuse(&mut greeted.link, error, self.net.now());
        };
        match thread.inbox.try_send(greeted) {
            Ok(()) => thread.waker.wake(),
            Err(TrySendError::Full(greeted)) => self.waiting.push(greeted),
            Err(TrySendError::Disconnected(_)) => {}
        }
    }

    /// Drops the oldest connection that has not greeted yet, if there are too many.
    fn drop_oldest(&mut self) {
        if self.connections.len() >= GREETING_MAX {
            self.counters.acceptor.dropped.add(1);
            let (connection, now) = (self.connections.remove(0), self.net.now());
            let peer = connection.link.peer();
            self.greeter.complain(now, |others| {
                tracing::warn!(%peer, others, "a connection that had said nothing made way for another");
            });
        }
    }
}

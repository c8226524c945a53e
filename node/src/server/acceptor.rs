//! Takes connections, hears who they are within a time limit, and hands each to the thread that it asks for.

use super::session::{Greeted, send_refusal};
use crate::control::{self, HelloV1};
use crate::error::{Refusal, ServerError};
use crate::limits::{GREETING_MAX, GREETING_TIME, TICK};
use crate::message;
use crate::tally::ServerTally;
use gannet_transport::{Event, Link, Listener, Net, Nothing, Poll, Waker};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

const LISTENER: u64 = u64::MAX - 1;

/// The way to a thread: its bounded inbox, and what wakes it.
pub(super) struct Door<N: Net> {
    pub(super) inbox: SyncSender<Greeted<N::Stream>>,
    pub(super) waker: N::Waker,
}

struct Guest<S> {
    link: Link<S>,
    deadline: Duration,
    token: u64,
}

pub(super) struct Acceptor<N: Net> {
    net: N,
    poll: N::Poll,
    events: Vec<Event>,
    listener: N::Listener,
    doors: Vec<Door<N>>,
    guests: Vec<Guest<N::Stream>>,
    /// Greeted, but the thread's inbox was full.
    waiting: Vec<Greeted<N::Stream>>,
    next_token: u64,
    tally: Arc<ServerTally>,
}

impl<N: Net> Acceptor<N> {
    pub(super) fn new(
        net: N,
        listener: N::Listener,
        doors: Vec<Door<N>>,
        tally: Arc<ServerTally>,
    ) -> Result<Self, ServerError> {
        let mut poll = net.poll()?;
        poll.add_listener(&listener, LISTENER)?;
        let (guests, waiting) = (Vec::new(), Vec::new());
        Ok(Acceptor { net, poll, events: Vec::new(), listener, doors, guests, waiting, next_token: 0, tally })
    }

    pub(super) fn waker(&self) -> N::Waker {
        self.poll.waker()
    }

    /// Wakes every thread.
    pub(super) fn wake_threads(&self) {
        self.doors.iter().for_each(|door| door.waker.wake());
    }

    /// One round; sleeps at most `sleep` when nothing comes.
    pub(super) fn run_once(&mut self, sleep: Duration) -> Result<(), ServerError> {
        let sleep =
            if self.waiting.is_empty() { sleep.min(TICK) } else { sleep.min(Duration::from_millis(1)) };
        let mut events = std::mem::take(&mut self.events);
        self.poll.wait(sleep, &mut events)?;
        for event in &events {
            if let Some(guest) = self.guests.iter_mut().find(|guest| guest.token == event.token) {
                guest.link.note(event);
            }
        }
        self.events = events;
        self.accept();
        self.greet();
        for greeted in std::mem::take(&mut self.waiting) {
            self.hand_over(greeted);
        }
        self.tally.acceptor.greeting.set((self.guests.len() + self.waiting.len()) as u64);
        Ok(())
    }

    fn accept(&mut self) {
        while self.guests.len() + self.waiting.len() < GREETING_MAX {
            let stream = match self.listener.accept() {
                Ok(Some(stream)) => stream,
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    break;
                }
            };
            self.tally.acceptor.accepted.add(1);
            let (link, token) = (Link::new(stream), self.next_token);
            self.next_token += 1;
            match self.poll.add(link.stream(), token) {
                Ok(()) => self.guests.push(Guest { link, deadline: self.net.now() + GREETING_TIME, token }),
                Err(error) => tracing::warn!(peer = %link.peer(), %error, "a connection was not accepted"),
            }
        }
    }

    fn greet(&mut self) {
        let now = self.net.now();
        for mut guest in std::mem::take(&mut self.guests) {
            match hear(&mut guest.link) {
                Ok(Some((hello, hello_id))) => {
                    if let Err(error) = self.poll.remove(guest.link.stream()) {
                        tracing::warn!(peer = %guest.link.peer(), %error, "a connection was dropped");
                        self.tally.acceptor.dropped.add(1);
                        continue;
                    }
                    self.hand_over(Greeted { link: guest.link, hello, hello_id });
                }
                Ok(None) if now < guest.deadline => self.guests.push(guest),
                Ok(None) => {
                    let peer = guest.link.peer();
                    self.tally.acceptor.dropped.add(1);
                    tracing::warn!(%peer, "a connection said nothing for {} s and was dropped", GREETING_TIME.as_secs());
                }
                Err(why) => {
                    // A worker of another version learns from the head of the answer what is wrong.
                    tracing::warn!(why, "a connection was dropped");
                    self.refuse_guest(&mut guest.link, 0, Refusal::Malformed, why);
                }
            }
        }
    }

    fn hand_over(&mut self, mut greeted: Greeted<N::Stream>) {
        let Some(door) = self.doors.get(greeted.hello.thread as usize) else {
            let text = format!(
                "this server has {} threads, {} was asked for",
                self.doors.len(),
                greeted.hello.thread
            );
            return self.refuse_guest(&mut greeted.link, greeted.hello_id, Refusal::Unknown, text);
        };
        match door.inbox.try_send(greeted) {
            Ok(()) => door.waker.wake(),
            Err(TrySendError::Full(greeted)) => self.waiting.push(greeted),
            Err(TrySendError::Disconnected(_)) => {}
        }
    }

    /// Tells a connection why it ends. The link is new and this is small: it goes out in a few tries, or not at all.
    fn refuse_guest(&self, link: &mut Link<N::Stream>, id: u64, refusal: Refusal, why: String) {
        self.tally.acceptor.dropped.add(1);
        self.tally.acceptor.refused[refusal.place()].add(1);
        let head = gannet_transport::Head::new(message::HELLO, 0, id, [0; 4]);
        let peer = link.peer().clone();
        if send_refusal(&peer, &head, refusal, why, link.transmit()).is_ok() {
            // Done, or gone already: both are the end of it.
            let _ = (0..4).find(|_| link.flush(&mut Nothing).unwrap_or(true));
        }
    }
}

/// The hello, when it has come whole.
fn hear<S: gannet_transport::Stream>(link: &mut Link<S>) -> Result<Option<(HelloV1, u64)>, String> {
    while link.is_readable() {
        link.fill(&mut Nothing).map_err(|error| error.to_string())?;
        if link.receive().peek(&mut Nothing).map_err(|error| error.to_string())?.is_some() {
            break;
        }
    }
    let peer = link.peer().clone();
    let Some(frame) = link.receive().peek(&mut Nothing).map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    if frame.head.kind != message::HELLO {
        return Err(format!("{peer} began with frame kind {}, not with a hello", frame.head.kind));
    }
    let hello = control::open::<HelloV1>(frame.payload).map_err(|error| format!("{peer}: {error}"))?;
    let id = frame.head.id;
    link.receive().consume();
    Ok(Some((hello, id)))
}

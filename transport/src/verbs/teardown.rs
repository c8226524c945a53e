//! Closes sessions whose stream was dropped. A thread lets the device send their last bytes, within a time
//! limit, and then destroys the sessions, which waits for the device.
//!
//! To close a connection, the kernel tells the peer through a queue pair that all connections of the device
//! share. On kernel 6.1 (not on 6.12), after a send on that queue pair has failed, soft-RoCE never receives on
//! it again, and no later connection gets an answer (docs/transports.md). So no connection is closed while its
//! port is down.

use crate::limits::{VERBS_CLOSING_MAX, VERBS_LINGER, VERBS_PORT_CHECK_EVERY, VERBS_PORT_TIME};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The interval at which closing sessions are checked.
const LOOK: Duration = Duration::from_millis(1);

/// A session to close.
pub(crate) trait Ending: Send + Sync {
    /// Whether no sent byte is in flight any more, or can be completed any more.
    fn is_over(&self) -> bool;
    /// Whether there is a connection to close and its port is down.
    fn is_cut_off(&self) -> bool;
}

/// A session that is being closed.
struct Teardown {
    session: Arc<dyn Ending>,
    /// When the last bytes must have been sent.
    until: Instant,
    /// If it only waits for its port: when to check the port again.
    port_at: Option<Instant>,
    give_up: Instant,
}

impl Teardown {
    fn new(session: Arc<dyn Ending>) -> Teardown {
        let now = Instant::now();
        Teardown { session, until: now + VERBS_LINGER, port_at: None, give_up: now + VERBS_PORT_TIME }
    }

    /// Whether it must not be destroyed yet.
    fn must_wait(&mut self, now: Instant) -> bool {
        match self.port_at {
            Some(at) if now < at => return true,
            None if now < self.until && !self.session.is_over() => return true,
            _ => {}
        }
        self.port_at = Some(now + VERBS_PORT_CHECK_EVERY);
        now < self.give_up && self.session.is_cut_off()
    }
}

/// The thread that closes sessions, started when it first has work. When this value is dropped, the thread
/// finishes its work and ends.
#[derive(Default)]
pub(crate) struct TeardownThread(OnceLock<Option<SyncSender<Arc<dyn Ending>>>>);

impl TeardownThread {
    /// Passes a session to the thread. If there is no thread, or it has too many sessions, the session ends at once.
    pub(crate) fn end(&self, session: Arc<dyn Ending>) {
        let inbox = self.0.get_or_init(|| {
            let (inbox, sessions) = sync_channel::<Arc<dyn Ending>>(VERBS_CLOSING_MAX);
            let named = std::thread::Builder::new().name("gannet-rdma-end".to_owned());
            let spawned = named.spawn(move || {
                let mut ending: Vec<Teardown> = Vec::new();
                loop {
                    let wait = match ending.iter().all(|ending| ending.port_at.is_some()) {
                        true if ending.is_empty() => Duration::from_secs(3600),
                        true => VERBS_PORT_CHECK_EVERY / 5,
                        false => LOOK,
                    };
                    match sessions.recv_timeout(wait) {
                        Ok(session) => ending.push(Teardown::new(session)),
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) if ending.is_empty() => return,
                        Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK),
                    }
                    let now = Instant::now();
                    ending.retain_mut(|ending| ending.must_wait(now));
                }
            });
            spawned.is_ok().then_some(inbox)
        });
        if let Some(inbox) = inbox {
            // If the queue is full, `try_send` returns the session and it is dropped.
            let _ = inbox.try_send(session);
        }
    }
}

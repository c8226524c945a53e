//! Closes sessions whose stream was dropped. A thread lets their last bytes go out, within a time limit, and then
//! destroys them, which waits for the device.
//!
//! To close a connection the kernel tells the peer through a queue pair that all connections of the device share. On
//! kernel 6.1 (not on 6.12) soft-RoCE never receives on that queue pair again after a send on it failed, and every
//! later connection gets no answer (docs/transports.md). So no connection is closed while its port is down.

use super::stream::SharedStream;
use crate::limits::{VERBS_ENDING_MAX, VERBS_LINGER, VERBS_PORT_LOOK, VERBS_PORT_TIME};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How often closing sessions are looked at.
const LOOK: Duration = Duration::from_millis(1);

/// A session that is being closed.
struct Teardown {
    session: Arc<SharedStream>,
    /// When its last bytes must have been sent.
    until: Instant,
    /// It only waits for its port, which is checked again at this time.
    port_at: Option<Instant>,
    give_up: Instant,
}

impl Teardown {
    fn new(session: Arc<SharedStream>) -> Teardown {
        let now = Instant::now();
        Teardown { session, until: now + VERBS_LINGER, port_at: None, give_up: now + VERBS_PORT_TIME }
    }

    /// Whether it must not be closed yet.
    fn lasts(&mut self, now: Instant) -> bool {
        match self.port_at {
            Some(at) if now < at => return true,
            None if now < self.until && !self.session.lock().is_over() => return true,
            _ => {}
        }
        self.port_at = Some(now + VERBS_PORT_LOOK);
        now < self.give_up && self.session.lock().is_cut_off()
    }
}

/// The closing thread, started when it first has work. It ends with this value, after finishing its work.
#[derive(Default)]
pub(super) struct TeardownThread(OnceLock<Option<SyncSender<Arc<SharedStream>>>>);

impl TeardownThread {
    /// Takes a session over. If there is no thread, or it has too many sessions, the session ends at once.
    pub(super) fn end(&self, session: Arc<SharedStream>) {
        let inbox = self.0.get_or_init(|| {
            let (inbox, sessions) = sync_channel::<Arc<SharedStream>>(VERBS_ENDING_MAX);
            let named = std::thread::Builder::new().name("gannet-rdma-end".to_owned());
            let spawned = named.spawn(move || {
                let mut ending: Vec<Teardown> = Vec::new();
                loop {
                    let wait = match ending.iter().all(|ending| ending.port_at.is_some()) {
                        true if ending.is_empty() => Duration::from_secs(3600),
                        true => VERBS_PORT_LOOK / 5,
                        false => LOOK,
                    };
                    match sessions.recv_timeout(wait) {
                        Ok(session) => ending.push(Teardown::new(session)),
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) if ending.is_empty() => return,
                        Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK),
                    }
                    let now = Instant::now();
                    ending.retain_mut(|ending| ending.lasts(now));
                }
            });
            spawned.is_ok().then_some(inbox)
        });
        if let Some(inbox) = inbox {
            // If the queue is full, the session comes back and is dropped.
            let _ = inbox.try_send(session);
        }
    }
}

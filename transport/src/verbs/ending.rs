//! Sessions whose stream is gone: a thread lets their last bytes go, within a limit, and takes them apart, which waits for
//! the device.

use super::stream::Shared;
use crate::limits::{VERBS_ENDING_MAX, VERBS_LINGER};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How often sessions that end are looked at.
const LOOK: Duration = Duration::from_millis(1);

/// The thread, once there is something for it to do. It ends with this value, after what it has.
#[derive(Default)]
pub(super) struct Ender(OnceLock<Option<SyncSender<Arc<Shared>>>>);

impl Ender {
    /// Takes a session over. Where there is no thread, or it has too many, the session ends here and now.
    pub(super) fn end(&self, session: Arc<Shared>) {
        let inbox = self.0.get_or_init(|| {
            let (inbox, sessions) = sync_channel::<Arc<Shared>>(VERBS_ENDING_MAX);
            let named = std::thread::Builder::new().name("gannet-rdma-end".to_owned());
            let spawned = named.spawn(move || {
                let mut ending: Vec<(Arc<Shared>, Instant)> = Vec::new();
                loop {
                    let wait = if ending.is_empty() { Duration::from_secs(3600) } else { LOOK };
                    match sessions.recv_timeout(wait) {
                        Ok(session) => ending.push((session, Instant::now() + VERBS_LINGER)),
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) if ending.is_empty() => return,
                        Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK),
                    }
                    let now = Instant::now();
                    ending.retain(|(session, until)| now < *until && !session.lock().is_over());
                }
            });
            spawned.is_ok().then_some(inbox)
        });
        if let Some(inbox) = inbox {
            // When it is full the session comes back, and is dropped.
            let _ = inbox.try_send(session);
        }
    }
}

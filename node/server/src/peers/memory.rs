//! The memory that all sessions of a server may take together, and each session's share of it.

use crate::error::ServerError;
use crate::limits;
use gannet_transport::limits::{FRAME_BYTES_MAX, LINK_BYTES_MAX};
use gannet_wire::limits::TICK;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The limits of sessions. A server checks their relations when it starts.
///
/// ```
/// use gannet_server::{Server, ServerConfig, SessionLimits};
/// use std::time::Duration;
/// # use gannet_transport::multi::Transports;
///
/// let limits = SessionLimits { sessions: 100, silence: Duration::from_secs(60), ..SessionLimits::default() };
/// let config = ServerConfig { limits, ..ServerConfig::new("127.0.0.1:0") };
/// Server::start(Transports::new(), config)?.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct SessionLimits {
    /// Sessions of a thread. Further ones are refused.
    pub sessions: usize,
    /// The credit of a session: requests that its worker may have under way.
    pub credit_frames: u32,
    /// The credit of a session: bytes of requests under way and of their answers.
    pub credit_bytes: u64,
    /// A session that sends nothing for so long ends. Workers ping earlier.
    pub silence: Duration,
    /// Bytes of buffers, all sessions together. Idle sessions have none. When all are taken, sessions wait for their
    /// turn.
    pub buffer_bytes: usize,
    /// Bytes of keysets, all sessions together. When all are taken, the answer to a pull says that there is no keyset.
    pub keyset_bytes: usize,
}

impl Default for SessionLimits {
    fn default() -> SessionLimits {
        SessionLimits {
            sessions: limits::SESSIONS_MAX,
            credit_frames: limits::CREDIT_FRAMES,
            credit_bytes: limits::CREDIT_BYTES,
            silence: limits::SILENCE_TIME,
            buffer_bytes: limits::BUFFER_BYTES_TOTAL,
            keyset_bytes: limits::KEYSET_BYTES_TOTAL,
        }
    }
}

impl SessionLimits {
    pub(crate) fn check(&self, threads: usize) -> Result<(), ServerError> {
        let wrong = |what, got, allowed: String| Err(ServerError::Config { what, got, allowed });
        if self.sessions == 0 || self.sessions > limits::SESSIONS_MAX {
            return wrong("--sessions-max", self.sessions, format!("1 to {}", limits::SESSIONS_MAX));
        }
        if self.credit_frames == 0 {
            return wrong("--credit-requests", 0, "at least 1".into());
        }
        if self.credit_bytes < FRAME_BYTES_MAX as u64 {
            return wrong(
                "the credit in bytes",
                self.credit_bytes as usize,
                format!("at least {FRAME_BYTES_MAX}"),
            );
        }
        if self.silence < TICK * 2 {
            let allowed = format!("at least {} s", TICK.as_secs() * 2);
            return wrong("--session-silence", self.silence.as_secs() as usize, allowed);
        }
        let least = LINK_BYTES_MAX * threads;
        if self.buffer_bytes < least {
            let allowed = format!("at least {least} bytes ({LINK_BYTES_MAX} a thread)");
            return wrong("the memory for sessions' buffers", self.buffer_bytes, allowed);
        }
        Ok(())
    }
}

/// A memory budget. Bytes are counted here before they are allocated, and never exceed `max`.
#[derive(Debug)]
pub(crate) struct SessionMemory {
    used: AtomicUsize,
    max: usize,
}

impl SessionMemory {
    pub(crate) fn new(max: usize) -> Arc<SessionMemory> {
        Arc::new(SessionMemory { used: AtomicUsize::new(0), max })
    }

    /// Whether this number of bytes could be taken now.
    pub(crate) fn has(&self, bytes: usize) -> bool {
        self.used.load(Relaxed) + bytes <= self.max
    }

    fn take(&self, bytes: usize) -> bool {
        let more = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.max);
        self.used.fetch_update(Relaxed, Relaxed, more).is_ok()
    }
}

/// A session's share of a budget. Dropping it gives the bytes back.
#[derive(Debug)]
pub(crate) struct SessionShare {
    memory: Arc<SessionMemory>,
    bytes: usize,
}

impl SessionShare {
    pub(crate) fn new(memory: Arc<SessionMemory>) -> SessionShare {
        SessionShare { memory, bytes: 0 }
    }

    /// A new, empty share of the same memory.
    pub(crate) fn another(&self) -> SessionShare {
        SessionShare::new(self.memory.clone())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes the size of the share. Returns `false`, and changes nothing, if the budget lacks the bytes.
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        let fits = match bytes.checked_sub(self.bytes) {
            Some(more) => self.memory.take(more),
            None => {
                self.memory.used.fetch_sub(self.bytes - bytes, Relaxed);
                true
            }
        };
        if fits {
            self.bytes = bytes;
        }
        fits
    }
}

impl Drop for SessionShare {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_never_add_up_to_more_than_there_is() {
        let memory = SessionMemory::new(100);
        let (mut a, mut b) = (SessionShare::new(memory.clone()), SessionShare::new(memory.clone()));
        assert!(a.resize(60) && !b.resize(41) && b.resize(40));
        assert!(!a.resize(61) && a.bytes() == 60 && !memory.has(1));
        assert!(a.resize(10) && b.resize(90) && !b.resize(usize::MAX));
        drop(b);
        assert!(memory.has(90) && !memory.has(91) && a.resize(100));
    }

    #[test]
    fn limits_that_cannot_be_are_named() {
        let good = SessionLimits::default();
        assert!(good.check(4).is_ok());
        for (bad, name) in [
            (SessionLimits { sessions: 0, ..good.clone() }, "--sessions-max is 0"),
            (SessionLimits { credit_frames: 0, ..good.clone() }, "--credit-requests is 0"),
            (SessionLimits { credit_bytes: 9, ..good.clone() }, "credit in bytes is 9"),
            (SessionLimits { silence: Duration::ZERO, ..good.clone() }, "--session-silence is 0"),
            (SessionLimits { buffer_bytes: LINK_BYTES_MAX, ..good.clone() }, "buffers is"),
        ] {
            let text = bad.check(4).unwrap_err().to_string();
            assert!(text.contains(name), "{text}");
        }
    }
}

//! The memory that all sessions of a server may take together, and each session's share of it.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

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
    use crate::config::SessionLimits;
    use gannet_transport::limits::LINK_BYTES_MAX;
    use std::time::Duration;

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

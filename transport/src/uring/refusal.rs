//! Why the system refuses io_uring, and the probe that finds the reason.

use super::ring::{Completion, CompletionTarget, OpenDescriptor, Ring};
use crate::limits::{URING_COMPLETIONS, URING_RECEIVE_BUFFERS, URING_RECEIVE_BYTES};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why io_uring cannot be used here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The kernel has no such system call.
    #[error(
        "this kernel has no io_uring, or a seccomp filter hides it (container runtimes do; allow io_uring_setup)"
    )]
    Absent,
    /// Turned off by the administrator.
    #[error("it is turned off: sysctl kernel.io_uring_disabled is {0} (0 allows it)")]
    Disabled(String),
    /// Forbidden.
    #[error("a seccomp filter or a security module forbids it (container runtimes do; allow io_uring_setup)")]
    Forbidden,
    /// The kernel lacks a feature that is needed.
    #[error(
        "this kernel is too old for multishot receives into provided buffers: Linux 6.1 or later is needed"
    )]
    TooOld,
    /// No memory for the queues and buffers.
    #[error(
        "no memory for its queues ({URING_COMPLETIONS} completions) and {} KiB of buffers: raise the limit of locked \
         memory (ulimit -l)",
        URING_RECEIVE_BUFFERS as usize * URING_RECEIVE_BYTES / 1024
    )]
    Memory,
    /// Something else.
    #[error("{0}")]
    Other(String),
}

impl Refusal {
    /// The reason behind an error of io_uring_setup.
    pub(super) fn of_setup(error: &io::Error) -> Refusal {
        match Errno::from_io_error(error) {
            Some(Errno::NOSYS) => Refusal::Absent,
            Some(Errno::INVAL) => Refusal::TooOld,
            Some(Errno::NOMEM) => Refusal::Memory,
            Some(Errno::PERM | Errno::ACCESS) => {
                match std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled") {
                    Ok(value) if value.trim() != "0" => Refusal::Disabled(value.trim().to_owned()),
                    _ => Refusal::Forbidden,
                }
            }
            _ => Refusal::Other(error.to_string()),
        }
    }

    /// The reason behind an error of registering buffers.
    pub(super) fn of_buffers(error: &io::Error) -> Refusal {
        match Errno::from_io_error(error) {
            Some(Errno::INVAL) => Refusal::TooOld,
            _ => Refusal::of_setup(error),
        }
    }
}

/// Checks that io_uring can be used here: makes a ring and receives a byte through it.
pub(crate) fn probe() -> Result<(), Refusal> {
    let other = |what: &str| Refusal::Other(what.to_owned());
    let mut ring = Ring::new()?;
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let (to, from) = pair.map_err(|error| Refusal::Other(error.to_string()))?;
    let sent = send(&to, b"!", SendFlags::NOSIGNAL);
    let name = CompletionTarget { socket: 0, generation: 0 };
    let from: Arc<dyn OpenDescriptor> = Arc::new(from);
    if sent.is_err() || ring.receive(&from, name).is_none() {
        return Err(other("no byte could be sent"));
    }
    let give_up = Instant::now() + Duration::from_secs(1);
    while Instant::now() < give_up {
        ring.wait(Duration::from_millis(100)).map_err(|error| Refusal::of_setup(&error))?;
        match ring.next() {
            Some(Completion::Received { got: Ok(Some(received)), last, .. }) => {
                let whole = ring.received(&received) == b"!" && !last;
                ring.give_back(received);
                return if whole { Ok(()) } else { Err(Refusal::TooOld) };
            }
            Some(Completion::Received { got: Err(Errno::INVAL), .. }) => return Err(Refusal::TooOld),
            Some(Completion::Received { got: Err(error), .. }) => {
                return Err(Refusal::Other(error.to_string()));
            }
            _ => {}
        }
    }
    Err(other("a sent byte did not arrive within a second"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_says_why() {
        for (errno, want) in [
            (Errno::NOSYS, "has no io_uring"),
            (Errno::INVAL, "Linux 6.1"),
            (Errno::NOMEM, "ulimit -l"),
            (Errno::MFILE, "open files"),
        ] {
            let text = Refusal::of_setup(&errno.into()).to_string();
            assert!(text.contains(want), "{text}");
        }
        let text = Refusal::of_setup(&Errno::PERM.into()).to_string();
        assert!(text.contains("seccomp") || text.contains("kernel.io_uring_disabled"), "{text}");
    }
}

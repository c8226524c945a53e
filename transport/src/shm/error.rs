//! Why a session over shared memory cannot begin, or ended.

use super::ring::RingError;
use rustix::io::Errno;
use std::io;

/// Why a session over shared memory cannot begin, or ended.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ShmError {
    /// No server of this host listens for shared memory at this address.
    #[error(
        "no server of this host offers shared memory at this address: it is elsewhere, does not run, or has --transport tcp"
    )]
    Absent,
    /// The address belongs to another machine. A process that offers shared memory under it on this host is not
    /// the server.
    #[error("the address belongs to another machine")]
    Elsewhere,
    /// Too many connections wait there.
    #[error("the server has too many connections waiting")]
    Busy,
    /// Another process listens under the name of the server's address.
    #[error(
        "another process of this host offers shared memory under this address (`ss -xlp | grep gannet/` shows it): end \
         it, listen at another port, or use --transport tcp"
    )]
    Taken,
    /// The other process belongs to another user, and no token proves its identity.
    #[error(
        "the {who} runs as user {theirs} and this process as user {ours}: run both as the same user, or give both \
         --token-file; if that process is not the {who} of this job, use --transport tcp"
    )]
    User {
        /// "server" or "worker".
        who: &'static str,
        /// The effective user of the other process.
        theirs: u32,
        /// The effective user of this process.
        ours: u32,
    },
    /// The server refused, with this reason.
    #[error("the server refused shared memory: {0}")]
    Refused(String),
    /// The server's first packet has another format version.
    #[error(
        "the server has version {got} of shared memory, ours is {ours}: run the same gannet on both sides"
    )]
    Version {
        /// The server's version.
        got: u8,
        /// Our version.
        ours: u8,
    },
    /// The control socket carried an invalid packet.
    #[error("a bad packet on the control socket of shared memory: {0}")]
    Packet(&'static str),
    /// A ring holds an invalid position.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The rings that the server made cannot be used.
    #[error("the server's rings cannot be used: {0}")]
    Rings(String),
    /// The system refused an operation.
    #[error("cannot {0}: {1}")]
    System(&'static str, Errno),
}

impl ShmError {
    /// Whether a later attempt may succeed.
    pub(crate) fn mends(&self) -> bool {
        !matches!(self, ShmError::User { .. } | ShmError::Version { .. })
    }

    pub(crate) fn io(self) -> io::Error {
        let kind = match self {
            ShmError::Absent | ShmError::Elsewhere | ShmError::Busy | ShmError::Refused(_) => {
                io::ErrorKind::ConnectionRefused
            }
            ShmError::Taken => io::ErrorKind::AddrInUse,
            ShmError::User { .. } => io::ErrorKind::PermissionDenied,
            ShmError::System(..) => io::ErrorKind::Other,
            _ => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, self)
    }
}

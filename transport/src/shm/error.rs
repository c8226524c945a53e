//! Why a session over shared memory is not, or is no more.

use super::ring::RingError;
use rustix::io::Errno;
use std::io;

/// Why a session over shared memory is not, or is no more.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ShmError {
    /// No server of this host listens there for shared memory.
    #[error(
        "no server of this host offers shared memory there (or it does not run, or was started with --transport tcp)"
    )]
    Absent,
    /// The address is none of this host's: whoever offers shared memory under it here is not the server.
    #[error("the address is another machine's")]
    Elsewhere,
    /// More connections wait there than it takes.
    #[error("the server has too many connections waiting")]
    Busy,
    /// The other process is another user's, and no token proves anything.
    #[error(
        "the {who} is a process of user {theirs} and this one of user {ours}: run both as the same user, or give both \
         --token-file"
    )]
    User {
        /// "server" or "worker".
        who: &'static str,
        /// The other process's effective user.
        theirs: u32,
        /// This process's.
        ours: u32,
    },
    /// The server said why not.
    #[error("the server refused shared memory: {0}")]
    Refused(String),
    /// Its first packet speaks of another format.
    #[error("format {got} of shared memory, ours is {ours}: run the same gannet on both sides")]
    Version {
        /// The server's.
        got: u8,
        /// Ours.
        ours: u8,
    },
    /// What came over the control socket cannot be.
    #[error("a bad packet on the control socket of shared memory: {0}")]
    Packet(&'static str),
    /// What stands in a ring cannot be.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The rings that the server made cannot be used.
    #[error("the server's rings cannot be used: {0}")]
    Rings(String),
    /// The system refused.
    #[error("cannot {0}: {1}")]
    System(&'static str, Errno),
}

impl ShmError {
    /// Whether trying again later may mend it.
    pub(crate) fn mends(&self) -> bool {
        !matches!(self, ShmError::User { .. } | ShmError::Version { .. })
    }

    pub(crate) fn io(self) -> io::Error {
        let kind = match self {
            ShmError::Absent | ShmError::Elsewhere | ShmError::Busy | ShmError::Refused(_) => {
                io::ErrorKind::ConnectionRefused
            }
            ShmError::User { .. } => io::ErrorKind::PermissionDenied,
            ShmError::System(..) => io::ErrorKind::Other,
            _ => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, self)
    }
}

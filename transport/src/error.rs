//! Errors of links and addresses. Each error names the peer, what was wrong and, if there is one, the remedy. An error
//! of a link ends that link and nothing else.

use crate::limits::{FRAME_BYTES_MAX, PAYLOAD_ALIGN};
use crate::shm::ShmError;
use crate::tls::TlsError;
use crate::verbs::DeviceError;
use std::io;
use std::sync::Arc;

/// Why a head was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeadError {
    /// The first two bytes are not "GN".
    #[error(
        "not a gannet frame (it starts with {got:#06x}): check that a gannet server listens on this port"
    )]
    Magic {
        /// The first two bytes, little-endian.
        got: u16,
    },
    /// The first bytes are a TLS alert, which a TLS server sends to a client that does not speak TLS.
    #[error("the server speaks TLS: give the worker --tls-ca FILE")]
    TlsServer,
    /// The first bytes begin a TLS handshake.
    #[error(
        "the client speaks TLS, but this server does not: start it with --tls-cert FILE and --tls-key FILE"
    )]
    TlsClient,
    /// The peer speaks another version of the frame format.
    #[error("frame format version {got}, ours is {ours}: run the same gannet on both sides")]
    Version {
        /// The peer's version.
        got: u8,
        /// Our version.
        ours: u8,
    },
    /// As received.
    #[error("the head's checksum is {got:#010x}, but its bytes have {want:#010x}")]
    HeadCrc {
        /// As sent.
        got: u32,
        /// As computed.
        want: u32,
    },
    /// The payload's checksum is wrong.
    #[error("the payload's checksum is {got:#010x}, but its {len} bytes have {want:#010x}")]
    PayloadCrc {
        /// As received.
        got: u32,
        /// As computed.
        want: u32,
        /// Payload bytes.
        len: u32,
    },
    /// The payload is longer than a frame may carry.
    #[error("a payload of {len} bytes, above the limit of {FRAME_BYTES_MAX}")]
    TooLarge {
        /// Payload bytes, as the head says.
        len: u32,
    },
    /// A payload length that would misalign the next frame.
    #[error("a payload of {len} bytes, which is not a multiple of {PAYLOAD_ALIGN}")]
    Unaligned {
        /// Payload bytes, as the head says.
        len: u32,
    },
    /// Flag bits or reserved bytes that this version does not know.
    #[error("unknown flags {flags:#04x} or reserved bytes {reserved:#010x}")]
    Unknown {
        /// The flags byte.
        flags: u8,
        /// The reserved word.
        reserved: u32,
    },
}

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The peer closed the connection.
    #[error("{peer} closed the connection")]
    Closed {
        /// The other side's address.
        peer: Arc<str>,
    },
    /// The connection broke.
    #[error("the connection to {peer} broke: {source}")]
    Io {
        /// The other side's address.
        peer: Arc<str>,
        /// The error of the system.
        source: io::Error,
    },
    /// TLS, which protects the connection, failed.
    #[error("the connection to {peer}: {source}")]
    Tls {
        /// The other side's address.
        peer: Arc<str>,
        /// What was wrong.
        source: TlsError,
    },
    /// The bytes are not a frame of this version.
    #[error("a bad frame from {peer}: {source}")]
    Frame {
        /// The other side's address.
        peer: Arc<str>,
        /// What was wrong.
        source: HeadError,
    },
}

impl LinkError {
    /// The link error for an error of a stream.
    pub(crate) fn broken(peer: &Arc<str>, source: io::Error) -> LinkError {
        let peer = peer.clone();
        match TlsError::of(&source) {
            Some(source) => LinkError::Tls { peer, source },
            None => LinkError::Io { peer, source },
        }
    }
}

/// Why no link could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The address does not resolve.
    #[error("{addr} is not an address (host:port): {source}")]
    Address {
        /// The address that was requested.
        addr: String,
        /// The error of the system.
        source: io::Error,
    },
    /// No answer from the address.
    #[error("cannot connect to {addr}: {source}")]
    Connect {
        /// The address that was requested.
        addr: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The connection to this address cannot use TLS as configured.
    #[error("cannot connect to {addr}: {source}")]
    Tls {
        /// The address that was requested.
        addr: String,
        /// What was wrong.
        source: TlsError,
    },
    /// The server at this address cannot be reached over shared memory.
    #[error("cannot reach {addr} over shared memory: {source}")]
    Shm {
        /// The address that was requested.
        addr: String,
        /// What was wrong.
        source: ShmError,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {source}; choose another port, or stop the process that uses this one")]
    Listen {
        /// The address that was requested.
        addr: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The chosen transport is not available.
    #[error("cannot connect to {addr}: {why}; try another --transport")]
    Transport {
        /// The address that was requested.
        addr: String,
        /// Why not.
        why: String,
    },
    /// The chosen transport cannot be offered.
    #[error("cannot listen on {addr}: {why}")]
    Offer {
        /// The address that was requested.
        addr: String,
        /// Why not.
        why: String,
    },
    /// An RDMA device refused an operation.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A descriptor could not be opened or watched.
    #[error("cannot {what}: {source}{}", of_descriptors(source))]
    System {
        /// What was tried.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

/// The remedy if the process or the system has no free descriptors.
fn of_descriptors(error: &io::Error) -> &'static str {
    match rustix::io::Errno::from_io_error(error) {
        Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => {
            "; `ulimit -n` is the limit of open files"
        }
        _ => "",
    }
}

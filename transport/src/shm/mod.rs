//! Shared memory: sessions between processes of one host, over two rings of bytes in a memfd and a control socket.
//!
//! A link over it carries the same bytes as over TCP. The differences:
//! - While both sides are awake, they move bytes without system calls.
//! - When the other process dies, the control socket ends at once.
//! - A side can pass open files to the other.
//!
//! [`crate::multi`] finds out whether a server is on this host. Its poll waits for these sessions and for sockets.
//!
//! ```text
//! stream   send, recv: copies                       poll     look at the rings; arm, look again, sleep
//! ring     positions, flags, words      session     state of stream and poll; the control socket
//! memory   the mapping, and the only unsafe code    connect  the name, who may connect, the first packet
//! ```

mod connect;
mod error;
#[cfg(any(test, feature = "test-support"))]
mod hostile;
mod memory;
#[cfg(test)]
mod models;
mod packet;
mod ring;
mod session;
mod stream;

pub(crate) use connect::{ShmListener, begin_shm};
pub use error::ShmError;
#[cfg(any(test, feature = "test-support"))]
#[doc(hidden)]
pub use hostile::rewritten;
pub use ring::RingError;
pub(crate) use session::{ShmSession, WokenSessions, lock_of_session};
pub use stream::ShmStream;

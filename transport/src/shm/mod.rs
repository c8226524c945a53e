//! Shared memory: sessions between processes of one host, over two rings of bytes in a memfd and a control socket.
//!
//! A link over it is a link as any other: the bytes are those of TCP. What is different: while both sides are awake
//! no byte needs a system call; the end of the control socket is the death of the other side, at once; open files can be handed over.
//! Transports ([`crate::multi`]) finds out whether a server is on this host, and its poll waits for these sessions and for sockets.
//!
//! ```text
//! stream   send, recv: copies                       poll     look at the rings; arm, look again, sleep
//! ring     positions, flags, words      session     what both know; the control socket: nudges, files, the end
//! memory   the mapping, and the only unsafe code    connect  the name, who may, the first packet
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

pub(crate) use connect::{ShmListener, begin};
pub use error::ShmError;
#[cfg(any(test, feature = "test-support"))]
#[doc(hidden)]
pub use hostile::rewritten;
pub use ring::RingError;
pub(crate) use session::{ShmSession, WokenSessions, lock};
pub use stream::ShmStream;

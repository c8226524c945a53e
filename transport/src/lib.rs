//! Links that move frames between a worker and a server, and what makes and waits for them.
//!
//! A frame is a 64-byte [`Head`] and a payload of at most [`limits::FRAME_BYTES_MAX`] bytes. A [`Link`] is one
//! session with one peer, driven by one thread, never blocking. Its receive half hands out whole, checked
//! frames in place, or lets payloads land where their [`Owner`] wants them; its transmit half sends what was
//! written into its buffer and what owners lend, in the order in which it was queued. [`Net`] makes links:
//! [`multi::Transports`] over what reaches the other side best (shared memory on one host, TCP), [`tcp::Tcp`] over sockets only
//! (io_uring, or epoll). Keys and rows never appear here.
//!
//! With the feature `test-support`, which is for tests, `sim::Sim` makes links in memory, with faults from a seed.
#![deny(unsafe_code)]

mod buffer;
mod error;
mod head;
pub mod limits;
mod link;
pub mod multi;
mod net;
mod owner;
mod prng;
mod receive;
mod remote;
pub mod shm;
#[cfg(any(test, feature = "test-support"))]
pub mod sim;
pub mod tcp;
pub mod tls;
mod transmit;
mod uring;
pub mod verbs;

pub use error::{HeadError, LinkError, NetError};
pub use head::{FLAG_PAYLOAD_CRC, Head, MAGIC, VERSION};
pub use link::{Filled, Link, Stream};
pub use net::{Event, Listener, Net, Poll, Waker};
pub use owner::{NoOwner, Owner, Parts};
pub use prng::Prng;
pub use receive::{Frame, Receive};
pub use remote::{ReadCapability, ReadRequest, Region, Registrar, RemoteReader};
pub use transmit::{Full, Transmit};

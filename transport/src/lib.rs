//! Links that move frames between a worker and a server, and the code that makes links and waits for them.
//!
//! A frame is a 64-byte [`Head`] and a payload of at most [`limits::FRAME_BYTES_MAX`] bytes. A [`Link`] is one
//! session with one peer. One thread drives it, and it never blocks. Its receive half returns whole, checked
//! frames in place, or writes payloads into memory that their [`Owner`] provides. Its transmit half sends from
//! its own buffer, and sends payloads that owners lend, in the order in which frames were queued.
//!
//! [`Net`] makes links. [`multi::Transports`] chooses the best transport for each peer (shared memory on one host,
//! RDMA, or TCP). [`tcp::Tcp`] uses sockets only (io_uring or epoll). The crate gannet-sim has a network in
//! memory for tests, with faults from a seed. Keys and rows never appear in this crate.
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
mod stream;
pub mod tcp;
pub mod tls;
mod transmit;
mod uring;
pub mod verbs;

pub use error::{HeadError, LinkError, NetError};
pub use head::{FLAG_PAYLOAD_CRC, Head, MAGIC, VERSION};
pub use link::Link;
pub use net::{Event, Listener, Net, Poll, Waker};
pub use owner::{NoOwner, Owner, Parts};
pub use prng::Prng;
pub use receive::{Filled, Frame, Receive};
pub use remote::{ReadCapability, ReadRequest, Region, Registrar, RemoteReader};
pub use stream::Stream;
pub use transmit::{Full, Transmit};

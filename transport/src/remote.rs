//! One-sided access: one process reads registered memory of another process, which does no work for it.

use crate::error::NetError;
use std::any::Any;
use std::io;
use std::time::Duration;

/// One READ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadRequest {
    /// The address at the peer.
    pub addr: u64,
    /// The key of the region there.
    pub rkey: u32,
    /// How many bytes.
    pub bytes: u32,
    /// The offset in the landing memory.
    pub at: u32,
}

/// How a device answers READs of the memory that was registered with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadCapability {
    /// The device answers by itself. With a software device the host's processor answers, which costs more than
    /// a request for the same data.
    pub by_device: bool,
    /// The device reads each aligned line of 64 bytes at one moment; lines come in any order. Otherwise only 8
    /// aligned bytes are read at one moment.
    pub whole_lines: bool,
}

/// Reads the peer's registered memory without a request to the peer. The memory may change during a read, and
/// its cache lines may be from different moments. The caller must check the bytes that it gets.
pub trait RemoteReader {
    /// Makes sure that the memory where reads arrive has this many bytes. It is registered and aligned to 64.
    /// It does not move until it must grow, and then its content is lost.
    ///
    /// # Errors
    /// When there is no memory, or it cannot be registered: the text says how much was requested and what the limit is.
    fn landing(&mut self, bytes: usize) -> io::Result<()>;
    /// The bytes that have arrived.
    fn landed(&self) -> &[u8];
    /// Does all of these reads, in any order, and waits for them at most `timeout`.
    ///
    /// # Errors
    /// When one fails (its region no longer exists), or time is up. The session has then ended.
    ///
    /// # Panics
    /// When one goes past the end of the landing memory.
    fn read(&mut self, wants: &[ReadRequest], timeout: Duration) -> io::Result<()>;
    /// Whether the device of this side does its part of a READ by itself. With a software device this host's processor
    /// does it.
    fn by_device(&self) -> bool;
}

/// Makes memory of this process readable by connected peers that know its key.
pub trait Registrar: Send + Sync {
    /// Lets peers read these bytes until the region is dropped. No peer can write there. The range must be
    /// mapped, and is pinned.
    ///
    /// # Errors
    /// When it cannot be registered: the error names the limit of locked memory and how to raise it.
    fn register(&self, addr: usize, bytes: usize) -> Result<Region, NetError>;
    /// How this side answers READs of registered memory.
    fn answering(&self) -> ReadCapability;
    /// The number of regions registered now.
    fn regions(&self) -> u64;
}

/// Memory that others may read, until it is dropped.
pub struct Region {
    /// The address of its first byte for readers.
    pub addr: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The key that readers must present.
    pub rkey: u32,
    /// Dropping it ends the registration.
    pub held: Box<dyn Any + Send + Sync>,
}

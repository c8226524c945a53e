//! One-sided access: one process reads registered memory of another, which does nothing for it.

use crate::error::NetError;
use std::any::Any;
use std::io;
use std::time::Duration;

/// One READ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadRequest {
    /// Where it stands on the other side.
    pub addr: u64,
    /// The key of the region there.
    pub rkey: u32,
    /// How many bytes.
    pub bytes: u32,
    /// Where they go: so many bytes behind the beginning of the landing.
    pub at: u32,
}

/// How a device answers READs of the memory that was registered with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadCapability {
    /// By itself. A software device has the host's processor do it, which costs more than being asked for the same.
    pub by_device: bool,
    /// Each aligned line of 64 bytes is read as it is at one moment, in whatever order lines come. Otherwise nothing is sure of
    /// more than 8 aligned bytes.
    pub whole_lines: bool,
}

/// Reads of the other side's registered memory, without asking it. What is read may change meanwhile, and its cache lines
/// may be from different moments: checking is the caller's part.
pub trait RemoteReader {
    /// Makes sure that reads have so many bytes to land in: registered, aligned to 64, the same memory each time until it
    /// must be larger (and then what stood there is lost).
    ///
    /// # Errors
    /// When there is no memory, or it cannot be registered: the text says how much was wanted and what the limit is.
    fn landing(&mut self, bytes: usize) -> io::Result<()>;
    /// What has landed.
    fn landed(&self) -> &[u8];
    /// Does all of these reads, in any order, and waits until they are over, at most for `timeout`.
    ///
    /// # Errors
    /// When one fails (a region that is no longer there), or time is up: the session has ended then.
    ///
    /// # Panics
    /// When one reaches over the end of the landing.
    fn read(&mut self, wants: &[ReadRequest], timeout: Duration) -> io::Result<()>;
    /// The device of this side does its part of a READ by itself; a software device has this host's processor do it.
    fn by_device(&self) -> bool;
}

/// Makes memory of this process readable by those who are connected to it and were told its key.
pub trait Registrar: Send + Sync {
    /// Lets them read these bytes until the region is dropped. Nobody can write there. The range must be mapped, and stays
    /// in memory.
    ///
    /// # Errors
    /// When it cannot be registered: the error names the limit of locked memory and how to raise it.
    fn register(&self, addr: usize, bytes: usize) -> Result<Region, NetError>;
    /// How READs of it are answered.
    fn answering(&self) -> ReadCapability;
    /// Regions registered now.
    fn regions(&self) -> u64;
}

/// Memory that others may read, until it is dropped.
pub struct Region {
    /// Where readers find its first byte.
    pub addr: u64,
    /// Its bytes.
    pub bytes: u64,
    /// What they show to be let in.
    pub rkey: u32,
    /// Dropping it ends the registration.
    pub held: Box<dyn Any + Send + Sync>,
}

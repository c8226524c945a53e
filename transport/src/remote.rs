//! One-sided access: one process reads registered memory of another, which does nothing for it.

use crate::error::NetError;
use std::any::Any;
use std::io;
use std::time::Duration;

/// One READ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// Where it stands on the other side.
    pub addr: u64,
    /// The key of the region there.
    pub rkey: u32,
    /// How many bytes.
    pub bytes: u32,
    /// Where they go: so many bytes behind the beginning of the landing.
    pub at: u32,
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
    fn read(&mut self, wants: &[Want], timeout: Duration) -> io::Result<()>;
}

/// Makes memory of this process readable by those who are connected to it and were told its key.
pub trait Registrar: Send + Sync {
    /// Lets them read these bytes until the region is dropped. Nobody can write there. The range must be mapped, and stays
    /// in memory.
    ///
    /// # Errors
    /// When it cannot be registered: the error names the limit of locked memory and how to raise it.
    fn register(&self, addr: usize, bytes: usize) -> Result<Region, NetError>;
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

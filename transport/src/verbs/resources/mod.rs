//! What the device gives: contexts, queue pairs, registered memory, events, and its limits.

#[cfg(feature = "verbs")]
pub(crate) mod cm;
#[cfg(feature = "verbs")]
pub(crate) mod datapath;
#[cfg(feature = "verbs")]
pub(crate) mod device;
#[cfg(feature = "verbs")]
pub(crate) mod memory;
#[cfg(feature = "verbs")]
pub(crate) mod objects;
#[cfg(feature = "verbs")]
pub(crate) mod queues;
pub(crate) mod sysfs;
#[cfg(feature = "verbs")]
pub(crate) mod vendors;

//! RDMA through libibverbs and librdmacm. The cargo feature `rdma` links them. The feature `rdma-dlopen` loads
//! them when the process starts, and works without RDMA if they are absent. Every build can list the kernel's
//! devices.

#[cfg(feature = "verbs")]
mod adapter;
#[cfg(feature = "verbs")]
mod connect;
mod error;
#[cfg(all(test, feature = "verbs"))]
mod hostile;
#[cfg(all(test, feature = "verbs"))]
mod hostile_pair;
#[cfg(feature = "verbs")]
mod reader;
#[cfg(feature = "verbs")]
mod session;
#[cfg(feature = "verbs")]
mod staging;
#[cfg(feature = "verbs")]
mod stream;
#[cfg(not(feature = "verbs"))]
mod stub;
#[cfg(feature = "verbs")]
mod teardown;
#[cfg(feature = "verbs")]
mod window;

#[cfg(feature = "verbs")]
pub use adapter::Verbs;
#[cfg(feature = "verbs")]
pub use connect::VerbsListener;
pub use error::{DeviceError, locked_bytes_max};
pub use resources::sysfs::{Device, Gid, GidKind, Port, devices};
#[cfg(feature = "verbs")]
pub use staging::{MessageSpace, Staging};
#[cfg(feature = "verbs")]
pub use stream::{VerbsStream, Watch};
#[cfg(not(feature = "verbs"))]
pub use stub::{Verbs, VerbsListener, VerbsStream, Watch};
#[cfg(feature = "verbs")]
pub use window::{Credit, Message};

/// The bindings: both crates have the same names.
#[cfg(feature = "rdma-dlopen")]
pub(crate) use rdma_mummy_sys as ffi;
#[cfg(all(feature = "rdma", not(feature = "rdma-dlopen")))]
pub(crate) use rdma_sys as ffi;

#[cfg(all(feature = "verbs", not(any(feature = "rdma", feature = "rdma-dlopen"))))]
compile_error!("the feature `verbs` is chosen through `rdma` or `rdma-dlopen`");

/// Why iWARP devices are not used.
pub const IWARP: &str = "an iWARP device, which is not supported: RoCE and InfiniBand are";

/// The result of looking at a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamState {
    /// The stream has been dropped.
    Gone,
    /// These edges. Each edge is reported once.
    Edges {
        /// Bytes have come.
        readable: bool,
        /// There is space to send again.
        writable: bool,
        /// It has ended.
        closed: bool,
    },
}

/// How this build uses the libraries: "linked", "loaded" (when the process starts) or `None`.
pub const BUILT: Option<&str> = if cfg!(feature = "rdma-dlopen") {
    Some("loaded")
} else if cfg!(feature = "rdma") {
    Some("linked")
} else {
    None
};

/// What a device can do, as its driver reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The vendor's identifier with IEEE or PCI.
    pub vendor: u32,
    /// Scatter-gather elements of a work request.
    pub sge: u32,
    /// Work requests that a queue may hold.
    pub work_requests: u32,
    /// Completions that a completion queue may hold.
    pub completions: u32,
    /// Queue pairs, shared by all processes.
    pub queue_pairs: u32,
    /// Memory regions, shared by all processes.
    pub regions: u32,
    /// Bytes of one region.
    pub region_bytes: u64,
    /// READs that a queue pair answers at a time.
    pub reads_answered: u32,
    /// READs that a queue pair requests at a time.
    pub reads_asked: u32,
    /// Bytes that can be copied into a work request itself. The number is found by making queue pairs, with at
    /// most 512 bytes.
    pub inline_bytes: u32,
    /// The ports, in order.
    pub ports: Vec<PortLimits>,
}

/// What a port can do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortLimits {
    /// Counted from 1.
    pub number: u8,
    /// Payload bytes of a packet.
    pub mtu: u32,
    /// Bytes of one message.
    pub message_bytes: u32,
}

/// Opens a device and reads its limits.
///
/// # Errors
/// A build without RDMA, no library, no driver, a device that cannot be opened.
pub fn limits(device: &str) -> Result<Limits, DeviceError> {
    #[cfg(feature = "verbs")]
    return resources::device::OpenDevice::open(device)?.limits();
    #[cfg(not(feature = "verbs"))]
    Err(DeviceError::NotBuilt { device: device.to_owned() })
}

/// Registers this many bytes of anonymous memory with a device, for remote READ and WRITE, and releases them again.
///
/// # Errors
/// Those of [`limits`], and a registration that is refused: the limit of locked memory is the usual reason.
pub fn try_registration(device: &str, bytes: usize) -> Result<(), DeviceError> {
    #[cfg(feature = "verbs")]
    return resources::device::OpenDevice::open(device)?.try_registration(bytes);
    #[cfg(not(feature = "verbs"))]
    {
        let _ = bytes;
        Err(DeviceError::NotBuilt { device: device.to_owned() })
    }
}
pub(crate) mod resources;

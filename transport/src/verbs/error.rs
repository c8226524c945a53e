//! Why a device cannot be used, and what to do about it.

use rustix::process::{Resource, getrlimit};
use std::io;

/// Why a device cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// A build without RDMA.
    #[error("{device}: this gannet was built without RDMA; build it with --features rdma, or rdma-dlopen")]
    NotBuilt {
        /// The device's name.
        device: String,
    },
    /// The library is not installed (for builds that load it).
    #[error(
        "{device}: libibverbs.so.1 and librdmacm.so.1 are not installed: install libibverbs1 and librdmacm1 (rdma-core)"
    )]
    NoLibrary {
        /// The device's name.
        device: String,
    },
    /// The kernel side is missing.
    #[error(
        "{device}: the kernel offers no verbs to programs: load the module ib_uverbs (modprobe ib_uverbs)"
    )]
    NoKernel {
        /// The device's name.
        device: String,
    },
    /// The library does not know the device.
    #[error(
        "{device}: libibverbs has no such device (it has: {}): is it named by `ls /sys/class/infiniband`, and is its driver \
         installed (ibverbs-providers, rdma-core)?", if known.is_empty() { "none" } else { known.as_str() }
    )]
    Unknown {
        /// The device's name.
        device: String,
        /// The names of the devices that it knows.
        known: String,
    },
    /// The device's file may not be opened.
    #[error(
        "{device}: cannot open the device: {source}; /dev/infiniband/uverbs* must be there and open to this user (containers \
         need --device=/dev/infiniband)"
    )]
    Open {
        /// The device's name.
        device: String,
        /// The error of the system.
        source: io::Error,
    },
    /// Memory could not be registered.
    #[error("{device}: cannot register {bytes} bytes of memory: {source}; {}", remedy(*allowed))]
    Registration {
        /// The device's name.
        device: String,
        /// How many bytes were requested.
        bytes: usize,
        /// How much the process may lock; `None` is no limit.
        allowed: Option<u64>,
        /// The error of the system.
        source: io::Error,
    },
    /// Its queues are too small.
    #[error(
        "{device}: its queues hold {} work requests, {} completions and {} slices a request; gannet needs at least {}, {} \
         and {}: use another device, or --transport tcp", has[0], has[1], has[2], needs[0], needs[1], needs[2]
    )]
    Queues {
        /// The device's name.
        device: String,
        /// Work requests of a queue, completions, scatter-gather elements.
        has: [u32; 3],
        /// The least of each that is needed.
        needs: [u32; 3],
    },
    /// Another operation that a device should support failed.
    #[error("{device}: cannot {what}: {source}")]
    Verb {
        /// The device's name.
        device: String,
        /// What was tried.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

/// The limit of locked memory of this process in bytes; `None`: there is none.
pub fn locked_bytes_max() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

/// What limits registrations, and how to raise the limit.
fn remedy(allowed: Option<u64>) -> String {
    match allowed {
        Some(bytes) => format!(
            "this process may lock {bytes} bytes (memlock): raise it with `ulimit -l unlimited`, memlock in \
             /etc/security/limits.conf, LimitMEMLOCK=infinity of a systemd service, or --ulimit memlock=-1 of a container"
        ),
        None => "the limit of locked memory (memlock) is not the reason: there is none".to_owned(),
    }
}

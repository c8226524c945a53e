//! What carries a process's bytes.

use super::IoArgs;
use clap::{Args, ValueEnum};
use gannet::Transports;
use gannet::transport::Transport;

/// What `--transport` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportName {
    /// Of a worker: shared memory where the server is on this host and lets it in, else RDMA where a device is here and the
    /// server answers over it, else tcp; the log says which, and why. Of a server: whatever a worker chooses.
    Auto,
    /// TCP only.
    Tcp,
    /// Shared memory only: servers and workers of one host.
    Shm,
    /// RDMA (builds with the feature rdma or rdma-dlopen). A job that has begun goes on over tcp when RDMA breaks, if the
    /// server takes it.
    Verbs,
}

impl TransportName {
    /// This transport; `io` is how bytes move where it is TCP.
    pub fn net(self, io: IoArgs) -> Transports {
        Transports::over(io.net()).with_transport(match self {
            TransportName::Auto => Transport::Auto,
            TransportName::Tcp => Transport::Tcp,
            TransportName::Shm => Transport::Shm,
            TransportName::Verbs => Transport::Verbs,
        })
    }

    /// As it is written.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The flag again, for a process that this one starts.
    pub fn flag(self) -> String {
        format!("--transport={}", self.name())
    }
}

/// What carries a process's bytes.
#[derive(Args, Debug, Clone, Copy)]
pub struct TransportArgs {
    /// What carries the bytes between workers and servers.
    #[arg(long, value_enum, default_value = "auto")]
    pub transport: TransportName,
}

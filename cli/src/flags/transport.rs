//! `--transport`: how bytes move between workers and servers.

use crate::flags::IoArgs;
use clap::{Args, ValueEnum};
use gannet::Transports;
use gannet::transport::Transport;

/// What `--transport` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportName {
    /// Worker: shared memory if the server is on this host and accepts it; else RDMA if there is a device and the
    /// server answers over it; else tcp. The log says which, and why. Server: whatever a worker chooses.
    Auto,
    /// TCP only.
    Tcp,
    /// Shared memory only, for servers and workers on one host.
    Shm,
    /// RDMA (builds with the feature rdma or rdma-dlopen). If RDMA breaks during a job, it continues over tcp, if the
    /// server accepts that.
    Verbs,
}

impl TransportName {
    /// The network with this transport. `io` says how bytes move over TCP.
    pub fn net(self, io: IoArgs) -> Transports {
        Transports::over(io.net()).with_transport(match self {
            TransportName::Auto => Transport::Auto,
            TransportName::Tcp => Transport::Tcp,
            TransportName::Shm => Transport::Shm,
            TransportName::Verbs => Transport::Verbs,
        })
    }

    /// The name as users type it.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The flag's text, for a process that this one starts.
    pub fn flag(self) -> String {
        format!("--transport={}", self.name())
    }
}

/// The transport of a process.
#[derive(Args, Debug, Clone, Copy)]
pub struct TransportArgs {
    /// Transport between workers and servers.
    #[arg(long, value_enum, default_value = "auto")]
    pub transport: TransportName,
}

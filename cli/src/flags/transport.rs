//! How bytes and rows move between workers and servers.

use crate::flags::words::numbers::size;
use bytesize::ByteSize;
use clap::{Args, ValueEnum};
use gannet::Transports;
use gannet::sync::Staleness;
use gannet::transport::{Io, Tcp, Transport};
use gannet::worker::{OneSided, WireType};
use std::time::Duration;

/// What `--sync-rows` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncRowsName {
    /// The server sends the whole row.
    Full,
    /// The server sends the row only if it has changed.
    Incremental,
}

/// What `--cache-use` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheUseName {
    /// While it costs less time than requests. The worker measures both from time to time.
    Auto,
    /// Always: where bytes are scarcer than time.
    Always,
}

/// The cache of a worker.
#[derive(Args, Debug, Clone, Copy)]
#[command(next_help_heading = "Transport")]
pub struct CacheArgs {
    /// Cache rows in the worker, up to this size, instead of pulling them each time. 0 means no cache. The cache keeps
    /// the rows that are pulled often [default: 0]
    #[arg(long, value_name = "SIZE", value_parser = size_or_none)]
    pub cache_bytes: Option<ByteSize>,
    /// When pulls go through the cache [default: auto]
    #[arg(long, value_enum, value_name = "WHEN")]
    pub cache_use: Option<CacheUseName>,
    /// How long a cached row may be used: a number of this worker's batches (8), or a time (250ms, 2s). The bound of
    /// --sync ssp:N holds as well [default: 8]
    #[arg(long, value_name = "BATCHES|TIME", value_parser = staleness)]
    pub cache_staleness: Option<Staleness>,
    /// How a cached row that is too old is pulled again: whole, or only if it has changed [default: incremental]
    #[arg(long, value_enum, value_name = "HOW")]
    pub sync_rows: Option<SyncRowsName>,
    /// Servers send changes of cached rows that were used again, every MS milliseconds, without a request.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub active_pull: Option<u32>,
}

fn size_or_none(text: &str) -> Result<ByteSize, String> {
    if text == "0" { Ok(ByteSize(0)) } else { size(text) }
}

fn staleness(text: &str) -> Result<Staleness, String> {
    let time = |number: &str, unit: u64| {
        let number = number.parse::<u64>().ok()?.checked_mul(unit)?;
        (number <= 86_400_000).then_some(Staleness::Time(Duration::from_millis(number)))
    };
    let read = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => time(number, 1),
        (_, Some(number)) => time(number, 1000),
        _ => text.parse().ok().map(Staleness::Pulls),
    };
    read.ok_or_else(|| "batches (8) or a time up to a day (250ms, 2s)".into())
}

/// What `--io` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoName {
    /// The one that was faster for training: epoll. docs/transports.md says when uring is faster.
    Auto,
    /// io_uring. If the system refuses it, epoll is used and the log says so.
    Uring,
    /// Plain sockets and epoll.
    Epoll,
}

/// How a process moves its bytes over TCP.
#[derive(Args, Debug, Clone, Copy)]
#[command(next_help_heading = "Transport")]
pub struct IoArgs {
    /// How bytes move over TCP.
    #[arg(long, value_enum, default_value = "auto")]
    pub io: IoName,
}

impl IoArgs {
    /// The network that the flag chose.
    pub fn net(self) -> Tcp {
        Tcp::new().with_io(match self.io {
            IoName::Auto => Io::Auto,
            IoName::Uring => Io::Uring,
            IoName::Epoll => Io::Epoll,
        })
    }

    /// The flag's text, for a process that this one starts.
    pub fn flag(self) -> String {
        let name = self.io.to_possible_value();
        format!("--io={}", name.as_ref().map_or("auto", |value| value.get_name()))
    }
}

/// What `--one-sided` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneSidedName {
    /// Where the worker measures that it costs less than requests: in the memory of a server on this host, and over
    /// RDMA with hardware devices on both sides (software devices such as soft-RoCE do not count).
    Auto,
    /// Wherever it is possible, also over software devices.
    Always,
    /// Nowhere. The worker requests all rows.
    Never,
}

/// Whether a worker reads rows without a request.
#[derive(Args, Debug, Clone, Copy)]
#[command(next_help_heading = "Transport")]
pub struct OneSidedArgs {
    /// When a worker reads rows in its server's memory instead of sending a request [default: auto]
    #[arg(long, value_enum, value_name = "WHEN")]
    pub one_sided: Option<OneSidedName>,
}

impl OneSidedArgs {
    /// The choice of the flag.
    pub fn choice(self) -> OneSided {
        match self.one_sided {
            None | Some(OneSidedName::Auto) => OneSided::Auto,
            Some(OneSidedName::Always) => OneSided::Always,
            Some(OneSidedName::Never) => OneSided::Never,
        }
    }

    /// The flag's text, for a process that this one starts.
    pub fn flag(self) -> Option<String> {
        let value = self.one_sided?.to_possible_value()?;
        Some(format!("--one-sided={}", value.get_name()))
    }
}

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
#[command(next_help_heading = "Transport")]
pub struct TransportArgs {
    /// Transport between workers and servers.
    #[arg(long, value_enum, default_value = "auto")]
    pub transport: TransportName,
}

/// What `--wire` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireName {
    /// 4 bytes a float.
    F32,
    /// 2 bytes for each weight that is pulled and each gradient that is pushed (--push gradient). What the rounding of
    /// a gradient leaves out is added to the next gradient of its key. Stored rows stay as they are.
    F16,
}

/// How weights and gradients travel.
#[derive(Args, Debug, Clone, Copy)]
#[command(next_help_heading = "Transport")]
pub struct WireArgs {
    /// How floats travel [default: f32]
    ///
    /// It is about weights that this worker pulls, and gradients that it pushes.
    #[arg(long, value_enum, value_name = "TYPE")]
    pub wire: Option<WireName>,
}

impl WireArgs {
    /// The choice of the flag.
    pub fn choice(self) -> WireType {
        match self.wire {
            None | Some(WireName::F32) => WireType::F32,
            Some(WireName::F16) => WireType::F16,
        }
    }

    /// The flag's text, for a process that this one starts.
    pub fn flag(self) -> Option<String> {
        let value = self.wire?.to_possible_value()?;
        Some(format!("--wire={}", value.get_name()))
    }
}

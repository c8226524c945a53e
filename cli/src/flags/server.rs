//! The flags of `gannet server` and `gannet scheduler`.

use crate::flags::metrics::MetricsArgs;
use crate::flags::security::{SecurityArgs, TlsServerArgs};
use crate::flags::transport::{IoArgs, TransportArgs};
use crate::flags::words::numbers::size;
use bytesize::ByteSize;
use clap::Args;
use gannet::Transports;
use gannet::server::SessionLimits;
use std::path::PathBuf;
use std::time::Duration;

/// The store of a process's tables.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Server")]
pub struct StoreArgs {
    /// Memory limit for tables: headers, indexes and rows. With --data-dir it limits disk space. New rows beyond it are
    /// refused.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory_limit: Option<ByteSize>,
    /// With --data-dir: serve the images without a check of their checksums first. The check reads all of them.
    #[arg(long)]
    pub no_verify: bool,
}

/// `gannet server`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Server")]
pub struct ServerArgs {
    /// Address to listen on. Port 0 chooses a port, which is printed.
    #[arg(long, default_value = "127.0.0.1:7700")]
    pub listen: String,
    /// Threads that own shards. Default: one for each core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: Option<u32>,
    /// Keep the shards in this folder (tmpfs or disk), so that they survive a restart.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Checkpoints are written into this folder when a coordinator asks for one (`gannet checkpoint save`, or worker 0
    /// of a job with --checkpoint). All servers and the coordinator must reach the folder. It may be a bucket
    /// (s3://BUCKET/PATH, gs://, az://).
    #[arg(long, help_heading = "Checkpoints", value_name = "DIR|URL")]
    pub checkpoint: Option<PathBuf>,
    /// The checkpoint that it takes its tables from.
    #[command(flatten)]
    pub restore: RestoreArgs,
    /// Limits of its sessions.
    #[command(flatten)]
    pub sessions: SessionArgs,
    /// Limit of its tables.
    #[command(flatten)]
    pub memory: StoreArgs,
    /// The transport.
    #[command(flatten)]
    pub transport: TransportArgs,
    /// How bytes move over TCP.
    #[command(flatten)]
    pub io: IoArgs,
    /// The token and TLS.
    #[command(flatten)]
    pub security: SecurityArgs,
    /// Which workers it trusts.
    #[command(flatten)]
    pub tls_server: TlsServerArgs,
    /// Metrics.
    #[command(flatten)]
    pub metrics: MetricsArgs,
}

/// The flags of a server that is restored from a checkpoint.
#[derive(Args, Debug, Clone, Default)]
pub struct RestoreArgs {
    /// Take the tables from a checkpoint before the server listens: the newest one of this folder or bucket, or number
    /// N. If --data-dir has the tables already, the server goes on from them.
    #[arg(long, value_name = "DIR|URL[@N]")]
    pub restore: Option<PathBuf>,
    /// With --restore: the addresses of all servers of the job, as its workers name them. Default: this server is the
    /// only one.
    #[arg(long, value_name = "HOST:PORT,..", value_delimiter = ',', requires = "restore")]
    pub ps_hosts: Vec<String>,
    /// With --ps-hosts: which of them this server is, counted from 0.
    #[arg(long, value_name = "N", requires = "ps_hosts")]
    pub task_index: Option<u32>,
    /// With --restore: shards of each table, a power of two up to 4096. The workers need the same number. Default: as
    /// many as the checkpoint has.
    #[arg(long, value_name = "N", requires = "restore", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub shards: Option<u32>,
}

/// `gannet scheduler`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Server")]
pub struct SchedulerArgs {
    /// Address to listen on. Port 0 chooses a port, which is printed.
    #[arg(long, default_value = "127.0.0.1:7700")]
    pub listen: String,
    /// Keep the job's state, and what it knows as the coordinator of servers with --backups, in this folder. A
    /// scheduler that is started again with it goes on from there.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Limits of its sessions.
    #[command(flatten)]
    pub sessions: SessionArgs,
    /// The transport.
    #[command(flatten)]
    pub transport: TransportArgs,
    /// How bytes move over TCP.
    #[command(flatten)]
    pub io: IoArgs,
    /// The token and TLS.
    #[command(flatten)]
    pub security: SecurityArgs,
    /// Which workers it trusts.
    #[command(flatten)]
    pub tls_server: TlsServerArgs,
    /// Metrics.
    #[command(flatten)]
    pub metrics: MetricsArgs,
}

/// Limits of sessions. docs/security.md says how they work together.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Server")]
pub struct SessionArgs {
    /// Server: most sessions of each thread. A worker has one session with every thread. Default: 4096.
    #[arg(long, value_name = "N")]
    pub sessions_max: Option<usize>,
    /// Server: seconds after which a silent session is closed. Default: 300.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(2..=86_400))]
    pub session_silence: Option<u64>,
    /// Server: memory for the buffers of all sessions. When it is used up, sessions wait. Default: 1GiB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub session_memory: Option<ByteSize>,
    /// Server: memory for the keysets of all sessions. When it is used up, pushes carry their keys. Default: 1GiB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub keyset_memory: Option<ByteSize>,
    /// Server: pinned memory for the RDMA rings of all sessions, 1 MiB each. When it is used up, new workers use tcp.
    /// Default: 512MiB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub rdma_memory: Option<ByteSize>,
    /// Server: requests that a session may have in flight. Default: 1024.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub credit_requests: Option<u32>,
}

impl SessionArgs {
    /// The server's network, with this limit of RDMA memory.
    pub fn net(&self, net: Transports) -> Transports {
        match self.rdma_memory {
            Some(size) => net.with_rdma_memory(size.as_u64() as usize),
            None => net,
        }
    }

    /// The limits, with defaults for flags that were not given.
    pub fn limits(&self) -> SessionLimits {
        let usual = SessionLimits::default();
        let bytes = |size: Option<ByteSize>, usual: usize| size.map_or(usual, |size| size.as_u64() as usize);
        SessionLimits {
            sessions: self.sessions_max.unwrap_or(usual.sessions),
            credit_frames: self.credit_requests.unwrap_or(usual.credit_frames),
            silence: self.session_silence.map_or(usual.silence, Duration::from_secs),
            buffer_bytes: bytes(self.session_memory, usual.buffer_bytes),
            keyset_bytes: bytes(self.keyset_memory, usual.keyset_bytes),
            ..usual
        }
    }
}

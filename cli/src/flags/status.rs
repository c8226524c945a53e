//! The flags of `gannet status` and `gannet forget`.

use crate::flags::security::{SecurityArgs, TlsClientArgs};
use crate::flags::transport::{IoArgs, TransportArgs};
use clap::Args;

/// `gannet status`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes: 0 all answered; 2 a bad flag, or an unknown --run; 3 the coordinator, the scheduler \
or a server could not be reached."
)]
#[command(next_help_heading = "Job")]
pub struct StatusArgs {
    /// The job's servers. One of them keeps the registry of the run, and is its scheduler. With --coordinator they are
    /// not needed: the coordinator knows the servers.
    #[arg(long, value_name = "HOST:PORT,..", value_delimiter = ',',
        required_unless_present_any = ["scheduler", "coordinator"])]
    pub ps_hosts: Vec<String>,
    /// The job's scheduler, if the workers have this flag. Default: as for `gannet train`.
    #[arg(long, value_name = "HOST:PORT")]
    pub scheduler: Option<String>,
    /// The coordinator of the job, if its servers have this flag: also show who owns which place, and its backups.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "scheduler")]
    pub coordinator: Option<String>,
    /// The run to show [default: default, or the only run]
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,
    /// Seconds that the command takes at most. It asks all at once, and shows what those say that answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub peer_timeout: u64,
    /// Print one JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// The transport.
    #[command(flatten)]
    pub transport: TransportArgs,
    /// How bytes move over TCP.
    #[command(flatten)]
    pub io: IoArgs,
    /// The token and TLS.
    #[command(flatten)]
    pub security: SecurityArgs,
    /// Which servers are trusted.
    #[command(flatten)]
    pub tls_client: TlsClientArgs,
}

/// `gannet forget`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes: 0 the run or the clients are forgotten; 2 a bad flag, an unknown --run, a worker of \
the run lives, or a checkpoint is being written; 3 a server or the coordinator could not be reached."
)]
#[command(next_help_heading = "Job")]
pub struct ForgetArgs {
    /// The addresses of all servers. With --coordinator they are not needed: the coordinator knows the servers.
    #[arg(long, value_name = "HOST:PORT,..", value_delimiter = ',', required_unless_present = "coordinator")]
    pub ps_hosts: Vec<String>,
    /// The run. Its rows are deleted at all servers. Refused while a worker of the run lives.
    #[arg(long, value_name = "NAME", required_unless_present = "clients")]
    pub run: Option<String>,
    /// Forget clients of gannet.connect that have had no session for a minute, in all tables, to make room for others.
    /// No row is deleted. A forgotten client that comes back is refused.
    #[arg(long, conflicts_with_all = ["run", "coordinator"])]
    pub clients: bool,
    /// The coordinator of the job, if its servers have this flag. When no server of the run lives, only the coordinator
    /// forgets it. Data folders stay as they are.
    #[arg(long, value_name = "HOST:PORT")]
    pub coordinator: Option<String>,
    /// Seconds to wait for a server before giving up.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub peer_timeout: u64,
    /// The transport.
    #[command(flatten)]
    pub transport: TransportArgs,
    /// How bytes move over TCP.
    #[command(flatten)]
    pub io: IoArgs,
    /// The token and TLS.
    #[command(flatten)]
    pub security: SecurityArgs,
    /// Which servers are trusted.
    #[command(flatten)]
    pub tls_client: TlsClientArgs,
}

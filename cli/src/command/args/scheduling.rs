//! What the commands about a job's scheduler take.

use super::security::{SecurityArgs, TlsClientArgs, TlsServerArgs};
use super::{IoArgs, MetricsArgs, SessionArgs, TransportArgs};
use clap::Args;
use std::path::PathBuf;

/// `gannet scheduler`.
#[derive(Args, Debug)]
pub struct SchedulerArgs {
    /// Address to listen on; port 0 chooses one, which is printed.
    #[arg(long, default_value = "127.0.0.1:7700")]
    pub listen: String,
    /// Keep the job's book in this folder, so that a scheduler that was killed goes on where it stood.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// What its sessions may do and take.
    #[command(flatten)]
    pub sessions: SessionArgs,
    /// What carries the bytes.
    #[command(flatten)]
    pub transport: TransportArgs,
    /// How bytes move over TCP.
    #[command(flatten)]
    pub io: IoArgs,
    /// Who may talk to it.
    #[command(flatten)]
    pub security: SecurityArgs,
    /// What it asks for.
    #[command(flatten)]
    pub tls_server: TlsServerArgs,
    /// Numbers while it runs.
    #[command(flatten)]
    pub metrics: MetricsArgs,
}

/// `gannet status`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes: 0 all answered; 2 a bad flag, or a --run that nobody knows; 3 the scheduler, or a server, could not be reached."
)]
pub struct StatusArgs {
    /// The job's servers; the one whose text comes first in alphabetical order knows the runs, and is the scheduler.
    #[arg(long, value_name = "HOST:PORT,..", value_delimiter = ',', required_unless_present = "scheduler")]
    pub ps_hosts: Vec<String>,
    /// The job's scheduler, if the workers were given one. Default: as `gannet train` has it.
    #[arg(long, value_name = "HOST:PORT")]
    pub scheduler: Option<String>,
    /// The run to tell of [default: default, or the only one that there is]
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,
    /// Seconds to wait for each.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub peer_timeout: u64,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// What carries the bytes.
    #[command(flatten)]
    pub transport: TransportArgs,
    /// How bytes move over TCP.
    #[command(flatten)]
    pub io: IoArgs,
    /// Who may talk to whom.
    #[command(flatten)]
    pub security: SecurityArgs,
    /// Whom it believes.
    #[command(flatten)]
    pub tls_client: TlsClientArgs,
}

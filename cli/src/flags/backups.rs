//! Backups: which servers keep copies of the rows of others, and who says which server owns what.

use clap::{Args, ValueEnum};

/// The backups of a job, and its coordinator.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Job")]
pub struct BackupArgs {
    /// Job: this many other servers keep the rows of a server too. At first these are the servers behind it in
    /// --ps-hosts, in alphabetical order. A server may then die for good: one of its backups goes on in its place, and
    /// other servers become the backups that are missing. All ps need the same value.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "coordinator",
        value_parser = clap::value_parser!(u32).range(0..=8))]
    pub backups: u32,
    /// Job: who says which server owns which rows. That is a `gannet scheduler`, or a cluster of etcd
    /// (etcd://HOST:PORT,HOST:PORT,..., or etcds:// over TLS). Every ps and every worker need it. A server that dies
    /// may then be started again without its rows: with --backups nothing is lost. With --data-dir nothing is lost
    /// either if all servers die at once.
    #[arg(long, value_name = "HOST:PORT")]
    pub coordinator: Option<String>,
    /// Job: what waits for the backups. sync: all answers. async: only acknowledgements, so rows are read at once, and
    /// a failover may undo changes that workers have read, until their pushes are sent again. No acknowledged push is
    /// lost in either. All ps need the same value [default: sync]
    #[arg(long, value_name = "sync|async", requires = "coordinator")]
    pub replication: Option<ReplicationName>,
    /// Job: seconds without a sign of a server after which a backup takes its place [default: 2]
    #[arg(long, value_name = "SECONDS", requires = "coordinator")]
    pub lease: Option<f64>,
    /// Job: what to do when the rows of a server and of all its backups are gone [default: restore with --checkpoint,
    /// else stop]
    #[arg(long, value_name = "WHAT", requires = "coordinator")]
    pub on_server_loss: Option<OnServerLossName>,
    /// Job: this ps listens at HOST:PORT, which is not in --ps-hosts, and has no place there. It may join a running
    /// job. It becomes the backups that are missing, and takes the places of servers that die. --ps-hosts stays as it
    /// is, also when all servers in it are dead.
    #[arg(long, value_name = "HOST:PORT", requires = "coordinator")]
    pub spare: Option<String>,
}

/// What waits for the backups.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicationName {
    Sync,
    Async,
}

/// What a job does when rows are gone.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnServerLossName {
    /// The other servers end, with exit code 1. Start them and the workers again: all go back to the newest checkpoint.
    /// If a server does not come back, another one takes its part.
    Restore,
    /// Nobody begins the lost part again. Workers wait for --peer-timeout.
    Wait,
    /// The server begins again without rows, and the job ends by name.
    Stop,
}

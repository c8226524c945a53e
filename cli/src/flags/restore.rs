//! The flags of a restore: for `gannet server` and `gannet checkpoint restore`.

use crate::flags::StoreArgs;
use clap::Args;
use std::path::PathBuf;

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

/// `gannet checkpoint restore`.
#[derive(Args, Debug)]
#[command(
    after_help = "Each server then starts with `gannet server --data-dir OUT/server-I`. Name them to the workers in this \
order (--ps-hosts), and give server 0 the address that comes first in alphabetical order, or name another --scheduler.\n\
Exit codes: 0 all folders are written; 1 an error of the system; 2 the checkpoint or a flag cannot be used."
)]
pub struct RestoreFoldersArgs {
    /// The folder with the checkpoints, or the URL of a bucket. DIR@N names checkpoint N, as for --restore.
    pub dir: PathBuf,
    /// The number of the checkpoint, if DIR does not name it. Default: the newest one that can be used.
    pub number: Option<u64>,
    /// Where to write the data folders: server-0, server-1 and so on.
    #[arg(long, value_name = "OUT")]
    pub data_dir: PathBuf,
    /// Number of servers.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub servers: u32,
    /// Shards of each table, a power of two up to 4096. Default: as many as the checkpoint has.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub shards: Option<u32>,
    /// Threads that load rows. Default: one for each core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: Option<u32>,
    /// Which server gets the state of the scheduler and the registry of runs: the one whose address comes first in
    /// alphabetical order.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub scheduler: u32,
    /// Limit of the tables of each server.
    #[command(flatten)]
    pub memory: StoreArgs,
}

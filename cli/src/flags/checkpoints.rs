//! The flags of checkpoints: of `gannet checkpoint` and of a job.

use crate::flags::model::RowTypeArgs;
use crate::flags::optimizer::OptimizerArgs;
use crate::flags::security::{SecurityArgs, TlsClientArgs};
use crate::flags::server::StoreArgs;
use crate::flags::transport::{IoArgs, TransportArgs};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// `gannet checkpoint`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes: 0 done; 1 verify has found damage, or an error of the system; 2 bad input, a bad flag, or \
a checkpoint that cannot be used.\nDIR is the folder that --checkpoint of a job names. N is a number that `ls` prints."
)]
pub struct CheckpointArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: CheckpointCommand,
}

/// What `gannet checkpoint` does.
#[derive(Subcommand, Debug)]
pub enum CheckpointCommand {
    /// Save the tables of running servers, while training goes on.
    Save(Box<SaveArgs>),
    /// Write the data folders of servers from a checkpoint.
    Restore(RestoreFoldersArgs),
    /// List the checkpoints of a folder, and say which can be used.
    Ls(ListArgs),
    /// Show what a checkpoint holds: its tables, shards, notes.
    Show(ShowArgs),
    /// Read every byte of a checkpoint and of those that it needs. Exit code 1 if something is damaged.
    Verify(VerifyArgs),
    /// Compare the rows of two checkpoints.
    Diff(DiffArgs),
    /// Remove old checkpoints. One that an increment needs is never removed.
    Prune(PruneArgs),
    /// Write the rows of a table to a file.
    Export(ExportArgs),
    /// Make a checkpoint of one table from a file of arrays.
    Import(Box<ImportArgs>),
}

/// `gannet checkpoint save`.
#[derive(Args, Debug)]
pub struct SaveArgs {
    /// The checkpoint folder. All servers must have been started with it (--checkpoint), by its path there.
    pub dir: PathBuf,
    /// Addresses of all servers of the job.
    #[arg(long, value_name = "HOST:PORT,..", value_delimiter = ',', required = true)]
    pub ps_hosts: Vec<String>,
    /// Save the tables of this run. Default: all tables.
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,
    /// The coordinator of the job, if its servers have this flag. The run is then the one that --run names, or
    /// "default".
    #[arg(long, value_name = "HOST:PORT")]
    pub coordinator: Option<String>,
    /// Save only what has changed since the newest checkpoint of the folder.
    #[arg(long)]
    pub increment: bool,
    /// The level of the compression (zstd); 0: none.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i32).range(0..=19))]
    pub level: i32,
    /// Seconds to wait for a server before giving up.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    pub peer_timeout: f64,
    /// The transport.
    #[command(flatten)]
    pub transport: TransportArgs,
    /// How bytes move over TCP.
    #[command(flatten)]
    pub io: IoArgs,
    /// The token and TLS.
    #[command(flatten)]
    pub security: SecurityArgs,
    /// Which servers to trust.
    #[command(flatten)]
    pub tls_client: TlsClientArgs,
}

/// `gannet checkpoint ls`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// The checkpoint folder.
    pub dir: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `gannet checkpoint verify`.
#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// The checkpoint, and how it is printed.
    #[command(flatten)]
    pub checkpoint: ShowArgs,
    /// Read all checkpoints of the folder, each file once. Saves that are not finished are left out.
    #[arg(long, conflicts_with = "number")]
    pub all: bool,
}

/// `gannet checkpoint show`, and the checkpoint of `verify`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// The checkpoint folder.
    pub dir: PathBuf,
    /// Which checkpoint. Default: the newest that can be used; for verify the newest.
    #[arg(value_name = "N")]
    pub number: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `gannet checkpoint diff`.
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// The checkpoint folder.
    pub dir: PathBuf,
    /// A checkpoint.
    pub a: u64,
    /// The checkpoint to compare it with.
    pub b: u64,
    /// List up to N keys of each kind for each table.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub keys: usize,
}

/// `gannet checkpoint prune`.
#[derive(Args, Debug)]
pub struct PruneArgs {
    /// The checkpoint folder.
    pub dir: PathBuf,
    /// How many of the newest checkpoints of each run stay.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: u32,
    /// Say what would be removed, and remove nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// Files of arrays.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArraysName {
    /// numpy.load reads it: arrays `keys` (uint64, n) and `values` (float32, n x dim).
    Npz,
    /// The same two tensors for safetensors.
    Safetensors,
    /// A line a row: the key and its values, with blanks between them.
    Text,
}

/// `gannet checkpoint export`.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// The checkpoint folder.
    pub dir: PathBuf,
    /// Which checkpoint, and the file to write; - is standard output. Without N it is the newest that can be used. An
    /// existing file is replaced when the new one is whole. A pipe or a device gets the bytes as they come.
    #[arg(value_name = "[N] FILE", num_args = 1..=2, required = true)]
    pub number_and_file: Vec<PathBuf>,
    /// The table.
    #[arg(long, value_name = "NAME")]
    pub table: String,
    /// The format of FILE.
    #[arg(long, value_enum)]
    pub format: ArraysName,
    /// Write whole rows, with the optimizer's state. Default: the weights.
    #[arg(long)]
    pub state: bool,
}

/// `gannet checkpoint import`.
#[derive(Args, Debug)]
pub struct ImportArgs {
    /// A file of arrays, as export writes it.
    pub file: PathBuf,
    /// The checkpoint folder, which is made if it does not exist.
    pub dir: PathBuf,
    /// The format of FILE: npz or safetensors.
    #[arg(long, value_enum)]
    pub format: ArraysName,
    /// The name of the table.
    #[arg(long, value_name = "NAME")]
    pub table: String,
    /// Shards of the table, a power of two up to 4096.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub shards: u32,
    /// Weights of a row. Default: the columns of `values`; with --state it must be given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub dim: Option<u32>,
    /// `values` holds whole rows, with the optimizer's state, as export --state writes them.
    #[arg(long, requires = "dim")]
    pub state: bool,
    /// The run that the checkpoint belongs to.
    #[arg(long, value_name = "NAME", default_value = crate::flags::job::DEFAULT_RUN)]
    pub run: String,
    /// The update rule of the table. Default: ftrl for one weight, adagrad for more.
    #[command(flatten)]
    pub optimizer: OptimizerArgs,
    /// How rows store their weights. The file has f32 in any case.
    #[command(flatten)]
    pub row_type: RowTypeArgs,
}

/// The checkpoints of a job.
#[derive(Args, Debug)]
#[command(next_help_heading = "Checkpoints")]
pub struct JobCheckpointArgs {
    /// Checkpoints of the whole job in this folder or bucket (s3://BUCKET/PATH, gs://, az://), which every process of
    /// the job must reach. Worker 0 saves them while the job trains. A ps without rows begins with the newest valid
    /// one. A directory with checkpoints of another run is refused.
    #[arg(long, value_name = "DIR|URL")]
    pub checkpoint: Option<PathBuf>,
    /// Seconds between two checkpoints.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, requires = "checkpoint",
        value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub checkpoint_secs: u64,
    /// Keep this many checkpoints, and those that they need.
    #[arg(long, value_name = "N", default_value_t = 3, requires = "checkpoint",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub checkpoint_keep: u32,
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

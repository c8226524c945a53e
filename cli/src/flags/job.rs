//! The flags of a job: its processes, its run, how its workers keep step, and how its data is divided.

use crate::flags::backups::BackupArgs;
use crate::flags::checkpoints::JobCheckpointArgs;
use crate::flags::security::{SecurityArgs, TlsClientArgs, TlsServerArgs};
use crate::flags::transport::{CacheArgs, IoArgs, OneSidedArgs, TransportArgs, WireArgs};
use crate::flags::words::numbers::size;
use bytesize::ByteSize;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, ValueEnum};
use std::path::PathBuf;

/// What `--damping` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum DampingName {
    /// A change counts for 1 / (1 + c). c is the number of pushes of other workers to its row since it was pulled.
    On,
    /// Changes are added as they are.
    Off,
}

/// Whether the pushes of a job's workers are damped.
#[derive(Args, Debug, Clone, Copy)]
#[command(next_help_heading = "Job")]
pub struct DampingArgs {
    /// Job: whether changes of state (--push replay) are damped by the pushes of other workers. All workers need the
    /// same value. Default: on with more than two workers and without bsp, else off.
    #[arg(long, value_enum)]
    pub damping: Option<DampingName>,
}

/// Where the data of a job comes from.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Job")]
pub struct FeedingArgs {
    /// Job: address of the client (--job-name client), which reads DATA and sends it to the workers. The client listens
    /// there. Its workers get the same flag and no DATA.
    #[arg(long, value_name = "HOST:PORT", requires = "job_name")]
    pub feed: Option<String>,
}

/// The role of a process in a job.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobName {
    /// A server. It owns shards, and ignores DATA and the flags of the model.
    Ps,
    /// A worker. It reads DATA and trains.
    Worker,
    /// The client. It has DATA, sends it to workers without DATA (--feed), and tests and saves the model.
    Client,
}

/// A job of several processes. The flags have the meaning that they have in TensorFlow's parameter-server scripts.
#[derive(Args, Debug)]
#[command(next_help_heading = "Job")]
pub struct JobArgs {
    /// Addresses of the servers.
    #[arg(long, value_name = "HOST:PORT,..", value_delimiter = ',', requires = "job_name")]
    pub ps_hosts: Vec<String>,
    /// Addresses of the workers. Only their number matters: workers do not listen.
    #[arg(long, value_name = "HOST:PORT,..", value_delimiter = ',', requires = "job_name")]
    pub worker_hosts: Vec<String>,
    /// The role of this process.
    #[arg(long, value_enum, requires = "ps_hosts")]
    pub job_name: Option<JobName>,
    /// Which process of its role this is, counted from 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub task_index: u32,
    /// Address on which this ps listens, if it is not the one that --ps-hosts names: 0.0.0.0:7700, or the address
    /// inside a container.
    #[arg(long, help_heading = "Server", value_name = "HOST:PORT", requires = "job_name")]
    pub listen: Option<String>,
    /// End this ps when its run is finished (--run NAME names it), as batch systems expect of all processes of a job.
    #[arg(long, help_heading = "Server", requires = "job_name")]
    pub exit_with_job: bool,
    /// Which of these flags were typed.
    #[arg(skip)]
    pub typed: TypedFlags,
    /// The run.
    #[command(flatten)]
    pub run: RunArgs,
    /// How the workers keep step.
    #[command(flatten)]
    pub sync: SyncArgs,
    /// Whether pushes are damped.
    #[command(flatten)]
    pub damping: DampingArgs,
    /// The shards of the table.
    #[command(flatten)]
    pub table: TableArgs,
    /// Seconds to wait for a peer before giving up.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, allow_negative_numbers = true)]
    pub peer_timeout: f64,
    /// Keep the server's shards in this folder (tmpfs or disk), so that they survive a restart. With --coordinator
    /// these are the shards of its own place: it goes on with them if no other server has had the place meanwhile.
    #[arg(long, help_heading = "Server", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// The checkpoints of the job.
    #[command(flatten)]
    pub checkpoint: JobCheckpointArgs,
    /// Its backups.
    #[command(flatten)]
    pub backups: BackupArgs,
    /// How the data is divided among the workers.
    #[command(flatten)]
    pub tasks: TaskArgs,
    /// Where the data comes from.
    #[command(flatten)]
    pub data_server: FeedingArgs,
    /// The transport.
    #[command(flatten)]
    pub transport: TransportArgs,
    /// Whether rows are read without a request.
    #[command(flatten)]
    pub one_sided: OneSidedArgs,
    /// How weights and gradients travel.
    #[command(flatten)]
    pub wire: WireArgs,
    /// The worker's row cache.
    #[command(flatten)]
    pub cache: CacheArgs,
    /// How bytes move over TCP.
    #[command(flatten)]
    pub io: IoArgs,
    /// The token and TLS.
    #[command(flatten)]
    pub security: SecurityArgs,
    /// Which workers a ps trusts.
    #[command(flatten)]
    pub tls_server: TlsServerArgs,
    /// Which servers a worker trusts.
    #[command(flatten)]
    pub tls_client: TlsClientArgs,
}

/// The flags of a run.
pub const RUN_FLAGS: [&str; 4] = ["--run", "--continue", "--fresh", "--allow-missing-workers"];

/// The name of a run without `--run`.
pub const DEFAULT_RUN: &str = "default";

/// For the workers and the client of a job, and for a training that keeps its rows in a folder.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Job")]
pub struct RunArgs {
    /// Job, or --data-dir: the name of this training on these servers or in this folder. Runs with different names
    /// share no rows. All workers of a job need the same name, and with --checkpoint or --coordinator also each ps
    /// [default: default]
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,
    /// Train the rows of a finished run further, or those of an unfinished run with other flags. The first process of a
    /// run decides. An unfinished run continues without this flag if the flags are those that it began with.
    #[arg(long = "continue", conflicts_with = "fresh")]
    pub go_on: bool,
    /// Begin the run with new rows. The old rows are deleted. Refused while a worker of the run lives.
    #[arg(long)]
    pub fresh: bool,
    /// Job with fixed shares (--tasks off): exit without an error when a worker has not trained its share.
    #[arg(long)]
    pub allow_missing_workers: bool,
}

impl RunArgs {
    /// The run's name.
    pub fn name(&self) -> &str {
        self.run.as_deref().unwrap_or(DEFAULT_RUN)
    }
}

/// What `--sync` offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncName {
    /// The servers apply pushes as they arrive.
    Asp,
    /// No worker is more than this many steps ahead of another.
    Ssp(u32),
    /// All workers make a step together.
    Bsp,
}

/// For the workers of a job. A ps accepts the flags too; its workers tell it the values.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Job")]
pub struct SyncArgs {
    /// How workers keep step. asp: pushes are applied as they arrive. ssp:N: no worker is more than N batches ahead of
    /// another. bsp: a batch of every worker makes one step [default: asp]
    #[arg(long, value_name = "asp|ssp:N|bsp", value_parser = sync_name)]
    pub sync: Option<SyncName>,
    /// false (or 0) means --sync asp, true (or 1) means --sync bsp, as in TensorFlow's scripts.
    #[arg(long, value_name = "true|false", value_parser = truth)]
    pub issync: Option<u32>,
    /// With bsp: apply a step when K workers have pushed their batch. Later batches are dropped and counted [default:
    /// all workers]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    pub replicas_to_aggregate: Option<u32>,
    /// Seconds without a sign from a worker after which it is dead: the others go on without it, and its splits go to
    /// other workers (--tasks) [default: 60]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub worker_timeout: Option<f64>,
    /// Make the same model, bit for bit, from the same data and number of workers, with any servers, threads, transport
    /// and timing. It means bsp with all workers. The job fails if a worker is lost.
    #[arg(long)]
    pub deterministic: bool,
}

/// A number or a boolean, as scripts of TensorFlow write this flag.
fn truth(text: &str) -> Result<u32, String> {
    match text.to_ascii_lowercase().as_str() {
        "0" | "false" => Ok(0),
        "1" | "true" => Ok(1),
        _ => Err("true, false, 1 or 0 is needed".to_owned()),
    }
}

fn sync_name(text: &str) -> Result<SyncName, String> {
    let unknown = || "asp, ssp:N (such as ssp:8, at most 1000000) or bsp".to_owned();
    match text {
        "asp" => Ok(SyncName::Asp),
        "bsp" => Ok(SyncName::Bsp),
        _ => {
            let bound = text.strip_prefix("ssp:").and_then(|bound| bound.parse().ok());
            bound.filter(|&bound| bound <= 1_000_000).map(SyncName::Ssp).ok_or_else(unknown)
        }
    }
}

/// The shards of the table.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Job")]
pub struct TableArgs {
    /// Job: shards of the table, a power of two up to 4096. One server thread owns each shard, so threads beyond that
    /// number are idle. All workers need the same value, and it cannot be changed later. Default, and meaning of 64: as
    /// many as the threads of the servers use evenly, at most 64.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub shards: Option<u32>,
}

/// What `--tasks` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TasksName {
    /// On if the data and the flags allow it, otherwise off. If it is off, standard error says why.
    Auto,
    /// The scheduler hands out splits of the files. The splits of a worker that dies go to others.
    On,
    /// Worker i of n takes every n-th batch, beginning with the i-th.
    Off,
}

/// The splits of a job, and who hands them out.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Job")]
pub struct TaskArgs {
    /// Job: whether a scheduler hands out splits of the data (on), or each worker takes a fixed share (off). All
    /// workers need the same value.
    #[arg(long, value_enum, default_value = "auto")]
    pub tasks: TasksName,
    /// Job: bytes of a split. Default: a sixteenth of a worker's part of the data, from 64 KiB to 4 MiB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub task_bytes: Option<ByteSize>,
    /// Job with --tasks on: begin to train when all workers have joined. They wait for at most --peer-timeout.
    #[arg(long)]
    pub start_together: bool,
    /// Job: the scheduler: one of the servers, or a `gannet scheduler`. Default: the server that keeps the registry of
    /// the run. For a new run it is the one whose address comes first in alphabetical order.
    #[arg(long, value_name = "HOST:PORT")]
    pub scheduler: Option<String>,
}

/// Which flags of `gannet train` were typed. The value alone does not show it: some have a default, and some several
/// spellings of one value.
#[derive(Clone, Debug, Default)]
pub struct TypedFlags {
    flags: Vec<String>,
    /// The text after `--issync`, empty without the flag.
    pub issync: String,
}

impl TypedFlags {
    /// The flags of `train`, as `matches` has them.
    pub fn of(train: &Command, matches: &ArgMatches) -> TypedFlags {
        let is_typed =
            |arg: &&Arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
        let typed = train.get_arguments().filter(is_typed).filter_map(Arg::get_long);
        let issync = matches.get_raw("issync").and_then(|mut values| values.next());
        TypedFlags {
            flags: typed.map(|long| format!("--{long}")).collect(),
            issync: issync.map(|value| value.to_string_lossy().into_owned()).unwrap_or_default(),
        }
    }

    /// Whether a flag was typed.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|typed| typed == flag)
    }
}

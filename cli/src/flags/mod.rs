//! The command line: all commands and flags. Modules beside each command turn the flags into settings.

pub mod admission;
pub mod backups;
pub mod bench;
pub mod cache;
pub mod checkpoint;
pub mod damping;
pub mod data_server;
pub mod doctor;
pub mod environment;
pub mod foreign;
pub mod input;
pub mod io;
pub mod job_checkpoints;
pub mod launch;
pub mod lbfgs;
pub mod log;
pub mod memory;
pub mod metrics;
pub mod model;
pub mod numbers;
pub mod one_sided;
pub mod optimizer;
pub mod restore;
pub mod row_type;
pub mod run;
pub mod scheduling;
pub mod sections;
pub mod security;
pub mod sessions;
pub mod sync;
pub mod table;
pub mod tasks;
pub mod transport;
pub mod typed_flags;
pub mod validation;
pub mod wire;

use crate::features;
pub use crate::flags::admission::AdmissionArgs;
pub use crate::flags::backups::{BackupArgs, ReplicationName};
pub use crate::flags::bench::BenchArgs;
pub use crate::flags::cache::{CacheArgs, CacheUseName, SyncRowsName};
pub use crate::flags::checkpoint::{
    ArraysName, CheckpointArgs, CheckpointCommand, DiffArgs, ExportArgs, ImportArgs, ListArgs, PruneArgs,
    SaveArgs, ShowArgs, VerifyArgs,
};
pub use crate::flags::damping::{DampingArgs, DampingName};
pub use crate::flags::data_server::FeedingArgs;
pub use crate::flags::doctor::DoctorArgs;
pub use crate::flags::input::{CountsName, FormatName, InputArgs, ScaleName};
pub use crate::flags::io::{IoArgs, IoName};
pub use crate::flags::job_checkpoints::JobCheckpointArgs;
pub use crate::flags::launch::{ClaimPortsArgs, LaunchArgs};
pub use crate::flags::lbfgs::LbfgsArgs;
pub use crate::flags::log::LogArgs;
pub use crate::flags::memory::StoreArgs;
pub use crate::flags::metrics::MetricsArgs;
pub use crate::flags::model::{ModelArgs, ModelName};
pub use crate::flags::one_sided::OneSidedArgs;
pub use crate::flags::optimizer::{
    OptimizerArgs, OptimizerName, PushName, ReduceName, ScheduleArgs, ScheduleName,
};
pub use crate::flags::restore::{RestoreArgs, RestoreFoldersArgs};
pub use crate::flags::row_type::RowTypeArgs;
pub use crate::flags::run::{DEFAULT_RUN, RunArgs};
pub use crate::flags::scheduling::{ForgetArgs, SchedulerArgs, StatusArgs};
pub use crate::flags::sections::spelled;
pub use crate::flags::sessions::SessionArgs;
pub use crate::flags::sync::{SyncArgs, SyncName};
pub use crate::flags::table::TableArgs;
pub use crate::flags::tasks::{TaskArgs, TasksName};
pub use crate::flags::transport::{TransportArgs, TransportName};
pub use crate::flags::typed_flags::TypedJobFlags;
pub use crate::flags::validation::WatchArgs;
pub use crate::flags::wire::WireArgs;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// A parameter server for sparse models. Servers keep hash-partitioned tables in memory-mapped shards, and run the
/// optimizer.
#[derive(Parser, Debug)]
#[command(name = "gannet", version = features::version(), max_term_width = 110)]
#[command(
    after_help = "Exit codes: 0 done; 1 an error of the system (disk, memory); 2 bad input or a bad flag; \
3 a peer could not be reached or stalled; 130 stopped by Ctrl-C.\nResults go to standard output. Logs, progress and \
warnings go to standard error."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// What is logged.
    #[command(flatten)]
    pub log: LogArgs,
}

impl Cli {
    /// Reads the command line of this process.
    ///
    /// # Errors
    /// It cannot be read, or asks for help.
    pub fn read() -> Result<Cli, clap::Error> {
        let words = spelled(std::env::args_os());
        let words = environment::with_job(words, |name| std::env::var(name).ok())
            .map_err(|why| clap::Error::raw(clap::error::ErrorKind::ValueValidation, format!("{why}\n")))?;
        Cli::of(words)
    }

    /// Reads these words. The first one is the program.
    ///
    /// # Errors
    /// They cannot be read, or ask for help.
    pub fn of(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
        let mut command = sections::arranged(Cli::command());
        let arguments = sections::spelled(arguments.into_iter());
        let words: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let matches = command.try_get_matches_from_mut(arguments);
        let read = matches.and_then(|matches| {
            let mut cli = Cli::from_arg_matches(&matches)?;
            if let (Command::Train(args), Some(typed)) =
                (&mut cli.command, matches.subcommand_matches("train"))
            {
                args.job.typed = TypedJobFlags::of(typed);
            }
            Ok(cli)
        });
        read.map_err(|error| {
            numbers::explained(foreign::explained(error.with_cmd(&command), &mut command, &words))
        })
    }
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Train a model, in this process or as one process of a job.
    Train(Box<TrainArgs>),
    /// Run a whole job, on this machine or on several: start its servers and workers, watch them, and print one report.
    Launch(LaunchArgs),
    /// Print free ports and claim them until standard input ends: what `gannet launch --hosts` runs on each host.
    #[command(hide = true)]
    ClaimPorts(ClaimPortsArgs),
    /// Serve tables until stopped.
    Server(ServerArgs),
    /// Track a job's workers and hand out its data, without tables.
    Scheduler(SchedulerArgs),
    /// Show the progress of a job, its workers, and who waits for whom.
    Status(StatusArgs),
    /// Delete a run that nobody trains: its rows, its job, and its name at the servers.
    Forget(ForgetArgs),
    /// Score examples with a trained model.
    Predict(PredictArgs),
    /// Save, list, check, compare, restore, export and prune the checkpoints of a job.
    Checkpoint(CheckpointArgs),
    /// Measure this machine's limit, and the server beside it.
    Bench(BenchArgs),
    /// Check what this machine supports, and say what to do about problems.
    Doctor(DoctorArgs),
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

/// `gannet train`.
#[derive(Args, Debug)]
pub struct TrainArgs {
    /// The training data: files (also .gz and .zst), folders, or - for standard input. Quoted patterns such as
    /// 'part-*.gz' work too. All are read in this order, as if they were one file. A ps needs none.
    pub data: Vec<PathBuf>,
    /// How DATA is read.
    #[command(flatten)]
    pub input: InputArgs,
    /// Data to test the trained model on, named like DATA. May be given several times.
    #[arg(long, value_name = "FILE")]
    pub test: Vec<PathBuf>,
    /// The model.
    #[command(flatten)]
    pub model: ModelArgs,
    /// The update rule.
    #[command(flatten)]
    pub optimizer: OptimizerArgs,
    /// L-BFGS.
    #[command(flatten)]
    pub lbfgs: LbfgsArgs,
    /// Which keys get a row.
    #[command(flatten)]
    pub admission: AdmissionArgs,
    /// How rows store their weights.
    #[command(flatten)]
    pub row_type: RowTypeArgs,
    /// Passes over the data.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub epochs: u32,
    /// Examples in a batch [default: 256; 2048 for a worker that pushes with replay, where the batch size does not
    /// change the loss]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batch: Option<u32>,
    /// Threads: 1 reads and learns in turn, 2 does both at the same time, N lets N - 1 threads parse (default: 2). The
    /// model is the same. For a ps see `gannet server`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: Option<u32>,
    /// Train without an intercept.
    #[arg(long)]
    pub no_intercept: bool,
    /// Folder to write the model to. A model that was there is moved to DIR/previous.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// What happens while the model is trained.
    #[command(flatten)]
    pub watch: WatchArgs,
    /// Print one JSON object on standard output.
    #[arg(long)]
    pub json: bool,
    /// The job this process belongs to.
    #[command(flatten)]
    pub job: JobArgs,
    /// Limits of a server's sessions.
    #[command(flatten)]
    pub sessions: SessionArgs,
    /// Limit of the tables of this process. A worker of a job has none.
    #[command(flatten)]
    pub memory: StoreArgs,
    /// Metrics.
    #[command(flatten)]
    pub metrics: MetricsArgs,
}

/// A job of several processes. The flags have the meaning that they have in TensorFlow's parameter-server scripts.
#[derive(Args, Debug)]
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
    #[arg(long, value_name = "HOST:PORT", requires = "job_name")]
    pub listen: Option<String>,
    /// End this ps when its run is finished (--run NAME names it), as batch systems expect of all processes of a job.
    #[arg(long, requires = "job_name")]
    pub exit_with_job: bool,
    /// Which of these flags were typed.
    #[arg(skip)]
    pub typed: TypedJobFlags,
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
    #[arg(long, value_name = "DIR")]
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
    pub security: security::SecurityArgs,
    /// Which workers a ps trusts.
    #[command(flatten)]
    pub tls_server: security::TlsServerArgs,
    /// Which servers a worker trusts.
    #[command(flatten)]
    pub tls_client: security::TlsClientArgs,
}

/// `gannet server`.
#[derive(Args, Debug)]
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
    #[arg(long, value_name = "DIR|URL")]
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
    pub security: security::SecurityArgs,
    /// Which workers it trusts.
    #[command(flatten)]
    pub tls_server: security::TlsServerArgs,
    /// Metrics.
    #[command(flatten)]
    pub metrics: MetricsArgs,
}

/// `gannet predict`.
#[derive(Args, Debug)]
pub struct PredictArgs {
    /// The folder that `train --out` wrote.
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    /// The examples: files, folders, patterns or -, as for `gannet train`.
    #[arg(required = true)]
    pub data: Vec<PathBuf>,
    /// How DATA is read. Columns default to those that the model was trained with.
    #[command(flatten)]
    pub input: InputArgs,
    /// Print one JSON object with the quality instead of one probability a line.
    #[arg(long)]
    pub json: bool,
}

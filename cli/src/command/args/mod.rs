//! The command line: what can be asked for. What it means stands beside each command.

mod admission;
mod bench;
mod cache;
mod damping;
mod data_server;
mod doctor;
mod foreign;
mod input;
mod io;
mod lbfgs;
mod log;
mod memory;
mod metrics;
mod model;
mod numbers;
mod one_sided;
mod optimizer;
mod run;
mod scheduling;
mod sections;
pub mod security;
mod sessions;
mod sync;
mod table;
mod tasks;
mod transport;
mod typed_flags;
mod validation;

pub use admission::AdmissionArgs;
pub use bench::BenchArgs;
pub use cache::{CacheArgs, SyncRowsName};
pub use damping::{DampingArgs, DampingName};
pub use data_server::FeedingArgs;
pub use doctor::DoctorArgs;
pub use input::{CountsName, FormatName, InputArgs, ScaleName};
pub use io::{IoArgs, IoName};
pub use lbfgs::LbfgsArgs;
pub use log::LogArgs;
pub use memory::MemoryArgs;
pub use metrics::MetricsArgs;
pub use model::{ModelArgs, ModelName};
pub use one_sided::OneSidedArgs;
pub use optimizer::{OptimizerArgs, OptimizerName, PushName, ReduceName, ScheduleArgs, ScheduleName};
pub use run::{DEFAULT_RUN, RunArgs};
pub use scheduling::{SchedulerArgs, StatusArgs};
pub use sessions::SessionArgs;
pub use sync::{SyncArgs, SyncName};
pub use table::TableArgs;
pub use tasks::{TaskArgs, TasksName};
pub use transport::{TransportArgs, TransportName};
pub use typed_flags::JobFlagsGiven;
pub use validation::WatchArgs;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// A parameter server for sparse models: hash-partitioned tables in mmap-backed shards, optimizers on the server.
#[derive(Parser, Debug)]
#[command(name = "gannet", version, max_term_width = 110)]
#[command(
    after_help = "Exit codes: 0 done; 1 an error of the system (disk, memory); 2 bad input or a bad flag; \
3 a peer could not be reached or stalled; 130 stopped by Ctrl-C.\nResults go to standard output; logs, progress and complaints to standard error."
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
        let mut command = sections::arranged(Cli::command());
        let given = sections::spelled(std::env::args_os());
        let words: Vec<String> = given.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let matches = command.try_get_matches_from_mut(given);
        let read = matches.and_then(|matches| {
            let mut cli = Cli::from_arg_matches(&matches)?;
            if let (Command::Train(args), Some(typed)) =
                (&mut cli.command, matches.subcommand_matches("train"))
            {
                args.job.given = JobFlagsGiven::of(typed);
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
    /// Train a model: in this process, or as a worker or server of a job.
    Train(Box<TrainArgs>),
    /// Serve shards until stopped.
    Server(ServerArgs),
    /// Keep a job's membership and hand out its data, without shards of its own.
    Scheduler(SchedulerArgs),
    /// Say how far a job is, who is in it, and who waits for whom.
    Status(StatusArgs),
    /// Score examples with a trained model.
    Predict(PredictArgs),
    /// Measure this machine's limit and the server beside it.
    Bench(BenchArgs),
    /// Say what of this machine can be used, what not, and what to do about it.
    Doctor(DoctorArgs),
}

/// What a process of a job is.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobName {
    /// A server: owns shards, ignores DATA and the model's options.
    Ps,
    /// A worker: reads DATA and trains.
    Worker,
    /// Has DATA, feeds it to workers that have none (--feed), and tests and saves at the end.
    Client,
}

/// `gannet train`.
#[derive(Args, Debug)]
pub struct TrainArgs {
    /// The training data: files (also .gz and .zst), folders of them, or - for standard input. Quoted patterns such as
    /// 'part-*.gz' name files too. All are read in this order, as if they were one. A ps needs none.
    pub data: Vec<PathBuf>,
    /// How DATA is read.
    #[command(flatten)]
    pub input: InputArgs,
    /// Data to test the model on when it is trained. Named as DATA is; may be given several times.
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
    /// Passes over the data.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub epochs: u32,
    /// Examples a batch [default: 256; 2048 for a worker of a job that replays, which learns the same in batches of any size]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batch: Option<u32>,
    /// Threads: 1 (read and learn in turn) or 2 (side by side, the default); of a ps as of `gannet server`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: Option<u32>,
    /// Train without an intercept.
    #[arg(long)]
    pub no_intercept: bool,
    /// Where to write the model. The one that was there is kept in DIR/previous.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// What is done while it trains.
    #[command(flatten)]
    pub watch: WatchArgs,
    /// Print one JSON object on standard output.
    #[arg(long)]
    pub json: bool,
    /// The job this process belongs to.
    #[command(flatten)]
    pub job: JobArgs,
    /// What its sessions may do and take.
    #[command(flatten)]
    pub sessions: SessionArgs,
    /// What the tables of this process (not a worker's) may take.
    #[command(flatten)]
    pub memory: MemoryArgs,
    /// Numbers while it runs.
    #[command(flatten)]
    pub metrics: MetricsArgs,
}

/// A job of several processes; the flags mean what TensorFlow's parameter-server scripts meant by them.
#[derive(Args, Debug)]
pub struct JobArgs {
    /// Addresses of the servers.
    #[arg(long, value_name = "HOST:PORT,..", value_delimiter = ',', requires = "job_name")]
    pub ps_hosts: Vec<String>,
    /// Addresses of the workers. Their number is what counts: they do not listen.
    #[arg(long, value_name = "HOST:PORT,..", value_delimiter = ',', requires = "job_name")]
    pub worker_hosts: Vec<String>,
    /// What this process is.
    #[arg(long, value_enum, requires = "ps_hosts")]
    pub job_name: Option<JobName>,
    /// Which one of them it is, counted from 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub task_index: u32,
    /// What was typed of these.
    #[arg(skip)]
    pub given: JobFlagsGiven,
    /// Which run it is.
    #[command(flatten)]
    pub run: RunArgs,
    /// How the workers keep step.
    #[command(flatten)]
    pub sync: SyncArgs,
    /// How their pushes meet.
    #[command(flatten)]
    pub damping: DampingArgs,
    /// How the table is cut.
    #[command(flatten)]
    pub table: TableArgs,
    /// Seconds to wait for a peer before giving up.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, allow_negative_numbers = true)]
    pub peer_timeout: f64,
    /// Keep the server's shards in this folder (tmpfs or disk), so that they survive its death.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// How the data comes to the workers.
    #[command(flatten)]
    pub tasks: TaskArgs,
    /// Who has it.
    #[command(flatten)]
    pub feeding: FeedingArgs,
    /// What carries the bytes.
    #[command(flatten)]
    pub transport: TransportArgs,
    /// Whether rows are read without asking.
    #[command(flatten)]
    pub one_sided: OneSidedArgs,
    /// The rows that a worker keeps.
    #[command(flatten)]
    pub cache: CacheArgs,
    /// How bytes move over TCP.
    #[command(flatten)]
    pub io: IoArgs,
    /// Who may talk to whom.
    #[command(flatten)]
    pub security: security::SecurityArgs,
    /// What a ps asks for.
    #[command(flatten)]
    pub tls_server: security::TlsServerArgs,
    /// Whom a worker believes.
    #[command(flatten)]
    pub tls_client: security::TlsClientArgs,
}

/// `gannet server`.
#[derive(Args, Debug)]
pub struct ServerArgs {
    /// Address to listen on; port 0 chooses one, which is printed.
    #[arg(long, default_value = "127.0.0.1:7700")]
    pub listen: String,
    /// Shard-owning threads. Default: one a core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: Option<u32>,
    /// Keep the shards in this folder (tmpfs or disk), so that they survive the process's death.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// What its sessions may do and take.
    #[command(flatten)]
    pub sessions: SessionArgs,
    /// What its tables may take.
    #[command(flatten)]
    pub memory: MemoryArgs,
    /// What carries the bytes.
    #[command(flatten)]
    pub transport: TransportArgs,
    /// How bytes move over TCP.
    #[command(flatten)]
    pub io: IoArgs,
    /// Who may talk to it.
    #[command(flatten)]
    pub security: security::SecurityArgs,
    /// What it asks for.
    #[command(flatten)]
    pub tls_server: security::TlsServerArgs,
    /// Numbers while it runs.
    #[command(flatten)]
    pub metrics: MetricsArgs,
}

/// `gannet predict`.
#[derive(Args, Debug)]
pub struct PredictArgs {
    /// The folder that `train --out` wrote.
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    /// The examples: files, folders, patterns or -, as `train` has them.
    #[arg(required = true)]
    pub data: Vec<PathBuf>,
    /// How DATA is read; columns default to those that the model was trained with.
    #[command(flatten)]
    pub input: InputArgs,
    /// Print one JSON object with the measures instead of a probability a line.
    #[arg(long)]
    pub json: bool,
}

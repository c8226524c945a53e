//! The flags of `gannet bench`.

use crate::flags::metrics::MetricsArgs;
use crate::flags::model::RowTypeArgs;
use crate::flags::transport::{IoArgs, OneSidedArgs, TransportName, WireArgs};
use clap::Args;
use std::path::PathBuf;

/// `gannet bench`.
#[derive(Args, Debug, Clone)]
pub struct BenchArgs {
    /// Dimensions to measure.
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,16,64")]
    pub dims: Vec<u32>,
    /// Rows of the table, and of the gather beside it.
    #[arg(long, value_name = "N", default_value_t = 4_000_000, value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000))]
    pub rows: u64,
    /// Unique keys of a batch.
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub batch: u32,
    /// Worker processes, which run at the same time. Their rates are added. Latency is always measured with one.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub workers: u32,
    /// Server threads for the throughput rows. Latency is always measured with one.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: u32,
    /// Keep the server's shards in this folder instead of memory.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Seconds to measure for each number. For latency it is an upper limit.
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    pub seconds: f64,
    /// Measure growth only: fill an empty table (one weight a row, FTRL) with this many rows, and print what growth
    /// cost the server, from its own metrics.
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000))]
    pub grow: Option<u64>,
    /// Measure small pulls only: pulls of --pull-keys keys by so many sessions at once, each with so many pulls in
    /// flight as --in-flight says. Each session is a worker on a thread of its own.
    #[arg(long, value_name = "N,..", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub sessions: Vec<u32>,
    /// Pulls that each session of --sessions has in flight.
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,16", requires = "sessions", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub in_flight: Vec<u32>,
    /// Keys of a pull of --sessions, drawn at random.
    #[arg(long, value_name = "N", default_value_t = 64, requires = "sessions", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub pull_keys: u32,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Numbers of the server process while it is measured.
    #[command(flatten)]
    pub metrics: MetricsArgs,
    /// A part of the work, in its own process. The command starts these processes itself.
    #[arg(long, hide = true)]
    pub part: Option<String>,
    /// Which worker this part is.
    #[arg(long, hide = true, default_value_t = 0)]
    pub worker: u32,
    /// The process id of the server, whose CPU time is measured.
    #[arg(long, hide = true)]
    pub server: Option<u32>,
    /// Transport between the workers and the server.
    #[arg(long, help_heading = "Transport", value_enum, default_value = "tcp")]
    pub transport: TransportName,
    /// Whether workers read rows in the server's memory.
    #[command(flatten)]
    pub one_sided: OneSidedArgs,
    /// How weights and gradients travel.
    #[command(flatten)]
    pub wire: WireArgs,
    /// How rows store their weights.
    #[command(flatten)]
    pub row_type: RowTypeArgs,
    /// How bytes move over TCP.
    #[command(flatten)]
    pub io: IoArgs,
}

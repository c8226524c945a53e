//! How the workers of a job keep step: `--sync`, `--issync`, `--replicas-to-aggregate`, `--worker-timeout`,
//! `--deterministic`.

use clap::Args;

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

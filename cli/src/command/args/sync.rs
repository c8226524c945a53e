//! How the workers of a job keep step: `--sync`, `--issync`, `--replicas-to-aggregate`, `--worker-timeout`, `--deterministic`.

use clap::Args;

/// What `--sync` offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncName {
    /// Pushes are applied when they come.
    Asp,
    /// No worker is more than so many steps ahead of another.
    Ssp(u32),
    /// All workers make a step together.
    Bsp,
}

/// Of a job's workers; a ps, which is told by them, takes them too.
#[derive(Args, Debug, Clone)]
pub struct SyncArgs {
    /// How workers keep step: asp (not at all: pushes are applied when they come), ssp:N (no worker is more than N batches ahead of
    /// another), bsp (each batch of all workers is one push) [default: asp]
    #[arg(long, value_name = "asp|ssp:N|bsp", value_parser = sync_name)]
    pub sync: Option<SyncName>,
    /// false (or 0) means --sync asp, true (or 1) means --sync bsp, as in TensorFlow's scripts.
    #[arg(long, value_name = "true|false", value_parser = truth)]
    pub issync: Option<u32>,
    /// With bsp: a batch is applied when K of the workers have made it; what comes later is dropped and counted [default: all of
    /// them]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    pub replicas_to_aggregate: Option<u32>,
    /// How long a worker that gives no sign is waited for (ssp, bsp), or keeps its pieces of the data (--tasks), before the others
    /// go on without it [default: 60]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub worker_timeout: Option<f64>,
    /// The same data and number of workers make the same model, bit for bit, whatever the servers, threads, transport and timing:
    /// bsp of all workers, who are waited for or the job fails.
    #[arg(long)]
    pub deterministic: bool,
}

/// What scripts of TensorFlow write for a flag that is a number or a boolean.
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

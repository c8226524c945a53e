//! How the workers of a table keep step with each other (docs/consistency.md).

use crate::limits::WORKER_TIMEOUT_MAX;
use crate::messages::control::JoinV1;
use std::fmt;
use std::time::Duration;

/// What a pull waits for.
///
/// ```
/// use gannet_wire::SyncMode;
///
/// let mode = SyncMode::Ssp(8);
/// assert_eq!(mode.to_string(), "ssp:8");
/// // A worker at step 10 may begin the pulls of steps up to 18.
/// assert_eq!(mode.ahead_max(), 8);
/// assert!(!mode.is_bsp());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// Nothing: servers apply pushes when they arrive (ASP).
    Asp,
    /// Until no worker is more than so many steps behind the pull's clock (SSP).
    Ssp(u32),
    /// Until all steps before it have been applied, each as one push of all workers (BSP).
    Bsp(StepReduce),
}

impl fmt::Display for SyncMode {
    /// Writes the mode as `--sync` names it, with how a step combines pushes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            SyncMode::Asp => f.write_str("asp"),
            SyncMode::Ssp(bound) => write!(f, "ssp:{bound}"),
            SyncMode::Bsp(StepReduce { aggregate, merge }) => {
                let how = match merge {
                    Merge::Sum => "added",
                    Merge::Mean => "averaged",
                };
                write!(f, "bsp (a step is the pushes of {aggregate}, {how})")
            }
        }
    }
}

/// How a step combines the pushes of its workers.
///
/// ```
/// use gannet_wire::{Merge, StepReduce, SyncMode};
///
/// // Of 4 workers the first 3 make a step. Its gradients are averaged.
/// let mode = SyncMode::Bsp(StepReduce { aggregate: 3, merge: Merge::Mean });
/// assert_eq!(mode.to_string(), "bsp (a step is the pushes of 3, averaged)");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepReduce {
    /// The step is applied when so many workers have made it. Later pushes are dropped.
    pub aggregate: u32,
    /// How the pushes of several workers to one key are combined.
    pub merge: Merge,
}

/// How the pushes of several workers to a key in one step are combined. [`StepReduce`] has an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// They are added.
    Sum,
    /// Their sum is divided by the number of workers that pushed to the key, as TensorFlow's `SyncReplicasOptimizer`
    /// does for sparse gradients (`DivideAccumGradByCounter`).
    Mean,
}

/// A worker's configuration for keeping step with others over a table.
///
/// `Worker::join` takes it.
/// ```
/// use gannet_wire::{SyncConfig, SyncMode};
/// use std::time::Duration;
///
/// // Worker 2 of 4. If a worker is silent for 30 s, the others go on without it.
/// let worker_timeout = Duration::from_secs(30);
/// let sync = SyncConfig { rank: 2, workers: 4, mode: SyncMode::Ssp(8), worker_timeout, strict: false };
/// assert_eq!(sync.mode.name(), "ssp:8");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncConfig {
    /// This worker's rank, from 0.
    pub rank: u32,
    /// The number of workers.
    pub workers: u32,
    /// What pulls wait for; the same for all workers.
    pub mode: SyncMode,
    /// After so long without a sign of life of a worker, it is dead: the others fence it and go on without it. A worker
    /// that sends heartbeats, but makes no progress for five times that (at least 30 s), is dead, too.
    pub worker_timeout: Duration,
    /// The others do not go on without a dead worker: their calls fail.
    pub strict: bool,
}

impl SyncMode {
    /// "asp", "ssp:8", "bsp".
    pub fn name(&self) -> String {
        match self {
            SyncMode::Asp => "asp".into(),
            SyncMode::Ssp(bound) => format!("ssp:{bound}"),
            SyncMode::Bsp(_) => "bsp".into(),
        }
    }

    /// How many steps ahead of its worker's clock a pull may be. Beyond that it would wait for its own worker.
    pub fn ahead_max(&self) -> u64 {
        match self {
            SyncMode::Asp => u64::MAX,
            SyncMode::Ssp(bound) => u64::from(*bound),
            SyncMode::Bsp(_) => 0,
        }
    }

    /// Whether steps are synchronous: each push is part of a step.
    pub fn is_bsp(&self) -> bool {
        matches!(self, SyncMode::Bsp(_))
    }
}

impl SyncConfig {
    /// The request to join. `clock` is this worker's clock, or [`NO_CLOCK`](gannet_core::NO_CLOCK) to begin where the
    /// others are. `left` has a bit for each worker that has left.
    pub fn request(&self, clock: u64, left: u64) -> JoinV1 {
        let (mode, bound, mean) = match self.mode {
            SyncMode::Asp => (0, 0, false),
            SyncMode::Ssp(bound) => (1, bound, false),
            SyncMode::Bsp(StepReduce { aggregate, merge }) => (2, aggregate, merge == Merge::Mean),
        };
        let (strict, timeout_ms) = (self.strict, (self.worker_timeout.as_millis() as u64).max(1));
        JoinV1 { rank: self.rank, workers: self.workers, mode, bound, mean, strict, timeout_ms, clock, left }
    }

    /// Reads and checks a request to join.
    pub fn of(join: &JoinV1) -> Result<SyncConfig, String> {
        let JoinV1 { rank, workers, mode, bound, mean, strict, timeout_ms, .. } = *join;
        let mode = match (mode, mean) {
            (0, _) => SyncMode::Asp,
            (1, _) => SyncMode::Ssp(bound),
            (2, true) => SyncMode::Bsp(StepReduce { aggregate: bound, merge: Merge::Mean }),
            (2, false) => SyncMode::Bsp(StepReduce { aggregate: bound, merge: Merge::Sum }),
            _ => return Err(format!("{mode} is no mode")),
        };
        let worker_timeout = Duration::from_millis(timeout_ms).min(WORKER_TIMEOUT_MAX);
        let config = SyncConfig { rank, workers, mode, worker_timeout, strict };
        config.check().map(|()| config)
    }

    /// Checks the ranges of the numbers. The error says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        use crate::limits::BSP_WORKERS_MAX;
        use crate::limits::GROUP_WORKERS_MAX;
        let SyncConfig { rank, workers, mode, .. } = *self;
        if workers == 0 || workers > GROUP_WORKERS_MAX || rank >= workers {
            return Err(format!("worker {rank} of {workers}: at most {GROUP_WORKERS_MAX} keep step"));
        }
        if let SyncMode::Bsp(StepReduce { aggregate, .. }) = mode {
            if workers > BSP_WORKERS_MAX {
                return Err(format!(
                    "{workers} workers: at most {BSP_WORKERS_MAX} train synchronously (bsp)"
                ));
            }
            if aggregate == 0 || aggregate > workers {
                return Err(format!(
                    "{aggregate} replicas to aggregate of {workers} workers: 1 to {workers} are possible"
                ));
            }
        }
        Ok(())
    }
}

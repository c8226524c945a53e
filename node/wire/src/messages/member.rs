//! Workers as the scheduler knows them. These types are frozen: they travel and are saved.

use rkyv::{Archive, Deserialize, Serialize};

/// An incarnation of a worker. `JobClient::incarnation` returns it.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[rkyv(derive(PartialEq, Eq, PartialOrd, Ord))]
pub struct WorkerIncarnation {
    /// Which worker, from 0.
    pub rank: u32,
    /// Which incarnation of it: later ones have larger numbers.
    pub incarnation: u64,
}

/// What a worker reports with each heartbeat. `JobClient::report` has an example.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub struct Progress {
    /// Its logical step.
    pub clock: u64,
    /// Records learned and acknowledged.
    pub examples: u64,
    /// Records a second since it began.
    pub rate: f64,
    /// Mean progressive loss of the records so far.
    pub loss: f64,
    /// The largest staleness that a pull of it saw.
    pub staleness: u64,
    /// The worker that it waits for, and that worker's clock.
    pub waits_for: Option<(u32, u64)>,
    /// For each split that it holds, how many of its batches every server has acknowledged.
    pub acked: Vec<(u64, u64)>,
}

/// What a worker does, and whether it makes progress: reported with each heartbeat, beside [`Progress`].
/// `JobClient::report` takes it.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activity {
    /// What it does.
    pub doing: ActivityKind,
    /// Grows with each thing that its threads get done, and with each turn of a wait that has a limit of its own (for a
    /// server, for other workers). If it does not grow, a thread hangs.
    pub progress: u64,
}

/// What a worker does. `Heartbeat::is_at` sets it.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ActivityKind {
    /// It learns.
    #[default]
    Learning,
    /// It waits for the bytes of its data.
    Reading,
    /// It waits for other workers (ssp, bsp).
    Waiting,
    /// It has no split.
    Idle,
    /// It waits at a barrier.
    Meeting,
    /// It tests the model, or saves it.
    Saving,
    /// It waits for the chief to save the model.
    Ending,
}

/// One worker, as `gannet status` shows it. [`JobStatus::members`](crate::messages::jobs::JobStatus::members) lists
/// them.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct Member {
    /// Its present incarnation.
    pub incarnation: WorkerIncarnation,
    /// Its state.
    pub state: WorkerState,
    /// Its last report.
    pub progress: Progress,
}

/// The state of a worker. [`Member::state`] has it.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerState {
    /// It sends heartbeats.
    Live,
    /// It stopped sending heartbeats, or a newer incarnation came.
    Dead,
    /// It has left.
    Left,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SplitCounts {
    /// Splits that are trained.
    pub done: u64,
    /// Splits that workers hold.
    pub leased: u64,
    /// Splits that came back and wait.
    pub returned: u64,
    /// Splits of all passes.
    pub tasks: u64,
    /// Records of the splits that are trained, over all passes.
    pub examples: u64,
}

//! Workers as the scheduler knows them. What stands here is frozen: it travels and is kept.

use rkyv::{Archive, Deserialize, Serialize};

/// A life of a worker.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[rkyv(derive(PartialEq, Eq, PartialOrd, Ord))]
pub struct WorkerIncarnation {
    /// Which worker, from 0.
    pub rank: u32,
    /// Which life of it: later ones have larger numbers.
    pub incarnation: u64,
}

/// What a worker says of itself with each beat.
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
    /// For which worker it waits, which is at which clock.
    pub waits_for: Option<(u32, u64)>,
    /// For each task that it holds, how many of its batches every server has acknowledged.
    pub acked: Vec<(u64, u64)>,
}

/// What a worker is at, and whether it gets on: said with each beat, beside [`Progress`].
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activity {
    /// What it is at.
    pub doing: ActivityKind,
    /// Grows with each thing that its threads get done, and with each turn of a wait that has a limit of its own (for a
    /// server, for other workers). One that does not grow says that a thread hangs.
    pub progress: u64,
}

/// What a worker is at.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ActivityKind {
    /// It learns.
    #[default]
    Learning,
    /// It waits for the bytes of its data.
    Reading,
    /// It waits for other workers (ssp, bsp).
    Waiting,
    /// It has no task.
    Idle,
    /// It waits at a barrier.
    Meeting,
    /// It tests the model, or saves it.
    Saving,
    /// It waits for the chief to save the model.
    Ending,
}

/// One worker, as `gannet status` shows it.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct Member {
    /// Its present life.
    pub incarnation: WorkerIncarnation,
    /// What became of it.
    pub standing: WorkerState,
    /// What it said last.
    pub told: Progress,
}

/// What became of a worker.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerState {
    /// It beats.
    Live,
    /// It stopped beating, or a newer life came.
    Dead,
    /// It said that it goes.
    Left,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SplitCounts {
    /// Tasks that are trained.
    pub done: u64,
    /// Tasks that workers hold.
    pub leased: u64,
    /// Tasks that came back and wait.
    pub returned: u64,
    /// Tasks of all passes.
    pub tasks: u64,
    /// Records of the tasks that are trained, over all passes.
    pub examples: u64,
}

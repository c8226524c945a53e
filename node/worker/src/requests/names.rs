//! The names that callers use: of tables, of pulls and pushes, and of training data.

use crate::requests::ids::InFlightId;
use std::ops::Range;

/// Names a pull in flight, and afterwards its keysets. [`Worker`](crate::worker::Worker) has an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullId(pub(crate) InFlightId);

/// Names a push in flight. [`Worker`](crate::worker::Worker) has an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PushId(pub(crate) InFlightId);

/// The name of a push of training data. It does not depend on which worker trains the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataName {
    /// The number of the split in a pass. The shards remember what was pushed under it.
    pub pusher: u64,
    /// The number of the job. A later job has a larger number, and shards then forget what an earlier job left.
    pub incarnation: u64,
    /// The batch of the split, from 1.
    pub seq: u64,
    /// The step for the learning rate's schedule.
    pub clock: u64,
}

/// A pull's answer. [`Worker`](crate::worker::Worker) has an example.
#[derive(Debug, Clone, PartialEq)]
pub struct Pulled {
    /// The rows, in shard order.
    pub values: Vec<f32>,
    /// Which own pushes the rows include: ranges that cover all rows, in shard order. After a lost link the rows of one
    /// pull may differ in it.
    pub saw: Vec<SeenPushes>,
    /// For a worker that keeps step: a lower bound of the clock of the slowest worker. The rows include all pushes of
    /// all workers at steps below it.
    pub lowest: Option<u64>,
}

/// Which own pushes some rows of a pull include.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenPushes {
    /// The rows, by their positions in shard order.
    pub rows: Range<u32>,
    /// The sequence number of the last own push to the table that the rows include. They include all own pushes up to
    /// it, and none after it.
    pub seq: u64,
}

/// A table that this worker has opened. [`Worker::open_table`](crate::worker::Worker::open_table) has an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TableId(pub(crate) usize);

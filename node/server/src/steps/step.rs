//! What a worker pushes in a synchronous step, and what becomes of it.

use gannet_core::{PushName, Write};
use std::ops::Range;

/// The rows that one worker has pushed in one step.
#[derive(Debug, Clone, Default)]
pub(crate) struct WorkerStep {
    pub(crate) write: Option<Write>,
    pub(crate) keys: Vec<u64>,
    pub(crate) values: Vec<f32>,
    /// The keys that came under names of data.
    pub(crate) named: Vec<DataNames>,
}

/// Keys that came under one name of data.
#[derive(Debug, Clone)]
pub(crate) struct DataNames {
    pub(crate) name: PushName,
    pub(crate) total: u64,
    pub(crate) keys: Range<usize>,
    /// For each shard, how many rows of the push it has after these keys.
    pub(crate) ends: Vec<(u32, u32)>,
}

/// Rows of a push that arrive before their step is applied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IncomingPush<'a> {
    pub(crate) write: Write,
    pub(crate) keys: &'a [u64],
    pub(crate) values: &'a [f32],
    /// The name that the data gives the push, if any.
    pub(crate) name: Option<PushName>,
    /// With a name: rows of the whole push, over all shards; 0: unknown, or some shards may never have theirs.
    pub(crate) total: u64,
    /// With a name: the [`run_ends`](gannet_wire::frames::push_payload::run_ends) of all rows that came, also of rows
    /// that are not stored.
    pub(crate) ends: &'a [(u32, u32)],
}

impl IncomingPush<'_> {
    pub(crate) fn bytes(&self) -> usize {
        let named = self.name.map_or(0, |_| size_of::<DataNames>() + size_of_val(self.ends));
        self.keys.len() * 8 + self.values.len() * 4 + named
    }
}

impl WorkerStep {
    /// Whether there is nothing to apply or to note. A named push is noted even if no row of it was stored.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.named.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        let named = self.named.iter().map(|named| size_of::<DataNames>() + size_of_val(&*named.ends));
        self.keys.len() * 8 + self.values.len() * 4 + named.sum::<usize>()
    }
}

/// Whether a push can be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepAdmission {
    Kept,
    /// Not now: a step must be applied first, of this group or of another one on the same budget.
    Later,
    /// Never: the step is too large.
    Full,
    /// The worker pushed both gradients and changes of state in one step, or only some rows under names of data.
    Mixed,
}

/// A step, merged into one push.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StepSum {
    pub(crate) step: u64,
    /// The workers whose rows are in it, a bit each.
    pub(crate) mask: u32,
    pub(crate) write: Write,
    /// In ascending order of shard.
    pub(crate) keys: Vec<u64>,
    pub(crate) values: Vec<f32>,
    /// The names of data that shards must remember.
    pub(crate) notes: Vec<StepNote>,
}

/// A shard must remember that it has the rows of a push up to `name.row`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct StepNote {
    pub(crate) shard: u32,
    pub(crate) name: PushName,
    /// As in [`IncomingPush`].
    pub(crate) total: u64,
}

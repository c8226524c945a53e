//! Replay: the worker learns a batch one example at a time on its own copy of the rows' state. It pushes the change
//! of state, and the servers add it. With one worker this is the online learner itself, at every batch size and
//! depth. Gradients that are summed over a batch learn less from the same examples.

use crate::batch::Batch;
use crate::batch::dedup::NO_LINK;
use crate::learn::kernel::{Kernel, KernelWork};
use crate::learn::lr::{ExampleLanes, ExampleTarget, ReplayRule};
use gannet_core::Schema;

/// The own pushes that a pull's answer includes, by runs of its rows. A run starts where the one before ends, and
/// `(end, pushes)` says where it ends. Its rows include own pushes 0 to `pushes` - 1 and no later one.
pub type SeenPushRuns = Vec<(u32, u64)>;

/// The learner of logistic regression.
pub struct Replay {
    kernel: Kernel,
    rows: Vec<f32>,
}

impl Replay {
    /// A learner for tables of this schema. `None` when logistic regression cannot replay its rule.
    pub fn new(schema: &Schema) -> Option<Replay> {
        let kernel = Kernel::of(&schema.rule).filter(|_| schema.replays() && schema.weights() == 1)?;
        Some(Replay { kernel, rows: Vec::new() })
    }

    /// Rows left unchanged because an example would have made them NaN or infinite.
    pub fn not_finite(&self) -> u64 {
        self.kernel.not_finite()
    }

    /// Learns a batch. `state` is the state of its rows before the batch's first example, and the change of state
    /// replaces it. `margins` gets each example's margin, predicted before the example was learned. The state is the
    /// first `planes` floats of each row. Floats behind them stay unchanged.
    ///
    /// # Panics
    /// When `state` does not have one row for each of the batch's keys.
    pub fn learn(&mut self, batch: &Batch, state: &mut [f32], planes: usize, margins: &mut Vec<f32>) {
        let width = state.len().checked_div(batch.keys.len()).unwrap_or(planes).max(planes);
        self.rows.clear();
        if width == planes {
            self.rows.extend_from_slice(state);
        } else {
            state.chunks_exact(width).for_each(|row| self.rows.extend_from_slice(&row[..planes]));
        }
        margins.clear();
        self.kernel.run(CopyLearner { batch, rows: &mut self.rows, margins });
        for (before, after) in state.chunks_exact_mut(width).zip(self.rows.chunks_exact(planes)) {
            for (before, after) in before.iter_mut().zip(after) {
                *before = after - *before;
            }
        }
    }

    /// [`learn`](Self::learn), but the state after the batch replaces the state before it.
    ///
    /// # Panics
    /// When `state` does not have one row for each of the batch's keys.
    pub fn learn_rows(&mut self, batch: &Batch, state: &mut [f32], margins: &mut Vec<f32>) {
        margins.clear();
        self.kernel.run(CopyLearner { batch, rows: state, margins });
    }
}

/// Learns on the batch's own copy of its rows.
struct CopyLearner<'a> {
    batch: &'a Batch,
    rows: &'a mut [f32],
    margins: &'a mut Vec<f32>,
}

impl KernelWork for CopyLearner<'_> {
    type Out = ();

    fn run<const P: usize, L: ReplayRule<P>>(self, rule: L, scratch: &mut ExampleLanes<P>) {
        let CopyLearner { batch, rows, margins } = self;
        let (rows, rest) = rows.as_chunks_mut::<P>();
        assert!(rest.is_empty() && rows.len() == batch.keys.len(), "a row for each key");
        let block = &batch.block;
        for i in 0..block.len() {
            let range = block.range(i);
            let (local, values) = (&batch.local[range.clone()], &block.values[range]);
            margins.push(scratch.example(rule, ExampleTarget::of(block, i), local, values, &mut *rows));
        }
    }
}

/// Adds own pushes to the pulled `state` of batch `batch.number`: those that the pull's answer, by `saw`, does not
/// include. `changes` are the changes of the latest pushes, the newest (push `batch.number - 1`) first.
pub fn overlay<'a>(
    batch: &Batch,
    state: &mut [f32],
    planes: usize,
    saw: &[(u32, u64)],
    changes: impl Iterator<Item = &'a [f32]>,
) {
    for ((links, changes), push) in batch.links.iter().zip(changes).zip((0..batch.number).rev()) {
        let mut start = 0;
        for &(end, pushes) in saw {
            if push >= pushes {
                for (at, &link) in links.iter().enumerate().take(end as usize).skip(start) {
                    if link != NO_LINK {
                        let change = &changes[link as usize * planes..][..planes];
                        state[at * planes..][..planes].iter_mut().zip(change).for_each(|(s, c)| *s += c);
                    }
                }
            }
            start = end as usize;
        }
    }
}

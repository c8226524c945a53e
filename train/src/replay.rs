//! Replay: the worker learns a batch one example at a time on its own copy of the rows' state and pushes the change of
//! state, which the servers add. With one worker that is the online learner itself, at every batch size and depth:
//! gradients summed over a batch lose to it (spikes/train/FACTS.md; DESIGN.md section 6).

use crate::batch::Batch;
use crate::dedup::NO_LINK;
use crate::lr::{Learner, Scratch};
use gannet_node::optim::Rule;

/// The own pushes that a pull's answer includes, by runs of its rows: `(end, pushes)` says that the rows before `end`, from
/// the run before on, include own pushes 0 to `pushes` - 1 and none after.
pub type Saw = Vec<(u32, u64)>;

enum Kernel {
    Ftrl(gannet_node::optim::Ftrl, Scratch<2>),
    AdaGrad(gannet_node::optim::AdaGrad, Scratch<2>),
    Sgd(gannet_node::optim::Sgd, Scratch<1>),
}

/// The learner of logistic regression.
pub struct Replay {
    kernel: Kernel,
    rows: Vec<f32>,
}

impl Replay {
    /// Whether tables of this rule can be learned by replay.
    pub fn fits(rule: &Rule) -> bool {
        rule.replays() && Replay::new(rule).is_some()
    }

    /// For tables of this rule; `None` when logistic regression cannot be learned by it so.
    pub fn new(rule: &Rule) -> Option<Replay> {
        let kernel = match *rule {
            Rule::Ftrl(rule) => Kernel::Ftrl(rule, Scratch::new()),
            Rule::AdaGrad(rule) => Kernel::AdaGrad(rule, Scratch::new()),
            Rule::Sgd(rule) => Kernel::Sgd(rule, Scratch::new()),
            _ => return None,
        };
        Some(Replay { kernel, rows: Vec::new() })
    }

    /// Rows left as they were because an example would have made them NaN or infinite.
    pub fn not_finite(&self) -> u64 {
        match &self.kernel {
            Kernel::Ftrl(_, scratch) | Kernel::AdaGrad(_, scratch) => scratch.not_finite,
            Kernel::Sgd(_, scratch) => scratch.not_finite,
        }
    }

    /// Learns a batch. `state` is the state of its rows as the batch's first example finds it, and becomes the change
    /// of state; `margins` gets each example's margin, predicted before it was learned.
    ///
    /// # Panics
    /// When `state` is not one row for each of the batch's keys.
    pub fn learn(&mut self, batch: &Batch, state: &mut [f32], margins: &mut Vec<f32>) {
        self.rows.clear();
        self.rows.extend_from_slice(state);
        margins.clear();
        match &mut self.kernel {
            Kernel::Ftrl(rule, scratch) => learn(*rule, scratch, batch, &mut self.rows, margins),
            Kernel::AdaGrad(rule, scratch) => learn(*rule, scratch, batch, &mut self.rows, margins),
            Kernel::Sgd(rule, scratch) => learn(*rule, scratch, batch, &mut self.rows, margins),
        }
        for (before, after) in state.iter_mut().zip(&self.rows) {
            *before = after - *before;
        }
    }
}

fn learn<const P: usize, L: Learner<P>>(
    rule: L,
    scratch: &mut Scratch<P>,
    batch: &Batch,
    rows: &mut [f32],
    margins: &mut Vec<f32>,
) {
    let (rows, rest) = rows.as_chunks_mut::<P>();
    assert!(rest.is_empty() && rows.len() == batch.keys.len(), "a row for each key");
    let block = &batch.block;
    for (i, &label) in block.labels.iter().enumerate() {
        let range = block.range(i);
        let (local, values) = (&batch.local[range.clone()], &block.values[range]);
        margins.push(scratch.example(rule, label, local, values, &mut *rows));
    }
}

/// Adds to the pulled `state` of batch `batch.number` those of the last pushes that the answer does not include.
/// `changes` are the last pushes' changes, the newest (push `batch.number - 1`) first.
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

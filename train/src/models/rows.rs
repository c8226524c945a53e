//! The rows of a batch while a model learns them: weights to read, and gradients to descend along. The content of
//! pushes decides what a descent does. With replay the rule runs here, one example after the other, and the change of
//! state is pushed. With gradients the weights stay as they were pulled, and the batch's gradient is pushed to the
//! rule at the server.

use crate::backend::BackendError;
use crate::backend::tables::{SegmentPart, TableIndex, Tables, WeightTables, parts, weigh};
use crate::batch::{BatchKeys, InSplit};
use crate::learn::gradient::Reduce;
use crate::learn::push_content::PushContent;
use gannet_core::{Schema, Write};
#[cfg(test)]
use gannet_optim::Rule;
use gannet_optim::{Update, Visitor};

/// The rows of one table that a batch needs, in the order of their keys.
pub struct BatchRows {
    table: TableIndex,
    push: PushContent,
    reduce: Reduce,
    parts: Vec<SegmentPart>,
    /// Weights and stored floats of a row.
    dim: usize,
    floats: usize,
    weights: Vec<f32>,
    /// The rows' stored floats, for replay.
    state: Vec<f32>,
    /// For replay the floats as they were pulled, otherwise the sums of gradients. Before the push, the values to
    /// push.
    pushed: Vec<f32>,
    /// Gradients added to each row, for --reduce mean.
    counts: Vec<u32>,
}

/// Steps a segment of a row along a gradient, and computes its new weights.
struct SegmentGradientStep<'a> {
    row: &'a mut [f32],
    gradient: &'a [f32],
    weights: &'a mut [f32],
}

impl Visitor for SegmentGradientStep<'_> {
    type Out = ();

    #[inline(always)]
    fn run<U: Update>(self, rule: U) {
        rule.update(self.row, self.gradient);
        rule.weights(self.row, self.weights);
    }
}

impl BatchRows {
    /// Rows of this schema, with pushes as `push` and `reduce` say.
    pub fn new(table: TableIndex, schema: &Schema, push: PushContent, reduce: Reduce) -> BatchRows {
        BatchRows {
            table,
            push,
            reduce,
            parts: parts(schema),
            dim: schema.weights(),
            floats: schema.floats(),
            weights: Vec::new(),
            state: Vec::new(),
            pushed: Vec::new(),
            counts: Vec::new(),
        }
    }

    /// Rows for scoring: their weights are pulled and not learned.
    pub fn to_score(table: TableIndex, schema: &Schema) -> BatchRows {
        BatchRows::new(table, schema, PushContent::Gradient, Reduce::Sum)
    }

    /// The weights of row `at`, one segment after another.
    ///
    /// # Panics
    /// When the batch has no such row.
    #[inline(always)]
    pub fn weights(&self, at: usize) -> &[f32] {
        &self.weights[at * self.dim..][..self.dim]
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.weights.len() / self.dim
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    /// Steps row `at` along `gradient` (of the loss by the weights).
    ///
    /// # Panics
    /// When the batch has no such row, or the gradient has another length.
    #[inline(always)]
    pub fn descend(&mut self, at: usize, gradient: &[f32]) {
        let BatchRows { dim, floats, weights, state, pushed, parts, .. } = self;
        assert_eq!(gradient.len(), *dim, "a gradient for each weight");
        if self.push == PushContent::Gradient {
            let sums = &mut pushed[at * *dim..][..*dim];
            sums.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += g);
            if self.reduce == Reduce::Mean {
                self.counts[at] += 1;
            }
            return;
        }
        let (mut row, mut gradient) = (&mut state[at * *floats..][..*floats], gradient);
        let mut weights = &mut weights[at * *dim..][..*dim];
        for part in &*parts {
            let (own, row_behind) = row.split_at_mut(part.floats);
            let (own_gradient, gradient_behind) = gradient.split_at(part.dim);
            let (own_weights, weights_behind) = weights.split_at_mut(part.dim);
            part.rule.visit(SegmentGradientStep { row: own, gradient: own_gradient, weights: own_weights });
            (row, gradient, weights) = (row_behind, gradient_behind, weights_behind);
        }
    }

    /// Begins to pull the rows of `keys`, to learn them.
    pub(crate) fn begin<T: Tables + ?Sized>(
        &self,
        tables: &mut T,
        keys: BatchKeys<'_>,
    ) -> Result<(), BackendError> {
        tables.begin_pull(self.table, keys, self.push.read())
    }

    /// Waits for the pulled rows.
    pub(crate) fn finish<T: Tables + ?Sized>(&mut self, tables: &mut T) -> Result<(), BackendError> {
        if self.push == PushContent::Gradient {
            tables.finish_pull(&mut self.weights)?;
            self.pushed.clear();
            self.pushed.resize(self.weights.len(), 0.0);
            self.counts.clear();
            self.counts.resize(self.len(), 0);
            return Ok(());
        }
        tables.finish_pull(&mut self.state)?;
        self.pushed.clear();
        self.pushed.extend_from_slice(&self.state);
        self.weights.resize(self.state.len() / self.floats * self.dim, 0.0);
        let rows = self.state.chunks_exact(self.floats).zip(self.weights.chunks_exact_mut(self.dim));
        rows.for_each(|(row, weights)| weigh(&self.parts, row, weights));
        Ok(())
    }

    /// Pulls the weights of `keys`, for scoring.
    pub(crate) fn pull<T: WeightTables + ?Sized>(
        &mut self,
        tables: &mut T,
        keys: &[u64],
    ) -> Result<(), BackendError> {
        tables.weights(self.table, keys, &mut self.weights)
    }

    /// Pushes what the batch has learned. A batch of a split is pushed under its name.
    pub(crate) fn push<T: Tables + ?Sized>(
        &mut self,
        tables: &mut T,
        split: Option<&InSplit>,
    ) -> Result<(), BackendError> {
        if self.push == PushContent::Replay {
            self.pushed.iter_mut().zip(&self.state).for_each(|(before, after)| *before = after - *before);
            return tables.push(self.table, &mut self.pushed, Write::Change, split);
        }
        if self.reduce == Reduce::Mean {
            for (sums, &n) in self.pushed.chunks_exact_mut(self.dim).zip(&self.counts) {
                sums.iter_mut().for_each(|sum| *sum /= n.max(1) as f32);
            }
        }
        tables.push(self.table, &mut self.pushed, Write::Gradient, split)
    }

    /// Rows without a table, to test a model's gradients.
    #[cfg(test)]
    pub(crate) fn alone(dim: usize, weights: Vec<f32>) -> BatchRows {
        let schema = Schema { dim: dim as u32, ..Schema::scalar("alone", Rule::Add(gannet_optim::Add)) };
        let mut rows = BatchRows::to_score(0, &schema);
        rows.pushed = vec![0.0; weights.len()];
        rows.weights = weights;
        rows
    }

    /// The weights, so that a test can change one, and the sums of gradients.
    #[cfg(test)]
    pub(crate) fn parts_of(&mut self) -> (&mut Vec<f32>, &mut Vec<f32>) {
        (&mut self.weights, &mut self.pushed)
    }
}

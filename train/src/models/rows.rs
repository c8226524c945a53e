//! The rows of a batch while a model learns them: weights to read, and gradients to descend along. The content of
//! pushes decides what a descent does. With replay the rule runs here, one example after the other, and the change of
//! state is pushed. With gradients the weights stay as they were pulled, and the batch's gradient is pushed to the
//! rule at the server.

use crate::backend::error::BackendError;
use crate::backend::tables::{SegmentPart, TableIndex, Tables, WeightTables, parts, weigh};
use crate::batch::{BatchKeys, InSplit};
use crate::learn::gradient::Reduce;
use crate::learn::push_content::PushContent;
use crate::models::learned_rows::{ReplayedRows, SummedGradients, segment_places};
use gannet_core::{Schema, Write};
use gannet_optim::{Isa, Rule, Update};

/// The rows of one table that a batch needs, in the order of their keys.
pub struct BatchRows {
    table: TableIndex,
    push: PushContent,
    reduce: Reduce,
    parts: Vec<SegmentPart>,
    /// Weights and stored floats of a row.
    dim: usize,
    floats: usize,
    /// The rows' weights. For replay only if the rule derives them; otherwise they are in the state.
    weights: Vec<f32>,
    /// The rows' stored floats, for replay.
    state: Vec<f32>,
    /// For replay the floats as they were pulled, otherwise the sums of gradients. Before the push, the values to
    /// push.
    pushed: Vec<f32>,
    /// Gradients added to each row, for --reduce mean.
    counts: Vec<u32>,
    scratch: Vec<f32>,
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
            scratch: vec![0.0; schema.weights()],
        }
    }

    /// Rows for scoring: their weights are pulled and not learned.
    pub fn to_score(table: TableIndex, schema: &Schema) -> BatchRows {
        BatchRows::new(table, schema, PushContent::Gradient, Reduce::Sum)
    }

    /// The rule that steps these rows at once. `None` where their gradients are summed.
    pub(crate) fn replayed_rule(&self) -> Option<Rule> {
        self.parts.first().filter(|_| self.push == PushContent::Replay).map(|part| part.rule)
    }

    /// The rows, to step them at once. `rule` is the rule of all their segments.
    #[inline(always)]
    pub(crate) fn replayed<I: Isa, U: Update>(&mut self, isa: I, rule: U) -> ReplayedRows<'_, I, U> {
        let places = segment_places(&self.parts);
        let BatchRows { dim, floats, weights, state, scratch, .. } = self;
        ReplayedRows { isa, rule, places, state, floats: *floats, derived: weights, dim: *dim, scratch }
    }

    /// The rows, to read their weights and to sum gradients.
    #[inline(always)]
    pub(crate) fn summed<I: Isa>(&mut self, isa: I) -> SummedGradients<'_, I> {
        let places = segment_places(&self.parts);
        let BatchRows { dim, weights, pushed, counts, .. } = self;
        SummedGradients { isa, places, weights, dim: *dim, sums: pushed, counts }
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
            self.counts.resize(self.weights.len() / self.dim, 0);
            return Ok(());
        }
        tables.finish_pull(&mut self.state)?;
        self.pushed.clear();
        if !tables.has_pulled_rows() {
            self.pushed.extend_from_slice(&self.state);
        }
        if self.parts.iter().any(|part| part.rule.derives()) {
            self.weights.resize(self.state.len() / self.floats * self.dim, 0.0);
            let rows = self.state.chunks_exact(self.floats).zip(self.weights.chunks_exact_mut(self.dim));
            rows.for_each(|(row, weights)| weigh(&self.parts, row, weights));
        }
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
            return tables.push_states(self.table, &mut self.pushed, &self.state, split);
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
    pub(crate) fn alone(schema: &Schema, weights: Vec<f32>) -> BatchRows {
        let mut rows = BatchRows::to_score(0, schema);
        rows.pushed = vec![0.0; weights.len()];
        rows.counts = vec![0; weights.len() / rows.dim];
        rows.weights = weights;
        rows
    }

    /// [`alone`](Self::alone), but the rows step at once. `state` are their stored floats.
    #[cfg(test)]
    pub(crate) fn alone_replayed(schema: &Schema, state: Vec<f32>) -> BatchRows {
        let mut rows = BatchRows::new(0, schema, PushContent::Replay, Reduce::Sum);
        rows.weights = vec![0.0; state.len() / rows.floats * rows.dim];
        let each = state.chunks_exact(rows.floats).zip(rows.weights.chunks_exact_mut(rows.dim));
        each.for_each(|(row, weights)| weigh(&rows.parts, row, weights));
        rows.state = state;
        rows
    }

    /// The bits of the weights, of the state and of the sums of gradients.
    #[cfg(test)]
    pub(crate) fn bits(&self) -> Vec<u32> {
        let all = self.weights.iter().chain(&self.state).chain(&self.pushed);
        all.map(|float| float.to_bits()).collect()
    }

    /// The weights, so that a test can change one, and the sums of gradients.
    #[cfg(test)]
    pub(crate) fn parts_of(&mut self) -> (&mut Vec<f32>, &mut Vec<f32>) {
        (&mut self.weights, &mut self.pushed)
    }
}

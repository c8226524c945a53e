//! The weights in the stored rows of a rule, and rows of a rule that start from weights.

use gannet_core::{Schema, init_row};
use gannet_optim::{Rule, Update, Visitor};

struct WeightsOf<'a>(&'a [f32], &'a mut [f32]);

impl Visitor for WeightsOf<'_> {
    type Out = ();

    fn run<U: Update>(self, rule: U) {
        rule.weights(self.0, self.1);
    }
}

struct FreshState<'a>(u64, &'a [f32], &'a mut [f32]);

impl Visitor for FreshState<'_> {
    type Out = ();

    fn run<U: Update>(self, rule: U) {
        init_row(rule, self.0, self.1, self.2);
    }
}

/// Writes the weights of a segment's stored floats to `out`.
pub fn segment_weights(rule: &Rule, floats: &[f32], out: &mut [f32]) {
    rule.visit(WeightsOf(floats, out));
}

/// Writes the stored floats of a segment that starts from `weights` to `out`. It is of the row of `key`.
pub fn fresh_segment(rule: &Rule, key: u64, weights: &[f32], out: &mut [f32]) {
    rule.visit(FreshState(key, weights, out));
}

/// Appends the weights of a stored row.
pub fn weights_of_row(schema: &Schema, mut row: &[f32], out: &mut Vec<f32>) {
    for segment in schema.segments() {
        let dim = segment.dim as usize;
        let (own, rest) = row.split_at(segment.rule.floats(dim));
        let start = out.len();
        out.resize(start + dim, 0.0);
        segment_weights(&segment.rule, own, &mut out[start..]);
        row = rest;
    }
}

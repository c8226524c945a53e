//! Rows by segment: the floats of each segment, and the weights of a stored row.

use gannet_core::{Schema, Segment};
use gannet_optim::{Rule, Update, Visitor};

/// A segment of a row.
#[derive(Clone, Copy)]
pub(crate) struct SegmentPart {
    /// Weights.
    pub dim: usize,
    /// Stored floats.
    pub floats: usize,
    pub rule: Rule,
}

/// The segments of the schema's rows, in order.
pub(crate) fn parts(schema: &Schema) -> Vec<SegmentPart> {
    let part = |Segment { dim, rule, .. }| {
        let dim = dim as usize;
        SegmentPart { dim, floats: rule.floats(dim), rule }
    };
    schema.segments().map(part).collect()
}

struct SegmentWeights<'a>(&'a [f32], &'a mut [f32]);

impl Visitor for SegmentWeights<'_> {
    type Out = ();

    #[inline(always)]
    fn run<U: Update>(self, rule: U) {
        rule.weights(self.0, self.1);
    }
}

/// Writes the weights of a stored row, one segment after another, into `out`.
#[inline(always)]
pub(crate) fn weigh(parts: &[SegmentPart], row: &[f32], out: &mut [f32]) {
    let (mut row, mut out) = (row, out);
    for part in parts {
        let (own, row_behind) = row.split_at(part.floats);
        let (weights, out_behind) = out.split_at_mut(part.dim);
        part.rule.visit(SegmentWeights(own, weights));
        (row, out) = (row_behind, out_behind);
    }
}

//! The rows of a table while a batch is learned, compiled for a rule and an instruction set. A model reads weights and
//! descends; the content of pushes decides what a descent does. By replay the rule runs at once. Otherwise gradients
//! are summed, and the weights stay as they were pulled.

use crate::backend::tables::SegmentPart;
use gannet_optim::{GradientLanes, Isa, Scalar, Update};

/// The most segments of a model's rows.
pub(crate) const SEGMENTS_MAX: usize = 2;

/// Rows of one table. A row is named by its place in the batch, and a segment by its number in the row.
pub trait LearnedRows<I: Isa> {
    /// The weights of a segment of row `at`.
    ///
    /// # Panics
    /// When there is no such row or segment.
    fn weights(&self, at: usize, segment: usize) -> &[f32];

    /// Descends along the gradient of the loss by the weights of a segment. Each descent of a row descends along its
    /// segment 0 once.
    ///
    /// # Panics
    /// When there is no such row or segment.
    fn descend<G: GradientLanes<I>>(&mut self, at: usize, segment: usize, gradient: &G);

    /// [`descend`](Self::descend) of a segment of one weight.
    ///
    /// # Panics
    /// When there is no such row or segment.
    fn step(&mut self, at: usize, segment: usize, gradient: f32);
}

/// Where a segment is in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SegmentPlace {
    /// Weights.
    dim: usize,
    /// Its first weight, among the weights of the row.
    first_weight: usize,
    /// Stored floats.
    floats: usize,
    /// Its first float, among the stored floats of the row.
    first_float: usize,
}

/// The places of a row's segments.
///
/// # Panics
/// When there are more than [`SEGMENTS_MAX`].
pub(crate) fn segment_places(parts: &[SegmentPart]) -> [SegmentPlace; SEGMENTS_MAX] {
    assert!(parts.len() <= SEGMENTS_MAX, "rows of models have at most {SEGMENTS_MAX} segments");
    let (mut places, mut first_weight, mut first_float) = ([SegmentPlace::default(); SEGMENTS_MAX], 0, 0);
    for (place, &SegmentPart { dim, floats, .. }) in places.iter_mut().zip(parts) {
        *place = SegmentPlace { dim, first_weight, floats, first_float };
        (first_weight, first_float) = (first_weight + dim, first_float + floats);
    }
    places
}

/// Rows that step at once.
pub(crate) struct ReplayedRows<'a, I, U> {
    pub isa: I,
    pub rule: U,
    pub places: [SegmentPlace; SEGMENTS_MAX],
    /// The rows' stored floats, `floats` a row.
    pub state: &'a mut [f32],
    pub floats: usize,
    /// The weights, `dim` a row, if the rule derives them. Otherwise they are in the state.
    pub derived: &'a mut [f32],
    pub dim: usize,
    /// `dim` floats.
    pub scratch: &'a mut [f32],
}

impl<I: Isa, U: Update> ReplayedRows<'_, I, U> {
    #[inline(always)]
    fn descend_on<J: Isa, G: GradientLanes<J>>(&mut self, isa: J, at: usize, segment: usize, gradient: &G) {
        let SegmentPlace { dim, first_weight, floats, first_float } = self.places[segment];
        let row = &mut self.state[at * self.floats + first_float..][..floats];
        let derived =
            if U::DERIVES { &mut self.derived[at * self.dim + first_weight..][..dim] } else { &mut [][..] };
        self.rule.descend_on(isa, row, derived, gradient, &mut self.scratch[..dim]);
    }
}

impl<I: Isa, U: Update> LearnedRows<I> for ReplayedRows<'_, I, U> {
    #[inline(always)]
    fn weights(&self, at: usize, segment: usize) -> &[f32] {
        let SegmentPlace { dim, first_weight, first_float, .. } = self.places[segment];
        if U::DERIVES {
            &self.derived[at * self.dim + first_weight..][..dim]
        } else {
            &self.state[at * self.floats + first_float..][..dim]
        }
    }

    #[inline(always)]
    fn descend<G: GradientLanes<I>>(&mut self, at: usize, segment: usize, gradient: &G) {
        self.descend_on(self.isa, at, segment, gradient);
    }

    #[inline(always)]
    fn step(&mut self, at: usize, segment: usize, gradient: f32) {
        self.descend_on(Scalar, at, segment, &OneWeight(gradient));
    }
}

/// The gradient of a segment of one weight.
struct OneWeight(f32);

impl GradientLanes<Scalar> for OneWeight {
    #[inline(always)]
    fn lanes(&self, _: Scalar, _: usize, _: usize, _: f32) -> f32 {
        self.0
    }
}

/// Rows whose gradients are summed.
pub(crate) struct SummedGradients<'a, I> {
    pub isa: I,
    pub places: [SegmentPlace; SEGMENTS_MAX],
    /// The weights, `dim` a row.
    pub weights: &'a [f32],
    pub dim: usize,
    /// The sums, as the weights.
    pub sums: &'a mut [f32],
    /// Descents of each row.
    pub counts: &'a mut [u32],
}

impl<I: Isa> LearnedRows<I> for SummedGradients<'_, I> {
    #[inline(always)]
    fn weights(&self, at: usize, segment: usize) -> &[f32] {
        let SegmentPlace { dim, first_weight, .. } = self.places[segment];
        &self.weights[at * self.dim + first_weight..][..dim]
    }

    #[inline(always)]
    fn descend<G: GradientLanes<I>>(&mut self, at: usize, segment: usize, gradient: &G) {
        let SegmentPlace { dim, first_weight, .. } = self.places[segment];
        let (first, isa) = (at * self.dim + first_weight, self.isa);
        let (weights, sums) = (&self.weights[first..][..dim], &mut self.sums[first..][..dim]);
        let mut from = 0;
        while from < dim {
            let n = I::LANES.min(dim - from);
            let by_weight = gradient.lanes(isa, from, n, isa.load(&weights[from..][..n]));
            let sum = isa.load(&sums[from..][..n]) + by_weight;
            isa.store(sum, &mut sums[from..][..n]);
            from += n;
        }
        self.counts[at] += u32::from(segment == 0);
    }

    #[inline(always)]
    fn step(&mut self, at: usize, segment: usize, gradient: f32) {
        self.sums[at * self.dim + self.places[segment].first_weight] += gradient;
        self.counts[at] += u32::from(segment == 0);
    }
}

/// The gradient `factor * vector + l2 * weights`.
pub(crate) struct ScaledVector<'a> {
    pub factor: f32,
    pub vector: &'a [f32],
    pub l2: f32,
}

impl<I: Isa> GradientLanes<I> for ScaledVector<'_> {
    #[inline(always)]
    fn lanes(&self, isa: I, at: usize, n: usize, weights: I::Lanes) -> I::Lanes {
        isa.splat(self.factor) * isa.load(&self.vector[at..][..n]) + isa.splat(self.l2) * weights
    }
}

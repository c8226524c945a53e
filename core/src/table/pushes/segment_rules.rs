//! Rows of several segments: runs of floats in one row, each with its own dimension, rule and initial values.
//! An example is a wide weight with FTRL beside a factor vector with AdaGrad. For the hot paths they are one
//! more rule, [`Segmented`], which runs each segment's rule on its share of the row. Tables of one segment do
//! not use this code.

use crate::schema::segment::{Segment, Segments};
use crate::schema::table_schema::Schema;
use crate::table::owned::width::Width;
use crate::table::pushes::effect::Effect;
use gannet_optim::{GradientTransform, Isa, Rule, Update, Visitor};

impl Schema {
    /// [`all_parts`](Self::all_parts); empty for a row of one segment, which has its own hot path.
    pub(crate) fn parts(&self, clock: Option<u64>) -> Vec<SegmentPart> {
        if self.more.is_empty() { Vec::new() } else { self.all_parts(clock) }
    }

    /// The segments, with the learning rate of a push's clock, or with the rate of their rule if there is no clock.
    pub(crate) fn all_parts(&self, clock: Option<u64>) -> Vec<SegmentPart> {
        let part = |s: Segment| SegmentPart {
            dim: s.dim as usize,
            floats: s.rule.floats(s.dim as usize),
            rule: clock.map_or(s.rule, |clock| s.rule.at_rate(s.shaping.schedule.factor(clock))),
            transform: s.shaping,
        };
        self.segments().map(part).collect()
    }

    /// The rule of the first segment whose state cannot be pushed as a change.
    pub(crate) fn rule_without_replay(&self) -> &'static str {
        let segment = self.segments().find(|s| !s.rule.replays() || !s.shaping.replays());
        segment.map_or(self.rule.name(), |s| s.rule.name())
    }
}

/// The fields of a segment that one call needs for its rows.
pub(crate) struct SegmentPart {
    dim: usize,
    floats: usize,
    rule: Rule,
    transform: GradientTransform,
}

/// The rules of a row's segments as one rule.
#[derive(Clone, Copy)]
pub(crate) struct Segmented<'a> {
    parts: &'a [SegmentPart],
    chance: u64,
}

/// Weights and stored floats of a row of several segments.
#[derive(Clone, Copy)]
pub(crate) struct WholeRow {
    dim: usize,
    floats: usize,
    /// Floats that the weights are computed from: fewer if there is one segment.
    weight_floats: usize,
}

impl Width for WholeRow {
    fn dim(self) -> usize {
        self.dim
    }

    fn floats<U: Update>(self) -> usize {
        self.floats
    }

    fn weight_floats<U: Update>(self) -> usize {
        self.weight_floats
    }
}

impl WholeRow {
    /// The width for answers that need all stored floats.
    pub(crate) fn with_state(self) -> WholeRow {
        WholeRow { weight_floats: self.floats, ..self }
    }
}

impl<'a> Segmented<'a> {
    pub(crate) fn new(parts: &'a [SegmentPart]) -> Segmented<'a> {
        Segmented { parts, chance: 0 }
    }

    pub(crate) fn width(&self) -> WholeRow {
        let sum = |of: fn(&SegmentPart) -> usize| self.parts.iter().map(of).sum();
        let (dim, floats) = (sum(|part| part.dim), sum(|part| part.floats));
        let weight_floats = match self.parts {
            [only] => only.rule.weight_floats(dim),
            _ => floats,
        };
        WholeRow { dim, floats, weight_floats }
    }

    /// Calls `step` for each segment, with its share of the row and of `weights`, and with its chance.
    #[inline(always)]
    fn with(
        &self,
        row: &mut [f32],
        weights: &[f32],
        mut step: impl FnMut(&SegmentPart, &mut [f32], &[f32], u64),
    ) {
        let (mut row, mut weights) = (row, weights);
        for (number, part) in (0u64..).zip(self.parts) {
            let (own, behind) = row.split_at_mut(part.floats);
            let (of_weights, weights_behind) = weights.split_at(part.dim);
            step(part, own, of_weights, self.chance ^ number << 56);
            (row, weights) = (behind, weights_behind);
        }
        assert!(row.is_empty() && weights.is_empty(), "a row and weights of these segments");
    }

    /// Whether each segment is sound, in a row that may be free or not.
    fn all_sound(&self, row: &[f32], may_be_free: bool) -> bool {
        let mut row = row;
        self.parts.iter().all(|part| {
            let (own, behind) = row.split_at(part.floats);
            row = behind;
            part.rule.visit(SoundPart(own, may_be_free))
        })
    }
}

impl Update for Segmented<'_> {
    /// Unused: [`WholeRow`] says how long a row is.
    const PLANES: usize = 0;
    const DERIVES: bool = true;
    const ROUNDS: bool = true;

    #[inline(always)]
    fn with_chance(self, chance: u64) -> Self {
        Segmented { chance, ..self }
    }

    fn init(&self, weights: &[f32], row: &mut [f32]) {
        self.with(row, weights, |part, row, weights, _| part.rule.visit(InitialRow(weights, row)));
    }

    fn init_free(&self, weights: &[f32], row: &mut [f32]) {
        self.with(row, weights, |part, row, weights, _| part.rule.visit(FreeRow(weights, row)));
    }

    fn update_on<I: Isa>(&self, _: I, row: &mut [f32], gradient: &[f32]) {
        self.with(row, gradient, |part, row, gradient, chance| {
            part.rule.visit(SegmentStep { row, gradient, chance });
        });
    }

    fn weights_on<I: Isa>(&self, _: I, row: &[f32], out: &mut [f32]) {
        let (mut row, mut out) = (row, out);
        for part in self.parts {
            // A row of one segment may end behind the floats that its weights are computed from.
            let (own, behind) = row.split_at(part.floats.min(row.len()));
            let (weights, out_behind) = out.split_at_mut(part.dim);
            part.rule.visit(ReadWeights(own, weights));
            (row, out) = (behind, out_behind);
        }
        assert!(row.is_empty() && out.is_empty(), "a row and weights of these segments");
    }

    fn is_sound(&self, row: &[f32]) -> bool {
        self.all_sound(row, false)
    }

    fn is_sound_free(&self, row: &[f32]) -> bool {
        self.all_sound(row, true)
    }
}

/// Some of a row's segments, as the rule of a pull. The pull returns only these: their weights, or with `state` all of
/// their stored floats.
#[derive(Clone, Copy)]
pub(crate) struct SelectedSegments<'a> {
    pub(crate) rule: Segmented<'a>,
    pub(crate) segments: Segments,
    pub(crate) state: bool,
}

impl Update for SelectedSegments<'_> {
    const PLANES: usize = 0;
    const DERIVES: bool = true;

    fn init(&self, weights: &[f32], row: &mut [f32]) {
        self.rule.init(weights, row);
    }

    fn init_free(&self, weights: &[f32], row: &mut [f32]) {
        self.rule.init_free(weights, row);
    }

    fn update_on<I: Isa>(&self, isa: I, row: &mut [f32], gradient: &[f32]) {
        self.rule.update_on(isa, row, gradient);
    }

    fn weights_on<I: Isa>(&self, _: I, row: &[f32], out: &mut [f32]) {
        let (mut row, mut out) = (row, out);
        for (number, part) in self.rule.parts.iter().enumerate() {
            let (own, behind) = row.split_at(part.floats);
            row = behind;
            if !self.segments.has(number) {
                continue;
            }
            let (answer, out_behind) = out.split_at_mut(if self.state { part.floats } else { part.dim });
            if self.state {
                answer.copy_from_slice(own);
            } else {
                part.rule.visit(ReadWeights(own, answer));
            }
            out = out_behind;
        }
        assert!(row.is_empty() && out.is_empty(), "a row and an answer of these segments");
    }
}

/// Gradients of rows of several segments. Each segment's gradient transform is applied first.
pub(crate) struct SegmentGradients<'a> {
    rule: Segmented<'a>,
    transformed: Vec<f32>,
    weights: Vec<f32>,
}

impl<'a> SegmentGradients<'a> {
    pub(crate) fn new(rule: Segmented<'a>) -> SegmentGradients<'a> {
        let dim = rule.width().dim;
        SegmentGradients { rule, transformed: vec![0.0; dim], weights: vec![0.0; dim] }
    }
}

impl Effect for SegmentGradients<'_> {
    fn apply<I: Isa, U: Update>(&mut self, _: I, _: U, row: &mut [f32], value: &[f32], chance: u64) {
        let SegmentGradients { rule, transformed, weights } = self;
        rule.with_chance(chance).with(row, value, |part, row, gradient, chance| {
            let mut gradient = gradient;
            if part.transform.changes_gradients() {
                let (transformed, weights) = (&mut transformed[..part.dim], &mut weights[..part.dim]);
                // Schema::check allows this only for rules whose first plane is the weights.
                if part.transform.l2 != 0.0 {
                    part.rule.visit(ReadWeights(row, weights));
                }
                part.transform.gradient(weights, gradient, transformed);
                gradient = transformed;
            }
            part.rule.visit(SegmentStep { row, gradient, chance });
        });
    }
}

struct InitialRow<'a>(&'a [f32], &'a mut [f32]);
impl Visitor for InitialRow<'_> {
    type Out = ();
    #[inline(always)]
    fn run<U: Update>(self, rule: U) {
        rule.init(self.0, self.1);
    }
}

struct FreeRow<'a>(&'a [f32], &'a mut [f32]);
impl Visitor for FreeRow<'_> {
    type Out = ();
    fn run<U: Update>(self, rule: U) {
        rule.init_free(self.0, self.1);
    }
}

struct SegmentStep<'a> {
    row: &'a mut [f32],
    gradient: &'a [f32],
    chance: u64,
}

impl Visitor for SegmentStep<'_> {
    type Out = ();
    #[inline(always)]
    fn run<U: Update>(self, rule: U) {
        rule.with_chance(self.chance).update(self.row, self.gradient);
    }
}

/// Writes the row's weights into the answer.
pub(crate) struct ReadWeights<'a>(pub(crate) &'a [f32], pub(crate) &'a mut [f32]);
impl Visitor for ReadWeights<'_> {
    type Out = ();
    #[inline(always)]
    fn run<U: Update>(self, rule: U) {
        rule.weights(self.0, self.1);
    }
}

struct SoundPart<'a>(&'a [f32], bool);
impl Visitor for SoundPart<'_> {
    type Out = bool;
    fn run<U: Update>(self, rule: U) -> bool {
        if self.1 { rule.is_sound_free(self.0) } else { rule.is_sound(self.0) }
    }
}

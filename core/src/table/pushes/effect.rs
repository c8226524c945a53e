//! What a pushed value does to a row: a gradient goes to the table's rule, a change of state is added.
//!
//! These are traits and `#[inline(always)]` functions, not closures. The compiler builds the loop over the rows
//! for one instruction set, and code outside the loop would be built for another one.

use crate::schema::init::is_sound_of;
use gannet_optim::lbfgs::add_to_pass;
use gannet_optim::{GradientTransform, Isa, Update, add_change, all_finite};

/// What a push writes.
pub(crate) trait Effect {
    /// A missing row is created whatever the table's admission says.
    const CREATES: bool = false;

    /// Trainings push this most, so shards without a journal have a loop of their own for it. Without that loop,
    /// gradients of 16 weights took a tenth longer in bench/benches/core.rs. Each such loop makes the program larger.
    const OFTEN: bool = false;

    /// Changes `row` as `value` says. A rule that rounds does so by `chance`.
    fn apply<I: Isa, U: Update>(&mut self, isa: I, rule: U, row: &mut [f32], value: &[f32], chance: u64);
}

/// Gradients, passed to the rule unchanged.
pub(crate) struct Gradients;

impl Effect for Gradients {
    const OFTEN: bool = true;

    #[inline(always)]
    fn apply<I: Isa, U: Update>(&mut self, isa: I, rule: U, row: &mut [f32], value: &[f32], chance: u64) {
        rule.with_chance(chance).update_on(isa, row, value);
    }
}

/// Gradients that are clipped, or have L2 added, before the rule.
pub(crate) struct TransformedGradients {
    transform: GradientTransform,
    gradient: Vec<f32>,
    weights: Vec<f32>,
}

impl TransformedGradients {
    pub(crate) fn new(transform: GradientTransform, dim: usize) -> TransformedGradients {
        TransformedGradients { transform, gradient: vec![0.0; dim], weights: vec![0.0; dim] }
    }
}

impl Effect for TransformedGradients {
    #[inline(always)]
    fn apply<I: Isa, U: Update>(&mut self, isa: I, rule: U, row: &mut [f32], value: &[f32], chance: u64) {
        // Schema::check allows this only for rules whose first plane is the weights.
        let TransformedGradients { transform, gradient, weights } = self;
        if transform.l2 != 0.0 {
            rule.weights_on(isa, row, weights);
        }
        transform.gradient(weights, value, gradient);
        rule.with_chance(chance).update_on(isa, row, gradient);
    }
}

/// Changes of state.
pub(crate) struct Changes;

impl Effect for Changes {
    const OFTEN: bool = true;

    #[inline(always)]
    fn apply<I: Isa, U: Update>(&mut self, _: I, _: U, row: &mut [f32], value: &[f32], _: u64) {
        add_change(row, value);
    }
}

/// Whole rows, which replace the stored ones.
pub(crate) struct WholeRows;

impl Effect for WholeRows {
    const CREATES: bool = true;

    #[inline(always)]
    fn apply<I: Isa, U: Update>(&mut self, _: I, _: U, row: &mut [f32], value: &[f32], _: u64) {
        row.copy_from_slice(value);
    }
}

/// Terms of the sum of a pass (vectors.rs).
pub(crate) struct Terms {
    pub(crate) pass: u64,
}

impl Effect for Terms {
    #[inline(always)]
    fn apply<I: Isa, U: Update>(&mut self, _: I, _: U, row: &mut [f32], value: &[f32], _: u64) {
        if let (Some(sum), &[high, low]) = (row.first_chunk_mut(), value) {
            add_to_pass(sum, self.pass, [high, low]);
        }
    }
}

/// Whether the row of a key may become `next`: the pushed value and the row are finite, and the rule can produce such a
/// row.
#[inline(always)]
pub(crate) fn sound<U: Update>(rule: U, key: u64, value: &[f32], next: &[f32]) -> bool {
    all_finite(value) && all_finite(next) && is_sound_of(rule, key, next)
}

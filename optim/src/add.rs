//! Add: a row of counters or sums. A push adds its values, and nothing else happens.

use crate::Update;
use crate::arch::Isa;
use crate::slices::{AddValues, sweep};

/// `v += pushed`. The row is `[v]`, and its weights are `v`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Add;

impl Update for Add {
    const PLANES: usize = 1;

    #[inline(always)]
    fn init(&self, weights: &[f32], row: &mut [f32]) {
        row.copy_from_slice(weights);
    }

    #[inline(always)]
    fn update_on<I: Isa>(&self, isa: I, row: &mut [f32], gradient: &[f32]) {
        sweep(isa, row, gradient, AddValues);
    }
}

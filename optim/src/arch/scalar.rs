//! One coordinate at a time: the oracle, and the fastest choice for rows of one weight.

use super::{Isa, Lanes, Sealed, Work};
use crate::Update;

/// The instruction set that every CPU has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scalar;

impl Sealed for Scalar {}
impl Sealed for f32 {}

impl Lanes for f32 {
    #[inline(always)]
    fn splat(self, x: f32) -> f32 {
        x
    }

    #[inline(always)]
    fn sqrt(self) -> f32 {
        f32::sqrt(self)
    }

    #[inline(always)]
    fn abs(self) -> f32 {
        f32::abs(self)
    }

    #[inline(always)]
    fn copysign(self, sign: f32) -> f32 {
        f32::copysign(self, sign)
    }

    #[inline(always)]
    fn larger(self, other: f32) -> f32 {
        // Not f32::max, which hides NaN on the left only.
        if self > other { self } else { other }
    }
}

impl Isa for Scalar {
    type Lanes = f32;
    const LANES: usize = 1;

    #[inline(always)]
    fn splat(self, x: f32) -> f32 {
        x
    }

    #[inline(always)]
    fn load(self, from: &[f32]) -> f32 {
        from.first().copied().unwrap_or(0.0)
    }

    #[inline(always)]
    fn store(self, lanes: f32, to: &mut [f32]) {
        if let Some(to) = to.first_mut() {
            *to = lanes;
        }
    }

    #[inline(always)]
    fn run<U: Update, W: Work>(self, rule: U, work: W) -> W::Out {
        work.run(self, rule)
    }
}

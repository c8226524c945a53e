//! Eight coordinates at a time, by AVX2. There is no fused multiply-add, because it rounds once where the oracle rounds
//! twice.
#![allow(unsafe_code)]

use super::{Isa, Lanes, Sealed, Work};
use crate::Update;
use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Sub};

/// Proof that this CPU has AVX2 and F16C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx2(());

impl Avx2 {
    /// `None` if the CPU or the operating system does not have them.
    pub fn new() -> Option<Avx2> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")).then_some(Avx2(()))
    }
}

/// A register. It can only be made from an [`Avx2`], so a value proves that the CPU has the instructions.
#[derive(Clone, Copy, Debug)]
pub struct Eight(__m256);

impl Sealed for Avx2 {}
impl Sealed for Eight {}

/// An operation on two registers.
macro_rules! binary {
    ($trait:ident, $method:ident, $intrinsic:ident) => {
        impl $trait for Eight {
            type Output = Eight;

            #[inline(always)]
            fn $method(self, other: Eight) -> Eight {
                // SAFETY: an Eight proves AVX2 (above), and this instruction is part of AVX2.
                Eight(unsafe { $intrinsic(self.0, other.0) })
            }
        }
    };
}
binary!(Add, add, _mm256_add_ps);
binary!(Sub, sub, _mm256_sub_ps);
binary!(Mul, mul, _mm256_mul_ps);
binary!(Div, div, _mm256_div_ps);

impl Lanes for Eight {
    #[inline(always)]
    fn splat(self, x: f32) -> Eight {
        // SAFETY: an Eight proves AVX2.
        Eight(unsafe { _mm256_set1_ps(x) })
    }

    #[inline(always)]
    fn sqrt(self) -> Eight {
        // SAFETY: an Eight proves AVX2.
        Eight(unsafe { _mm256_sqrt_ps(self.0) })
    }

    #[inline(always)]
    fn abs(self) -> Eight {
        // SAFETY: an Eight proves AVX2.
        Eight(unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), self.0) })
    }

    #[inline(always)]
    fn copysign(self, sign: Eight) -> Eight {
        // SAFETY: an Eight proves AVX2.
        Eight(unsafe {
            let bit = _mm256_set1_ps(-0.0);
            _mm256_or_ps(_mm256_andnot_ps(bit, self.0), _mm256_and_ps(bit, sign.0))
        })
    }

    #[inline(always)]
    fn larger(self, other: Eight) -> Eight {
        // SAFETY: an Eight proves AVX2. By definition the instruction takes the second operand where the first is not
        // larger.
        Eight(unsafe { _mm256_max_ps(self.0, other.0) })
    }
}

/// A mask of the lanes below `n`, which is at most 8: all bits of the other lanes are 0.
#[inline(always)]
pub(super) fn below(_: Avx2, n: usize) -> __m256i {
    const ONES_THEN_ZEROS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
    let window = &ONES_THEN_ZEROS[8 - n..][..8];
    // SAFETY: the window is eight i32 long, the load needs no alignment, and the argument proves AVX2.
    unsafe { _mm256_loadu_si256(window.as_ptr().cast()) }
}

impl Isa for Avx2 {
    type Lanes = Eight;
    const LANES: usize = 8;

    #[inline(always)]
    fn splat(self, x: f32) -> Eight {
        // SAFETY: `self` proves AVX2.
        Eight(unsafe { _mm256_set1_ps(x) })
    }

    #[inline(always)]
    fn load(self, from: &[f32]) -> Eight {
        assert!(from.len() <= 8);
        Eight(if from.len() == 8 {
            // SAFETY: `from` is eight floats, the load needs no alignment, and `self` proves AVX2.
            unsafe { _mm256_loadu_ps(from.as_ptr()) }
        } else {
            // SAFETY: only the lanes below `from.len()` are read (the others are 0), and `self` proves AVX2.
            unsafe { _mm256_maskload_ps(from.as_ptr(), below(self, from.len())) }
        })
    }

    #[inline(always)]
    fn store(self, lanes: Eight, to: &mut [f32]) {
        assert!(to.len() <= 8);
        if to.len() == 8 {
            // SAFETY: `to` is eight floats, the store needs no alignment, and `self` proves AVX2.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), lanes.0) }
        } else {
            // SAFETY: only the lanes below `to.len()` are written, and `self` proves AVX2.
            unsafe { _mm256_maskstore_ps(to.as_mut_ptr(), below(self, to.len()), lanes.0) }
        }
    }

    #[inline]
    fn run<U: Update, W: Work>(self, rule: U, work: W) -> W::Out {
        #[target_feature(enable = "avx2")]
        fn compiled<U: Update, W: Work>(isa: Avx2, rule: U, work: W) -> W::Out {
            work.run(isa, rule)
        }
        // SAFETY: `self` proves AVX2.
        unsafe { compiled(self, rule, work) }
    }
}

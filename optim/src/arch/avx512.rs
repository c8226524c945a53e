//! Sixteen coordinates at a time, by AVX-512. There is no fused multiply-add, because it rounds once where the oracle
//! rounds twice.
#![allow(unsafe_code)]

use super::avx2::Avx2;
use super::{Isa, Lanes, Sealed, Work};
use crate::Update;
use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Sub};

/// Proof that this CPU has AVX-512 F, BW, DQ and VL, AVX2 and F16C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx512(Avx2);

impl Avx512 {
    /// `None` if the CPU or the operating system does not have them.
    pub fn new() -> Option<Avx512> {
        let all = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        Avx2::new().filter(|_| all).map(Avx512)
    }

    /// The proof of AVX2 and F16C, which is part of this one.
    pub fn avx2(self) -> Avx2 {
        self.0
    }
}

/// A register. It can only be made from an [`Avx512`], so a value proves that the CPU has the instructions.
#[derive(Clone, Copy, Debug)]
pub struct Sixteen(__m512);

impl Sealed for Avx512 {}
impl Sealed for Sixteen {}

/// An operation on two registers.
macro_rules! binary {
    ($trait:ident, $method:ident, $intrinsic:ident) => {
        impl $trait for Sixteen {
            type Output = Sixteen;

            #[inline(always)]
            fn $method(self, other: Sixteen) -> Sixteen {
                // SAFETY: a Sixteen proves AVX-512 F (above), and this instruction is part of AVX-512 F.
                Sixteen(unsafe { $intrinsic(self.0, other.0) })
            }
        }
    };
}
binary!(Add, add, _mm512_add_ps);
binary!(Sub, sub, _mm512_sub_ps);
binary!(Mul, mul, _mm512_mul_ps);
binary!(Div, div, _mm512_div_ps);

impl Lanes for Sixteen {
    #[inline(always)]
    fn splat(self, x: f32) -> Sixteen {
        // SAFETY: a Sixteen proves AVX-512 F.
        Sixteen(unsafe { _mm512_set1_ps(x) })
    }

    #[inline(always)]
    fn sqrt(self) -> Sixteen {
        // SAFETY: a Sixteen proves AVX-512 F.
        Sixteen(unsafe { _mm512_sqrt_ps(self.0) })
    }

    #[inline(always)]
    fn abs(self) -> Sixteen {
        // SAFETY: a Sixteen proves AVX-512 F.
        Sixteen(unsafe { _mm512_abs_ps(self.0) })
    }

    #[inline(always)]
    fn copysign(self, sign: Sixteen) -> Sixteen {
        // SAFETY: a Sixteen proves AVX-512 F and DQ.
        Sixteen(unsafe {
            let bit = _mm512_set1_ps(-0.0);
            _mm512_or_ps(_mm512_andnot_ps(bit, self.0), _mm512_and_ps(bit, sign.0))
        })
    }

    #[inline(always)]
    fn larger(self, other: Sixteen) -> Sixteen {
        // SAFETY: a Sixteen proves AVX-512 F. By definition the instruction takes the second operand where the first is
        // not larger.
        Sixteen(unsafe { _mm512_max_ps(self.0, other.0) })
    }
}

/// A mask of the lanes below `n`, which is below 16.
#[inline(always)]
fn below(n: usize) -> __mmask16 {
    (1u16 << n) - 1
}

impl Isa for Avx512 {
    type Lanes = Sixteen;
    const LANES: usize = 16;

    #[inline(always)]
    fn splat(self, x: f32) -> Sixteen {
        // SAFETY: `self` proves AVX-512 F.
        Sixteen(unsafe { _mm512_set1_ps(x) })
    }

    #[inline(always)]
    fn load(self, from: &[f32]) -> Sixteen {
        assert!(from.len() <= 16);
        Sixteen(if from.len() == 16 {
            // SAFETY: `from` is sixteen floats, the load needs no alignment, and `self` proves AVX-512 F.
            unsafe { _mm512_loadu_ps(from.as_ptr()) }
        } else {
            // SAFETY: only the lanes below `from.len()` are read (the others are 0), and `self` proves AVX-512 F.
            unsafe { _mm512_maskz_loadu_ps(below(from.len()), from.as_ptr()) }
        })
    }

    #[inline(always)]
    fn store(self, lanes: Sixteen, to: &mut [f32]) {
        assert!(to.len() <= 16);
        if to.len() == 16 {
            // SAFETY: `to` is sixteen floats, the store needs no alignment, and `self` proves AVX-512 F.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), lanes.0) }
        } else {
            // SAFETY: only the lanes below `to.len()` are written, and `self` proves AVX-512 F.
            unsafe { _mm512_mask_storeu_ps(to.as_mut_ptr(), below(to.len()), lanes.0) }
        }
    }

    #[inline]
    fn run<U: Update, W: Work>(self, rule: U, work: W) -> W::Out {
        #[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
        fn compiled<U: Update, W: Work>(isa: Avx512, rule: U, work: W) -> W::Out {
            work.run(isa, rule)
        }
        // SAFETY: `self` proves every feature that is named.
        unsafe { compiled(self, rule, work) }
    }
}

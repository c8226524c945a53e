//! Products of vectors in registers, for models with factors and layers. A sum has sixteen partial sums, one for each
//! place modulo sixteen, which are added by halves. So every instruction set gives the same bits.

use crate::arch::Isa;
use crate::slices::{SUMS, total};

/// The sum of `a[i] * b[i]`.
///
/// # Panics
/// When `b` is shorter than `a`.
#[inline(always)]
pub fn dot<I: Isa>(isa: I, a: &[f32], b: &[f32]) -> f32 {
    let b = &b[..a.len()];
    // SUMS / LANES of them are used; the compiler removes the others.
    let mut sums = [isa.splat(0.0); SUMS];
    let whole = a.len() / SUMS * SUMS;
    let mut from = 0;
    while from < whole {
        for (k, sum) in sums.iter_mut().enumerate().take(SUMS / I::LANES) {
            let at = from + k * I::LANES;
            *sum = *sum + isa.load(&a[at..][..I::LANES]) * isa.load(&b[at..][..I::LANES]);
        }
        from += SUMS;
    }
    let rest = a.len() - whole;
    for (k, sum) in sums.iter_mut().enumerate().take(rest.div_ceil(I::LANES)) {
        let at = whole + k * I::LANES;
        let n = I::LANES.min(a.len() - at);
        *sum = *sum + isa.load(&a[at..][..n]) * isa.load(&b[at..][..n]);
    }
    total(isa, sums)
}

/// The sum of the values.
#[inline(always)]
pub fn sum<I: Isa>(isa: I, values: &[f32]) -> f32 {
    let mut sums = [isa.splat(0.0); SUMS];
    let mut from = 0;
    while from < values.len() {
        for (k, sum) in sums.iter_mut().enumerate().take(SUMS / I::LANES) {
            let at = from + k * I::LANES;
            if at < values.len() {
                *sum = *sum + isa.load(&values[at..][..I::LANES.min(values.len() - at)]);
            }
        }
        from += SUMS;
    }
    total(isa, sums)
}

/// `out[i] += factor * a[i]`.
///
/// # Panics
/// When `a` is shorter than `out`.
#[inline(always)]
pub fn add_scaled<I: Isa>(isa: I, factor: f32, a: &[f32], out: &mut [f32]) {
    let (factor, a) = (isa.splat(factor), &a[..out.len()]);
    let mut at = 0;
    while at < out.len() {
        let n = I::LANES.min(out.len() - at);
        let next = isa.load(&out[at..][..n]) + factor * isa.load(&a[at..][..n]);
        isa.store(next, &mut out[at..][..n]);
        at += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AdaGrad, Add, Cpu, Ftrl, GradientLanes, RowAdaGrad, Sgd, Update, Work};
    use proptest::prelude::*;

    /// `factor * vector + l2 * weight`.
    struct Line<'a>(f32, &'a [f32], f32);

    impl<I: Isa> GradientLanes<I> for Line<'_> {
        #[inline(always)]
        fn lanes(&self, isa: I, at: usize, n: usize, weights: I::Lanes) -> I::Lanes {
            isa.splat(self.0) * isa.load(&self.1[at..][..n]) + isa.splat(self.2) * weights
        }
    }

    struct Products<'a>(&'a [f32], &'a [f32], f32);

    impl Work for Products<'_> {
        type Out = (u32, u32, Vec<u32>);

        #[inline(always)]
        fn run<I: Isa, U: Update>(self, isa: I, _: U) -> Self::Out {
            let mut out = self.1.to_vec();
            add_scaled(isa, self.2, self.0, &mut out);
            (
                dot(isa, self.0, self.1).to_bits(),
                sum(isa, self.0).to_bits(),
                out.iter().map(|v| v.to_bits()).collect(),
            )
        }
    }

    struct Descent<'a>(&'a [f32], &'a [f32], f32);

    impl Work for Descent<'_> {
        type Out = [Vec<u32>; 2];

        #[inline(always)]
        fn run<I: Isa, U: Update>(self, isa: I, rule: U) -> Self::Out {
            let Descent(weights, vector, factor) = self;
            let dim = weights.len();
            let mut row = vec![0.0; U::floats(dim)];
            rule.init(weights, &mut row);
            let mut derived = vec![0.0; if U::DERIVES { dim } else { 0 }];
            let mut scratch = vec![0.0; dim];
            if U::DERIVES {
                rule.weights(&row, &mut derived);
            }
            for _ in 0..3 {
                rule.descend_on(isa, &mut row, &mut derived, &Line(factor, vector, 0.01), &mut scratch);
            }
            [row, derived].map(|v| v.iter().map(|v| v.to_bits()).collect())
        }
    }

    fn same<W: Work, U: Update>(rule: U, work: impl Fn() -> W)
    where
        W::Out: PartialEq + std::fmt::Debug,
    {
        let oracle = Cpu::Scalar.run(rule, work());
        for cpu in Cpu::all() {
            assert_eq!(cpu.run(rule, work()), oracle, "{}", cpu.name());
        }
    }

    proptest! {
        #[test]
        fn every_instruction_set_gives_the_same_bits(
            pairs in prop::collection::vec((-2.0f32..2.0, -2.0f32..2.0), 1..70), factor in -2.0f32..2.0) {
            let (a, b): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
            same(Add, || Products(&a, &b, factor));
            same(Sgd { lr: 0.1 }, || Descent(&a, &b, factor));
            same(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 }, || Descent(&a, &b, factor));
            same(RowAdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 }, || Descent(&a, &b, factor));
            same(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.1, l2: 0.3 }, || Descent(&a, &b, factor));
            let exact: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            let got = f32::from_bits(Cpu::Scalar.run(Add, Products(&a, &b, factor)).0);
            prop_assert!((f64::from(got) - exact).abs() < 1e-4);
        }

        /// A gradient in registers does what the same gradient in memory does.
        #[test]
        fn a_descent_is_an_update(
            pairs in prop::collection::vec((-2.0f32..2.0, -2.0f32..2.0), 1..40), factor in -2.0f32..2.0) {
            let (w, v): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
            let rule = AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 };
            let mut row = vec![0.0; 2 * w.len()];
            rule.init(&w, &mut row);
            for _ in 0..3 {
                let gradient: Vec<f32> = row.iter().zip(&v).map(|(w, v)| factor * v + 0.01 * w).collect();
                rule.update(&mut row, &gradient);
            }
            let bits: Vec<u32> = row.iter().map(|v| v.to_bits()).collect();
            prop_assert_eq!(&Cpu::detect().run(rule, Descent(&w, &v, factor))[0], &bits);
        }
    }
}

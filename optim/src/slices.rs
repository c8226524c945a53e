//! Code that all rules share: the loop over a row's coordinates, sums over a row, adding a change of state, and checks
//! for values that are not finite.

use crate::arch::{Isa, Lanes};

/// The gradient of one row, computed a register at a time.
pub trait GradientLanes<I: Isa> {
    /// The gradient of the `n` coordinates from `at` on, where `weights` are their weights before the step. Lanes from
    /// `n` on are ignored.
    fn lanes(&self, isa: I, at: usize, n: usize, weights: I::Lanes) -> I::Lanes;
}

/// A gradient in memory.
struct Stored<'a>(&'a [f32]);

impl<I: Isa> GradientLanes<I> for Stored<'_> {
    #[inline(always)]
    fn lanes(&self, isa: I, at: usize, n: usize, _: I::Lanes) -> I::Lanes {
        isa.load(&self.0[at..][..n])
    }
}

/// A rule's formula for one coordinate of `P` planes, written once for every instruction set.
pub(crate) trait CoordinateStep<const P: usize> {
    /// The planes after gradient `g`.
    fn step<L: Lanes>(&self, row: [L; P], g: L) -> [L; P];
}

/// A function of a coordinate's `P` planes: a derived weight, or a value to be squared and summed.
pub(crate) trait Derive<const P: usize> {
    /// The value.
    fn derive<L: Lanes>(&self, row: [L; P]) -> L;
}

// A closure here would be a separate function, compiled for the oldest CPU unless the compiler inlines it. So
// code on registers is written as loops and `#[inline(always)]` functions.

/// Loads the planes at `at` of a row of `dim` weights.
#[inline(always)]
fn load<I: Isa, const P: usize>(isa: I, row: &[f32], dim: usize, at: usize, n: usize) -> [I::Lanes; P] {
    let mut lanes = [isa.splat(0.0); P];
    for (p, lanes) in lanes.iter_mut().enumerate() {
        *lanes = isa.load(&row[p * dim + at..][..n]);
    }
    lanes
}

#[inline(always)]
fn store<I: Isa, const P: usize>(
    isa: I,
    lanes: [I::Lanes; P],
    row: &mut [f32],
    dim: usize,
    at: usize,
    n: usize,
) {
    for (p, lanes) in lanes.into_iter().enumerate() {
        isa.store(lanes, &mut row[p * dim + at..][..n]);
    }
}

/// `row = step(row, g)` for each coordinate. The coordinates after the last whole register are handled by one more
/// register, which overlaps the previous one. It is read before anything is written, and it writes the same values
/// where the two overlap. Partly empty registers cost more than twice as much as whole ones; only rows shorter than one
/// register use them.
///
/// # Panics
/// When `row.len() != P * g.len()`; nothing has been changed then.
#[inline(always)]
pub(crate) fn sweep<I: Isa, const P: usize>(
    isa: I,
    row: &mut [f32],
    g: &[f32],
    formula: impl CoordinateStep<P>,
) {
    sweep_lanes(isa, row, g.len(), &Stored(g), formula);
}

/// [`sweep`] with a gradient that is computed from the row's first plane.
///
/// # Panics
/// When `row.len() != P * dim`; nothing has been changed then.
#[inline(always)]
pub(crate) fn sweep_lanes<I: Isa, const P: usize>(
    isa: I,
    row: &mut [f32],
    dim: usize,
    gradient: &impl GradientLanes<I>,
    formula: impl CoordinateStep<P>,
) {
    assert_eq!(row.len(), P * dim);
    let (n, last) = (dim.min(I::LANES), dim.saturating_sub(I::LANES));
    let mut end = [isa.splat(0.0); P];
    if !dim.is_multiple_of(I::LANES) {
        let planes = load(isa, row, dim, last, n);
        end = formula.step(planes, gradient.lanes(isa, last, n, planes[0]));
    }
    let mut at = 0;
    while at + I::LANES <= dim {
        let planes = load(isa, row, dim, at, I::LANES);
        let next = formula.step(planes, gradient.lanes(isa, at, I::LANES, planes[0]));
        store::<I, P>(isa, next, row, dim, at, I::LANES);
        at += I::LANES;
    }
    if at < dim {
        store(isa, end, row, dim, last, n);
    }
}

/// Writes a gradient into `out`, where `weights` (as long) are the weights before the step.
#[inline(always)]
pub(crate) fn write_gradient<I: Isa>(
    isa: I,
    weights: &[f32],
    gradient: &impl GradientLanes<I>,
    out: &mut [f32],
) {
    let mut at = 0;
    while at < out.len() {
        let n = I::LANES.min(out.len() - at);
        let lanes = gradient.lanes(isa, at, n, isa.load(&weights[at..][..n]));
        isa.store(lanes, &mut out[at..][..n]);
        at += n;
    }
}

/// `out = derive(row)` for each coordinate of the two planes of `row`. The end of a row is handled as in [`sweep`].
///
/// # Panics
/// When `row.len() != 2 * out.len()`.
#[inline(always)]
pub(crate) fn derive<I: Isa>(isa: I, row: &[f32], out: &mut [f32], formula: impl Derive<2>) {
    let dim = out.len();
    assert_eq!(row.len(), 2 * dim);
    let (n, last) = (dim.min(I::LANES), dim.saturating_sub(I::LANES));
    let mut at = 0;
    while at + I::LANES <= dim {
        let next = formula.derive(load(isa, row, dim, at, I::LANES));
        isa.store(next, &mut out[at..at + I::LANES]);
        at += I::LANES;
    }
    if at < dim {
        isa.store(formula.derive(load(isa, row, dim, last, n)), &mut out[last..]);
    }
}

/// The number of partial sums of a sum over a row: the lanes of the widest register.
pub(crate) const SUMS: usize = 16;

/// The sum of `derive(value)^2`; `derive(0)` is 0. There are sixteen partial sums, one for each place modulo sixteen.
/// They are added by halves, in the same order for every register width, so the result is the same.
#[inline(always)]
pub(crate) fn squares<I: Isa>(isa: I, values: &[f32], formula: impl Derive<1>) -> f32 {
    // SUMS / LANES of them are used; the compiler removes the others.
    let mut sums = [isa.splat(0.0); SUMS];
    let (blocks, rest) = values.as_chunks::<SUMS>();
    for block in blocks {
        for (k, sum) in sums.iter_mut().enumerate().take(SUMS / I::LANES) {
            let v = formula.derive([isa.load(&block[k * I::LANES..][..I::LANES])]);
            *sum = *sum + v * v;
        }
    }
    for (k, sum) in sums.iter_mut().enumerate().take(rest.len().div_ceil(I::LANES)) {
        let end = rest.len().min((k + 1) * I::LANES);
        let v = formula.derive([isa.load(&rest[k * I::LANES..end])]);
        *sum = *sum + v * v;
    }
    total(isa, sums)
}

/// The sum of the partial sums, added by halves.
#[inline(always)]
pub(crate) fn total<I: Isa>(isa: I, sums: [I::Lanes; SUMS]) -> f32 {
    let mut flat = [0.0f32; SUMS];
    for (k, sum) in sums.iter().enumerate().take(SUMS / I::LANES) {
        isa.store(*sum, &mut flat[k * I::LANES..][..I::LANES]);
    }
    let mut half = SUMS / 2;
    while half > 0 {
        for i in 0..half {
            flat[i] += flat[i + half];
        }
        half /= 2;
    }
    flat[0]
}

/// `v + c`: the step of counters.
pub(crate) struct AddValues;

impl CoordinateStep<1> for AddValues {
    #[inline(always)]
    fn step<L: Lanes>(&self, [v]: [L; 1], c: L) -> [L; 1] {
        [v + c]
    }
}

/// Replay: adds a change of state to a row, plane by plane. Both have the same number of floats.
///
/// # Panics
/// When the lengths differ; nothing has been changed then.
#[inline(always)]
pub fn add_change(row: &mut [f32], change: &[f32]) {
    assert_eq!(row.len(), change.len());
    row.iter_mut().zip(change).for_each(|(v, c)| *v += c);
}

/// Whether no value is NaN or infinite. It reads every value: a row is short, and a branch for each value would prevent
/// vectorising.
#[inline(always)]
pub fn all_finite(values: &[f32]) -> bool {
    const EXPONENT: u32 = 0x7f80_0000;
    const LOWEST: u32 = 0x0080_0000;
    // Only an exponent of all ones carries into the sign bit.
    let carried = values.iter().fold(0, |any, v| any | ((v.to_bits() & EXPONENT) + LOWEST));
    carried >> 31 == 0
}

/// Whether no value is negative or NaN. Sums of squares must pass this check.
#[inline(always)]
pub(crate) fn none_negative(values: &[f32]) -> bool {
    values.iter().fold(true, |all, &value| all & (value >= 0.0))
}

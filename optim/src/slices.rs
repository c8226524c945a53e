//! What is the same for every rule: the sweep over a row's coordinates, adding a change of state, and looking
//! for values that are not finite.

/// Coordinates taken at once. Eight fill one AVX register or two of SSE, and leave enough of them for FTRL.
const LANES: usize = 8;

/// `(a, b) = f(a, b, g)` for each coordinate. The lengths are equal, the callers have asserted it.
///
/// Blocks are copied out and back: a loop of constant length is unrolled before it can be vectorised, and what
/// is left is vector code only where no store stands between the loads. The tail calls the same `f`.
#[inline(always)]
pub(crate) fn sweep2(a: &mut [f32], b: &mut [f32], g: &[f32], f: impl Fn(f32, f32, f32) -> (f32, f32)) {
    let (blocks_a, tail_a) = a.as_chunks_mut::<LANES>();
    let (blocks_b, tail_b) = b.as_chunks_mut::<LANES>();
    let (blocks_g, tail_g) = g.as_chunks::<LANES>();
    for ((block_a, block_b), g) in blocks_a.iter_mut().zip(blocks_b).zip(blocks_g) {
        let (mut a, mut b) = (*block_a, *block_b);
        for i in 0..LANES {
            (a[i], b[i]) = f(a[i], b[i], g[i]);
        }
        (*block_a, *block_b) = (a, b);
    }
    for ((a, b), g) in tail_a.iter_mut().zip(tail_b).zip(tail_g) {
        (*a, *b) = f(*a, *b, *g);
    }
}

/// `a = f(a, g)` for each coordinate: [`sweep2`] with one plane.
#[inline(always)]
pub(crate) fn sweep1(a: &mut [f32], g: &[f32], f: impl Fn(f32, f32) -> f32) {
    let (blocks_a, tail_a) = a.as_chunks_mut::<LANES>();
    let (blocks_g, tail_g) = g.as_chunks::<LANES>();
    for (block_a, g) in blocks_a.iter_mut().zip(blocks_g) {
        let mut a = *block_a;
        for i in 0..LANES {
            a[i] = f(a[i], g[i]);
        }
        *block_a = a;
    }
    for (a, g) in tail_a.iter_mut().zip(tail_g) {
        *a = f(*a, *g);
    }
}

/// Replay: adds a change of state to a row, plane by plane. Both are `planes * dim` floats.
///
/// # Panics
/// When the lengths differ; nothing has been changed then.
#[inline(always)]
pub fn add_change(row: &mut [f32], change: &[f32]) {
    assert_eq!(row.len(), change.len());
    sweep1(row, change, |v, c| v + c);
}

/// Whether no value is NaN or infinite. Reads all of them: a row is short, and a branch per value would
/// keep the loop from being vectorised.
#[inline(always)]
pub fn all_finite(values: &[f32]) -> bool {
    const EXPONENT: u32 = 0x7f80_0000;
    const LOWEST: u32 = 0x0080_0000;
    // An exponent of all ones, and no other, carries into the sign's place.
    let carried = values.iter().fold(0, |any, v| any | ((v.to_bits() & EXPONENT) + LOWEST));
    carried >> 31 == 0
}

/// Whether no value is negative or NaN: what sums of squares are held to.
#[inline(always)]
pub(crate) fn none_negative(values: &[f32]) -> bool {
    values.iter().fold(true, |all, &value| all & (value >= 0.0))
}

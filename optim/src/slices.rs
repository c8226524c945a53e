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

/// `row = f(row, g)` for each coordinate of a row of `P` planes: [`sweep2`] with any number of planes.
#[inline(always)]
pub(crate) fn sweep<const P: usize>(row: &mut [f32], g: &[f32], f: impl Fn([f32; P], f32) -> [f32; P]) {
    let dim = g.len();
    assert_eq!(row.len(), P * dim);
    let mut rest = row;
    let mut planes: [&mut [f32]; P] = std::array::from_fn(|_| {
        let (plane, others) = std::mem::take(&mut rest).split_at_mut(dim);
        rest = others;
        plane
    });
    let (blocks_g, tail_g) = g.as_chunks::<LANES>();
    for (block, g) in blocks_g.iter().enumerate() {
        let at = block * LANES..(block + 1) * LANES;
        let mut lanes = [[0.0f32; LANES]; P];
        for (lanes, plane) in lanes.iter_mut().zip(&planes) {
            lanes.copy_from_slice(&plane[at.clone()]);
        }
        for i in 0..LANES {
            let next = f(std::array::from_fn(|p| lanes[p][i]), g[i]);
            (0..P).for_each(|p| lanes[p][i] = next[p]);
        }
        for (lanes, plane) in lanes.iter().zip(&mut planes) {
            plane[at.clone()].copy_from_slice(lanes);
        }
    }
    for (i, g) in tail_g.iter().enumerate() {
        let i = dim - tail_g.len() + i;
        let next = f(std::array::from_fn(|p| planes[p][i]), *g);
        (0..P).for_each(|p| planes[p][i] = next[p]);
    }
}

/// Partial sums of [`squares`]: one AVX-512 register.
const SUMS: usize = 16;

/// The sum of `f(value)^2`. Sixteen partial sums, of the values whose place is the same modulo sixteen, are added by
/// halves: one order for every width of vectors, so one result. Places beyond the end count as 0.
#[inline(always)]
pub(crate) fn squares(values: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut sums = [0.0f32; SUMS];
    let (blocks, tail) = values.as_chunks::<SUMS>();
    for block in blocks {
        for (sum, value) in sums.iter_mut().zip(block) {
            let v = f(*value);
            *sum += v * v;
        }
    }
    for (sum, value) in sums.iter_mut().zip(tail) {
        let v = f(*value);
        *sum += v * v;
    }
    let mut half = SUMS / 2;
    while half > 0 {
        (0..half).for_each(|i| sums[i] += sums[i + half]);
        half /= 2;
    }
    sums[0]
}

/// Replay: adds a change of state to a row, plane by plane. Both are the same number of floats.
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

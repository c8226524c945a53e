//! Floats of 16 bits on the wire: IEEE 754 binary16, f16. Rounding is to the nearest one, and to the even one of two
//! that are equally near.
//!
//! The crate `half` converts with the CPU's F16C instructions where it has them, and in software elsewhere. Both give
//! the same bits: a test compares them with exact arithmetic, for all 65,536 floats and for what lies between them.
//!
//! Values beyond f16's range never become infinite here. Callers ask [`fit_f16`] first, and send f32 otherwise.

use bytemuck::cast_slice_mut;
use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

/// The largest finite f16.
pub const F16_MAX: f32 = 65_504.0;

/// Floats that are converted at once: they stay in the nearest cache.
pub const BLOCK: usize = 512;

/// Whether all of these floats are finite and within the range of f16.
#[inline]
pub fn fit_f16(values: &[f32]) -> bool {
    // Without their sign, the bits of floats have the order of the floats, and those of infinity and NaN are above.
    values.iter().map(|value| value.to_bits() & 0x7FFF_FFFF).fold(0, u32::max) <= F16_MAX.to_bits()
}

/// Rounds floats to f16.
///
/// # Panics
/// When the slices differ in length.
#[inline]
pub fn narrow(values: &[f32], out: &mut [u16]) {
    out.reinterpret_cast_mut::<f16>().convert_from_f32_slice(values);
}

/// The floats that these f16 are.
///
/// # Panics
/// When the slices differ in length.
#[inline]
pub fn widen(narrow: &[u16], out: &mut [f32]) {
    narrow.reinterpret_cast::<f16>().convert_to_f32_slice(out);
}

/// Rounds floats to f16 in their own memory: the f16 are then in its first half.
pub fn narrow_in_place(values: &mut [f32]) {
    let mut block = [0u16; BLOCK];
    for from in (0..values.len()).step_by(BLOCK) {
        let count = BLOCK.min(values.len() - from);
        narrow(&values[from..from + count], &mut block[..count]);
        // The f16 of a block end where it ended, at the latest: no float is overwritten before it is read.
        cast_slice_mut::<f32, u16>(values)[from..from + count].copy_from_slice(&block[..count]);
    }
}

/// Undoes the rounding of f16 that are in the second half of this memory, and fills all of it with their floats.
pub fn widen_in_place(values: &mut [f32]) {
    let all = values.len();
    let mut block = [0u16; BLOCK];
    for from in (0..all).step_by(BLOCK) {
        let count = BLOCK.min(all - from);
        block[..count].copy_from_slice(&cast_slice_mut::<f32, u16>(values)[all + from..all + from + count]);
        // The floats of a block end before the f16 of the next one begin: from + count <= all.
        widen(&block[..count], &mut values[from..from + count]);
    }
}

/// Rounds each float to f16 and back. Floats that do not [fit](fit_f16) stay as they are. Doing it again changes
/// nothing.
pub fn round(values: &mut [f32]) {
    let mut block = [0u16; BLOCK];
    for values in values.chunks_mut(BLOCK) {
        let block = &mut block[..values.len()];
        if fit_f16(values) {
            narrow(values, block);
            widen(block, values);
        } else {
            values.iter_mut().filter(|value| fit_f16(&[**value])).for_each(|value| {
                *value = f16::from_f32(*value).to_f32();
            });
        }
    }
}

/// The distance between two neighbouring f16 near a float that [fits](fit_f16), and 1 divided by it.
#[inline]
fn f16_step(value: f32) -> (f32, f32) {
    // The exponent of a subnormal f16 is that of the smallest normal one. 10 bits follow the first one.
    let exponent = (value.to_bits() >> 23 & 0xFF).max(127 - 14) - 10;
    (f32::from_bits(exponent << 23), f32::from_bits((254 - exponent) << 23))
}

/// Rounds a float that [fits](fit_f16) to one of its two neighbours in f16. `chance` is uniform below 2^24. The nearer
/// neighbour is the more likely one, so that the mean over all chances is the float itself (stochastic rounding: Gupta
/// and others, Deep Learning with Limited Numerical Precision, 2015).
#[inline]
pub fn round_by_chance(value: f32, chance: u32) -> f32 {
    let (step, steps) = f16_step(value);
    // Exact: a step is a power of two, and the quotient is below 2048.
    let quotient = value.abs() * steps;
    let below = quotient as i32;
    let up = (quotient - below as f32) * 16_777_216.0 > chance as f32;
    ((below + i32::from(up)) as f32 * step).copysign(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The number that the bits of a finite f16 are, from the definition of IEEE 754.
    fn number(bits: u16) -> f64 {
        let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3FF));
        let size = match exponent {
            0 => fraction / 1024.0 * 2f64.powi(-14),
            _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
        };
        if bits >> 15 == 1 { -size } else { size }
    }

    /// The nearest f16 by a search over all of them, and of two the one whose last bit is 0.
    fn nearest(value: f32) -> u16 {
        let size = f64::from(value.abs());
        let above = (0..0x7C00u16).collect::<Vec<_>>().partition_point(|&bits| number(bits) < size) as u16;
        let candidates = [above.saturating_sub(1), above.min(0x7BFF)];
        let distance = |bits: u16| (number(bits) - size).abs();
        let [a, b] = candidates;
        let best = match distance(a).total_cmp(&distance(b)) {
            std::cmp::Ordering::Less => a,
            std::cmp::Ordering::Greater => b,
            std::cmp::Ordering::Equal => {
                if a % 2 == 0 {
                    a
                } else {
                    b
                }
            }
        };
        best | u16::from(value.is_sign_negative()) << 15
    }

    /// Rounds in a slice of this length, so that instructions of all widths are used.
    fn narrowed(value: f32, length: usize) -> u16 {
        let mut out = vec![0; length];
        narrow(&vec![value; length], &mut out);
        assert!(out.iter().all(|bits| *bits == out[0]), "{value:e}: all lanes agree");
        out[0]
    }

    #[test]
    fn every_f16_is_its_number_and_comes_back() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        let mut floats = vec![0.0; all.len()];
        widen(&all, &mut floats);
        let mut back = vec![0; all.len()];
        narrow(&floats, &mut back);
        for (&bits, (&float, &back)) in all.iter().zip(floats.iter().zip(&back)) {
            match bits & 0x7FFF {
                0x7C01.. => assert!(float.is_nan() && !fit_f16(&[float]), "{bits:#x}"),
                0x7C00 => assert!(float.is_infinite() && back == bits && !fit_f16(&[float]), "{bits:#x}"),
                _ => {
                    assert_eq!((f64::from(float), back), (number(bits), bits), "{bits:#x}");
                    assert_eq!(float.is_sign_negative(), bits >> 15 == 1, "{bits:#x}");
                    assert!(fit_f16(&[float]));
                    assert_eq!(f16::from_bits(bits).to_f32_const().to_bits(), float.to_bits(), "in software");
                }
            }
        }
    }

    #[test]
    fn what_lies_between_two_f16_goes_to_the_nearer_one_and_the_middle_to_the_even_one() {
        for bits in 0..0x7BFFu16 {
            let (below, above) = (number(bits), number(bits + 1));
            let middle = ((below + above) / 2.0) as f32;
            let even = bits + bits % 2;
            for (value, want) in [(middle, even), (middle.next_down(), bits), (middle.next_up(), bits + 1)] {
                for length in [1, 4, 8, 9] {
                    assert_eq!(narrowed(value, length), want, "{value:e}");
                    assert_eq!(narrowed(-value, length), want | 0x8000, "{value:e}");
                }
                assert_eq!(f16::from_f32_const(value).to_bits(), want, "{value:e} in software");
            }
        }
    }

    proptest! {
        #[test]
        fn floats_go_to_the_nearest_f16(bits in any::<u32>(), near in -70_000.0f32..70_000.0, tiny in -1e-4f32..1e-4) {
            for value in [f32::from_bits(bits), near, tiny] {
                if fit_f16(&[value]) {
                    prop_assert_eq!(narrowed(value, 8), nearest(value), "{:e}", value);
                    prop_assert_eq!(f16::from_f32_const(value).to_bits(), nearest(value), "{:e}", value);
                }
                prop_assert_eq!(fit_f16(&[0.0, value]), value.is_finite() && value.abs() <= F16_MAX);
            }
        }

        #[test]
        fn rounding_in_place_is_rounding(values in prop::collection::vec(-70_000.0f32..70_000.0, 0..1500)) {
            let small: Vec<f32> = values.iter().map(|value| value.clamp(-F16_MAX, F16_MAX)).collect();
            let mut want = vec![0; small.len()];
            narrow(&small, &mut want);
            let mut place = small.clone();
            narrow_in_place(&mut place);
            let halves = cast_slice_mut::<f32, u16>(&mut place);
            prop_assert_eq!(&halves[..small.len()], &want[..]);
            // As a worker receives them: in the second half of the memory.
            halves.copy_within(..small.len(), small.len());
            widen_in_place(&mut place);
            let mut floats = vec![0.0; small.len()];
            widen(&want, &mut floats);
            prop_assert_eq!(&place, &floats);
            let mut rounded = values.clone();
            round(&mut rounded);
            for ((rounded, value), float) in rounded.iter().zip(&values).zip(&floats) {
                prop_assert_eq!(rounded, if fit_f16(&[*value]) { float } else { value });
            }
            let once = rounded.clone();
            round(&mut rounded);
            prop_assert_eq!(rounded, once);
        }

        #[test]
        fn chance_takes_one_of_the_two_neighbours_and_is_right_on_average(
            value in prop_oneof![-65_504.0f32..65_504.0, -1e-3f32..1e-3, -1e-7f32..1e-7],
        ) {
            // Chances at equal distances: the mean misses the value by their distance at most.
            let chances = 4096u32;
            let mut sum = 0.0;
            for chance in (0..chances).map(|nth| nth * (16_777_216 / chances)) {
                let rounded = round_by_chance(value, chance);
                prop_assert!((rounded - value).abs() < f16_step(value).0);
                prop_assert_eq!(f16::from_f32(rounded).to_f32(), rounded);
                sum += f64::from(rounded);
            }
            let error = (sum / f64::from(chances) - f64::from(value)).abs();
            prop_assert!(error <= f64::from(f16_step(value).0) / f64::from(chances), "{} is wrong by {}", value, error);
        }
    }
}

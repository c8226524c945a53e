//! Floats of 16 bits: bfloat16 and IEEE 754's binary16. How they are rounded, and how two of them lie in a float. This
//! is the oracle of `arch/float16.rs`, which converts many at a time.

use crate::{Cpu, arch};

/// A format of floats with 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Float16 {
    /// bfloat16: an f32 without its lower 16 bits. It has the range of an f32 and 8 binary digits.
    Bf16,
    /// IEEE 754's binary16, "half precision". It has 11 binary digits and ends at 65,504. Below 2^-14 the distance
    /// between two of them is 2^-24.
    F16,
}

/// The sign of an f32.
const SIGN: u32 = 1 << 31;
/// The largest finite bf16, as bits of an f32.
pub(crate) const LARGEST_BF16: u32 = 0x7f7f_0000;
/// An f32 has 13 binary digits more than an f16.
const CUT: u32 = 13;
/// What the exponents of an f32 and an f16 differ by.
const BIAS: u32 = 112 << 23;
/// 65,504, the largest f16, and 2^-14, the smallest f16 that has all 11 digits, as bits of an f32.
pub(crate) const LARGEST_F16: u32 = 0x477f_e000;
pub(crate) const SMALLEST_NORMAL: u32 = 113 << 23;
/// How many f16 there are between 0 and 1 if the distance is that of the smallest ones: 2^24. And what one of 2^13
/// chances is of that distance: 2^-37.
const TINY_STEPS: f32 = 16_777_216.0;
const TINY_PART: f32 = 1.0 / (8192.0 * TINY_STEPS);
/// The infinity of f16; the lowest bit of its exponent.
const F16_INFINITY: u32 = 0x7c00;
const F16_LOWEST: u32 = 0x0400;
/// What the seeds of two neighbouring floats differ by, and the factors of [`random_bits`].
pub(crate) const SPREAD: u32 = 0x9e37_79b9;
pub(crate) const MIX: [u32; 2] = [0x21f0_aaad, 0xd35a_2d97];

impl Float16 {
    /// The name as flags and messages spell it.
    pub fn name(self) -> &'static str {
        match self {
            Float16::Bf16 => "bf16",
            Float16::F16 => "f16",
        }
    }

    /// The largest finite one.
    pub fn largest(self) -> f32 {
        f32::from_bits(match self {
            Float16::Bf16 => LARGEST_BF16,
            Float16::F16 => LARGEST_F16,
        })
    }

    /// The nearest one, as f32; of two equally near ones the even one. A finite value beyond the largest bf16 becomes
    /// the largest. A value beyond the largest f16 becomes infinite.
    pub fn nearest(self, weight: f32) -> f32 {
        match self {
            Float16::Bf16 => f32::from_bits(nearest_bf16(weight) << 16),
            Float16::F16 => f16_value(nearest_f16(weight)),
        }
    }

    /// The values of packed floats, as f32. `packed` has half as many floats as `out`, rounded up.
    pub(crate) fn unpack(self, cpu: Cpu, packed: &[f32], out: &mut [f32]) {
        assert_eq!(packed.len(), out.len().div_ceil(2));
        match (cpu, self) {
            #[cfg(target_arch = "x86_64")]
            (Cpu::Avx2(isa), _) => arch::float16::unpack_avx2(isa, self, packed, out),
            #[cfg(target_arch = "x86_64")]
            (Cpu::Avx512(isa), _) => arch::float16::unpack_avx2(isa.avx2(), self, packed, out),
            (Cpu::Scalar, Float16::Bf16) => unpack(packed, out, |half| f32::from_bits(half << 16)),
            (Cpu::Scalar, Float16::F16) => unpack(packed, out, f16_value),
        }
    }

    /// Rounds weights and packs them. Each is rounded away from 0 with the probability of the part that is cut off.
    pub(crate) fn pack(self, cpu: Cpu, weights: &[f32], chance: u64, packed: &mut [f32]) {
        assert_eq!(packed.len(), weights.len().div_ceil(2));
        match (cpu, self) {
            #[cfg(target_arch = "x86_64")]
            (Cpu::Avx2(isa), _) => arch::float16::pack_avx2(isa, self, weights, chance, packed),
            #[cfg(target_arch = "x86_64")]
            (Cpu::Avx512(isa), _) => arch::float16::pack_avx2(isa.avx2(), self, weights, chance, packed),
            (Cpu::Scalar, Float16::Bf16) => pack(weights, chance, packed, rounded_bf16),
            (Cpu::Scalar, Float16::F16) => pack(weights, chance, packed, chance_f16),
        }
    }

    /// Packs the nearest one of each weight.
    pub(crate) fn pack_nearest(self, weights: &[f32], packed: &mut [f32]) {
        match self {
            Float16::Bf16 => pack(weights, 0, packed, |w, _| nearest_bf16(w)),
            Float16::F16 => pack(weights, 0, packed, |w, _| nearest_f16(w)),
        }
    }

    /// Whether both halves of each float are finite.
    #[inline(always)]
    pub(crate) fn all_finite(self, packed: &[f32]) -> bool {
        // Only an exponent of all ones carries into the sign bit of its half.
        let (exponents, lowest) = match self {
            Float16::Bf16 => (0x7f80_7f80, 0x0080_0080),
            Float16::F16 => (0x7c00_7c00, 0x0400_0400),
        };
        let any = packed.iter().fold(0, |any, pair| any | ((pair.to_bits() & exponents) + lowest));
        any & 0x8000_8000 == 0
    }
}

/// Of `n` weights the lower halves of the floats are the first ones, and the upper halves are the others.
fn unpack(packed: &[f32], out: &mut [f32], value: impl Fn(u32) -> f32) {
    let (lower, upper) = out.split_at_mut(packed.len());
    for (out, packed) in lower.iter_mut().zip(packed) {
        *out = value(packed.to_bits() & 0xffff);
    }
    for (out, packed) in upper.iter_mut().zip(packed) {
        *out = value(packed.to_bits() >> 16);
    }
}

/// Packs weights: `half` makes 16 bits of a weight and of 16 random bits.
pub(crate) fn pack(weights: &[f32], chance: u64, packed: &mut [f32], half: impl Fn(f32, u32) -> u32) {
    let chance = (chance ^ chance >> 32) as u32;
    let (lower, upper) = weights.split_at(packed.len());
    for (i, (packed, &weight)) in (0u32..).zip(packed.iter_mut().zip(lower)) {
        let random = random_bits(chance, i);
        let above = upper.get(i as usize).map_or(0, |&weight| half(weight, random >> 16));
        *packed = f32::from_bits(half(weight, random & 0xffff) | above << 16);
    }
}

/// 32 random bits for float `i` of a row's step. The mix has full period, and its output bits depend on all input bits
/// (its constants are from Chris Wellons' hash-prospector).
fn random_bits(chance: u32, i: u32) -> u32 {
    let mut x = chance.wrapping_add(i.wrapping_mul(SPREAD));
    x = (x ^ x >> 16).wrapping_mul(MIX[0]);
    x = (x ^ x >> 15).wrapping_mul(MIX[1]);
    x ^ x >> 15
}

/// The bf16 of a weight after `add` was added to its magnitude. Nothing rounds to infinity. What is not finite stays
/// so.
pub(crate) fn rounded_bf16(weight: f32, add: u32) -> u32 {
    let bits = weight.to_bits();
    let magnitude = bits & !SIGN;
    let add = if magnitude >= LARGEST_BF16 { 0 } else { add };
    (bits + add) >> 16
}

fn nearest_bf16(weight: f32) -> u32 {
    rounded_bf16(weight, 0x7fff + (weight.to_bits() >> 16 & 1))
}

/// The value of an f16.
fn f16_value(half: u32) -> f32 {
    let sign = (half & 0x8000) << 16;
    let magnitude = (half & 0x7fff) << CUT;
    // Infinity and NaN stay what they are.
    let bias = if magnitude >= F16_INFINITY << CUT { 2 * BIAS } else { BIAS };
    let tiny = (f32::from_bits(magnitude + SMALLEST_NORMAL) - f32::from_bits(SMALLEST_NORMAL)).to_bits();
    let value = if magnitude < F16_LOWEST << CUT { tiny } else { magnitude + bias };
    f32::from_bits(value | sign)
}

/// The f16 of a weight, rounded by 16 random bits, of which it takes 13. What an f16 can store stays as it is.
pub(crate) fn chance_f16(weight: f32, random: u32) -> u32 {
    let random = random >> 3;
    let part = random as f32 * TINY_PART;
    // 2^24 is a power of two, so the product is exact. Its fraction is cut off.
    let tiny = |magnitude: f32| ((magnitude + part) * TINY_STEPS) as u32;
    rounded_f16(weight, random, tiny)
}

fn nearest_f16(weight: f32) -> u32 {
    // Between 1/2 and 1 the distance between two f32 is 2^-24, that between the smallest f16.
    let tiny = |magnitude: f32| (magnitude + 0.5).to_bits() - 0.5f32.to_bits();
    rounded_f16(weight, 0xfff + (weight.to_bits() >> CUT & 1), tiny)
}

/// The f16 of a weight: with 11 binary digits after `add` was added to its magnitude, with fewer as `tiny` says. What
/// an f16 cannot store becomes infinite.
fn rounded_f16(weight: f32, add: u32, tiny: impl Fn(f32) -> u32) -> u32 {
    let bits = weight.to_bits();
    let magnitude = bits & !SIGN;
    let half = if magnitude > LARGEST_F16 {
        F16_INFINITY
    } else if magnitude < SMALLEST_NORMAL {
        tiny(f32::from_bits(magnitude))
    } else {
        (magnitude + add - BIAS) >> CUT
    };
    half | (bits >> 16 & 0x8000)
}

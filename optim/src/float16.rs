//! Floats of 16 bits: bfloat16 and IEEE 754's binary16. How they are rounded, and how two of them lie in a float.

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
const LARGEST_BF16: u32 = 0x7f7f_0000;
/// An f32 has 13 binary digits more than an f16.
const CUT: u32 = 13;
/// What the exponents of an f32 and an f16 differ by.
const BIAS: u32 = 112 << 23;
/// 65,504, the largest f16; 2^-14, the smallest f16 that has all 11 digits; and 0.75, all as bits of an f32. Between
/// 0.5 and 1 the distance between two f32 is 2^-24.
const LARGEST_F16: u32 = 0x477f_e000;
const SMALLEST_NORMAL: u32 = 113 << 23;
const MAGIC: u32 = 0x3f40_0000;
/// The infinity of f16; the lowest bit of its exponent.
const F16_INFINITY: u32 = 0x7c00;
const F16_LOWEST: u32 = 0x0400;

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
    #[inline(always)]
    pub(crate) fn unpack(self, packed: &[f32], out: &mut [f32]) {
        match self {
            Float16::Bf16 => unpack(packed, out, |half| f32::from_bits(half << 16)),
            Float16::F16 => unpack(packed, out, f16_value),
        }
    }

    /// Rounds weights and packs them. Each is rounded away from 0 with the probability of the part that is cut off.
    #[inline(always)]
    pub(crate) fn pack(self, weights: &[f32], chance: u64, packed: &mut [f32]) {
        match self {
            Float16::Bf16 => pack(weights, chance, packed, rounded_bf16),
            Float16::F16 => pack(weights, chance, packed, chance_f16),
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

/// Floats that are unpacked or packed at once. A loop of a known length becomes a few instructions.
const BLOCK: usize = 8;

/// Of `n` weights the lower halves of the floats are the first ones, and the upper halves are the others.
#[inline(always)]
fn unpack(packed: &[f32], out: &mut [f32], value: impl Fn(u32) -> f32) {
    let (lower, upper) = out.split_at_mut(packed.len());
    let done = upper.len() / BLOCK * BLOCK;
    let blocks = packed.as_chunks::<BLOCK>().0.iter();
    let outs = lower.as_chunks_mut::<BLOCK>().0.iter_mut().zip(upper.as_chunks_mut::<BLOCK>().0);
    for (packed, (lower, upper)) in blocks.zip(outs) {
        for i in 0..BLOCK {
            lower[i] = value(packed[i].to_bits() & 0xffff);
            upper[i] = value(packed[i].to_bits() >> 16);
        }
    }
    for (out, packed) in lower[done..].iter_mut().zip(&packed[done..]) {
        *out = value(packed.to_bits() & 0xffff);
    }
    for (out, packed) in upper[done..].iter_mut().zip(&packed[done..]) {
        *out = value(packed.to_bits() >> 16);
    }
}

/// Packs weights: `half` makes 16 bits of a weight and of 16 random bits.
#[inline(always)]
fn pack(weights: &[f32], chance: u64, packed: &mut [f32], half: impl Fn(f32, u32) -> u32) {
    let chance = (chance ^ chance >> 32) as u32;
    let (lower, upper) = weights.split_at(packed.len());
    let done = upper.len() / BLOCK * BLOCK;
    let weights = lower.as_chunks::<BLOCK>().0.iter().zip(upper.as_chunks::<BLOCK>().0);
    let blocks = packed.as_chunks_mut::<BLOCK>().0.iter_mut().zip(weights);
    for (number, (packed, (lower, upper))) in (0u32..).zip(blocks) {
        for i in 0..BLOCK {
            let bits = random_bits(chance, number * BLOCK as u32 + i as u32);
            packed[i] = f32::from_bits(half(lower[i], bits & 0xffff) | half(upper[i], bits >> 16) << 16);
        }
    }
    for i in done..packed.len() {
        let bits = random_bits(chance, i as u32);
        let above = upper.get(i).map_or(0, |&weight| half(weight, bits >> 16));
        packed[i] = f32::from_bits(half(lower[i], bits & 0xffff) | above << 16);
    }
}

/// 32 random bits for float `i` of a row's step. The mix has full period, and its output bits depend on all input bits
/// (its constants are from Chris Wellons' hash-prospector).
#[inline(always)]
fn random_bits(chance: u32, i: u32) -> u32 {
    let mut x = chance.wrapping_add(i.wrapping_mul(0x9e37_79b9));
    x = (x ^ x >> 16).wrapping_mul(0x21f0_aaad);
    x = (x ^ x >> 15).wrapping_mul(0xd35a_2d97);
    x ^ x >> 15
}

/// The bf16 of a weight after `add` was added to its magnitude. Nothing rounds to infinity. What is not finite stays
/// so.
#[inline(always)]
fn rounded_bf16(weight: f32, add: u32) -> u32 {
    let bits = weight.to_bits();
    let magnitude = bits & !SIGN;
    let add = if magnitude >= LARGEST_BF16 { 0 } else { add };
    (bits + add) >> 16
}

fn nearest_bf16(weight: f32) -> u32 {
    rounded_bf16(weight, 0x7fff + (weight.to_bits() >> 16 & 1))
}

/// The value of an f16.
#[inline(always)]
fn f16_value(half: u32) -> f32 {
    let sign = (half & 0x8000) << 16;
    let magnitude = (half & 0x7fff) << CUT;
    // Infinity and NaN stay what they are.
    let bias = if magnitude >= F16_INFINITY << CUT { 2 * BIAS } else { BIAS };
    let tiny = (f32::from_bits(magnitude + SMALLEST_NORMAL) - f32::from_bits(SMALLEST_NORMAL)).to_bits();
    let value = if magnitude < F16_LOWEST << CUT { tiny } else { magnitude + bias };
    f32::from_bits(value | sign)
}

/// The f16 of a weight, rounded by 16 random bits, of which it takes 13.
#[inline(always)]
fn chance_f16(weight: f32, random: u32) -> u32 {
    let random = random >> 3;
    // Between -1/2 and 1/2, never at either end: what an f16 can store stays as it is.
    let shift = (random as i32 as f32 - 4095.5) * (1.0 / 8192.0);
    rounded_f16(weight, random, shift)
}

fn nearest_f16(weight: f32) -> u32 {
    rounded_f16(weight, 0xfff + (weight.to_bits() >> CUT & 1), 0.0)
}

/// The f16 of a weight. With 11 digits: after `add` was added to its magnitude. With fewer: the nearest one after
/// `shift` distances were added. What an f16 cannot store becomes infinite.
#[inline(always)]
fn rounded_f16(weight: f32, add: u32, shift: f32) -> u32 {
    let bits = weight.to_bits();
    let magnitude = bits & !SIGN;
    let normal = (magnitude + add).wrapping_sub(BIAS) >> CUT;
    let shifted = f32::from_bits(magnitude) + shift * (1.0 / (1 << 24) as f32);
    let tiny = (shifted + f32::from_bits(MAGIC)).to_bits().wrapping_sub(MAGIC);
    let finite = if magnitude < SMALLEST_NORMAL { tiny } else { normal };
    let half = if magnitude > LARGEST_F16 { F16_INFINITY } else { finite };
    half | (bits >> 16 & 0x8000)
}

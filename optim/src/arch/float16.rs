//! Floats of 16 bits by AVX2 and F16C, sixteen at a time. `float16.rs` of this crate is the oracle, and has the layout.
#![allow(unsafe_code)]

use super::Isa;
use super::avx2::{Avx2, below};
use crate::Float16;
use crate::float16::{self, SPREAD};
use std::arch::x86_64::*;

/// Packed floats in a register.
const BLOCK: usize = Avx2::LANES;

/// [`Float16::unpack`].
pub(crate) fn unpack_avx2(isa: Avx2, format: Float16, packed: &[f32], out: &mut [f32]) {
    // SAFETY: an Avx2 proves AVX2 and F16C.
    unsafe {
        match format {
            Float16::Bf16 => unpack_by(isa, packed, out, |packed| bf16_values(packed)),
            Float16::F16 => unpack_by(isa, packed, out, |packed| f16_values(packed)),
        }
    }
}

/// [`Float16::pack`].
pub(crate) fn pack_avx2(isa: Avx2, format: Float16, weights: &[f32], chance: u64, packed: &mut [f32]) {
    // SAFETY: an Avx2 proves AVX2 and F16C.
    unsafe {
        match format {
            Float16::Bf16 => pack_by(isa, weights, chance, packed, |lower, upper, random| {
                bf16_halves(lower, upper, random)
            }),
            Float16::F16 => pack_f16(isa, weights, chance, packed),
        }
    }
}

/// [`pack_avx2`] of f16. Weights beyond their range are rare, so the oracle packs a row that has one.
#[target_feature(enable = "avx2,f16c")]
fn pack_f16(isa: Avx2, weights: &[f32], chance: u64, packed: &mut [f32]) {
    let mut largest = _mm256_setzero_si256();
    pack_by(isa, weights, chance, packed, |lower, upper, random| {
        f16_halves(lower, upper, random, &mut largest)
    });
    let beyond = _mm256_cmpgt_epi32(largest, _mm256_set1_epi32(float16::LARGEST_F16 as i32));
    if _mm256_movemask_epi8(beyond) != 0 {
        float16::pack(weights, chance, packed, float16::chance_f16);
    }
}

/// Unpacks blocks of floats. `values` makes the values of their lower and upper halves.
#[target_feature(enable = "avx2,f16c")]
fn unpack_by(isa: Avx2, packed: &[f32], out: &mut [f32], values: impl Fn(__m256i) -> (__m256, __m256)) {
    let (lower, upper) = out.split_at_mut(packed.len());
    let (upper_blocks, upper_rest) = upper.as_chunks_mut::<BLOCK>();
    let blocks = packed.as_chunks::<BLOCK>().0.iter().zip(lower.as_chunks_mut::<BLOCK>().0);
    let done = BLOCK * upper_blocks.len();
    for ((packed, lower), upper) in blocks.zip(upper_blocks) {
        let (low, high) = values(load(isa, packed));
        store(isa, low, lower);
        store(isa, high, upper);
    }
    if done < packed.len() {
        let (low, high) = values(load(isa, &packed[done..]));
        store(isa, low, &mut lower[done..]);
        store(isa, high, upper_rest);
    }
}

/// Packs blocks of floats. `halves` makes them of the weights for their lower and upper halves, and of random bits.
#[target_feature(enable = "avx2,f16c")]
fn pack_by(
    isa: Avx2,
    weights: &[f32],
    chance: u64,
    packed: &mut [f32],
    mut halves: impl FnMut(__m256i, __m256i, __m256i) -> __m256i,
) {
    let (lower, upper) = weights.split_at(packed.len());
    let (upper_blocks, upper_rest) = upper.as_chunks::<BLOCK>();
    let blocks = packed.as_chunks_mut::<BLOCK>().0.iter_mut().zip(lower.as_chunks::<BLOCK>().0);
    let done = BLOCK * upper_blocks.len();
    let ids = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    let mut seeds = _mm256_mullo_epi32(ids, _mm256_set1_epi32(SPREAD as i32));
    seeds = _mm256_add_epi32(seeds, _mm256_set1_epi32((chance ^ chance >> 32) as i32));
    for ((packed, lower), upper) in blocks.zip(upper_blocks) {
        let block = halves(load(isa, lower), load(isa, upper), random_lanes(seeds));
        store(isa, _mm256_castsi256_ps(block), packed);
        seeds = _mm256_add_epi32(seeds, _mm256_set1_epi32(SPREAD.wrapping_mul(BLOCK as u32) as i32));
    }
    if done < packed.len() {
        let block = halves(load(isa, &lower[done..]), load(isa, upper_rest), random_lanes(seeds));
        store(isa, _mm256_castsi256_ps(block), &mut packed[done..]);
    }
}

/// Up to eight floats, as their bits. The other lanes are 0.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn load(isa: Avx2, from: &[f32]) -> __m256i {
    if from.len() == BLOCK {
        // SAFETY: `from` is eight floats, and the load needs no alignment.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
    } else {
        // SAFETY: only the lanes below `from.len()` are read. `below` takes at most eight.
        unsafe { _mm256_maskload_epi32(from.as_ptr().cast(), below(isa, from.len())) }
    }
}

/// Stores as many lanes as fit into `to`, which is at most eight floats.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn store(isa: Avx2, lanes: __m256, to: &mut [f32]) {
    if to.len() == BLOCK {
        // SAFETY: `to` is eight floats, and the store needs no alignment.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), lanes) }
    } else {
        // SAFETY: only the lanes below `to.len()` are written. `below` takes at most eight.
        unsafe { _mm256_maskstore_ps(to.as_mut_ptr(), below(isa, to.len()), lanes) }
    }
}

/// The random bits of eight floats ([`float16::random_bits`]).
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn random_lanes(mut x: __m256i) -> __m256i {
    let [first, second] = float16::MIX.map(|factor| _mm256_set1_epi32(factor as i32));
    x = _mm256_mullo_epi32(_mm256_xor_si256(x, _mm256_srli_epi32(x, 16)), first);
    x = _mm256_mullo_epi32(_mm256_xor_si256(x, _mm256_srli_epi32(x, 15)), second);
    _mm256_xor_si256(x, _mm256_srli_epi32(x, 15))
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn bf16_values(packed: __m256i) -> (__m256, __m256) {
    let upper = _mm256_and_si256(packed, _mm256_set1_epi32(0xffff_0000_u32 as i32));
    (_mm256_castsi256_ps(_mm256_slli_epi32(packed, 16)), _mm256_castsi256_ps(upper))
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn f16_values(packed: __m256i) -> (__m256, __m256) {
    let lower = _mm256_and_si256(packed, _mm256_set1_epi32(0xffff));
    let both = _mm256_packus_epi32(lower, _mm256_srli_epi32(packed, 16));
    // Each 128 bits of `both` have four lower and four upper halves.
    let both = _mm256_permute4x64_epi64(both, 0b11_01_10_00);
    (_mm256_cvtph_ps(_mm256_castsi256_si128(both)), _mm256_cvtph_ps(_mm256_extracti128_si256(both, 1)))
}

/// [`float16::rounded_bf16`] in the upper halves of the lanes. The lower halves are not 0.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn rounded_bf16_lanes(weights: __m256i, add: __m256i) -> __m256i {
    let magnitudes = _mm256_and_si256(weights, _mm256_set1_epi32(i32::MAX));
    let fixed = _mm256_cmpgt_epi32(magnitudes, _mm256_set1_epi32(float16::LARGEST_BF16 as i32 - 1));
    _mm256_add_epi32(weights, _mm256_andnot_si256(fixed, add))
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn bf16_halves(lower: __m256i, upper: __m256i, random: __m256i) -> __m256i {
    let low = rounded_bf16_lanes(lower, _mm256_and_si256(random, _mm256_set1_epi32(0xffff)));
    let high = rounded_bf16_lanes(upper, _mm256_srli_epi32(random, 16));
    _mm256_blend_epi16(_mm256_srli_epi32(low, 16), high, 0b1010_1010)
}

/// [`float16::chance_f16`] of eight weights in the range of f16, as eight numbers of 16 bits. `random` is below 2^13.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn rounded_f16_lanes(weights: __m256i, random: __m256i) -> __m128i {
    // The distance between two f16 follows from the exponent. It stays that of 2^-14 below it.
    let exponents = _mm256_and_si256(weights, _mm256_set1_epi32(0x7f80_0000));
    let powers = _mm256_max_epi32(exponents, _mm256_set1_epi32(float16::SMALLEST_NORMAL as i32));
    let part = _mm256_mul_ps(_mm256_cvtepi32_ps(random), _mm256_set1_ps(f32::EPSILON));
    let part = _mm256_mul_ps(part, _mm256_castsi256_ps(powers));
    let weights = _mm256_castsi256_ps(weights);
    let sign = _mm256_and_ps(weights, _mm256_set1_ps(-0.0));
    let raised = _mm256_add_ps(weights, _mm256_or_ps(part, sign));
    // The addition has gone past the next f16 where chance says so. The rest is cut off.
    _mm256_cvtps_ph(raised, _MM_FROUND_TO_ZERO)
}

/// Packs eight f16 and eight more. `largest` becomes the largest magnitude so far, in each lane.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn f16_halves(lower: __m256i, upper: __m256i, random: __m256i, largest: &mut __m256i) -> __m256i {
    let magnitude = _mm256_set1_epi32(i32::MAX);
    *largest = _mm256_max_epi32(*largest, _mm256_and_si256(lower, magnitude));
    *largest = _mm256_max_epi32(*largest, _mm256_and_si256(upper, magnitude));
    let low =
        rounded_f16_lanes(lower, _mm256_and_si256(_mm256_srli_epi32(random, 3), _mm256_set1_epi32(0x1fff)));
    let high = rounded_f16_lanes(upper, _mm256_srli_epi32(random, 19));
    _mm256_or_si256(_mm256_cvtepu16_epi32(low), _mm256_slli_epi32(_mm256_cvtepu16_epi32(high), 16))
}

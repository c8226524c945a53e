//! The hash of a key, and what its bits choose. It must never change: shards, images and peers depend on it
//! (docs/wire.md).
//!
//! The top log2(shards) bits choose the shard. Bits 32..48 are the bucket tag. Bits 40..48 also choose the middle third
//! of a group in an expansion. The low bits choose the bucket.

/// Hash of a key: a folded 64x64 -> 128 bit multiplication (the "mum" of wyhash, one round).
///
/// ```
/// use gannet_core::{hash, shard_of};
///
/// // Every server and worker finds the same shard of key 7 in a table of 64 shards.
/// let shard = shard_of(hash(7), 64);
/// assert!(shard < 64);
/// assert_eq!(shard_of(hash(7), 1), 0);
/// ```
#[inline(always)]
pub fn hash(key: u64) -> u64 {
    let product = u128::from(key ^ 0x2545_F491_4F6C_DD1D) * 0x9E37_79B9_7F4A_7C15u128;
    (product as u64) ^ ((product >> 64) as u64)
}

/// The shard of a hash among `shards` (a power of two). [`hash`] has an example.
#[inline(always)]
pub fn shard_of(hash: u64, shards: u32) -> u32 {
    // Two shifts, because a shift by 64 (one shard) is undefined.
    ((hash >> 1) >> (63 - shards.trailing_zeros())) as u32
}

/// The bucket tag of a hash. It is never 0, because 0 marks an empty entry.
#[inline(always)]
pub(crate) fn tag(hash: u64) -> u16 {
    ((hash >> 32) as u16) | 1
}

/// One step of splitmix64 (Steele, Lea, Flood 2014): the seed of initial values and of names.
///
/// ```
/// use gannet_core::mix;
///
/// // Invented data: ten draws below 100 that are the same in every run.
/// let draws: Vec<u64> = (0..10).map(|i| mix(i) % 100).collect();
/// assert_eq!(draws[3], mix(3) % 100);
/// assert_ne!(draws[0], draws[1]);
/// ```
#[inline]
pub fn mix(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frozen_values() {
        // Golden: a change here breaks every image and every cluster of mixed versions.
        let seen: Vec<u64> = [0u64, 1, 2, u64::MAX].iter().map(|&k| hash(k)).collect();
        assert_eq!(seen, FROZEN);
        assert_eq!(shard_of(u64::MAX, 1), 0);
        assert_eq!(shard_of(u64::MAX, 64), 63);
        assert_eq!(shard_of(1 << 63, 2), 1);
    }
    const FROZEN: [u64; 4] =
        [17009436294990141028, 5459539755202218569, 2340353688940519052, 16279849393058027396];

    /// Sequential, strided and high-bit keys all spread evenly over shards, low bits and tags (chi-square per cell).
    #[test]
    fn spreads_evenly() {
        let families: [fn(u64) -> u64; 5] =
            [|i| i, |i| i << 6, |i| i << 32, |i| i * 1_000_003, |i| i << 48 | i >> 4];
        for (f, family) in families.iter().enumerate() {
            let n = 1u64 << 18;
            for (name, bits) in
                [("shard", (|h| h >> 58) as fn(u64) -> u64), ("low", |h| h & 63), ("tag", |h| (h >> 33) & 63)]
            {
                let mut counts = [0u64; 64];
                (0..n).for_each(|i| counts[bits(hash(family(i))) as usize] += 1);
                let mean = (n / 64) as f64;
                let chi: f64 = counts.iter().map(|&c| (c as f64 - mean).powi(2) / mean).sum();
                assert!(chi < 64.0 * 4.0, "family {f}, {name}: chi-square {chi}");
            }
        }
    }
}

//! What the rounding of a worker's gradients to f16 has left out so far, key by key. The next gradient of the key has
//! it added, so that nothing is left out for long (error feedback).
//!
//! A table of slots with linear probing. A slot is chosen by the upper bits of a key's hash, so the keys of a batch,
//! which are in shard order, walk through the memory. It doubles when three quarters are used, up to a limit. After
//! that further keys are rounded by chance, which leaves nothing out on average. A key keeps its slot.

use bytemuck::cast_slice_mut;
use gannet_core::{hash, mix};
use gannet_wire::frames::f16;
use gannet_wire::frames::f16::{BLOCK, F16_MAX};

/// A free slot. The key of this number never has a slot. It is a number that data hardly have: 2^64 - 1 is the key of
/// intercepts.
const FREE: u64 = 0xA5C3_96E1_7D2B_480F;

/// No place.
const NONE: u32 = u32::MAX;

/// Slots at the beginning.
const SLOTS_MIN: usize = 1024;

/// The rounding errors of one table's gradients.
pub(crate) struct RoundingErrors {
    /// Floats of a row.
    floats: usize,
    /// The slots. Each has its key, as two words, and the errors of the key's row, as the bits of floats.
    words: Vec<u32>,
    used: usize,
    slots_max: usize,
    /// Memory of a call: where in `words` the errors of some rows are, the rows' sums, and these as f16 and as the
    /// floats that those are.
    places: Vec<u32>,
    sums: Vec<f32>,
    narrow: Vec<u16>,
    wide: Vec<f32>,
}

impl RoundingErrors {
    /// No errors yet. The memory for rows of `floats` floats has at most so many bytes.
    pub(crate) fn new(floats: usize, bytes_max: usize) -> RoundingErrors {
        // Places are counted in words, in a u32.
        let most = bytes_max.min(1 << 33) / (8 + 4 * floats);
        let slots_max = if most < 4 { 0 } else { 1 << most.ilog2() };
        RoundingErrors {
            floats,
            words: Vec::new(),
            used: 0,
            slots_max,
            places: Vec::new(),
            sums: Vec::new(),
            narrow: Vec::new(),
            wide: Vec::new(),
        }
    }

    /// Rounds the gradients of `keys` to f16, which are then in the first half of their memory. `seq` is the number of
    /// the push. Returns how many rows were rounded by chance.
    ///
    /// All values must [fit](f16::fit_f16) into f16. A sum of gradient and error that does not is cut off, and the rest
    /// is kept like an error.
    pub(crate) fn narrow(&mut self, keys: &[u64], seq: u64, values: &mut [f32]) -> usize {
        let rows = (BLOCK / self.floats.max(1)).max(1);
        let mut by_chance = 0;
        for (block, keys) in keys.chunks(rows).enumerate() {
            let from = block * rows * self.floats;
            by_chance += self.add(keys, seq, &values[from..from + keys.len() * self.floats]);
            self.round(keys.len());
            // These end where the values of the block ended, at the latest.
            cast_slice_mut::<f32, u16>(values)[from..from + self.narrow.len()].copy_from_slice(&self.narrow);
        }
        by_chance
    }

    /// The sums of these gradients and the errors of their keys, which are taken out. Keys without a slot are rounded
    /// by chance; returns how many.
    pub(crate) fn add(&mut self, keys: &[u64], seq: u64, values: &[f32]) -> usize {
        self.find(keys);
        let RoundingErrors { floats, words, places, sums, .. } = self;
        let errors: &mut [f32] = cast_slice_mut(words);
        sums.clear();
        sums.extend_from_slice(values);
        let mut by_chance = 0;
        for ((sums, &place), &key) in sums.chunks_exact_mut(*floats).zip(&*places).zip(keys) {
            if place == NONE {
                round_values(sums, key, seq);
                by_chance += 1;
                continue;
            }
            // A key that comes twice finds its errors once.
            for (sum, error) in sums.iter_mut().zip(&mut errors[place as usize..][..*floats]) {
                let whole = *sum + *error;
                *sum = whole.clamp(-F16_MAX, F16_MAX);
                *error = whole - *sum;
            }
        }
        by_chance
    }

    /// Rounds the sums of some rows, and keeps what that leaves out.
    fn round(&mut self, rows: usize) {
        let RoundingErrors { floats, words, places, sums, narrow, wide, .. } = self;
        let floats = *floats;
        narrow.resize(rows * floats, 0);
        wide.resize(rows * floats, 0.0);
        f16::narrow(sums, narrow);
        f16::widen(narrow, wide);
        let errors: &mut [f32] = cast_slice_mut(words);
        let sent = sums.chunks_exact(floats).zip(wide.chunks_exact(floats));
        for (&place, (sums, wide)) in places.iter().zip(sent) {
            if place != NONE {
                let errors = errors[place as usize..][..floats].iter_mut();
                errors.zip(sums.iter().zip(wide)).for_each(|(error, (sum, wide))| *error += sum - wide);
            }
        }
    }

    /// Finds where the errors of these keys are, and makes slots that are missing as long as there is memory.
    fn find(&mut self, keys: &[u64]) {
        let mut slots = self.slots();
        while self.used + keys.len() > slots / 4 * 3 && slots < self.slots_max {
            self.grow();
            slots = self.slots();
        }
        self.places.clear();
        if slots == 0 {
            return self.places.resize(keys.len(), NONE);
        }
        let RoundingErrors { floats, words, used, places, .. } = self;
        let (stride, bits, most) = (2 + *floats, slots.ilog2(), slots / 4 * 3);
        places.extend(keys.iter().map(|&key| {
            let at = error_place(words, stride, bits, key);
            let is_free = key_at(words, at) == FREE;
            if is_free && (key == FREE || *used >= most) {
                return NONE;
            }
            if is_free {
                set_key(words, at, key);
                *used += 1;
            }
            at as u32 + 2
        }));
    }

    fn slots(&self) -> usize {
        self.words.len() / (2 + self.floats)
    }

    /// Doubles the number of slots.
    fn grow(&mut self) {
        let slots = (2 * self.slots()).max(SLOTS_MIN).min(self.slots_max);
        let stride = 2 + self.floats;
        let mut words = vec![0; slots * stride];
        (0..slots).for_each(|slot| set_key(&mut words, slot * stride, FREE));
        for old in self.words.chunks_exact(stride).filter(|old| key_at(old, 0) != FREE) {
            let at = error_place(&words, stride, slots.ilog2(), key_at(old, 0));
            words[at..at + stride].copy_from_slice(old);
        }
        self.words = words;
    }
}

#[inline]
fn key_at(words: &[u32], at: usize) -> u64 {
    let [low, high] = [words[at], words[at + 1]].map(u64::from);
    high << 32 | low
}

fn set_key(words: &mut [u32], at: usize, key: u64) {
    (words[at], words[at + 1]) = (key as u32, (key >> 32) as u32);
}

/// The first word of a key's slot, or of the free one where it belongs. There are 2^bits slots of `stride` words, at
/// least 2, and one of them is free.
#[inline]
fn error_place(words: &[u32], stride: usize, bits: u32, key: u64) -> usize {
    let mut at = (hash(key) >> (64 - bits)) as usize * stride;
    loop {
        let here = key_at(words, at);
        if here == key || here == FREE {
            return at;
        }
        at = if at + stride == words.len() { 0 } else { at + stride };
    }
}

/// Rounds the gradients of a key by chance. The chances follow from the key and the number of the push.
fn round_values(values: &mut [f32], key: u64, seq: u64) {
    let seed = mix(hash(key) ^ mix(seq)) as u32;
    for (nth, value) in (1u32..).zip(values) {
        *value = f16::round_by_chance(*value, scramble(seed ^ nth.wrapping_mul(0x9E37_79B9)) >> 8);
    }
}

/// The last step of MurmurHash3: every bit of the result depends on every bit of `word`.
#[inline]
fn scramble(mut word: u32) -> u32 {
    word = (word ^ word >> 16).wrapping_mul(0x85EB_CA6B);
    word = (word ^ word >> 13).wrapping_mul(0xC2B2_AE35);
    word ^ word >> 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn narrowed(errors: &mut RoundingErrors, keys: &[u64], seq: u64, gradients: &[f32]) -> (Vec<f32>, usize) {
        let mut values = gradients.to_vec();
        let by_chance = errors.narrow(keys, seq, &mut values);
        let mut wide = vec![0.0; gradients.len()];
        f16::widen(&cast_slice_mut::<f32, u16>(&mut values)[..gradients.len()], &mut wide);
        (wide, by_chance)
    }

    fn gradient() -> impl Strategy<Value = f32> {
        prop_oneof![-2.0f32..2.0, -1e-6f32..1e-6, -65_504.0f32..65_504.0, Just(F16_MAX), Just(0.0)]
    }

    proptest! {
        /// Nothing is left out for long: what was sent of a key differs from its gradients by less than a step of f16,
        /// however many there are. Without the errors each of them could miss that much. Keys may come twice.
        #[test]
        fn what_is_sent_follows_the_sum_of_the_gradients(
            pushes in prop::collection::vec(prop::collection::vec((0u64..60, gradient()), 1..300), 1..20),
            floats in 1usize..6,
        ) {
            let mut errors = RoundingErrors::new(floats, 1 << 20);
            let mut sums: HashMap<(u64, usize), f64> = HashMap::new();
            for (seq, push) in (1..).zip(&pushes) {
                // So many slots are used that the memory grows.
                let keys: Vec<u64> = push.iter().map(|(key, _)| key * 7919).collect();
                let value = |nth: usize| push[nth / floats].1 / (1 + nth % floats) as f32;
                let gradients: Vec<f32> = (0..keys.len() * floats).map(value).collect();
                let (sent, by_chance) = narrowed(&mut errors, &keys, seq, &gradients);
                prop_assert_eq!(by_chance, 0);
                for (nth, (sent, gradient)) in sent.iter().zip(&gradients).enumerate() {
                    let left = sums.entry((keys[nth / floats], nth % floats)).or_default();
                    *left += f64::from(*gradient) - f64::from(*sent);
                }
            }
            // Sums beyond the range of f16 wait: then more is left out.
            let within = pushes.iter().flatten().all(|(_, gradient)| gradient.abs() < 1000.0);
            for ((key, place), left) in sums {
                errors.find(&[key]);
                let kept = f64::from(f32::from_bits(errors.words[errors.places[0] as usize + place]));
                // A gradient and an error are added as f32, and up to 300 rows are of one key.
                prop_assert!((kept - left).abs() <= 2.0, "key {}: {} kept, {} left out", key, kept, left);
                prop_assert!(!within || (kept - left).abs() <= 1e-2 && kept.abs() <= 300.0 * 0.25);
            }
        }
    }

    #[test]
    fn one_key_is_followed_closely() {
        let mut errors = RoundingErrors::new(1, 1 << 20);
        let (mut sent, mut sum) = (0.0, 0.0);
        for seq in 1..10_000u64 {
            let gradient = 1e-8 * (seq % 7) as f32 - 0.0003;
            let (wide, _) = narrowed(&mut errors, &[5], seq, &[gradient]);
            (sent, sum) = (sent + f64::from(wide[0]), sum + f64::from(gradient));
            assert!((sent - sum).abs() < 3e-7, "{sent} was sent of {sum}");
        }
    }

    #[test]
    fn tables_grow_up_to_their_limit_and_then_chance_decides() {
        // 1,024 slots of 12 bytes fit, 2,048 do not. Three quarters of them are used.
        let mut errors = RoundingErrors::new(1, 2047 * 12);
        let keys: Vec<u64> = (0..3000).collect();
        let gradients = vec![0.1; keys.len()];
        let (first, by_chance) = narrowed(&mut errors, &keys, 1, &gradients);
        assert_eq!((errors.slots(), errors.used, by_chance), (1024, 768, 3000 - 768));
        let nearest = first[0];
        assert!(first[..768].iter().all(|sent| *sent == nearest), "keys with a slot take the nearest f16");
        let others = &first[768..];
        assert!(others.iter().any(|sent| *sent != nearest) && others.contains(&nearest));
        let mean = others.iter().map(|sent| f64::from(*sent)).sum::<f64>() / others.len() as f64;
        assert!((mean - 0.1).abs() < 1e-5, "{mean}: right on average");
        // The same keys keep their slots. The same push has the same bits, another one has not.
        let mut again = RoundingErrors::new(1, 2047 * 12);
        assert_eq!(narrowed(&mut again, &keys, 1, &gradients).0, first);
        let (second, by_chance) = narrowed(&mut errors, &keys, 2, &gradients);
        assert_eq!((errors.used, by_chance), (768, 3000 - 768));
        assert_ne!(second[768..], first[768..]);
    }

    #[test]
    fn the_key_of_a_free_slot_and_rows_without_memory_go_by_chance() {
        let mut errors = RoundingErrors::new(1, 1 << 20);
        assert_eq!(narrowed(&mut errors, &[FREE, 1], 1, &[0.5, 0.25]), (vec![0.5, 0.25], 1));
        let mut none = RoundingErrors::new(3, 12);
        assert_eq!(narrowed(&mut none, &[1], 1, &[0.5, 0.25, 1.0]), (vec![0.5, 0.25, 1.0], 1));
        // Rows that are longer than a block.
        let mut long = RoundingErrors::new(2 * BLOCK + 3, 1 << 24);
        let gradients: Vec<f32> = (0..3 * (2 * BLOCK + 3)).map(|i| (i % 2000) as f32 * 0.25).collect();
        assert!(narrowed(&mut long, &[1, 2, 3], 1, &gradients) == (gradients, 0));
    }
}

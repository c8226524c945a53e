//! The payloads of conditional pulls, which ask for the rows that are newer than the worker's cached ones, and bits for
//! pushes whose keyset has some of the rows (docs/wire.md).
//!
//! ```text
//! request: incarnation u64 | newest version u64 | keys u64.. | cached: a bit a key, in u64.. | ages u32.., padded to 8
//! answer:  changes: two bits a key, in u64.. | the rows that have changed
//! ```
//! There is an age for each set bit: how far the row's version is below the newest version. Only lengths can be wrong:
//! every value in a payload has a meaning.

use bytemuck::{cast_slice, try_cast_slice};
use gannet_core::{CachedVersion, NewerRow};

/// The age of a key that had no row.
const NO_ROW: u32 = u32::MAX;

/// How many words hold this number of bits.
pub fn bit_words(bits: usize) -> usize {
    bits.div_ceil(64)
}

/// Whether bit `i` is set.
pub fn bit(bits: &[u64], i: usize) -> bool {
    bits[i / 64] >> (i % 64) & 1 == 1
}

/// How many of the first `n` bits are set.
pub fn ones(bits: &[u64], n: usize) -> usize {
    let whole: u32 = bits[..n / 64].iter().map(|word| word.count_ones()).sum();
    let rest = if n.is_multiple_of(64) { 0 } else { bits[n / 64] & ((1 << (n % 64)) - 1) };
    (whole + rest.count_ones()) as usize
}

/// The versions of rows that a worker has cached, as a request carries them.
#[derive(Debug, Default)]
pub struct CachedRows {
    /// The incarnation of the shards, and the newest version, from which ages count down.
    of: [u64; 2],
    bits: Vec<u64>,
    ages: Vec<u32>,
    keys: usize,
}

impl CachedRows {
    /// Versions of one incarnation. A version that is too old for an age is sent as not cached.
    pub fn new(incarnation: u64, held: &[CachedVersion]) -> CachedRows {
        let versions = held.iter().filter_map(|held| match held {
            CachedVersion::Row(version) => Some(*version),
            _ => None,
        });
        let newest = versions.max().unwrap_or(0);
        let (mut bits, mut ages) = (vec![0; bit_words(held.len())], Vec::new());
        for (i, held) in held.iter().enumerate() {
            let age = match held {
                CachedVersion::Nothing => None,
                CachedVersion::NoRow => Some(NO_ROW),
                CachedVersion::Row(version) => {
                    u32::try_from(newest - version).ok().filter(|age| *age != NO_ROW)
                }
            };
            if let Some(age) = age {
                bits[i / 64] |= 1 << (i % 64);
                ages.push(age);
            }
        }
        CachedRows { of: [incarnation, newest], bits, ages, keys: held.len() }
    }

    /// How many keys have a cached version.
    pub fn held(&self) -> usize {
        self.ages.len()
    }

    /// Bytes of the payload with its keys, without the padding.
    pub fn bytes(&self) -> usize {
        16 + 8 * (self.keys + self.bits.len()) + 4 * self.ages.len()
    }

    /// The bytes before the keys.
    pub fn before(&self) -> &[u8] {
        cast_slice(&self.of)
    }

    /// The bytes behind the keys.
    pub fn behind(&self) -> [&[u8]; 2] {
        [cast_slice(&self.bits), cast_slice(&self.ages)]
    }
}

/// The payload of a request, as the server reads it.
#[derive(Debug)]
pub struct PullNewerPayload<'a> {
    pub incarnation: u64,
    newest: u64,
    pub keys: &'a [u64],
    bits: &'a [u64],
    ages: &'a [u32],
}

impl<'a> PullNewerPayload<'a> {
    /// The payload of a request for this number of keys. `None` if the payload has another length.
    pub fn of(payload: &'a [u8], keys: usize) -> Option<PullNewerPayload<'a>> {
        let fixed = 2 + keys + bit_words(keys);
        let (words, ages) = payload.split_at_checked(fixed * 8)?;
        let words: &[u64] = try_cast_slice(words).ok()?;
        let ([incarnation, newest], words) = words.split_first_chunk()?;
        let (keys, bits) = words.split_at(keys);
        let held = ones(bits, keys.len());
        if ages.len() != (4 * held).next_multiple_of(8) {
            return None;
        }
        let ages: &[u32] = try_cast_slice(&ages[..4 * held]).ok()?;
        Some(PullNewerPayload { incarnation: *incarnation, newest: *newest, keys, bits, ages })
    }

    /// The cached version of each key. In another incarnation than `incarnation` nothing is cached.
    pub fn held(&self, incarnation: u64, out: &mut Vec<CachedVersion>) {
        out.clear();
        if incarnation != self.incarnation {
            return out.resize(self.keys.len(), CachedVersion::Nothing);
        }
        let mut ages = self.ages.iter();
        out.extend((0..self.keys.len()).map(|i| match bit(self.bits, i).then(|| ages.next()).flatten() {
            None => CachedVersion::Nothing,
            Some(&NO_ROW) => CachedVersion::NoRow,
            // Below version 0: no worker sends such an age.
            Some(&age) => {
                self.newest.checked_sub(u64::from(age)).map_or(CachedVersion::Nothing, CachedVersion::Row)
            }
        }));
    }
}

/// Bytes of the change bits of this number of keys. They come before the rows.
pub fn change_bytes(keys: usize) -> usize {
    bit_words(2 * keys) * 8
}

/// Writes the change bits of each key into the first [`change_bytes`] of an answer.
pub fn write_changes(changes: &[NewerRow], out: &mut [u8]) {
    for (changes, out) in changes.chunks(32).zip(out.chunks_exact_mut(8)) {
        let code = |newer: &NewerRow| match newer {
            NewerRow::Same => 0u64,
            NewerRow::Row => 1,
            NewerRow::NoRow => 2,
        };
        let word = changes.iter().rev().fold(0, |word, newer| word << 2 | code(newer));
        out.copy_from_slice(&word.to_le_bytes());
    }
}

/// The change of each of `keys` keys that an answer reports, and its rows of `floats` floats. `None` if the length is
/// wrong or a code is unknown.
pub fn read_reply(payload: &[u8], keys: usize, floats: usize) -> Option<(Vec<NewerRow>, &[f32])> {
    let (words, rows) = payload.split_at_checked(change_bytes(keys))?;
    let words: &[u64] = try_cast_slice(words).ok()?;
    let changes = (0..keys).map(|i| match words[i / 32] >> (i % 32 * 2) & 3 {
        0 => Some(NewerRow::Same),
        1 => Some(NewerRow::Row),
        2 => Some(NewerRow::NoRow),
        _ => None,
    });
    let changes: Vec<NewerRow> = changes.collect::<Option<_>>()?;
    let bytes = changes.iter().filter(|newer| **newer != NewerRow::Same).count() * floats * 4;
    if rows.len() != bytes.next_multiple_of(8) {
        return None;
    }
    Some((changes, try_cast_slice(&rows[..bytes]).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn held() -> impl Strategy<Value = CachedVersion> {
        prop_oneof![
            Just(CachedVersion::Nothing),
            Just(CachedVersion::NoRow),
            (0u64..1000).prop_map(CachedVersion::Row),
            Just(CachedVersion::Row(1 << 40)),
            Just(CachedVersion::Row((1 << 40) - u64::from(u32::MAX))),
        ]
    }

    /// In memory that is aligned as a frame's payload is.
    fn aligned(bytes: &[u8]) -> Vec<u64> {
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
        words
    }

    proptest! {
        #[test]
        fn a_request_comes_as_it_was_made(held in prop::collection::vec(held(), 0..300), incarnation in 1u64..3) {
            let cached = CachedRows::new(incarnation, &held);
            let version = |held: &CachedVersion| match held {
                CachedVersion::Row(version) => Some(*version),
                _ => None,
            };
            let newest = held.iter().filter_map(version).max().unwrap_or(0);
            let keys: Vec<u64> = (0..held.len() as u64).collect();
            let mut payload = cached.before().to_vec();
            payload.extend_from_slice(cast_slice(&keys));
            cached.behind().iter().for_each(|part| payload.extend_from_slice(part));
            prop_assert_eq!(payload.len(), cached.bytes());
            payload.resize(payload.len().next_multiple_of(8), 0);
            let words = aligned(&payload);
            let request = PullNewerPayload::of(cast_slice(&words), keys.len()).unwrap();
            prop_assert_eq!((request.incarnation, request.keys), (incarnation, &keys[..]));
            let mut got = Vec::new();
            request.held(incarnation, &mut got);
            // A version that is too old for an age is sent as not cached.
            let sent = |held: &CachedVersion| match held {
                CachedVersion::Row(version) if newest - version >= u64::from(u32::MAX) => CachedVersion::Nothing,
                held => *held,
            };
            let want: Vec<CachedVersion> = held.iter().map(sent).collect();
            prop_assert_eq!(&got, &want);
            request.held(incarnation + 1, &mut got);
            prop_assert!(got.len() == held.len() && got.iter().all(|held| *held == CachedVersion::Nothing));
            let shorter = &cast_slice(&words)[..payload.len().saturating_sub(8)];
            prop_assert!(PullNewerPayload::of(shorter, keys.len()).is_none());
        }

        #[test]
        fn an_answer_comes_as_it_was_made(codes in prop::collection::vec(0u8..3, 0..200), floats in 1usize..4) {
            let by_code = [NewerRow::Same, NewerRow::Row, NewerRow::NoRow];
            let newer: Vec<NewerRow> = codes.iter().map(|code| by_code[*code as usize]).collect();
            let count = newer.iter().filter(|newer| **newer != NewerRow::Same).count();
            let rows: Vec<f32> = (0..count * floats).map(|i| i as f32).collect();
            let mut payload = vec![7; change_bytes(newer.len())];
            write_changes(&newer, &mut payload);
            payload.extend_from_slice(cast_slice(&rows));
            payload.resize(payload.len().next_multiple_of(8), 0);
            let words = aligned(&payload);
            prop_assert_eq!(read_reply(cast_slice(&words), newer.len(), floats), Some((newer.clone(), &rows[..])));
            let shorter = &cast_slice(&words)[..payload.len().saturating_sub(8)];
            prop_assert!(read_reply(shorter, newer.len(), floats).is_none() || payload.is_empty());
        }

        #[test]
        fn any_bytes_are_read(words in prop::collection::vec(any::<u64>(), 0..40), keys in 0usize..60) {
            if let Some(request) = PullNewerPayload::of(cast_slice(&words), keys) {
                let mut held = Vec::new();
                request.held(request.incarnation, &mut held);
                prop_assert_eq!(held.len(), keys);
            }
            if let Some((newer, _)) = read_reply(cast_slice(&words), keys, 2) {
                prop_assert_eq!(newer.len(), keys);
            }
        }
    }
}

//! Admission: which push of a key that has no row creates the row. Most keys of sparse data are seen once or twice and
//! are worth no row. McMahan et al. ("Ad Click Prediction: a View from the Trenches", KDD 2013, section 4.1) admit them
//! by probability or by count.
//!
//! Counts live in a sketch of fixed size in the shard's header. It is a count-min sketch (Cormode, Muthukrishnan 2005)
//! with conservative update (Estan, Varghese 2002). All counters of a key are in one line of 64 bytes, as in the
//! blocked Bloom filters of Putze, Sanders, Singler (2007). So a count costs one cache miss and one undo record.
//!
//! Each line also counts its pushes. When that count reaches the number of pushes that the line's counters can
//! tell apart, the counters and the count are halved. This is the reset of TinyLFU (Einziger, Friedman, Manes
//! 2017). So the sketch forgets rare keys of long ago and stays useful in an endless stream.

use crate::hash::mix;
use crate::image::layout::sketch_at;
use crate::limits::ADMIT_PUSHES_MAX;
use crate::push_name::PushName;
use crate::schema::admission::Admission;
use crate::schema::table_schema::Schema;
use crate::table::owned::shard::Shard;

impl Shard {
    /// Whether this push of `key`, which has no row, creates the row. A push that is not admitted is a whole
    /// step of the journal, so its count survives exactly when the step does. An admitted push leaves the
    /// sketch unchanged. If it is refused afterwards (no space), a resend gets the same decision.
    #[cold]
    #[inline(never)]
    pub(crate) fn admits(&mut self, schema: &Schema, name: &PushName, key: u64) -> bool {
        match schema.admission {
            Admission::All => true,
            Admission::Probability(p) => {
                let admitted = drawn(schema.seed, key, name) < p;
                if !admitted {
                    self.skip_step();
                }
                admitted
            }
            Admission::Count { pushes, sketch_bytes } => {
                let (place, counters) =
                    (CounterPlace::of(key, sketch_bytes as usize / LINE_BYTES), pushes - 1);
                let at = sketch_at(schema.stride()) + place.line * LINE_BYTES;
                let before = std::array::from_fn(|i| self.image.sketch_word(at + 8 * i));
                let mut line = before;
                if !place.count(&mut line, counters) {
                    return true;
                }
                self.journal.begin();
                self.journal.log(&mut self.image, at, LINE_BYTES);
                self.journal.arm(&self.image);
                for (i, (word, _)) in line.iter().zip(before).enumerate().filter(|(_, (w, b))| *w != b) {
                    self.image.set_sketch_word(at + 8 * i, *word);
                    crate::kill_point!();
                }
                self.journal.done();
                false
            }
        }
    }
}

impl Shard {
    /// The bytes of the admission sketch, which has `bytes` bytes; empty without admission by count.
    pub(crate) fn sketch_bytes(&self, bytes: usize) -> Vec<u8> {
        let word = |at: usize| self.image.sketch_word(self.image.sketch_start() + at).to_le_bytes();
        (0..bytes).step_by(8).flat_map(word).collect()
    }

    /// Replaces the admission sketch by that of the owner. Returns `false` if it has another length.
    pub(crate) fn set_sketch(&mut self, schema: &Schema, sketch: &[u8]) -> bool {
        let start = self.image.sketch_start();
        let fits = sketch.len() == schema.admission.sketch_bytes();
        for (at, word) in sketch.as_chunks::<8>().0.iter().enumerate().filter(|_| fits) {
            self.image.set_sketch_word(start + 8 * at, u64::from_le_bytes(*word));
        }
        fits
    }

    /// Raises every counter to that of `other`, the sketch of a shard that had some of this shard's keys. So no key is
    /// admitted later than with `other` alone.
    pub(crate) fn merge_sketch(&mut self, schema: &Schema, other: &[u8]) {
        let Admission::Count { pushes, sketch_bytes } = schema.admission else { return };
        let start = self.image.sketch_start();
        for (line, other) in
            other.as_chunks::<LINE_BYTES>().0.iter().enumerate().take(sketch_bytes as usize / LINE_BYTES)
        {
            let at = |word: usize| start + line * LINE_BYTES + 8 * word;
            let own: SketchLine = std::array::from_fn(|i| self.image.sketch_word(at(i)));
            let merged = higher_counters(&own, other, pushes - 1);
            merged.iter().enumerate().for_each(|(i, word)| self.image.set_sketch_word(at(i), *word));
        }
    }
}

/// The higher of each counter of two lines. The line's count of pushes is the higher one, too.
fn higher_counters(own: &SketchLine, other: &[u8; LINE_BYTES], most: u32) -> SketchLine {
    let mut bytes: [u8; LINE_BYTES] = bytemuck::cast(own.map(u64::to_le));
    let pushes = |line: &[u8]| u16::from_le_bytes([line[0], line[1]]);
    let count = pushes(&bytes).max(pushes(other));
    for (own, other) in bytes.iter_mut().zip(other) {
        *own = match width(most) == ROW_BYTES {
            true => (*own).max(*other),
            false => (*own & 0x0F).max(*other & 0x0F) | (*own & 0xF0).max(*other & 0xF0),
        };
    }
    bytes[..2].copy_from_slice(&count.to_le_bytes());
    bytemuck::cast::<_, SketchLine>(bytes).map(u64::from_le)
}

/// 24 random bits of (table seed, key, pusher, seq) as a number in [0, 1). The row number is left out, because
/// it depends on how the batch was divided among the servers.
fn drawn(seed: u64, key: u64, name: &PushName) -> f32 {
    let bits = mix(mix(mix(mix(seed ^ 0x61_646D_6974) ^ key) ^ name.pusher) ^ name.seq);
    (bits >> 40) as f32 * (1.0 / (1 << 24) as f32)
}

/// A line: a count of its pushes (u16), two bytes of 0, then four rows of 15 bytes. A counter has 4 bits if
/// they suffice, else 8.
pub(crate) const LINE_BYTES: usize = 64;
type SketchLine = [u64; 8];
const ROWS: usize = 4;
const ROW_BYTES: usize = 15;
const HEAD_BYTES: usize = 4;
const _: () = assert!(HEAD_BYTES + ROWS * ROW_BYTES == LINE_BYTES);
const _: () = assert!(ADMIT_PUSHES_MAX as usize - 1 <= u8::MAX as usize);
const _: () = assert!(pushes_until_halved(ADMIT_PUSHES_MAX - 1) <= u16::MAX as u32);

/// Counters of a row when the highest count is `most`.
const fn width(most: u32) -> usize {
    if most < 16 { 2 * ROW_BYTES } else { ROW_BYTES }
}

/// Pushes that a line counts before it is halved: enough to fill one row of counters to `most`, if the pushes
/// are spread evenly. In an endless stream of keys that come once, fewer than 1 in 100 keys are then admitted
/// at push 2, and none at push 3 or later. The tests below check this.
const fn pushes_until_halved(most: u32) -> u32 {
    width(most) as u32 * most
}

/// Where a key's counters are.
struct CounterPlace {
    line: usize,
    bits: u32,
}

impl CounterPlace {
    fn of(key: u64, lines: usize) -> CounterPlace {
        let h = mix(key);
        CounterPlace { line: (((h >> 32) * lines as u64) >> 32) as usize, bits: h as u32 }
    }

    /// The key's counter in each row: byte of the line, shift, mask.
    fn counters(&self, most: u32) -> [(usize, u32, u8); ROWS] {
        let width = width(most);
        std::array::from_fn(|row| {
            let i = ((self.bits >> (8 * row) & 0xFF) as usize * width) >> 8;
            match width == ROW_BYTES {
                true => (HEAD_BYTES + row * ROW_BYTES + i, 0, 0xFF),
                false => (HEAD_BYTES + row * ROW_BYTES + i / 2, 4 * (i as u32 % 2), 0x0F),
            }
        })
    }

    /// Counts a push up to `most`. Returns `false` and changes nothing when the key's count is already `most`.
    fn count(&self, line: &mut SketchLine, most: u32) -> bool {
        let mut bytes: [u8; LINE_BYTES] = bytemuck::cast(line.map(u64::to_le));
        let places = self.counters(most);
        let read = |bytes: &[u8], (at, shift, mask): (usize, u32, u8)| bytes[at] >> shift & mask;
        let least = |bytes: &[u8]| places.iter().map(|&p| read(bytes, p)).min().unwrap_or(0);
        let seen = least(&bytes);
        if u32::from(seen) >= most {
            return false;
        }
        for place @ (at, shift, mask) in places {
            if read(&bytes, place) == seen {
                bytes[at] = bytes[at] & !(mask << shift) | (seen + 1) << shift;
            }
        }
        let pushes = u16::from_le_bytes([bytes[0], bytes[1]]) + 1;
        let pushes = if u32::from(pushes) < pushes_until_halved(most) {
            pushes
        } else {
            halve(&mut bytes, most, pushes)
        };
        bytes[..2].copy_from_slice(&pushes.to_le_bytes());
        *line = bytemuck::cast::<_, SketchLine>(bytes).map(u64::from_le);
        true
    }
}

/// Halves every counter. Returns half of `pushes`.
fn halve(bytes: &mut [u8; LINE_BYTES], most: u32, pushes: u16) -> u16 {
    let keep = if width(most) == ROW_BYTES { 0x7F } else { 0x77 };
    bytes[HEAD_BYTES..].iter_mut().for_each(|b| *b = *b >> 1 & keep);
    pushes / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn counted(line: &SketchLine) -> u64 {
        line[0] & 0xFFFF
    }

    proptest! {
        /// The model has exact counts, which are halved with the line. The line's count is never lower, so no
        /// key is admitted late.
        #[test]
        fn a_line_never_counts_too_few(keys in prop::collection::vec(0u64..60, 1..2000), most in prop_oneof![1u32..16, 16u32..256]) {
            let (mut line, mut exact) = (SketchLine::default(), HashMap::<u64, u32>::new());
            for key in keys {
                let (count, before) = (exact.get(&key).copied().unwrap_or(0), counted(&line));
                let is_counted = CounterPlace::of(key, 1).count(&mut line, most);
                prop_assert!(!(is_counted && count >= most), "key {} was counted past {}", key, most);
                if is_counted {
                    exact.insert(key, count + 1);
                    if counted(&line) <= before {
                        exact.values_mut().for_each(|c| *c /= 2);
                    }
                } else {
                    // Admitted: the key has a row from now on.
                    exact.remove(&key);
                }
                prop_assert!(counted(&line) < u64::from(pushes_until_halved(most)));
                prop_assert_eq!(line[0] >> 16 & 0xFFFF, 0);
            }
        }
    }

    /// In a sketch that is much larger than its keys need, counts are exact: each of 2,000 keys is admitted at
    /// push `most + 1`.
    #[test]
    fn a_large_sketch_is_exact() {
        for most in [1, 4, 15, 16, 255] {
            let mut lines = vec![SketchLine::default(); 4096];
            let admitted_at = (0..2000u64).map(|key| {
                let place = CounterPlace::of(key * 7919, lines.len());
                (1..).find(|_| !place.count(&mut lines[place.line], most)).unwrap_or(0)
            });
            assert!(admitted_at.into_iter().all(|at| at == most + 1), "most {most}");
        }
    }

    /// A full sketch stays useful. It admits few of the keys that come once, and all keys that return soon.
    #[test]
    fn a_long_stream_does_not_wear_it_out() {
        for most in [1u32, 3, 20] {
            let mut lines = vec![SketchLine::default(); 64];
            let mut once = 0;
            for i in 0..200_000u64 {
                let place = CounterPlace::of(i, lines.len());
                once += u32::from(!place.count(&mut lines[place.line], most));
                if i % 1000 == 0 {
                    let place = CounterPlace::of(1 << 40 | i, lines.len());
                    // A line that is halved meanwhile loses some of the `most + 1` pushes, at worst half of them.
                    let admitted = (0..=2 * most).any(|_| !place.count(&mut lines[place.line], most));
                    assert!(admitted, "most {most}, key {i}");
                }
            }
            // As `window` promises: fewer than 1 in 100 keys at push 2, none at a later push.
            let allowed = if most == 1 { 200_000 / 100 } else { 1 };
            assert!(once < allowed, "most {most}: {once} of 200000 keys seen once");
        }
    }

    #[test]
    fn draws_are_even_and_decided_by_the_name() {
        let name = |seq| PushName { pusher: 3, incarnation: 1, seq, row: 0 };
        let n = (0..100_000u64).filter(|&key| drawn(7, key, &name(key % 10)) < 0.25).count();
        assert!((24_000..26_000).contains(&n), "{n}");
        let again = PushName { incarnation: 9, row: 4, ..name(5) };
        assert_eq!(drawn(7, 42, &name(5)), drawn(7, 42, &again));
        assert_ne!(drawn(7, 42, &name(5)), drawn(7, 42, &name(6)));
        assert_ne!(drawn(7, 42, &name(5)), drawn(8, 42, &name(5)));
    }
}

//! How often keys are pulled, in eight bytes for each row of the cache: a count-min sketch with conservative update.
//! All counters of a key are in one line of 64 bytes. Counts are halved now and then, so that a key that was once
//! frequent loses its rank (TinyLFU; Einziger, Friedman, Manes 2017). If rows may be used for N pulls, counts are also
//! halved after about 2 N pulls: a key that comes again later has no use for a place. An estimate is never below the
//! pulls since the last halving, except for counts lost when two threads count at once.

use crate::cache::settings::Staleness;
use gannet_core::{hash, mix};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};

const LINE: usize = 64;

/// Counts for each row between two halvings.
const COUNTS_A_ROW: u64 = 10;

/// The least number of pulls between two halvings, because halving goes through all counters.
const TURNS_MIN: u64 = 8;

pub(crate) struct Sketch {
    counters: Box<[AtomicU8]>,
    lines: u64,
    counted: AtomicU64,
    counts_max: u64,
    /// Pulls between two halvings, at most.
    turns: u64,
}

impl Sketch {
    /// The sketch of a cache of so many rows.
    pub(crate) fn new(rows: u32, staleness: Staleness) -> Sketch {
        let lines = u64::from(rows).div_ceil(8).next_power_of_two();
        let counters = (0..lines as usize * LINE).map(|_| AtomicU8::new(0)).collect();
        let counts_max = COUNTS_A_ROW * u64::from(rows).max(64);
        let turns = match staleness {
            Staleness::Pulls(pulls) => pulls.saturating_add(1).saturating_mul(2).max(TURNS_MIN),
            Staleness::Time(_) => u64::MAX,
        };
        Sketch { counters, lines, counted: AtomicU64::new(0), counts_max, turns }
    }

    /// The key's counters: one in each quarter of its line.
    fn counters(&self, key: u64) -> [&AtomicU8; 4] {
        // Bits other than those that choose a shard, so that the keys of one shard do not share a line.
        let bits = mix(hash(key) ^ 0x9E37_79B9_7F4A_7C15);
        let line = (bits & (self.lines - 1)) as usize * LINE;
        std::array::from_fn(|i| &self.counters[line + 16 * i + (bits >> (40 + 4 * i) & 15) as usize])
    }

    /// About how often a key has been counted.
    pub(crate) fn estimate(&self, key: u64) -> u8 {
        self.counters(key).iter().map(|counter| counter.load(Relaxed)).min().unwrap_or(0)
    }

    /// Counts a key. Returns its new estimate.
    pub(crate) fn count(&self, key: u64) -> u8 {
        let counters = self.counters(key);
        let least = counters.iter().map(|counter| counter.load(Relaxed)).min().unwrap_or(0);
        if least == u8::MAX {
            return least;
        }
        counters.iter().filter(|c| c.load(Relaxed) == least).for_each(|c| c.store(least + 1, Relaxed));
        if self.counted.fetch_add(1, Relaxed) + 1 == self.counts_max {
            self.halve();
        }
        least + 1
    }

    /// Begins pull `turn`: halves the counts if it is time.
    pub(crate) fn tick(&self, turn: u64) {
        if turn.is_multiple_of(self.turns) {
            self.halve();
        }
    }

    fn halve(&self) {
        self.counters.iter().for_each(|counter| counter.store(counter.load(Relaxed) / 2, Relaxed));
        self.counted.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_keys_stand_out_and_are_forgotten_in_time() {
        let sketch = Sketch::new(1000, Staleness::Time(std::time::Duration::ZERO));
        for round in 0..8 {
            (0..100).for_each(|key| assert!(sketch.count(key) > round));
            (0..800).for_each(|key| assert!(sketch.count(10_000 + 800 * u64::from(round) + key) >= 1));
        }
        assert!((0..100).all(|key| sketch.estimate(key) >= 8));
        let seen_once = (10_000..16_400).filter(|&key| sketch.estimate(key) <= 3).count();
        assert!(seen_once > 6000, "{seen_once}");
        // The hundred keys are no longer pulled.
        (0..60_000).for_each(|i| assert!(sketch.count(1 << 40 | i) > 0));
        assert!((0..100).filter(|&key| sketch.estimate(key) >= 8).count() < 60);
        assert!((0..300).map(|_| sketch.count(7)).max() == Some(u8::MAX));
        let sketch = Sketch::new(1000, Staleness::Pulls(9));
        (1..=60).for_each(|turn| {
            sketch.tick(turn);
            sketch.count(7);
        });
        assert!((10..40).contains(&sketch.estimate(7)), "{}", sketch.estimate(7));
    }
}

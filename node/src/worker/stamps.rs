//! Which keys own pushes touch that are not acknowledged: their rows, read where they are, may or may not have the push in
//! them, so they are asked for. An answer comes after every push sent before its request.

use gannet_core::hash;
use std::collections::VecDeque;

/// Entries at first, and at most (16 MiB).
const ENTRIES: (usize, usize) = (1 << 12, 1 << 22);

/// By a key's hash, the number of the last push that touched a key of it. A key that shares its entry with another may be
/// taken for touched, never the other way round; nothing is cleared.
#[derive(Debug)]
pub(super) struct Stamps {
    entries: Vec<u32>,
    /// Pushes begun and acknowledged; they are acknowledged in order. The numbers wrap.
    begun: u32,
    acked: u32,
    /// Keys of each push that is not acknowledged.
    open: VecDeque<u32>,
    open_keys: usize,
}

impl Stamps {
    pub(super) fn new() -> Stamps {
        Stamps { entries: Vec::new(), begun: 0, acked: 0, open: VecDeque::new(), open_keys: 0 }
    }

    /// A push of these keys begins. Without `track` its keys are not noted: see [`Stamps::begin_tracking`].
    pub(super) fn begin(&mut self, keys: &[u64], track: bool) {
        self.begun = self.begun.wrapping_add(1);
        self.open.push_back(keys.len() as u32);
        self.open_keys += keys.len();
        if !track {
            return;
        }
        if self.entries.len() < (self.open_keys * 4).min(ENTRIES.1) {
            let entries = (self.open_keys * 8).next_power_of_two().clamp(ENTRIES.0, ENTRIES.1);
            // What was noted is lost: every key counts as touched by what is open now.
            self.entries = vec![self.begun; entries];
            return;
        }
        let mask = self.entries.len() - 1;
        for &key in keys {
            self.entries[hash(key) as usize & mask] = self.begun;
        }
    }

    /// The oldest open push has been answered.
    pub(super) fn end(&mut self) {
        if let Some(keys) = self.open.pop_front() {
            self.open_keys -= keys as usize;
            self.acked = self.acked.wrapping_add(1);
        }
    }

    /// From now on keys are noted; those of the pushes that are open were not, so every key counts as touched by them.
    pub(super) fn begin_tracking(&mut self) {
        self.entries.clear();
        self.entries.resize(ENTRIES.0, self.begun);
    }

    /// Whether any push is open.
    #[inline(always)]
    pub(super) fn any(&self) -> bool {
        self.begun != self.acked
    }

    /// Whether an open push touches this key, or a key that shares its entry.
    #[inline(always)]
    pub(super) fn is_open(&self, key: u64) -> bool {
        let entry = self.entries[hash(key) as usize & (self.entries.len() - 1)];
        (entry.wrapping_sub(self.acked) as i32) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_key_of_an_open_push_is_never_missed(
            start in prop_oneof![Just(0u32), Just(u32::MAX - 3), Just(i32::MAX as u32 - 2)],
            steps in prop::collection::vec((0u8..5, prop::collection::vec(0u64..3000, 0..900)), 1..40),
        ) {
            let mut stamps = Stamps::new();
            (stamps.begun, stamps.acked) = (start, start);
            let (mut open, mut tracking): (VecDeque<Vec<u64>>, bool) = (VecDeque::new(), false);
            for (what, keys) in steps {
                match what {
                    0 | 1 => {
                        stamps.begin(&keys, tracking);
                        open.push_back(keys);
                    }
                    2 | 3 => {
                        stamps.end();
                        open.pop_front();
                    }
                    _ => {
                        stamps.begin_tracking();
                        tracking = true;
                    }
                }
                prop_assert_eq!(stamps.any(), !open.is_empty());
                if tracking {
                    prop_assert!(open.iter().flatten().all(|&key| stamps.is_open(key)));
                }
                if tracking && open.is_empty() {
                    prop_assert!((0..3000).all(|key| !stamps.is_open(key)));
                }
            }
        }
    }

    #[test]
    fn few_keys_that_no_push_touches_are_taken_for_touched() {
        let mut stamps = Stamps::new();
        stamps.begin_tracking();
        stamps.begin(&(0..10_000).collect::<Vec<_>>(), true);
        stamps.end();
        stamps.begin(&(0..10_000).collect::<Vec<_>>(), true);
        let taken = (1 << 40..(1 << 40) + 10_000).filter(|&key| stamps.is_open(key)).count();
        assert!(taken < 2_000, "{taken} of 10,000");
    }
}

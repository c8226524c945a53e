//! Which keys own pushes touch that are not acknowledged: their rows, read where they are, may or may not have the push
//! in them, so they are asked for. An answer comes after every push sent before its request.

use crate::sharded_keys::{Chunk, ShardedKeys};
use gannet_core::hash;
use std::collections::VecDeque;
use std::sync::Arc;

/// Entries at first, and at most (16 MiB).
const ENTRIES: (usize, usize) = (1 << 12, 1 << 22);

/// By a key's hash, the number of the last push that touched a key of it. A key that shares its entry with another may
/// be taken for touched, never the other way round; nothing is cleared. Keys are noted when somebody wants to know,
/// which nobody does of pushes that are acknowledged before the next pull.
#[derive(Debug)]
pub(super) struct OwnPushFilter {
    entries: Vec<u32>,
    /// Pushes begun and acknowledged; they are acknowledged in order. The numbers wrap.
    begun: u32,
    acked: u32,
    /// Those that are not acknowledged, the oldest first.
    open: VecDeque<(Arc<ShardedKeys>, Chunk)>,
    open_keys: usize,
    /// How many of the last of them are not noted.
    unnoted: usize,
}

impl OwnPushFilter {
    pub(super) fn new() -> OwnPushFilter {
        let open = VecDeque::new();
        OwnPushFilter { entries: Vec::new(), begun: 0, acked: 0, open, open_keys: 0, unnoted: 0 }
    }

    /// A push of this chunk of a cut begins.
    pub(super) fn begin(&mut self, cut: &Arc<ShardedKeys>, chunk: &Chunk) {
        self.begun = self.begun.wrapping_add(1);
        self.open.push_back((cut.clone(), *chunk));
        self.open_keys += chunk.len as usize;
        self.unnoted += 1;
    }

    /// The oldest open push has been answered.
    pub(super) fn end(&mut self) {
        if let Some((_, chunk)) = self.open.pop_front() {
            self.open_keys -= chunk.len as usize;
            self.unnoted = self.unnoted.min(self.open.len());
            self.acked = self.acked.wrapping_add(1);
        }
    }

    /// Whether any push is open.
    #[inline(always)]
    pub(super) fn any(&self) -> bool {
        self.begun != self.acked
    }

    /// What the open pushes touch; `None` when there are none.
    pub(super) fn open(&mut self) -> Option<OpenPushKeys<'_>> {
        if !self.any() {
            return None;
        }
        if self.entries.len() < (self.open_keys * 4).clamp(ENTRIES.0, ENTRIES.1) {
            let entries = (self.open_keys * 8).next_power_of_two().clamp(ENTRIES.0, ENTRIES.1);
            self.entries = vec![self.acked; entries];
            self.unnoted = self.open.len();
        }
        let mask = self.entries.len() - 1;
        let mut number = self.begun.wrapping_sub(self.unnoted as u32);
        for (cut, chunk) in self.open.range(self.open.len() - self.unnoted..) {
            number = number.wrapping_add(1);
            for &key in &cut.keys()[chunk.floats(1)] {
                self.entries[hash(key) as usize & mask] = number;
            }
        }
        self.unnoted = 0;
        Some(OpenPushKeys { entries: &self.entries, acked: self.acked })
    }
}

/// What open pushes touch.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenPushKeys<'a> {
    entries: &'a [u32],
    acked: u32,
}

impl OpenPushKeys<'_> {
    /// Whether an open push touches this key, or a key that shares its entry.
    #[inline(always)]
    pub(super) fn has(&self, key: u64) -> bool {
        let entry = self.entries[hash(key) as usize & (self.entries.len() - 1)];
        (entry.wrapping_sub(self.acked) as i32) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_core::Schema;
    use gannet_optim::{Add, Rule};
    use proptest::prelude::*;

    /// All keys in one chunk.
    fn cut(keys: &[u64]) -> (Arc<ShardedKeys>, Chunk) {
        let schema = Schema { shards: 1, ..Schema::scalar("t", Rule::Add(Add)) };
        let mut cut = ShardedKeys::default();
        cut.fill(0, &schema, &[0], keys);
        (Arc::new(cut), Chunk { peer: 0, start: 0, len: keys.len() as u32, row: 0 })
    }

    proptest! {
        #[test]
        fn a_key_of_an_open_push_is_never_missed(
            start in prop_oneof![Just(0u32), Just(u32::MAX - 3), Just(i32::MAX as u32 - 2)],
            steps in prop::collection::vec((0u8..5, prop::collection::vec(0u64..3000, 0..900)), 1..40),
        ) {
            let mut stamps = OwnPushFilter::new();
            (stamps.begun, stamps.acked) = (start, start);
            let mut open: VecDeque<Vec<u64>> = VecDeque::new();
            for (what, keys) in steps {
                match what {
                    0 | 1 => {
                        let (cut, chunk) = cut(&keys);
                        stamps.begin(&cut, &chunk);
                        open.push_back(keys);
                    }
                    2 | 3 => {
                        stamps.end();
                        open.pop_front();
                    }
                    // Only now and then does anybody look.
                    _ => {
                        let touched = stamps.open();
                        prop_assert_eq!(touched.is_some(), !open.is_empty());
                        prop_assert!(open.iter().flatten().all(|&key| touched.is_some_and(|touched| touched.has(key))));
                    }
                }
                prop_assert_eq!(stamps.any(), !open.is_empty());
                prop_assert_eq!(stamps.open_keys, open.iter().map(Vec::len).sum::<usize>());
            }
        }
    }

    #[test]
    fn few_keys_that_no_push_touches_are_taken_for_touched() {
        let mut stamps = OwnPushFilter::new();
        let (cut, chunk) = cut(&(0..10_000).collect::<Vec<_>>());
        stamps.begin(&cut, &chunk);
        assert!((0..10_000).all(|key| stamps.open().unwrap().has(key)));
        stamps.end();
        assert!(stamps.open().is_none());
        stamps.begin(&cut, &chunk);
        let touched = stamps.open().unwrap();
        let taken = (1 << 40..(1 << 40) + 10_000).filter(|&key| touched.has(key)).count();
        assert!(taken < 2_000, "{taken} of 10,000");
    }
}

//! The keys that unacknowledged own pushes touch. A one-sided read of their rows may or may not include the push, so
//! the worker requests them: an answer includes every push that was sent before its request.

use gannet_core::hash;
use gannet_wire::sharded_keys::{Chunk, ShardedKeys};
use std::collections::VecDeque;
use std::sync::Arc;

/// Entries at first, and at most (16 MiB).
const ENTRIES: (usize, usize) = (1 << 12, 1 << 22);

/// For each hash of a key, the number of the last push that touched such a key. A key that shares its entry with a
/// touched key may be taken for touched; a touched key is never missed. Nothing is cleared. The keys of a push are
/// noted only when a read asks for them, so a push that is acknowledged before the next pull costs little.
#[derive(Debug)]
pub(crate) struct OwnPushFilter {
    entries: Vec<u32>,
    /// Numbers of the last push begun and the last acknowledged. Pushes are acknowledged in order; the numbers wrap.
    begun: u32,
    acked: u32,
    /// Pushes that are not acknowledged, the oldest first.
    open: VecDeque<(Arc<ShardedKeys>, Chunk)>,
    open_keys: usize,
    /// How many of the last open pushes are not noted yet.
    unnoted: usize,
}

impl OwnPushFilter {
    pub(crate) fn new() -> OwnPushFilter {
        let open = VecDeque::new();
        OwnPushFilter { entries: Vec::new(), begun: 0, acked: 0, open, open_keys: 0, unnoted: 0 }
    }

    /// Begins a push of this chunk of a cut.
    pub(crate) fn begin(&mut self, cut: &Arc<ShardedKeys>, chunk: &Chunk) {
        self.begun = self.begun.wrapping_add(1);
        self.open.push_back((cut.clone(), *chunk));
        self.open_keys += chunk.len as usize;
        self.unnoted += 1;
    }

    /// The oldest open push has been answered.
    pub(crate) fn end(&mut self) {
        if let Some((_, chunk)) = self.open.pop_front() {
            self.open_keys -= chunk.len as usize;
            self.unnoted = self.unnoted.min(self.open.len());
            self.acked = self.acked.wrapping_add(1);
        }
    }

    /// Whether any push is open.
    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        self.begun != self.acked
    }

    /// The keys that open pushes touch; `None` if there are no open pushes.
    pub(crate) fn open(&mut self) -> Option<OpenPushKeys<'_>> {
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

/// The keys that open pushes touch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenPushKeys<'a> {
    entries: &'a [u32],
    acked: u32,
}

impl OpenPushKeys<'_> {
    /// Whether an open push touches this key, or a key that shares its entry.
    #[inline(always)]
    pub(crate) fn has(&self, key: u64) -> bool {
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
            let mut own_pushes = OwnPushFilter::new();
            (own_pushes.begun, own_pushes.acked) = (start, start);
            let mut open: VecDeque<Vec<u64>> = VecDeque::new();
            for (what, keys) in steps {
                match what {
                    0 | 1 => {
                        let (cut, chunk) = cut(&keys);
                        own_pushes.begin(&cut, &chunk);
                        open.push_back(keys);
                    }
                    2 | 3 => {
                        own_pushes.end();
                        open.pop_front();
                    }
                    // A reader asks only now and then.
                    _ => {
                        let touched = own_pushes.open();
                        prop_assert_eq!(touched.is_some(), !open.is_empty());
                        prop_assert!(open.iter().flatten().all(|&key| touched.is_some_and(|touched| touched.has(key))));
                    }
                }
                prop_assert_eq!(own_pushes.any(), !open.is_empty());
                prop_assert_eq!(own_pushes.open_keys, open.iter().map(Vec::len).sum::<usize>());
            }
        }
    }

    #[test]
    fn few_keys_that_no_push_touches_are_taken_for_touched() {
        let mut own_pushes = OwnPushFilter::new();
        let (cut, chunk) = cut(&(0..10_000).collect::<Vec<_>>());
        own_pushes.begin(&cut, &chunk);
        assert!((0..10_000).all(|key| own_pushes.open().unwrap().has(key)));
        own_pushes.end();
        assert!(own_pushes.open().is_none());
        own_pushes.begin(&cut, &chunk);
        let touched = own_pushes.open().unwrap();
        let taken = (1 << 40..(1 << 40) + 10_000).filter(|&key| touched.has(key)).count();
        assert!(taken < 2_000, "{taken} of 10,000");
    }
}

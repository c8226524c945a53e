//! Where rows were found: a bounded cache from key to slot. An entry is a hint; its user checks the row's key.

use gannet_core::{NO_SLOT, hash};

/// Entries at first.
const ENTRIES_MIN: usize = 1 << 10;

/// Entries that a key may be in, one after another.
const WAYS: usize = 8;

#[derive(Debug, Clone, Copy)]
struct HandleEntry {
    key: u64,
    /// `NO_SLOT`: the entry is free.
    slot: u32,
}

const FREE: HandleEntry = HandleEntry { key: 0, slot: NO_SLOT };

/// The slots of one table's rows. Beyond its limit new keys replace old ones.
#[derive(Debug)]
pub(crate) struct RowHandles {
    entries: Vec<HandleEntry>,
    used: usize,
    entries_max: usize,
}

impl RowHandles {
    /// Handles that take at most so many bytes.
    pub(crate) fn new(bytes_max: usize) -> RowHandles {
        let most = (bytes_max / size_of::<HandleEntry>()).max(ENTRIES_MIN);
        RowHandles { entries: Vec::new(), used: 0, entries_max: 1 << most.ilog2() }
    }

    fn homes(&self, key: u64) -> impl Iterator<Item = usize> + use<> {
        let mask = self.entries.len() - 1;
        let home = hash(key) as usize;
        (0..WAYS).map(move |way| (home + way) & mask)
    }

    /// The slot where this key's row was last found.
    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<u32> {
        if self.entries.is_empty() {
            return None;
        }
        let mut homes = self.homes(key).map(|at| self.entries[at]);
        homes.find(|entry| entry.key == key && entry.slot != NO_SLOT).map(|entry| entry.slot)
    }

    /// Notes that this key's row is in this slot.
    pub(crate) fn put(&mut self, key: u64, slot: u32) {
        if self.used * 2 >= self.entries.len() && self.entries.len() < self.entries_max {
            self.grow();
        }
        let (mut free, mut last) = (None, 0);
        for at in self.homes(key) {
            let entry = self.entries[at];
            if entry.slot != NO_SLOT && entry.key == key {
                self.entries[at].slot = slot;
                return;
            }
            if entry.slot == NO_SLOT && free.is_none() {
                free = Some(at);
            }
            last = at;
        }
        self.used += usize::from(free.is_some());
        self.entries[free.unwrap_or(last)] = HandleEntry { key, slot };
    }

    /// Forgets where this key's row was.
    pub(crate) fn forget(&mut self, key: u64) {
        if self.entries.is_empty() {
            return;
        }
        for at in self.homes(key) {
            if self.entries[at].key == key && self.entries[at].slot != NO_SLOT {
                self.entries[at] = FREE;
                self.used -= 1;
            }
        }
    }

    fn grow(&mut self) {
        let larger = (self.entries.len() * 2).clamp(ENTRIES_MIN, self.entries_max);
        let old = std::mem::replace(&mut self.entries, vec![FREE; larger]);
        self.used = 0;
        for entry in old.into_iter().filter(|entry| entry.slot != NO_SLOT) {
            self.put(entry.key, entry.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// A handle may be forgotten. Otherwise it is the last that was put.
        #[test]
        fn like_a_map_that_forgets(steps in prop::collection::vec((0u64..4000, 0u32..9, 0u8..8), 1..3000)) {
            let mut handles = RowHandles::new(2048 * size_of::<HandleEntry>());
            let mut model: HashMap<u64, u32> = HashMap::new();
            let mut known = 0;
            for (key, slot, what) in steps {
                if what == 0 {
                    handles.forget(key);
                    model.remove(&key);
                    prop_assert_eq!(handles.get(key), None);
                } else {
                    handles.put(key, slot);
                    model.insert(key, slot);
                    prop_assert_eq!(handles.get(key), Some(slot));
                }
                known += 1;
            }
            prop_assert!(known > 0 && handles.entries.len() <= 2048);
            prop_assert_eq!(handles.used, handles.entries.iter().filter(|entry| entry.slot != NO_SLOT).count());
            for key in 0..4000 {
                let got = handles.get(key);
                prop_assert!(got.is_none() || got == model.get(&key).copied());
            }
        }
    }

    #[test]
    fn within_its_limit_nearly_all_is_kept() {
        let mut handles = RowHandles::new(1 << 20);
        (0..30_000u64).for_each(|key| handles.put(key, key as u32));
        let found = (0..30_000u64).filter(|&key| handles.get(key) == Some(key as u32)).count();
        assert!(found > 29_500, "{found}");
    }
}

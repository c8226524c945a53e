//! The keysets of one session: the keys and slots of pulls, so that the pushes after them send values only.

use crate::limits::KEYSETS_MAX;

/// The keys of one pull's part and where their rows were.
#[derive(Default)]
pub(super) struct Keyset {
    pub(super) table: u32,
    pub(super) keys: Vec<u64>,
    pub(super) slots: Vec<u32>,
}

/// A session's keysets, by the place that the worker chose, within a limit in bytes. A new one in an old place
/// replaces it and takes over its memory.
pub(super) struct Keysets {
    places: Vec<Keyset>,
    bytes: usize,
    bytes_max: usize,
}

const BYTES_A_KEY: usize = 12;

impl Keysets {
    pub(super) fn new(bytes_max: usize) -> Keysets {
        Keysets { places: Vec::new(), bytes: 0, bytes_max }
    }

    /// Bytes of memory that they take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// An empty keyset in this place, with room for `keys`; `None` when that is over the limits: it is not kept then.
    pub(super) fn begin(&mut self, place: u32, table: u32, keys: usize) -> Option<&mut Keyset> {
        let place = place as usize;
        if place >= KEYSETS_MAX {
            return None;
        }
        if self.places.len() <= place {
            self.places.resize_with(place + 1, Keyset::default);
        }
        let keyset = &mut self.places[place];
        let bytes = keys.saturating_sub(keyset.keys.capacity()) * BYTES_A_KEY;
        keyset.keys.clear();
        keyset.slots.clear();
        if self.bytes + bytes > self.bytes_max {
            return None;
        }
        self.bytes += bytes;
        keyset.keys.reserve_exact(keys);
        keyset.slots.reserve_exact(keys);
        keyset.table = table;
        Some(keyset)
    }

    /// The keyset in this place if it is of this table and length.
    pub(super) fn get(&mut self, place: u32, table: u32, keys: usize) -> Option<&mut Keyset> {
        let keyset = self.places.get_mut(place as usize)?;
        (keyset.table == table && keyset.keys.len() == keys && keyset.slots.len() == keys).then_some(keyset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_the_limit_nothing_is_kept() {
        let mut keysets = Keysets::new(100 * BYTES_A_KEY);
        for place in 0..2 {
            let keyset = keysets.begin(place, 0, 50).unwrap();
            keyset.keys.extend(0..50);
            keyset.slots.extend(0..50);
        }
        assert!(keysets.begin(2, 0, 1).is_none());
        assert!(keysets.get(0, 0, 50).is_some());
        assert!(
            keysets.get(0, 1, 50).is_none()
                && keysets.get(0, 0, 49).is_none()
                && keysets.get(2, 0, 1).is_none()
        );
        assert!(keysets.begin(0, 3, 50).is_some(), "the memory of the old one is used again");
        assert!(keysets.get(0, 0, 50).is_none());
        assert!(keysets.begin(KEYSETS_MAX as u32, 0, 1).is_none());
    }
}

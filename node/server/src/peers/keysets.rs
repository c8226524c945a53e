//! The keysets of one session: the keys and slots of its pulls, so that the pushes after them send values only.

use crate::limits::KEYSET_TICKS_MAX;
use crate::peers::memory::{SessionMemory, SessionShare};
use gannet_wire::limits::KEYSETS_MAX;
use std::sync::Arc;

/// The keys of one part of a pull, and the slots of their rows.
#[derive(Default)]
pub(crate) struct Keyset {
    pub(crate) table: u32,
    pub(crate) keys: Vec<u64>,
    pub(crate) slots: Vec<u32>,
    /// When the keyset was made, in ticks of the session.
    tick: u32,
}

/// A session's keysets, by the place that the worker chose. Their bytes are limited for the session and for the server.
/// A new keyset replaces the old one in its place, and uses its memory. A keyset that is too old is dropped.
pub(crate) struct Keysets {
    places: Vec<Keyset>,
    share: SessionShare,
    bytes_max: usize,
    tick: u32,
}

const BYTES_A_KEY: usize = 12;

/// Counted for empty places as well, below the one that a worker chose.
const BYTES_A_PLACE: usize = size_of::<Keyset>();

impl Keysets {
    pub(crate) fn new(bytes_max: usize, memory: Arc<SessionMemory>) -> Keysets {
        Keysets { places: Vec::new(), share: SessionShare::new(memory), bytes_max, tick: 0 }
    }

    /// A new, empty share of the same memory.
    pub(crate) fn share(&self) -> SessionShare {
        self.share.another()
    }

    /// Bytes of memory that the keysets take.
    pub(crate) fn bytes(&self) -> usize {
        self.share.bytes()
    }

    /// A second has passed. Frees the keysets that were made long ago. If a push names one later, the server refuses
    /// it, and the worker resends it with its keys.
    pub(crate) fn tick(&mut self) {
        self.tick += 1;
        if !self.tick.is_multiple_of(KEYSET_TICKS_MAX / 8) {
            return;
        }
        let old = |keyset: &&mut Keyset| self.tick - keyset.tick > KEYSET_TICKS_MAX;
        let freed: usize = self
            .places
            .iter_mut()
            .filter(old)
            .map(|keyset| {
                let bytes = keyset.keys.capacity() * BYTES_A_KEY;
                *keyset = Keyset { tick: self.tick, ..Keyset::default() };
                bytes
            })
            .sum();
        self.share.resize(self.share.bytes().saturating_sub(freed));
    }

    /// Makes an empty keyset in this place, with capacity for `keys`. `None` if that exceeds a limit: there is no
    /// keyset then.
    pub(crate) fn begin(&mut self, place: u32, table: u32, keys: usize) -> Option<&mut Keyset> {
        let place = place as usize;
        if place >= KEYSETS_MAX {
            return None;
        }
        let before = self.places.len();
        let places = if place < before { before } else { (place + 1).next_power_of_two() };
        let capacity = self.places.get_mut(place).map_or(0, |old| {
            old.keys.clear();
            old.slots.clear();
            old.keys.capacity()
        });
        let more = keys.saturating_sub(capacity) * BYTES_A_KEY + (places - before) * BYTES_A_PLACE;
        let sum = self.share.bytes() + more;
        if sum > self.bytes_max || !self.share.resize(sum) {
            return None;
        }
        self.places.reserve_exact(places - before);
        self.places.resize_with(places, Keyset::default);
        let keyset = &mut self.places[place];
        keyset.keys.reserve_exact(keys);
        keyset.slots.reserve_exact(keys);
        (keyset.table, keyset.tick) = (table, self.tick);
        Some(keyset)
    }

    /// The keyset in this place if it is of this table and length.
    pub(crate) fn get(&mut self, place: u32, table: u32, keys: usize) -> Option<&mut Keyset> {
        let keyset = self.places.get_mut(place as usize)?;
        (keyset.table == table && keyset.keys.len() == keys && keyset.slots.len() == keys).then_some(keyset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_the_limit_nothing_is_kept() {
        let memory = SessionMemory::new(150 * BYTES_A_KEY + 3 * BYTES_A_PLACE);
        let own = 100 * BYTES_A_KEY + 2 * BYTES_A_PLACE;
        let mut keysets = Keysets::new(own, memory.clone());
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
        // The server has memory for 50 more keys, the other session's own limit allows 100.
        let mut other = Keysets::new(own, memory.clone());
        assert!(other.begin(KEYSETS_MAX as u32 - 1, 0, 0).is_none(), "empty places take memory, too");
        assert!(other.begin(0, 0, 51).is_none() && other.begin(0, 0, 50).is_some());
        drop(other);
        assert!(memory.has(50 * BYTES_A_KEY));
    }

    #[test]
    fn a_keyset_that_nobody_names_is_forgotten_in_time() {
        let memory = SessionMemory::new(1 << 20);
        let mut keysets = Keysets::new(1 << 20, memory.clone());
        for tick in 0..2 * KEYSET_TICKS_MAX {
            // Place 0 is used again and again, place 1 once.
            for place in 0..if tick == 0 { 2 } else { 1 } {
                let keyset = keysets.begin(place, 0, 50).unwrap();
                keyset.keys.extend(0..50);
                keyset.slots.extend(0..50);
            }
            assert!(tick > KEYSET_TICKS_MAX || keysets.get(1, 0, 50).is_some());
            keysets.tick();
        }
        assert!(keysets.get(0, 0, 50).is_some() && keysets.get(1, 0, 50).is_none());
        assert_eq!(keysets.bytes(), 50 * BYTES_A_KEY + 2 * BYTES_A_PLACE);
    }
}

//! The table of one process: each key is next to its row in one array, so that a feature costs one cache miss.

use crate::backend::error::BackendError;
use crate::learn::lr::RowPlaces;
use crate::limits::FLAT_CELLS_MAX;
use crate::read::block::INTERCEPT_KEY;
use gannet_core::{hash, prefetch};

/// How many keys ahead of the lookup the prefetch runs.
pub(crate) const AHEAD: usize = 128;
/// Cells of an empty table.
const CELLS_MIN: usize = 1 << 12;
/// The key of an empty cell. It is the intercept's key, whose row has its own cell at the end.
const EMPTY: u64 = INTERCEPT_KEY;

/// A key and its row: an even number of floats, or the number of a row that is elsewhere.
#[derive(Clone, Copy)]
struct KeyCell<R> {
    key: u64,
    row: R,
}

const _: () = assert!(size_of::<KeyCell<[f32; 2]>>() == 16 && size_of::<KeyCell<[f32; 6]>>() == 32);
const _: () = assert!(size_of::<KeyCell<u32>>() == 16);

/// Cells in the order of their keys' hashes. A key's home is its hash's share of the array's length. The search goes
/// forward from the home and wraps around. The last cell, behind the homes, is the intercept's.
pub(crate) struct Cells<R> {
    cells: Vec<KeyCell<R>>,
    /// Cells except the intercept's.
    homes: usize,
    filled: usize,
    intercept: bool,
    memory_limit: u64,
    fresh: R,
}

impl<const P: usize, const W: usize> RowPlaces<P> for Cells<[f32; W]> {
    #[inline(always)]
    fn row(&self, at: u32) -> [f32; P] {
        let row = &self.cells[at as usize].row;
        std::array::from_fn(|p| row[p])
    }

    #[inline(always)]
    fn set(&mut self, at: u32, row: [f32; P]) {
        self.cells[at as usize].row[..P].copy_from_slice(&row);
    }
}

impl<R: Copy> Cells<R> {
    /// An empty table. A new key's row starts as `fresh`. The cells may take `memory_limit` bytes, also while the
    /// table grows.
    pub(crate) fn new(fresh: R, memory_limit: u64) -> Cells<R> {
        Cells::with_homes(CELLS_MIN, fresh, memory_limit)
    }

    fn with_homes(homes: usize, fresh: R, memory_limit: u64) -> Cells<R> {
        let cells = vec![KeyCell { key: EMPTY, row: fresh }; homes + 1];
        Cells { cells, homes, filled: 0, intercept: false, fresh, memory_limit }
    }

    /// Says how the row of the intercept starts. It must not have been placed yet.
    pub(crate) fn begin_intercept(&mut self, row: R) {
        self.cells[self.homes].row = row;
    }

    #[inline(always)]
    fn home(&self, key: u64) -> usize {
        ((u128::from(hash(key)) * self.homes as u128) >> 64) as usize
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, key: u64) {
        if let Some(cell) = self.cells.get(self.home(key)) {
            prefetch((cell as *const KeyCell<R>).cast());
        }
    }

    /// The place of a key. `None` when it has no row.
    #[inline(always)]
    pub(crate) fn find(&self, key: u64) -> Option<u32> {
        if key == INTERCEPT_KEY {
            return self.intercept.then_some(self.homes as u32);
        }
        let mut at = self.home(key);
        loop {
            let found = self.cells[at].key;
            if found == key {
                return Some(at as u32);
            }
            if found == EMPTY {
                return None;
            }
            at = if at + 1 == self.homes { 0 } else { at + 1 };
        }
    }

    /// The place of a key, which gets a row if it has none. The caller must first [reserve](Self::reserve) cells.
    /// Places are valid until the next call of it.
    #[inline(always)]
    pub(crate) fn place(&mut self, key: u64) -> u32 {
        if key == INTERCEPT_KEY {
            self.intercept = true;
            return self.homes as u32;
        }
        let mut at = self.home(key);
        loop {
            let cell = &mut self.cells[at];
            if cell.key == key {
                return at as u32;
            }
            if cell.key == EMPTY {
                *cell = KeyCell { key, row: self.fresh };
                self.filled += 1;
                return at as u32;
            }
            at = if at + 1 == self.homes { 0 } else { at + 1 };
        }
    }

    /// Makes sure that `more` new keys fit.
    ///
    /// # Errors
    /// The table would have more than [`FLAT_CELLS_MAX`] cells.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, more: usize) -> Result<(), BackendError> {
        if self.fits(more) { Ok(()) } else { self.grow(more) }
    }

    /// The row at a place.
    #[inline(always)]
    pub(crate) fn at(&self, at: u32) -> &R {
        &self.cells[at as usize].row
    }

    /// The row at a place, to change.
    #[inline(always)]
    pub(crate) fn at_mut(&mut self, at: u32) -> &mut R {
        &mut self.cells[at as usize].row
    }

    /// The first row of a new key.
    pub(crate) fn fresh(&self) -> &R {
        &self.fresh
    }

    /// The number of rows.
    pub(crate) fn len(&self) -> u64 {
        self.filled as u64 + u64::from(self.intercept)
    }

    /// Bytes of all cells.
    pub(crate) fn bytes(&self) -> u64 {
        (self.cells.len() * size_of::<KeyCell<R>>()) as u64
    }

    /// Whether `more` new keys fit. At most three quarters of the cells are filled, so that every search ends.
    #[inline(always)]
    fn fits(&self, more: usize) -> bool {
        (self.filled + more) * 4 <= self.homes * 3
    }

    /// Grows the table by half, until `more` new keys fit.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, more: usize) -> Result<(), BackendError> {
        let mut homes = self.homes;
        while (self.filled + more) * 4 > homes * 3 {
            homes += homes / 2;
        }
        if homes > FLAT_CELLS_MAX {
            return Err(BackendError::Full { rows: self.filled as u64, limit: FLAT_CELLS_MAX as u64 });
        }
        // Both arrays exist while the rows move.
        let bytes = ((self.cells.len() + homes + 1) * size_of::<KeyCell<R>>()) as u64;
        if bytes > self.memory_limit {
            return Err(BackendError::Memory { rows: self.filled as u64, bytes, limit: self.memory_limit });
        }
        let mut larger = Cells::with_homes(homes, self.fresh, self.memory_limit);
        // The keys are ascending by hash, so this reads and writes both arrays once, in order.
        let (cells, intercept) = self.cells.split_at(self.homes);
        for cell in cells.iter().filter(|cell| cell.key != EMPTY) {
            let at = larger.place(cell.key);
            larger.cells[at as usize] = *cell;
        }
        larger.cells[homes..].copy_from_slice(intercept);
        larger.intercept = self.intercept;
        *self = larger;
        Ok(())
    }

    /// All keys and their rows.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, R)> {
        let (cells, intercept) = self.cells.split_at(self.homes);
        let intercept = intercept.iter().take(usize::from(self.intercept));
        cells.iter().filter(|cell| cell.key != EMPTY).chain(intercept).map(|cell| (cell.key, cell.row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Every key keeps its row while the table grows, with examples of every size and with many keys at the end.
        #[test]
        fn like_a_hash_map(examples in prop::collection::vec((0usize..400, 0u64..2000, any::<bool>()), 1..60)) {
            let mut cells = Cells::with_homes(16, [0.5, 0.25], u64::MAX);
            let mut map: HashMap<u64, [f32; 2]> = HashMap::new();
            // Keys whose homes are the last cells.
            let mut last: Vec<u64> = (0..40_000).collect();
            last.sort_by_key(|&key| std::cmp::Reverse(hash(key)));
            for (n, &(size, from, crowd)) in examples.iter().enumerate() {
                cells.reserve(size).unwrap();
                let at = |i: u64| if crowd { last[(from / 8 + i) as usize] } else { from + i * 7 };
                for key in (0..size as u64).map(at).chain((n % 3 == 0).then_some(INTERCEPT_KEY)) {
                    let place = cells.place(key);
                    let row: [f32; 2] = cells.row(place);
                    prop_assert_eq!(row, *map.entry(key).or_insert([0.5, 0.25]));
                    let row = [key as f32, n as f32];
                    cells.set(place, row);
                    map.insert(key, row);
                }
            }
            prop_assert_eq!(cells.all().collect::<HashMap<_, _>>(), map.clone());
            prop_assert_eq!(cells.filled, map.keys().filter(|&&k| k != INTERCEPT_KEY).count());
            for key in (0..20_000).chain([INTERCEPT_KEY]) {
                let row = cells.find(key).map(|at| cells.row(at));
                prop_assert_eq!(row, map.get(&key).copied());
            }
        }
    }
}

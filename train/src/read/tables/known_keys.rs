//! The keys of a categorical column's values that were made before. The values of a column repeat: a dictionary has
//! each once, and to write a date as a text takes many times as long as a look-up.

use crate::read::block::INTERCEPT_KEY;
use arrow_array::{Array, ArrayRef};

/// The values whose keys are remembered. 16 KiB.
const SLOTS: usize = 1024;

/// No value has this key.
const UNKNOWN: u64 = INTERCEPT_KEY;

/// The keys of one column of files with one schema.
#[derive(Default)]
pub(super) struct KnownKeys {
    /// The last dictionary, which keeps its place in memory, and the key of each of its values.
    dictionary: Option<(ArrayRef, Vec<u64>)>,
    /// Values of a fixed size, and their keys. Each value has one slot.
    slots: Vec<(u64, u64)>,
}

impl KnownKeys {
    /// The keys of the values of a dictionary. Those that nobody asked for are unknown.
    pub fn of_dictionary(&mut self, values: &ArrayRef) -> DictionaryKeys<'_> {
        let is_same = |(known, _): &(ArrayRef, Vec<u64>)| known.to_data().ptr_eq(&values.to_data());
        if !self.dictionary.as_ref().is_some_and(is_same) {
            self.dictionary = None;
        }
        let (_, keys) = self.dictionary.get_or_insert_with(|| (values.clone(), vec![UNKNOWN; values.len()]));
        DictionaryKeys(keys)
    }

    /// The key of a value with these bits. `make` makes it if it is not remembered.
    #[inline(always)]
    pub fn of_bits<E>(&mut self, bits: u64, make: impl FnOnce() -> Result<u64, E>) -> Result<u64, E> {
        if self.slots.is_empty() {
            self.slots.resize(SLOTS, (0, UNKNOWN));
        }
        let place = bits.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - SLOTS.ilog2());
        let (value, key) = &mut self.slots[place as usize];
        if *key == UNKNOWN || *value != bits {
            let made = make()?;
            (*value, *key) = (bits, made);
        }
        Ok(*key)
    }
}

/// The keys of the values of a dictionary.
pub(super) struct DictionaryKeys<'a>(&'a mut [u64]);

impl DictionaryKeys<'_> {
    /// The key of the value at this place. `make` makes it if it is unknown.
    #[inline(always)]
    pub fn at<E>(&mut self, place: usize, make: impl FnOnce() -> Result<u64, E>) -> Result<u64, E> {
        let key = &mut self.0[place];
        if *key == UNKNOWN {
            *key = make()?;
        }
        Ok(*key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Int64Array, StringArray};
    use std::sync::Arc;

    fn text(key: u64) -> Result<u64, ()> {
        Ok(key)
    }

    /// Another dictionary is told from the last one by its place, also where it has as many values.
    #[test]
    fn each_dictionary_has_its_own_keys() {
        let mut known = KnownKeys::default();
        let first: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
        let second: ArrayRef = Arc::new(StringArray::from(vec!["c", "d"]));
        assert_eq!(known.of_dictionary(&first).at(1, || text(7)), Ok(7));
        let again: ArrayRef = first.clone();
        assert_eq!(known.of_dictionary(&again).at(1, || Err(())), Ok(7), "it was not made again");
        assert_eq!(known.of_dictionary(&second).at(1, || text(8)), Ok(8));
        assert_eq!(known.of_dictionary(&first).at(1, || text(9)), Ok(9));
        let rest = first.slice(1, 1);
        assert_eq!(known.of_dictionary(&rest).at(0, || text(10)), Ok(10), "a slice is another dictionary");
        let empty: ArrayRef = Arc::new(Int64Array::from(Vec::<i64>::new()));
        let _ = known.of_dictionary(&empty);
    }

    /// Values that share a slot replace each other, and none gets the key of another.
    #[test]
    fn each_value_has_its_own_key() {
        let mut known = KnownKeys::default();
        let mut made = 0;
        for bits in (0..5_000u64).chain(0..5_000).chain([u64::MAX, 0, 0, 0]) {
            let key = known.of_bits(bits, || {
                made += 1;
                text(bits ^ 0x55)
            });
            assert_eq!(key, Ok(bits ^ 0x55));
        }
        assert!((5_000..10_004).contains(&made), "{made}");
        assert_eq!(known.of_bits(1 << 40, || Err::<u64, _>("no text")), Err("no text"));
        assert_eq!(known.of_bits(1 << 40, || text(3)), Ok(3), "a failure is not remembered");
    }
}

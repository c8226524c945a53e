//! Numbers keys in the order of their first occurrence.

use gannet_core::hash;

/// An empty place.
const EMPTY: u32 = u32::MAX;

/// Numbers of keys. It takes 4 bytes a place, of which half to three quarters are filled, and 8 bytes a key.
pub struct Dictionary {
    places: Vec<u32>,
    keys: Vec<u64>,
}

impl Default for Dictionary {
    fn default() -> Dictionary {
        Dictionary { places: vec![EMPTY; 1 << 10], keys: Vec::new() }
    }
}

impl Dictionary {
    /// The number of a key. A new key gets the next number.
    #[inline(always)]
    pub fn number(&mut self, key: u64) -> u32 {
        let mask = self.places.len() - 1;
        let mut at = hash(key) as usize & mask;
        loop {
            match self.places[at] {
                EMPTY => break,
                number if self.keys[number as usize] == key => return number,
                _ => at = (at + 1) & mask,
            }
        }
        let number = self.keys.len() as u32;
        self.places[at] = number;
        self.keys.push(key);
        if self.keys.len() * 4 > self.places.len() * 3 {
            self.grow();
        }
        number
    }

    /// The bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.places.len() * 4 + self.keys.len() * 8
    }

    /// All keys, by number.
    pub fn into_keys(self) -> Vec<u64> {
        self.keys
    }

    #[cold]
    fn grow(&mut self) {
        let mask = self.places.len() * 2 - 1;
        self.places = vec![EMPTY; mask + 1];
        for (number, &key) in (0..).zip(&self.keys) {
            let mut at = hash(key) as usize & mask;
            while self.places[at] != EMPTY {
                at = (at + 1) & mask;
            }
            self.places[at] = number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn like_a_hash_map(keys in prop::collection::vec(0u64..3000, 0..4000)) {
            let (mut dictionary, mut map) = (Dictionary::default(), HashMap::new());
            for key in keys {
                let next = map.len() as u32;
                prop_assert_eq!(dictionary.number(key), *map.entry(key).or_insert(next));
            }
            for (number, key) in dictionary.into_keys().into_iter().enumerate() {
                prop_assert_eq!(map[&key] as usize, number);
            }
        }
    }
}

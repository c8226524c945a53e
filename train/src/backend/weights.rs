//! A model's weights by key, in a compact table for predictions.

use gannet_core::hash;

/// Weights by key. A missing key has weight 0. The table takes 12 bytes a place, and half to three quarters of the
/// places are filled.
#[derive(Clone, Debug)]
pub struct Weights {
    keys: Vec<u64>,
    /// NaN marks an empty place.
    weights: Vec<f32>,
    filled: usize,
}

impl Default for Weights {
    fn default() -> Self {
        Weights { keys: vec![0; 16], weights: vec![f32::NAN; 16], filled: 0 }
    }
}

impl Weights {
    /// Keys that have a weight.
    pub fn len(&self) -> usize {
        self.filled
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// The weight of a key, 0 when it has none.
    #[inline(always)]
    pub fn get(&self, key: u64) -> f32 {
        let at = self.place(key);
        let weight = self.weights[at];
        if weight.is_nan() { 0.0 } else { weight }
    }

    /// All keys with their weights.
    pub fn iter(&self) -> impl Iterator<Item = (u64, f32)> {
        let all = self.keys.iter().copied().zip(self.weights.iter().copied());
        all.filter(|(_, weight)| !weight.is_nan())
    }

    /// Sets a weight. A key with weight 0 or NaN is not stored.
    pub fn insert(&mut self, key: u64, weight: f32) {
        let weight = if weight.is_nan() { 0.0 } else { weight };
        let at = self.place(key);
        if !self.weights[at].is_nan() {
            self.weights[at] = weight;
            if weight == 0.0 {
                self.remove(key);
            }
        } else if weight != 0.0 {
            (self.keys[at], self.weights[at]) = (key, weight);
            self.filled += 1;
            if self.filled * 4 > self.keys.len() * 3 {
                self.grow();
            }
        }
    }

    /// Removes a weight. Those behind it whose way leads over its place move up, so that no place is lost.
    pub fn remove(&mut self, key: u64) {
        let (mask, mut hole) = (self.keys.len() - 1, self.place(key));
        if self.weights[hole].is_nan() {
            return;
        }
        self.filled -= 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            if self.weights[at].is_nan() {
                break;
            }
            let home = hash(self.keys[at]) as usize & mask;
            // The way of this key begins at the hole or before it.
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                (self.keys[hole], self.weights[hole]) = (self.keys[at], self.weights[at]);
                hole = at;
            }
        }
        self.weights[hole] = f32::NAN;
    }

    /// The place of the key, or the empty place where it belongs.
    #[inline(always)]
    fn place(&self, key: u64) -> usize {
        let mask = self.keys.len() - 1;
        let mut at = hash(key) as usize & mask;
        while !self.weights[at].is_nan() && self.keys[at] != key {
            at = (at + 1) & mask;
        }
        at
    }

    #[cold]
    fn grow(&mut self) {
        let places = self.keys.len() * 2;
        let empty = Weights { keys: vec![0; places], weights: vec![f32::NAN; places], filled: self.filled };
        let old = std::mem::replace(self, empty);
        for (key, weight) in old.keys.into_iter().zip(old.weights).filter(|e| !e.1.is_nan()) {
            let at = self.place(key);
            (self.keys[at], self.weights[at]) = (key, weight);
        }
    }
}

impl FromIterator<(u64, f32)> for Weights {
    fn from_iter<I: IntoIterator<Item = (u64, f32)>>(all: I) -> Self {
        let mut weights = Weights::default();
        all.into_iter().for_each(|(key, weight)| weights.insert(key, weight));
        weights
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn like_a_hash_map(pairs in prop::collection::vec((0u64..300, prop_oneof![Just(0.0f32), -2.0f32..2.0]), 0..600)) {
            let map: HashMap<u64, f32> = pairs.iter().copied().collect();
            let weights: Weights = pairs.iter().copied().collect();
            for key in 0..400 {
                prop_assert_eq!(weights.get(key), map.get(&key).copied().unwrap_or(0.0));
            }
        }

        #[test]
        fn like_a_hash_map_from_which_keys_are_removed(
            steps in prop::collection::vec((0u64..60, prop_oneof![Just(None), (0.5f32..2.0).prop_map(Some)]), 0..600),
        ) {
            let (mut map, mut weights) = (HashMap::new(), Weights::default());
            for (key, weight) in steps {
                match weight {
                    Some(weight) => {
                        map.insert(key, weight);
                        weights.insert(key, weight);
                    }
                    None => {
                        map.remove(&key);
                        weights.remove(key);
                    }
                }
                prop_assert_eq!(weights.len(), map.len());
                prop_assert!(weights.iter().all(|(key, weight)| map.get(&key) == Some(&weight)));
                prop_assert!(map.iter().all(|(key, weight)| weights.get(*key) == *weight));
            }
        }
    }
}

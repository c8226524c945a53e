//! Finds whether an example has a key twice. Hashed keys have no order that would show it.

/// A hash table with the number of the last example at each place. If a key's place has the number of the current
/// example, the key may repeat, and the earlier keys are searched. The table is made after some examples: a request for
/// predictions has few.
#[derive(Clone, Debug, Default)]
pub(crate) struct RepeatedKeys {
    last_examples: Vec<u32>,
    current: u32,
}

/// 16 KiB, to stay in the L1 cache. With 39 keys, one example in six has two keys at the same place.
const PLACES_LOG2: u32 = 12;
/// Examples with more keys are not searched. They count as repeating, and de-duplication checks them.
const KEYS_MAX: usize = 512;
/// So many examples with at most so many keys are searched without the table.
const EXAMPLES_SEARCHED: u32 = 16;
const KEYS_SEARCHED: usize = 64;

impl RepeatedKeys {
    /// Whether one of the keys may repeat. False is certain.
    #[inline(always)]
    pub fn any(&mut self, keys: &[u64]) -> bool {
        if keys.len() > KEYS_MAX {
            return true;
        }
        if self.last_examples.is_empty() {
            if self.current < EXAMPLES_SEARCHED && keys.len() <= KEYS_SEARCHED {
                self.current += 1;
                return keys.iter().enumerate().any(|(i, key)| keys[..i].contains(key));
            }
            self.last_examples = vec![0; 1 << PLACES_LOG2];
        }
        self.current = self.current.wrapping_add(1);
        if self.current == 0 {
            self.last_examples.fill(0);
            self.current = 1;
        }
        for (i, &key) in keys.iter().enumerate() {
            // The top bits of a product, because ids of some formats are small numbers.
            let place = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - PLACES_LOG2);
            let last = &mut self.last_examples[place as usize];
            if *last == self.current && keys[..i].contains(&key) {
                return true;
            }
            *last = self.current;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn as_a_set_says(examples in prop::collection::vec(
            prop_oneof![prop::collection::vec(any::<u64>(), 0..60), prop::collection::vec(0u64..500, 0..600)], 1..40)) {
            let wraps = RepeatedKeys { current: u32::MAX - 5, ..RepeatedKeys::default() };
            for mut repeats in [RepeatedKeys::default(), wraps] {
                for keys in &examples {
                    let once = keys.iter().collect::<HashSet<_>>().len() == keys.len();
                    prop_assert_eq!(repeats.any(keys), !once || keys.len() > KEYS_MAX);
                }
            }
        }
    }
}

//! The fields that a model knows, and their places: a network or a field-aware machine has a vector for each place.

use crate::read::block::Block;
use crate::read::fields::field::FieldId;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// In place of the place of a field: the model does not know the field, or the feature is the intercept.
pub const NO_FIELD: u64 = u64::MAX;

/// The field of the intercept in a block.
const INTERCEPT_FIELD: u64 = 0;

/// The fields of a model in the order of their ids. Each has a place of its own if there are enough.
#[derive(Default)]
pub struct FieldPlaces {
    ids: Vec<u64>,
    places: HashMap<u64, u64>,
    most: usize,
    /// Features of other fields.
    strangers: AtomicU64,
}

impl fmt::Debug for FieldPlaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.ids).finish()
    }
}

impl FieldPlaces {
    /// The places of these fields, at most so many, which is above 0. More fields share places.
    pub fn new(mut ids: Vec<u64>, most: usize) -> FieldPlaces {
        ids.sort_unstable();
        ids.dedup();
        let places = ids.iter().enumerate().map(|(at, &id)| (id, (at % most) as u64)).collect();
        FieldPlaces { ids, places, most, strangers: AtomicU64::new(0) }
    }

    /// The ids of fields with these names.
    pub fn of_names(names: &[String]) -> Vec<u64> {
        names.iter().map(|name| FieldId::of(name.as_bytes()).id).collect()
    }

    /// The ids of the fields: the keys of their names.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// The most places.
    pub fn most(&self) -> usize {
        self.most
    }

    /// How many features of other fields there were, of all passes over the data.
    pub fn strangers(&self) -> u64 {
        self.strangers.load(Relaxed)
    }

    /// Replaces the ids of a block's fields by their places. Examples mostly have the same fields in the same order, so
    /// few ids are looked up.
    pub(crate) fn apply(&self, block: &mut Block) {
        let (mut known, mut strangers) = (Vec::<(u64, u64)>::new(), 0);
        for i in 0..block.len() {
            let (range, mut turn) = (block.range(i), 0);
            let mut last = (INTERCEPT_FIELD, NO_FIELD);
            for field in &mut block.fields[range] {
                if *field != last.0 {
                    last = match known.get(turn) {
                        Some(&known) if known.0 == *field => known,
                        _ => {
                            let found = (*field, self.places.get(field).copied().unwrap_or(NO_FIELD));
                            known.truncate(turn);
                            known.push(found);
                            found
                        }
                    };
                    turn += 1;
                }
                strangers += u64::from(last.1 == NO_FIELD && last.0 != INTERCEPT_FIELD);
                *field = last.1;
            }
        }
        if strangers > 0 {
            self.strangers.fetch_add(strangers, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_has_its_place_in_any_order() {
        let places = FieldPlaces::new(vec![30, 10, 20, 10], 3);
        assert_eq!(places.ids(), [10, 20, 30]);
        let mut block = Block::default();
        block.clear();
        // The intercept has field 0, and 15 is a stranger.
        for fields in [&[0, 10, 10, 20, 30][..], &[0, 10, 15, 15, 10], &[], &[0, 30, 20], &[20]] {
            block.keys.extend(fields);
            block.values.resize(block.keys.len(), 1.0);
            block.fields.extend(fields);
            block.end(1.0);
        }
        places.apply(&mut block);
        let none = NO_FIELD;
        assert_eq!(block.fields, [none, 0, 0, 1, 2, none, 0, none, none, 0, none, 2, 1, 1]);
        assert_eq!(places.strangers(), 2);
        let mut shared = Block { labels: vec![1.0], offsets: vec![0, 3], ..Block::default() };
        shared.fields = vec![10, 20, 30];
        FieldPlaces::new(vec![30, 10, 20], 2).apply(&mut shared);
        assert_eq!(shared.fields, [0, 1, 0], "two fields share a place");
    }
}

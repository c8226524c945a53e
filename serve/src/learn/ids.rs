//! The ids of the last examples: which of them have come before.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The ids of the examples with the highest numbers. Numbers have no gaps.
#[derive(Debug, Default)]
pub struct IdWindow {
    most: usize,
    /// The number of the first id in `order`.
    first: u64,
    order: VecDeque<Arc<str>>,
    numbers: HashMap<Arc<str>, u64>,
}

impl IdWindow {
    /// A window of so many ids. The next id has the number `first`.
    pub fn new(most: usize, first: u64) -> IdWindow {
        IdWindow { most, first, ..IdWindow::default() }
    }

    /// The number of the example with this id.
    pub fn number(&self, id: &str) -> Option<u64> {
        self.numbers.get(id).copied()
    }

    /// The number of the first example whose id is known.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The number of the next example.
    pub fn next(&self) -> u64 {
        self.first + self.order.len() as u64
    }

    /// The id of the next example.
    pub fn push(&mut self, id: &str) {
        let id: Arc<str> = id.into();
        self.numbers.insert(id.clone(), self.next());
        self.order.push_back(id);
    }

    /// Forgets the first ids of those that are too many. Those from the number `needed` on stay.
    pub fn forget(&mut self, needed: u64) {
        while self.order.len() > self.most && self.first < needed {
            let Some(id) = self.order.pop_front() else { return };
            // An id that came again after the window is that of a later example.
            if self.numbers.get(&id) == Some(&self.first) {
                self.numbers.remove(&id);
            }
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The window knows the last ids that are not needed any more, and all that are: as a list of all ids says.
        #[test]
        fn it_knows_what_a_list_of_all_ids_knows(
            (most, begin) in (1usize..20, 0u64..5),
            steps in prop::collection::vec((0u32..30, 0u64..60), 1..120),
        ) {
            let mut window = IdWindow::new(most, begin);
            let (mut all, mut first): (Vec<String>, u64) = (Vec::new(), begin);
            for (id, needed) in steps {
                let id = id.to_string();
                let known = |first: u64, id: &str| {
                    let place = all.iter().rposition(|of| of == id)? as u64 + begin;
                    (place >= first).then_some(place)
                };
                prop_assert_eq!(window.number(&id), known(first, &id));
                if window.number(&id).is_none() {
                    window.push(&id);
                    all.push(id);
                }
                window.forget(needed);
                let end = begin + all.len() as u64;
                first = first.max(end.saturating_sub(most as u64).min(needed));
                prop_assert_eq!((window.first(), window.next()), (first, end));
            }
        }
    }
}

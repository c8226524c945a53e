//! The memory that all images of a store may take together.

use crate::error::GrowError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A limit and the bytes used of it. All images of a store and the grower share it.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    used: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Budget {
        Budget { limit, used: AtomicU64::new(0) }
    }

    /// Takes all of `bytes`, or nothing.
    ///
    /// # Errors
    /// [`GrowError::Memory`]: the bytes would exceed the limit.
    pub(crate) fn take(&self, bytes: u64) -> Result<(), GrowError> {
        let fits = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.limit);
        match self.used.fetch_update(Relaxed, Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(used) => Err(GrowError::Memory { used, limit: self.limit }),
        }
    }

    /// Counts existing bytes (headers, images that are opened again), even if they exceed the limit.
    pub(crate) fn charge(&self, bytes: u64) {
        self.used.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Relaxed);
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_sum_of_what_is_taken() {
        let budget = Budget::new(100);
        budget.charge(30);
        budget.take(70).unwrap();
        assert!(matches!(budget.take(1), Err(GrowError::Memory { used: 100, limit: 100 })));
        budget.give_back(1);
        budget.take(1).unwrap();
        budget.charge(5);
        assert_eq!(budget.used(), 105);
    }
}

//! The version protocol of a row: how its owner writes the row, and how other threads and processes read it at
//! the same time. The words of a row are its version, its key, and its floats, two in a word.
//!
//! ```text
//! owner                                   reader
//!   version = odd (relaxed)                 v = version (acquire); odd: again
//!   fence(release)                          key, floats (relaxed)
//!   key or floats                           fence(acquire)
//!   version = even, new (release)           version = v? what was read is one state of the row
//! ```
//! A reader that loads a new float then sees, after its fence, that the version is odd or new. Versions of a
//! slot only grow, also when the slot is freed and reused. So an equal version means that nothing was written
//! between the two loads. The functions are generic over the atomic word, and the tests below run these same
//! functions under loom.

use std::sync::atomic::{AtomicU64, Ordering, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// The row is being written.
pub(crate) const WRITING: u64 = 1;
/// The slot holds a row.
pub(crate) const LIVE: u64 = 2;

/// An atomic word: the machine's, or loom's.
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn fence(order: Ordering);
    /// Called while the owner is writing.
    fn pause();
}

impl Word for AtomicU64 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }

    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }

    #[inline(always)]
    fn fence(order: Ordering) {
        std::sync::atomic::fence(order);
    }

    #[inline(always)]
    fn pause() {
        std::hint::spin_loop();
    }
}

/// The owner calls this before it writes the floats of a row that will have version `counter`.
#[inline(always)]
pub(crate) fn begin_row_write<W: Word>(version: &W, counter: u64) {
    version.store(counter << 2 | LIVE | WRITING, Relaxed);
    W::fence(Release);
}

/// The owner calls this after it has written the floats.
#[inline(always)]
pub(crate) fn end_row_write<W: Word>(version: &W, counter: u64) {
    version.store(counter << 2 | LIVE, Release);
}

/// Frees a row's slot. The key word becomes a link to the next free slot. Each store is a release, so a reader
/// that sees one store also sees the earlier ones.
pub(crate) fn free<W: Word>(version: &W, key: &W, counter: u64, next: u64) {
    version.store(counter << 2 | WRITING, Release);
    crate::kill_point!();
    key.store(next, Release);
    crate::kill_point!();
    version.store(counter << 2, Release);
}

/// Reads the row of `key` at `words`, which its owner may be writing. `copy` gets the words of the floats and
/// may load any of them, once or several times. Returns `false` when the slot has no such row, or when the row
/// was being written at each of `tries` tries. The result of `copy` is then meaningless.
#[inline(always)]
pub(crate) fn read_stable<W: Word>(words: &[W], key: u64, tries: u32, mut copy: impl FnMut(&[W])) -> bool {
    let [version, own, floats @ ..] = words else { return false };
    for _ in 0..tries {
        let before = version.load(Acquire);
        if before & LIVE == 0 || own.load(Relaxed) != key {
            return false;
        }
        if before & WRITING == 0 {
            copy(floats);
            W::fence(Acquire);
            if version.load(Relaxed) == before {
                return true;
            }
        }
        W::pause();
    }
    false
}

/// The command that last changed the row in a slot, or is changing it.
pub(crate) fn command_of_header<W: Word>(words: &[W]) -> u64 {
    words[0].load(Relaxed) >> 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::Arc;

    impl Word for loom::sync::atomic::AtomicU64 {
        fn load(&self, order: Ordering) -> u64 {
            self.load(order)
        }
        fn store(&self, value: u64, order: Ordering) {
            self.store(value, order);
        }
        fn fence(order: Ordering) {
            loom::sync::atomic::fence(order);
        }
        fn pause() {
            loom::thread::yield_now();
        }
    }

    type Slot = Arc<[loom::sync::atomic::AtomicU64; 4]>;

    fn write(slot: &Slot, counter: u64) {
        begin_row_write(&slot[0], counter);
        (2..4).for_each(|i| slot[i].store(counter, Relaxed));
        end_row_write(&slot[0], counter);
    }

    /// Reads `key` while `owner` runs, under every order that the memory model allows. Passes accepted floats to
    /// `check`. The slot starts with the row of key 1, written at counter 1.
    fn race(key: u64, owner: fn(&Slot), check: fn(u64)) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let zero = || loom::sync::atomic::AtomicU64::new(0);
            let slot: Slot = Arc::new([zero(), zero(), zero(), zero()]);
            slot[1].store(1, Release);
            write(&slot, 1);
            let own = slot.clone();
            let owner = loom::thread::spawn(move || owner(&own));
            let mut seen = [0; 2];
            let copy = |words: &[loom::sync::atomic::AtomicU64]| {
                seen = [words[0].load(Relaxed), words[1].load(Relaxed)];
            };
            if read_stable(&slot[..], key, 2, copy) {
                assert_eq!(seen[0], seen[1], "torn");
                check(seen[0]);
            }
            owner.join().unwrap();
        });
    }

    #[test]
    fn a_reader_sees_one_write_or_none() {
        race(
            1,
            |slot| {
                write(slot, 2);
                write(slot, 3);
            },
            |seen| assert!((1..=3).contains(&seen)),
        );
    }

    /// Frees the slot and uses it for key 2, then for key 1 again.
    fn reuse(slot: &Slot) {
        free(&slot[0], &slot[1], 2, 0);
        slot[1].store(2, Release);
        write(slot, 2);
        free(&slot[0], &slot[1], 3, 0);
        slot[1].store(1, Release);
        write(slot, 4);
    }

    #[test]
    fn a_reader_never_gets_another_keys_row() {
        race(1, reuse, |seen| assert!(seen == 1 || seen == 4, "{seen}"));
        race(2, reuse, |seen| assert_eq!(seen, 2));
        // The link in a free slot must not count as a key.
        race(0, reuse, |seen| panic!("{seen} of no key"));
    }
}

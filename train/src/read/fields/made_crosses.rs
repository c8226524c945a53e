//! Which crosses have made a feature. A name of a vw namespace or of a JSON line that is spelt wrong is no error, since
//! a later line may have it. At the end of the data it is known.

use crate::limits::CROSSES_MAX;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WORDS: usize = CROSSES_MAX / 64;
const _: () = assert!(CROSSES_MAX.is_multiple_of(64));

/// What all readers of a data set have found.
#[derive(Debug, Default)]
pub struct MadeCrosses {
    crosses: [AtomicU64; WORDS],
    /// Examples that were read by a reader that had not seen a feature of each cross.
    examples: AtomicU64,
}

impl MadeCrosses {
    /// Whether this cross has made a feature.
    pub(crate) fn has(&self, cross: usize) -> bool {
        self.crosses[cross / 64].load(Relaxed) >> (cross % 64) & 1 == 1
    }

    /// Examples in which a cross without features was looked for.
    pub(crate) fn examples(&self) -> u64 {
        self.examples.load(Relaxed)
    }
}

/// What one reader has found.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnCrosses {
    crosses: [u64; WORDS],
    made: usize,
}

impl OwnCrosses {
    /// Notes that this cross has made a feature.
    #[inline(always)]
    pub fn add(&mut self, cross: usize, all: &MadeCrosses) {
        let (word, bit) = (cross / 64, 1 << (cross % 64));
        if self.crosses[word] & bit == 0 {
            self.crosses[word] |= bit;
            self.made += 1;
            all.crosses[word].fetch_or(bit, Relaxed);
        }
    }

    /// Notes the end of an example, of data with so many crosses.
    #[inline(always)]
    pub fn end(&self, crosses: usize, all: &MadeCrosses) {
        if self.made < crosses {
            all.examples.fetch_add(1, Relaxed);
        }
    }
}

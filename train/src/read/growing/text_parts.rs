//! A text in parts, each of which is one batch. Batches of messages are ranges of offsets, and not numbers of lines. So
//! a message that the brokers remove later shifts no other message to another batch.

use std::fmt;
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The parts of a text. The text ends behind each one, until its reader begins the next.
#[derive(Clone, Debug)]
pub struct TextParts {
    offsets: Range<u64>,
    /// Offsets of a part.
    size: u64,
    /// The part that is read, from 0.
    open: Arc<AtomicU64>,
}

impl TextParts {
    /// Offsets in parts of so many, which are read from part `from` on.
    pub(crate) fn new(offsets: Range<u64>, size: u64, from: u64) -> TextParts {
        TextParts { offsets, size: size.max(1), open: Arc::new(AtomicU64::new(from)) }
    }

    /// All offsets.
    #[cfg(any(test, feature = "kafka"))]
    pub(crate) fn offsets(&self) -> Range<u64> {
        self.offsets.clone()
    }

    /// The part that is read, from 0.
    pub(crate) fn open(&self) -> u64 {
        self.open.load(Relaxed)
    }

    /// The first offset of the part that is read.
    #[cfg(any(test, feature = "kafka"))]
    pub(crate) fn start(&self) -> u64 {
        self.place(self.open())
    }

    /// The offset behind the part that is read.
    #[cfg(any(test, feature = "kafka"))]
    pub(crate) fn end(&self) -> u64 {
        self.place(self.open() + 1)
    }

    fn place(&self, part: u64) -> u64 {
        self.offsets.start.saturating_add(part.saturating_mul(self.size)).min(self.offsets.end)
    }

    /// Begins a part. Returns false if there are fewer.
    pub(crate) fn begin(&self, part: u64) -> bool {
        let is_there = self.place(part) < self.offsets.end;
        if is_there {
            self.open.store(part, Relaxed);
        }
        is_there
    }
}

/// A text, and its parts.
pub struct PartedText {
    /// The text.
    pub text: Box<dyn Read + Send>,
    /// Its parts.
    pub parts: TextParts,
}

impl fmt::Debug for PartedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartedText").field("parts", &self.parts).finish_non_exhaustive()
    }
}

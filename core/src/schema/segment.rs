//! A segment: a run of floats in a row with a dimension, an update rule and initial values of its own.

use crate::limits::SEGMENTS_MAX;
use crate::schema::init::Init;
use gannet_optim::{GradientTransform, Rule};

/// A run of floats in a row, with a rule of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// Weights of a row in this segment.
    pub dim: u32,
    /// The update rule that the server runs.
    pub rule: Rule,
    /// What happens to a gradient and to the learning rate before the rule runs.
    pub shaping: GradientTransform,
    /// Initial weights.
    pub init: Init,
}

/// Which segments of a row a pull reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments(u8);

impl Segments {
    /// All segments of a row.
    pub const ALL: Segments = Segments(u8::MAX);

    /// The segments with these numbers, from 0 on. Their floats are answered in the order of the segments in the row.
    ///
    /// # Panics
    /// When a number is 8 or more. No row has more than 8 segments.
    pub fn only(numbers: &[usize]) -> Segments {
        let bit = |&number: &usize| {
            assert!(number < SEGMENTS_MAX, "segment {number}: rows have at most {SEGMENTS_MAX}");
            1 << number
        };
        Segments(numbers.iter().map(bit).fold(0, |all, bit| all | bit))
    }

    /// A bit for each segment, the lowest for the first. All bits set means all segments of a row.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// The segments with these [`bits`](Self::bits).
    pub fn of_bits(bits: u8) -> Segments {
        Segments(bits)
    }

    pub(crate) fn has(self, number: usize) -> bool {
        self.0 >> number & 1 != 0
    }
}

const _: () = assert!(SEGMENTS_MAX == u8::BITS as usize);

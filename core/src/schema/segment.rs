//! A segment: a run of floats in a row with a dimension, an update rule and initial values of its own.

use crate::limits::SEGMENTS_MAX;
use crate::schema::init::Init;
use gannet_optim::{GradientTransform, Rule};

/// A run of floats in a row, with a rule of its own.
///
/// ```
/// use gannet_core::{Init, Schema, Segment};
/// use gannet_optim::{Ftrl, GradientTransform, RowAdaGrad, Rule};
///
/// // A row has one linear weight, and a factor of 16 weights with an optimizer of its own.
/// let linear = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 });
/// let rule = Rule::RowAdaGrad(RowAdaGrad { lr: 0.05, eps: 1e-8, initial_accumulator: 0.1 });
/// let factor = Segment { dim: 16, rule, shaping: GradientTransform::NONE, init: Init::Zero };
/// let schema = Schema { more: vec![factor], ..Schema::scalar("clicks", linear) };
/// assert_eq!(schema.weights(), 17);
/// ```
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
///
/// ```
/// use gannet_core::{Init, Read, Schema, Segment, Segments, Shards, Store};
/// # use gannet_optim::{Add, GradientTransform, Rule};
///
/// # let (dim, rule, shaping, init) = (16, Rule::Add(Add), GradientTransform::NONE, Init::Zero);
/// # let more = vec![Segment { dim, rule, shaping, init }];
/// # let schema = Schema { shards: 1, more, ..Schema::scalar("clicks", rule) };
/// // A row has a segment of 1 weight and one of 16. This pull reads the second one.
/// let mut shards = Shards::open(&Store::memory(), &schema, 0..1)?;
/// let mut factor = [9.0; 16];
/// shards.pull_segments(&[7], Read::Weights, Segments::only(&[1]), &mut factor, None)?;
/// assert_eq!(factor, [0.0; 16]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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

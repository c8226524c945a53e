//! Admission policy: which push of a key that has no row creates the row. table/owned/admission_sketch.rs applies it.

use crate::limits::{ADMIT_PUSHES_MAX, SKETCH_BYTES_MAX};
use crate::schema::schema_error::SchemaError;

/// Default bytes of a shard's sketch: 16 MiB for a table of 64 shards. If a key's second push is admitted, the
/// sketch remembers the last 4 to 8 million pushes of keys without a row. If the n-th push is admitted, it
/// remembers n - 1 times as many. [`Admission`] has an example.
pub const SKETCH_BYTES_DEFAULT: u32 = 256 << 10;

/// Which push of a key without a row creates the row. Servers acknowledge earlier pushes as not admitted, and
/// pulls read the initial value until then.
///
/// ```
/// use gannet_core::{Admission, PushName, SKETCH_BYTES_DEFAULT, Schema, Shards, Store, Write};
/// # use gannet_optim::{Add, Rule};
///
/// let admission = Admission::Count { pushes: 2, sketch_bytes: SKETCH_BYTES_DEFAULT };
/// let schema = Schema { shards: 1, admission, ..Schema::scalar("clicks", Rule::Add(Add)) };
/// let mut shards = Shards::open(&Store::memory(), &schema, 0..1)?;
/// let first = PushName { pusher: 1, incarnation: 1, seq: 1, row: 0 };
/// assert_eq!(shards.push(&first, Write::Gradient, &[7], None, &[1.0])?.not_admitted, 1);
/// let second = PushName { seq: 2, ..first };
/// assert_eq!(shards.push(&second, Write::Gradient, &[7], None, &[1.0])?.applied, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Admission {
    /// The first push.
    All,
    /// The `pushes`-th push, counting those that the shard's sketch still remembers. When keys collide in the
    /// sketch, an earlier push may be admitted; a later one never is.
    Count {
        /// 2 to 256.
        pushes: u32,
        /// Bytes of a shard's sketch: a multiple of 64, at most 1 MiB.
        sketch_bytes: u32,
    },
    /// Each push with this probability, above 0 and below 1. The draw is a hash of (table seed, key, pusher,
    /// seq). So a resend gets the same decision, and so does a second run on the same data.
    Probability(f32),
}

impl Admission {
    /// Bytes of the sketch of each shard.
    pub(crate) fn sketch_bytes(&self) -> usize {
        match *self {
            Admission::Count { sketch_bytes, .. } => sketch_bytes as usize,
            Admission::All | Admission::Probability(_) => 0,
        }
    }

    pub(crate) fn check(&self, table: &str) -> Result<(), SchemaError> {
        let wrong = |reason: String| Err(SchemaError::Admission { table: table.into(), reason });
        match *self {
            Admission::Count { pushes, .. } if !(2..=ADMIT_PUSHES_MAX).contains(&pushes) => {
                wrong(format!("at push {pushes} is not allowed: use 2 to {ADMIT_PUSHES_MAX}"))
            }
            Admission::Count { sketch_bytes: b, .. }
                if b == 0 || b % 64 != 0 || b as usize > SKETCH_BYTES_MAX =>
            {
                wrong(format!(
                    "with a sketch of {b} bytes a shard is not allowed: use a multiple of 64 up to {SKETCH_BYTES_MAX}"
                ))
            }
            Admission::Probability(p) if !(p > 0.0 && p < 1.0) => {
                wrong(format!("with probability {p} is not allowed: use a number above 0 and below 1"))
            }
            _ => Ok(()),
        }
    }

    /// Three words for the schema's bytes: kind, then its parameters.
    pub(crate) fn encode(&self) -> [u32; 3] {
        match *self {
            Admission::All => [0, 0, 0],
            Admission::Count { pushes, sketch_bytes } => [1, pushes, sketch_bytes],
            Admission::Probability(p) => [2, p.to_bits(), 0],
        }
    }

    pub(crate) fn decode(words: [u32; 3]) -> Option<Admission> {
        match words {
            [0, 0, 0] => Some(Admission::All),
            [1, pushes, sketch_bytes] => Some(Admission::Count { pushes, sketch_bytes }),
            [2, p, 0] => Some(Admission::Probability(f32::from_bits(p))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_through_and_limits_hold() {
        for admission in [
            Admission::All,
            Admission::Count { pushes: 256, sketch_bytes: SKETCH_BYTES_DEFAULT },
            Admission::Probability(0.1),
        ] {
            assert_eq!(Admission::decode(admission.encode()), Some(admission));
            assert_eq!(admission.check("t"), Ok(()));
        }
        assert_eq!(Admission::decode([3, 0, 0]), None);
        for (pushes, sketch_bytes) in [(0, 64), (1, 64), (257, 64), (2, 0), (2, 100), (2, 2 << 20)] {
            assert!(Admission::Count { pushes, sketch_bytes }.check("t").is_err(), "{pushes} {sketch_bytes}");
        }
        for p in [0.0, 1.0, -0.5, f32::NAN, f32::INFINITY] {
            assert!(Admission::Probability(p).check("t").is_err(), "{p}");
        }
    }
}

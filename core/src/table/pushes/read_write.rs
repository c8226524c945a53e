//! What a pull reads of a row, and what a push writes to it.

use crate::error::PullError;
use crate::schema::segment::{Segment, Segments};
use crate::schema::table_schema::Schema;

/// What a pull reads of a row.
///
/// ```
/// use gannet_core::{Read, Schema};
/// use gannet_optim::{Ftrl, Rule};
///
/// let ftrl = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 });
/// let schema = Schema { dim: 4, ..Schema::scalar("clicks", ftrl) };
/// assert_eq!(schema.read_floats(Read::Weights), 4);
/// assert_eq!(schema.read_floats(Read::State), 8); // z and n of each weight
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// `dim` weights.
    Weights,
    /// The [`Schema::floats`] floats of the stored row: weights and optimizer state.
    State,
}

/// What a push carries for a row.
///
/// ```
/// # use gannet_core::{PushName, Read, Schema, Shards, Store, Write};
/// # use gannet_optim::{Add, Rule};
/// # let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
/// let mut shards = Shards::open(&Store::memory(), &schema, 0..1)?;
/// let mut weights = [0.0];
/// let writes = [(Write::Gradient, &[2.0][..], 2.0), (Write::Row, &[5.0], 5.0), (Write::Delete, &[], 0.0)];
/// for (seq, (write, values, then)) in (1..).zip(writes) {
///     shards.push(&PushName { pusher: 1, incarnation: 1, seq, row: 0 }, write, &[7], None, values)?;
///     shards.pull(&[7], Read::Weights, &mut weights, None)?;
///     assert_eq!(weights, [then]);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// `dim` floats: a gradient, for the table's rule.
    Gradient,
    /// [`Schema::floats`] floats: a change of state, added to the row (replay). Only where [`Schema::replays`].
    Change,
    /// 2 floats, an f64 as [`split`](gannet_optim::lbfgs::split) makes it. They are added to the row's sum of
    /// one pass, which the push's sequence number determines. Only in tables of vectors
    /// ([`Vectors`](crate::Vectors)).
    Sum,
    /// [`Schema::floats`] floats: a change of state. Its last float is the number of pushes that the pusher
    /// expects were applied to the row. If other workers have pushed since, the change is damped (damping.rs).
    /// Only in tables of [`Schema::counting`].
    Damped,
    /// [`Schema::floats`] floats: a whole row, as a checkpoint holds it. It replaces the stored row. A missing row is
    /// created whatever the table's admission says.
    Row,
    /// No floats: the row is deleted. The key then reads as its initial value. A key without a row stays without one.
    Delete,
}

impl Schema {
    /// Floats of a row that `read` returns.
    pub fn read_floats(&self, read: Read) -> usize {
        match read {
            Read::Weights => self.weights(),
            Read::State => self.floats(),
        }
    }

    /// Floats of a row that `write` carries.
    pub fn write_floats(&self, write: Write) -> usize {
        match write {
            Write::Gradient => self.weights(),
            Write::Change | Write::Damped | Write::Row => self.floats(),
            Write::Sum => 2,
            Write::Delete => 0,
        }
    }

    /// Floats that `read` returns for these segments of a row.
    ///
    /// # Errors
    /// A segment that rows of this table do not have, or no segment at all.
    pub fn read_floats_of(&self, read: Read, segments: Segments) -> Result<usize, PullError> {
        if segments == Segments::ALL {
            return Ok(self.read_floats(read));
        }
        let count = 1 + self.more.len();
        if segments.bits() == 0 || u32::from(segments.bits()) >> count != 0 {
            return Err(PullError::Segments { requested: segments.bits(), segments: count });
        }
        let floats = |segment: Segment| match read {
            Read::Weights => segment.dim as usize,
            Read::State => segment.rule.floats(segment.dim as usize),
        };
        Ok(self.segments().enumerate().filter(|(n, _)| segments.has(*n)).map(|(_, s)| floats(s)).sum())
    }
}

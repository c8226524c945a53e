//! The rows of a push, until the servers have acknowledged it.

use std::fmt;
use std::ops::Deref;

/// The rows of a push in shard order, as the worker holds them until the push is acknowledged: it may send them again.
///
/// ```
/// use gannet_worker::PushRows;
///
/// let owned = PushRows::from(vec![1.0, 2.0]);
/// let lent = PushRows::lent([1.0, 2.0]);
/// assert_eq!(owned[..], lent[..]);
/// ```
pub enum PushRows {
    /// Memory that becomes the worker's. [`Worker::spare`](crate::worker::Worker::spare) returns it when the push has
    /// ended.
    Owned(Vec<f32>),
    /// Memory that stays the caller's. The worker drops it when the push has ended.
    Lent(Box<dyn AsRef<[f32]> + Send + Sync>),
}

impl PushRows {
    /// Rows in memory that stays the caller's, such as an `Arc` of rows, or an array of another language.
    pub fn lent(rows: impl AsRef<[f32]> + Send + Sync + 'static) -> PushRows {
        PushRows::Lent(Box::new(rows))
    }

    /// The rows, to be changed. Lent ones are copied before.
    pub(crate) fn to_mut(&mut self) -> &mut [f32] {
        if let PushRows::Lent(lent) = self {
            *self = PushRows::Owned((**lent).as_ref().to_vec());
        }
        match self {
            PushRows::Owned(rows) => rows,
            PushRows::Lent(_) => unreachable!("lent rows were copied"),
        }
    }
}

impl From<Vec<f32>> for PushRows {
    fn from(rows: Vec<f32>) -> PushRows {
        PushRows::Owned(rows)
    }
}

impl Deref for PushRows {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            PushRows::Owned(rows) => rows,
            PushRows::Lent(rows) => (**rows).as_ref(),
        }
    }
}

impl fmt::Debug for PushRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if let PushRows::Owned(_) = self { "Owned" } else { "Lent" };
        f.debug_tuple(kind).field(&&self[..]).finish()
    }
}

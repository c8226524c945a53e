//! What is said of the rows that may die, and whether it makes sense.

use crate::image::layout::{DELETION_BYTES, HOT_BYTES};
use crate::limits::DELETIONS_MAX;
use crate::schema::table_schema::Schema;
use std::time::Duration;

/// Which rows of a table may be evicted. By default none.
///
/// These settings are no part of a table's schema or of its images: who serves the table says them anew. So a table
/// can go on with others, or without any.
///
/// ```
/// use gannet_core::{Capacity, Eviction};
/// use std::time::Duration;
///
/// let day = Duration::from_secs(24 * 3600);
/// let eviction = Eviction { after: Some(day), capacity: Some(Capacity::Rows(1_000_000)), ..Eviction::default() };
/// assert!(eviction.is_on() && !Eviction::default().is_on());
/// assert!(eviction.check().is_ok());
/// assert!(Eviction { floor: 2_000_000, ..eviction }.check().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Eviction {
    /// Evicts rows that were not pushed for so long.
    pub after: Option<Duration>,
    /// Evicts rows whose weights have a smaller Euclidean norm, once they were not pushed for a minute.
    pub below: Option<f32>,
    /// Evicts the rows that were pushed least recently while the table has more than this.
    pub capacity: Option<Capacity>,
    /// `after` and `below` leave at least so many rows in the table.
    pub floor: u64,
}

/// How large a table may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// So many rows.
    Rows(u64),
    /// So many bytes of images: rows, index, and what a shard remembers of deletions.
    Bytes(u64),
}

/// Why these settings are refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EvictionError {
    /// The age is zero.
    #[error("rows that die at an age of 0 would die at once: use 1 ms or more")]
    After,
    /// The norm is not a number above 0.
    #[error("rows with a norm below {0} cannot be evicted: use a finite number above 0")]
    Below(f32),
    /// The capacity is zero.
    #[error("a capacity of 0 leaves no row: use a larger one")]
    NoCapacity,
    /// The capacity is below the floor.
    #[error(
        "a capacity of {capacity} rows is below the floor of {floor} rows: use a larger capacity, or a lower floor"
    )]
    Floor {
        /// Rows of the capacity.
        capacity: u64,
        /// Rows of the floor.
        floor: u64,
    },
    /// The floor has nothing to hold.
    #[error("a floor of rows holds only where rows die by age or weight: name an age or a norm, too")]
    OnlyFloor,
    /// The shards alone take more bytes.
    #[error(
        "table {table:?}: a capacity of {bytes} bytes is too small for {shards} shards: use at least {least} bytes, or \
         a number of rows"
    )]
    Bytes {
        /// The table's name.
        table: String,
        /// The capacity.
        bytes: u64,
        /// Shards of the table.
        shards: u32,
        /// The smallest capacity that it can have.
        least: u64,
    },
}

/// Bytes of the index for a row, with the space that is free in its buckets.
const INDEX_BYTES_A_ROW: u64 = 20;

/// Bytes of a shard besides its rows and their index: its header, and the deletions that it remembers.
const SHARD_BYTES: u64 = (DELETIONS_MAX * DELETION_BYTES) as u64 + 64 * 1024 + HOT_BYTES as u64;

impl Eviction {
    /// Whether any row may be evicted.
    pub fn is_on(&self) -> bool {
        self.after.is_some() || self.below.is_some() || self.capacity.is_some()
    }

    /// Checks the settings, whichever table they are for.
    ///
    /// # Errors
    /// See [`EvictionError`].
    pub fn check(&self) -> Result<(), EvictionError> {
        let Eviction { after, below, capacity, floor } = *self;
        if after.is_some_and(|after| after.as_millis() == 0) {
            return Err(EvictionError::After);
        }
        if let Some(norm) = below.filter(|norm| !norm.is_finite() || *norm <= 0.0) {
            return Err(EvictionError::Below(norm));
        }
        match capacity {
            Some(Capacity::Rows(0) | Capacity::Bytes(0)) => return Err(EvictionError::NoCapacity),
            Some(Capacity::Rows(capacity)) if capacity < floor => {
                return Err(EvictionError::Floor { capacity, floor });
            }
            _ => {}
        }
        if floor > 0 && after.is_none() && below.is_none() {
            return Err(EvictionError::OnlyFloor);
        }
        Ok(())
    }

    /// How many rows each shard of a table may have.
    pub(crate) fn rows_a_shard(&self, schema: &Schema) -> Result<Option<u64>, EvictionError> {
        let shards = u64::from(schema.shards);
        match self.capacity {
            None => Ok(None),
            Some(Capacity::Rows(rows)) => Ok(Some(rows.div_ceil(shards))),
            Some(Capacity::Bytes(bytes)) => {
                let row = schema.stride() as u64 + INDEX_BYTES_A_ROW;
                let of_shard = bytes / shards;
                match of_shard.checked_sub(SHARD_BYTES).map(|left| left / row) {
                    Some(rows) if rows > 0 => Ok(Some(rows)),
                    _ => Err(EvictionError::Bytes {
                        table: schema.name.clone(),
                        bytes,
                        shards: schema.shards,
                        least: (SHARD_BYTES + row) * shards,
                    }),
                }
            }
        }
    }
}

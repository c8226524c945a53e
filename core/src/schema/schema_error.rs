//! Why a schema is refused.

use crate::limits::{DIM_MAX, SEGMENTS_MAX, SHARDS_MAX};
use crate::schema::init::Init;

/// Why a schema cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The name is empty, too long, or has other characters.
    #[error("table name {0:?}: 1 to 64 characters of A-Z a-z 0-9 _ . - are allowed, not starting with a dot")]
    Name(String),
    /// The dimension is 0 or too large.
    #[error("table {table:?}: dim {dim} is outside 1..={DIM_MAX}")]
    Dim {
        /// Table.
        table: String,
        /// What was asked.
        dim: u32,
    },
    /// Too many segments.
    #[error("table {table:?}: {segments} segments a row, at most {SEGMENTS_MAX} are allowed")]
    Segments {
        /// Table.
        table: String,
        /// What was asked.
        segments: usize,
    },
    /// The number of shards is not a power of two in range.
    #[error("table {table:?}: {shards} shards: a power of two from 1 to {SHARDS_MAX} is needed")]
    Shards {
        /// Table.
        table: String,
        /// What was asked.
        shards: u32,
    },
    /// The initial values are not finite.
    #[error("table {table:?}: initial values {init:?} are not finite or not in order")]
    Init {
        /// Table.
        table: String,
        /// What was asked.
        init: Init,
    },
    /// The admission's parameters are out of range.
    #[error("table {table:?}: admission {reason}")]
    Admission {
        /// Table.
        table: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The rule's hyper-parameters are out of range.
    #[error("table {table:?}: {reason}")]
    Rule {
        /// Table.
        table: String,
        /// What the rule says.
        reason: String,
    },
}

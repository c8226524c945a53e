//! Why a schema is refused.

use crate::limits::{DIM_MAX, SEGMENTS_MAX, SHARDS_MAX};
use crate::schema::init::Init;

/// Why a schema is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The name is empty, too long, or has other characters.
    #[error(
        "table name {0:?} is not allowed: use 1 to 64 characters of A-Z a-z 0-9 _ . - and do not start with a dot"
    )]
    Name(String),
    /// A data folder has a file or a folder of this name.
    #[error(
        "table name {0:?} is not allowed: a data folder has something else of this name; use another one"
    )]
    Reserved(String),
    /// The dimension is 0 or too large.
    #[error("table {table:?}: dim {dim} is not allowed: use 1 to {DIM_MAX}")]
    Dim {
        /// The table's name.
        table: String,
        /// The weights a row that were requested.
        dim: u32,
    },
    /// Too many segments.
    #[error("table {table:?}: {segments} segments a row are not allowed: use at most {SEGMENTS_MAX}")]
    Segments {
        /// The table's name.
        table: String,
        /// The number of segments that was requested.
        segments: usize,
    },
    /// The number of shards is not a power of two in range.
    #[error("table {table:?}: {shards} shards are not allowed: use a power of two from 1 to {SHARDS_MAX}")]
    Shards {
        /// The table's name.
        table: String,
        /// The number of shards that was requested.
        shards: u32,
    },
    /// The initial values are not finite, or their bounds are out of order.
    #[error(
        "table {table:?}: initial values {init:?} are not allowed: use finite numbers, the lower bound first"
    )]
    Init {
        /// The table's name.
        table: String,
        /// The initial values that were requested.
        init: Init,
    },
    /// Initial values that the row type cannot store.
    #[error(
        "table {table:?}: initial values {init:?} go beyond the largest {row_type}: use smaller ones, or row type f32"
    )]
    InitRange {
        /// The table's name.
        table: String,
        /// The initial values that were requested.
        init: Init,
        /// The row type's name.
        row_type: &'static str,
    },
    /// The parameters of the admission are out of range.
    #[error("table {table:?}: admission {reason}")]
    Admission {
        /// The table's name.
        table: String,
        /// What is wrong with the admission.
        reason: String,
    },
    /// The parameters of the rule are out of range.
    #[error("table {table:?}: {reason}")]
    Rule {
        /// The table's name.
        table: String,
        /// What is wrong with the rule, in words.
        reason: String,
    },
}

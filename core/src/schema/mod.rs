//! What a table is, as plain data: its schema, its segments, its identity. Nothing here touches an image.

pub(crate) mod admission;
pub(crate) mod identity;
pub(crate) mod init;
pub(crate) mod row_type;
mod rule_bytes;
pub(crate) mod schema_error;
pub(crate) mod segment;
pub(crate) mod shard_set;
pub(crate) mod table_schema;

//! Files of rows: their bytes, and how they are written and read.

pub(crate) mod encoder;
pub(crate) mod file_ring;
pub(crate) mod row_file;
pub(crate) mod row_file_reader;
#[cfg(test)]
mod row_file_tests;
pub(crate) mod row_file_writer;
pub(crate) mod shard_rows;

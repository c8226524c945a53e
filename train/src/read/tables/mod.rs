//! Examples of Arrow record batches: of files of Parquet and Arrow, and of data frames (the Python package). A row
//! becomes the example that the same row of a CSV file becomes ([`TableRows`](crate::TableRows)).

mod cells;
pub(crate) mod columns;
mod known_keys;
#[cfg(all(feature = "cloud", feature = "parquet"))]
mod object_columns;
pub(crate) mod record_batches;
#[cfg(feature = "parquet")]
pub(crate) mod table_blocks;
#[cfg(feature = "parquet")]
mod table_bytes;
#[cfg(feature = "parquet")]
pub(crate) mod table_file;
mod texts;

//! Tests of reading: formats, files, bad input, rows of tables.

mod bad_input;
mod columns;
mod files;
mod formats;
mod reading;
#[cfg(feature = "parquet")]
mod table_files;
mod table_rows;

#[path = "../model/fuzzed.rs"]
mod entries;
#[path = "../model/mod.rs"]
mod model;
#[path = "../model/plain.rs"]
mod plain;

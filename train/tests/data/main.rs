//! Tests of reading: formats, files, bad input, rows of tables.

mod bad_input;
mod cache;
mod columns;
mod example_numbers;
mod files;
mod formats;
mod normalized;
#[cfg(feature = "cloud")]
mod objects;
#[cfg(feature = "parquet")]
mod odd;
mod reading;
#[cfg(feature = "parquet")]
mod table_files;
mod table_rows;

#[path = "../model/fuzzed.rs"]
mod entries;
#[path = "../model/mod.rs"]
mod model;
#[cfg(feature = "cloud")]
#[path = "../../../tests/harness/web_server.rs"]
mod web_server;

#[path = "../model/plain.rs"]
mod plain;

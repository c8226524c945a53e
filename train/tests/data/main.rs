//! Tests of reading: formats, files, bad input.

mod bad_input;
mod files;
mod formats;
mod reading;

#[path = "../model/fuzzed.rs"]
mod entries;
#[path = "../model/mod.rs"]
mod model;
#[path = "../model/plain.rs"]
mod plain;

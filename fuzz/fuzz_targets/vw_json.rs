//! JSON lines of vw of any bytes: see train/tests/model/fuzzed.rs.
#![forbid(unsafe_code)]
#![no_main]

#[path = "../../train/tests/model/fuzzed.rs"]
mod entries;
#[path = "../../train/tests/model/plain.rs"]
mod plain;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entries::vw_json(bytes));

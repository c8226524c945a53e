//! A server session over any bytes, or over frames made of them.
#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gannet_node::hostile::session(bytes));

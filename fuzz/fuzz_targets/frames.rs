//! Heads and control messages of any bytes: they are read or refused, and what is read can be written again.
#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gannet_node::hostile::decode(bytes));

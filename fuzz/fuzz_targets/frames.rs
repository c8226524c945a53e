//! Heads and control messages of any bytes: they are decoded or refused, and what is decoded can be encoded again.
#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gannet_server::hostile::decode(bytes));

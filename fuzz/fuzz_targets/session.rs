//! A server session that receives any bytes, or frames made from them.
#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gannet_server::hostile::session(bytes));

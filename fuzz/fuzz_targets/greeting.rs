//! A greeting of any bytes, to servers with a token and without. Only those who may connect are accepted.
#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gannet_server::hostile::greeting(bytes));

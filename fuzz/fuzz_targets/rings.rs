//! The rings of a session over shared memory, with a peer that rewrites positions and bytes.
#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gannet_server::hostile::rings(bytes));

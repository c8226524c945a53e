//! The rings of a session over shared memory, whose peer rewrites positions and bytes as it likes.
#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gannet_node::hostile::rings(bytes));

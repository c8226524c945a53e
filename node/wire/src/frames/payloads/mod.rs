//! The payloads of frames: what stands behind a head.

pub mod command_payload;
#[cfg(test)]
mod command_payload_tests;
pub mod f16;
pub mod pull_newer;
pub mod push_payload;

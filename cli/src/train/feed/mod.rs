//! One process has the data, and sends it to the workers (`--feed`).

pub mod client;
pub mod worker;

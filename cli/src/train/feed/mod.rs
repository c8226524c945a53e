//! One process has the data, and sends it to the workers (`--feed`).

pub mod client;
pub mod data_client;
pub mod outcome;
pub mod reading;
pub mod worker;

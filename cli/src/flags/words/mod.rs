//! Words of a command line before and after clap reads them.

pub mod environment;
pub mod foreign;
pub mod numbers;
pub mod short_help;

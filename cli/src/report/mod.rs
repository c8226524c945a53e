//! What commands print: words, numbers, warnings and progress.

pub mod models;
pub mod training;

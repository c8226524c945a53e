//! What commands print: words, numbers, warnings and progress.

pub mod account;
pub mod measures;
pub mod models;
pub mod numbers;
pub mod plots;
pub mod progress;
pub mod steps;
pub mod training;
pub mod warnings;
pub mod words;

//! The run of a process.

pub mod alone;
pub mod awaited_worker;
pub mod begin;
pub mod fixed_share;
pub mod in_run;
pub mod settings;

//! The flags of a job, and the connection of its processes.

pub mod backups;
pub mod cache;
pub mod check;
pub mod connection;
pub mod end;
pub mod servers;
pub mod servers_of_job;
pub mod sync;
pub mod wire;

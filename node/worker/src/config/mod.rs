//! What a worker is told: its servers, its index, its limits.

pub(crate) mod builder;
pub(crate) mod registrars;
pub(crate) mod worker_config;

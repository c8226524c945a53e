//! What happens on each request.

pub(crate) mod backups;
pub(crate) mod bulk;
pub(crate) mod cached_pulls;
#[cfg(test)]
mod cached_pulls_tests;
pub(crate) mod coordination;
pub(crate) mod copies;
pub(crate) mod cuts;
pub(crate) mod evictions;
pub(crate) mod images;
pub(crate) mod incarnations;
pub(crate) mod regions;
pub(crate) mod runs;
pub(crate) mod scheduler_rpc;
pub(crate) mod states;
pub(crate) mod steps;
#[cfg(test)]
mod subscription_tests;
pub(crate) mod subscriptions;
pub(crate) mod tables;
pub(crate) mod vectors;

//! What happens on each request.

pub(crate) mod bulk;
pub(crate) mod cached_pulls;
#[cfg(test)]
mod cached_pulls_tests;
pub(crate) mod coordination;
pub(crate) mod copies;
pub(crate) mod group_requests;
pub(crate) mod images;
pub(crate) mod incarnations;
pub(crate) mod runs;
pub(crate) mod scheduler_rpc;
#[cfg(test)]
mod subscription_tests;
pub(crate) mod subscriptions;
pub(crate) mod vectors;

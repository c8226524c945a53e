//! The threads that drive it all.

pub(crate) mod closing;
pub(crate) mod event_loop;
pub(crate) mod followers;
pub(crate) mod replication;
pub(crate) mod settings;
pub(crate) mod thread_gauges;
pub(crate) mod thread_health;

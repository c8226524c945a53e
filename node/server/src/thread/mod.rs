//! The threads that drive it all.

pub(crate) mod event_loop;
pub(crate) mod heartbeats;
pub(crate) mod settings;
pub(crate) mod thread_gauges;
pub(crate) mod thread_health;
pub(crate) mod turn;

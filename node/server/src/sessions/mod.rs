//! Sessions: how a connection is greeted, and how a frame is taken in.

pub(crate) mod acceptor;
pub(crate) mod context;
pub(crate) mod dispatch;
pub(crate) mod end;
#[cfg(test)]
pub(crate) mod fences_tests;
#[cfg(test)]
mod flood_tests;
pub(crate) mod greeting;
pub(crate) mod pending_replies;
#[cfg(test)]
pub(crate) mod refusals_tests;
#[cfg(test)]
mod rejoin_tests;
pub(crate) mod send;
pub(crate) mod session;
pub(crate) mod session_buffers;
pub(crate) mod session_replies;
pub(crate) mod session_times;

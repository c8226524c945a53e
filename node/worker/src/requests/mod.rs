//! Requests: their names, what each one lends and takes in, and the queue of a link.

pub(crate) mod control;
pub(crate) mod ids;
pub(crate) mod in_flight;
pub(crate) mod names;
pub(crate) mod push_rows;
pub(crate) mod relayout;
pub(crate) mod request_queue;
pub(crate) mod spare;

//! The tables that a worker has opened.

pub(crate) mod births;
pub(crate) mod clock;
pub(crate) mod opened_as;
pub(crate) mod plan;
pub(crate) mod rounding_errors;
pub(crate) mod table;

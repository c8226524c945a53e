//! Cuts: the rows of a shard as they were at one moment, copied out, and put back.

pub(crate) mod copy_fill;
pub(crate) mod copy_state;
pub(crate) mod cut;
pub(crate) mod restore;
pub(crate) mod saved_rows;

//! Lines into blocks, on one thread or on several.

pub(crate) mod line_blocks;
pub(crate) mod line_cutter;
pub(crate) mod parcel;
pub(crate) mod parsers;

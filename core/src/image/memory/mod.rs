//! The memory of images: reserved addresses, the bytes mapped there, and their growth.

pub(crate) mod address_range;
pub(crate) mod budget;
pub(crate) mod extents;
pub(crate) mod grower;
pub(crate) mod mappings;
pub(crate) mod prefetch;
pub(crate) mod probe;

//! A shard's memory: a mapped file that grows, its layout, its undo journal, and the folder where it is.

pub(crate) mod bucket;
pub(crate) mod checksums;
pub(crate) mod files;
pub(crate) mod head;
pub(crate) mod journal;
pub(crate) mod layout;
pub(crate) mod memory;
pub(crate) mod owned_image;
pub(crate) mod row;
pub(crate) mod row_version;

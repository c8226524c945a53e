//! A shard's memory: a mapped file that grows, its layout, its undo journal, and the folder where it is.

pub(crate) mod address_range;
pub(crate) mod bucket;
mod budget;
pub(crate) mod checksums;
pub(crate) mod durability;
pub(crate) mod extents;
pub(crate) mod filesystem;
pub(crate) mod grower;
pub(crate) mod head;
pub(crate) mod held_table;
pub(crate) mod image_check;
mod incarnations;
pub(crate) mod journal;
pub(crate) mod layout;
pub(crate) mod new_images;
pub(crate) mod open_shards;
pub(crate) mod owned_image;
pub(crate) mod prefetch;
pub(crate) mod probe;
pub(crate) mod row;
pub(crate) mod row_version;
pub(crate) mod store;
pub(crate) mod table_folder;
mod table_names;

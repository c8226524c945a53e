//! The files and folders of images: their names, who holds them, and whether they are whole.

pub(crate) mod durability;
pub(crate) mod filesystem;
pub(crate) mod held_table;
pub(crate) mod image_check;
pub(crate) mod incarnations;
pub(crate) mod new_images;
pub(crate) mod open_shards;
pub(crate) mod store;
pub(crate) mod table_folder;
pub(crate) mod table_names;

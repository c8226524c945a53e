//! The bytes of the data: which files, how they are read, and where their lines end.

pub(crate) mod data_file;
pub(crate) mod decompress;
pub(crate) mod files;
#[cfg(feature = "cloud")]
pub(crate) mod objects;
pub(crate) mod source;
pub(crate) mod stop_flag;
pub(crate) mod stream;

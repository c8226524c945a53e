//! What the place of a server consists of, besides the rows of its tables.

pub(crate) mod folder;
pub(crate) mod folder_error;
pub(crate) mod incarnations;
pub(crate) mod own;
pub(crate) mod states;

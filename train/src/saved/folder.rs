//! The folders of a saved model. The first table is in the folder itself, the others are in folders in it.

use gannet_core::{Checkpoint, Schema};
use std::path::{Path, PathBuf};

/// The folder of a table other than the first, in a saved model whose first table this is.
pub fn table_folder(folder: &Path, first: &Checkpoint, schema: &Schema) -> PathBuf {
    folder_of_save(folder, schema, first.note("save").unwrap_or_default())
}

/// The folder of a table other than the first: named after the table and the save.
pub fn folder_of_save(folder: &Path, schema: &Schema, save: &str) -> PathBuf {
    folder.join(format!("{}-{save}", schema.name))
}

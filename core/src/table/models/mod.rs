//! The folders of saved models.

pub(crate) mod checkpoint;
pub(crate) mod checkpoint_rows;
#[cfg(test)]
mod checkpoint_rows_tests;
#[cfg(test)]
mod checkpoint_tests;
pub(crate) mod checkpoint_writer;
pub(crate) mod model_folder;

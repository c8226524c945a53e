//! Splits of the data: parts of files, and who hands them out.

pub(crate) mod file_data_source;
pub(crate) mod remote_data;
pub(crate) mod scheduled_splits;
pub(crate) mod split;
pub(crate) mod split_file;

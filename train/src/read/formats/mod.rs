//! The formats of lines, and what their values become: labels, keys and numbers.

pub(crate) mod columns;
pub(crate) mod criteo;
pub(crate) mod csv;
pub(crate) mod csv_records;
pub(crate) mod digit_mask;
pub(crate) mod features;
pub(crate) mod format;
pub(crate) mod json;
pub(crate) mod labels;
pub(crate) mod libffm;
pub(crate) mod libsvm;
pub(crate) mod number;
pub(crate) mod repeated_keys;
pub(crate) mod scale;
pub(crate) mod text_key;
pub(crate) mod vw;
pub(crate) mod vw_json;

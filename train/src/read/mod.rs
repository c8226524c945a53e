//! Reads examples: finds the files, chooses the format, and parses lines into [`Block`](block::Block)s.
//!
//! The path of a byte: [`bytes`] lists the files, reads them, and finds whole lines. [`formats`] has a line reader for
//! each format, and [`fields`] what is said of columns and namespaces. [`lines`] fills blocks with them, on one thread
//! or on several. [`splits`] says which parts of the files a worker reads, and [`growing`] what is new in a source that
//! grows. [`cache`] keeps parsed blocks for later passes. [`reader`] also reads examples that are not in files
//! ([`block_source`]), such as rows of a table ([`table_rows`]).

pub(crate) mod block;
pub(crate) mod block_source;
pub(crate) mod bytes;
pub(crate) mod cache;
pub(crate) mod class_weights;
pub(crate) mod data;
pub(crate) mod error;
pub(crate) mod feature_names;
pub(crate) mod fields;
pub(crate) mod first_examples;
pub(crate) mod formats;
pub(crate) mod growing;
pub(crate) mod holdout;
pub(crate) mod kept_negatives;
pub(crate) mod lines;
pub(crate) mod normalization;
pub(crate) mod reader;
pub(crate) mod size_survey;
pub(crate) mod splits;
pub(crate) mod survey;
pub(crate) mod table_rows;
#[cfg(feature = "arrow")]
pub(crate) mod tables;

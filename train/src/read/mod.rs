//! Reads examples: finds the files, chooses the format, and parses lines into [`Block`](block::Block)s.
//!
//! The path of a byte: [`files`] lists the files, [`stream`] and [`decompress`] read their bytes, and [`source`]
//! finds whole lines. [`format`] chooses a line reader ([`libsvm`], [`csv`], [`criteo`], [`vw`]), and [`line_blocks`]
//! fills blocks. With several threads, [`line_cutter`] cuts the lines into [`parcel`]s, and [`parsers`] parse them.
//! [`reader`] also reads examples that are not in files ([`block_source`]), such as rows of a table
//! ([`table_rows`]).

pub(crate) mod block;
pub(crate) mod block_source;
pub(crate) mod columns;
pub(crate) mod criteo;
pub(crate) mod csv;
pub(crate) mod data;
pub(crate) mod decompress;
pub(crate) mod digit_mask;
pub(crate) mod error;
pub(crate) mod features;
pub(crate) mod file_data_source;
pub(crate) mod files;
pub(crate) mod format;
pub(crate) mod labels;
pub(crate) mod libsvm;
pub(crate) mod line_blocks;
pub(crate) mod line_cutter;
pub(crate) mod number;
pub(crate) mod parcel;
pub(crate) mod parsers;
pub(crate) mod reader;
pub(crate) mod remote_data;
pub(crate) mod repeated_keys;
pub(crate) mod scale;
pub(crate) mod scheduled_splits;
pub(crate) mod source;
pub(crate) mod split;
pub(crate) mod stop_flag;
pub(crate) mod stream;
pub(crate) mod survey;
pub(crate) mod table_rows;
pub(crate) mod text_key;
pub(crate) mod vw;

//! A cache of parsed blocks for later passes over the same files: a file with a packed block for each batch.
//!
//! The first pass writes it while it parses text ([`writer`]); later passes read it ([`pass`]). [`packed_block`] has
//! the bytes of a block, [`cache_file`] the frames around them, and [`place`] where the file is and what it is a cache
//! of.

pub(crate) mod cache_file;
pub(crate) mod packed_block;
pub(crate) mod pass;
pub(crate) mod place;
pub(crate) mod writer;

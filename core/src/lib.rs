//! gannet-core: keys, shards, the row image and its journal, pulls and pushes.
//!
//! A table's shards live in images (memfd, or files that outlive the process). [`Shards`] is the part of a table that
//! one thread owns; [`Shards::pull`] and [`Shards::push`] are the hot paths. The room opens no socket and reads no wall
//! clock. docs/image.md has the bytes; docs/consistency.md says what survives what.
#![deny(unsafe_code)]

mod admission;
mod budget;
mod checkpoint;
mod damping;
mod durability;
mod effect;
mod error;
mod expansion;
mod filesystem;
mod grower;
mod hash;
mod head;
mod image;
mod incarnations;
mod index;
#[cfg(test)]
mod index_tests;
mod init;
mod journal;
pub mod kill;
mod known_pushers;
mod layout;
pub mod limits;
mod mapped_shards;
mod open_shards;
mod part_progress;
#[cfg(test)]
mod power_tests;
mod program;
mod pull;
mod pull_newer;
mod push;
mod push_chunks;
mod pushers;
mod readable_shard;
mod remote_row_reader;
mod resolve;
mod row;
mod row_version;
mod rule_bytes;
mod schema;
mod segments;
mod shard;
mod slot;
mod store;
mod table;
mod vectors;
mod width;

pub use admission::{Admission, SKETCH_BYTES_DEFAULT};
pub use checkpoint::{Checkpoint, CheckpointError, CheckpointWriter};
pub use error::{GrowError, OpenError, PullError, PushError, pusher_in_words};
pub use filesystem::{Filesystem, Overwriting};
pub use grower::{Growth, Now, STALL_BUCKETS};
pub use hash::{hash, mix, shard_of};
pub use head::{HeldTable, Origin, TableIdentity, TableUid};
pub use image::{prefetch, try_huge_page};
pub use init::initial_weights;
pub use mapped_shards::MappedShards;
pub use program::{ColumnSum, Program, ProgramStep, RECIPROCAL_MAX, Term};
pub use pull_newer::{CachedVersion, NewerRow};
pub use push::Applied;
pub use push_chunks::pieces;
pub use pushers::{DATA_PUSHERS, PushName};
pub use readable_shard::{MemoryRange, ReadableShard};
pub use remote_row_reader::{
    HEADER_LINE_AT, HEADER_LINE_BYTES, RemoteRowReader, VERSION_BYTES, is_served, lowest_of,
};
pub use schema::{Init, SHARDS_DEFAULT, Schema, SchemaError};
pub use segments::{Segment, Segments};
pub use store::{GrowthConfig, Store};
pub use table::{NO_CLOCK, NO_SLOT, PusherStatus, Read, Shards, Stats, Write};
pub use vectors::Vectors;

//! gannet-core: keys, shards, their images and journals, pulls and pushes.
//!
//! A table's shards live in images: in memory (memfd), or in files that outlive the process. [`Shards`] is the part of
//! a table that one thread owns. [`Shards::pull`] and [`Shards::push`] are the hot paths. The crate opens no socket and
//! reads no wall clock. docs/image.md has the bytes. docs/consistency.md says what survives what.
//!
//! The modules are layers. A module uses only the modules above it in this list; tests/tidy checks that:
//! ```text
//! limits, hash, kill, push_name   numbers and names
//! own_files                       which files are Gannet's: removes and replaces them
//! schema                          what a table is, as plain data
//! error                           why a call is refused
//! image                           a shard's memory: a mapped file, its layout, its journal, its folder
//! checkpoint                      the files of a job's checkpoints
//! index                           from the hash of a key to the slot of its row
//! table                           pulls and pushes on the shards that one thread owns
//! reader                          rows read without a request to their owner: mapped images, RDMA
//! ```
#![deny(unsafe_code)]

mod checkpoint;
mod error;
mod hash;
mod image;
mod index;
pub mod kill;
pub mod limits;
pub mod own_files;
mod push_name;
mod reader;
mod schema;
mod table;

// What a table is.
pub use schema::admission::{Admission, SKETCH_BYTES_DEFAULT};
pub use schema::identity::{Origin, TableIdentity, TableUid};
pub use schema::init::{INTERCEPT_KEY, Init, init_row, initial_weights};
pub use schema::row_type::RowType;
pub use schema::schema_error::SchemaError;
pub use schema::segment::{Segment, Segments};
pub use schema::shard_set::ShardSet;
pub use schema::table_schema::{SHARDS_DEFAULT, Schema};
pub use table::owned::vectors::Vectors;

// Where its images live.
pub use image::files::filesystem::{Filesystem, Overwriting};
pub use image::files::held_table::{HeldTable, is_data_folder};
pub use image::files::image_check::ImageCheck;
pub use image::files::store::{GrowthConfig, Store};
pub use image::files::table_folder::has_images;
pub use image::memory::grower::{Growth, Now, STALL_BUCKETS};
pub use image::memory::probe::try_huge_page;

// Pulls, pushes and programs.
pub use error::{GrowError, OpenError, PullError, PushError, pusher_in_words};
pub use push_name::{CLIENTS, Cursor, DATA_PUSHERS, PushName, is_client};
pub use table::commands::command_record::{
    CommandChange, CommandListener, CommandRecord, PushPart, PusherRecord, RowStates, ShardMemory, ToldShard,
};
pub use table::commands::program::{ColumnSum, Program, ProgramStep, RECIPROCAL_MAX, Term};
pub use table::commands::replay::ReplayError;
pub use table::cuts::cut::{CutProgress, MarkedShard};
pub use table::cuts::restore::RestoreRowsError;
pub use table::cuts::saved_rows::CutReader;
pub use table::eviction::evictor::{Evicted, Evictor};
pub use table::eviction::refused_changes::is_refused;
pub use table::eviction::settings::{Capacity, Eviction, EvictionError};
pub use table::owned::position::Position;
pub use table::owned::shards::{NO_SLOT, PusherStatus, Shards, Stats};
pub use table::progress::cursors::PushProgress;
pub use table::pulls::pull_newer::{CachedVersion, NewerRow};
pub use table::pulls::watched_keys::{ChangeSlice, ChangedKeys, WatchedKeys};
pub use table::pushes::push_chunks::push_parts;
pub use table::pushes::push_request::{Applied, PushOptions, ReadAt};
pub use table::pushes::read_write::{Read, Write};

// Reads without the owner.
pub use image::layout::NO_CLOCK;
pub use reader::mapped_shards::MappedShards;
pub use reader::readable_shard::{MemoryRange, ReadableShard};
pub use reader::remote_row_reader::{
    HEADER_LINE_AT, HEADER_LINE_BYTES, RemoteRowReader, VERSION_BYTES, acknowledged_of, command_of,
    is_served, lowest_of,
};

// Checkpoints.
pub use table::models::checkpoint::{Checkpoint, CheckpointError};
pub use table::models::checkpoint_writer::CheckpointWriter;
pub use table::models::model_folder::{foreign_entry, is_left_table, is_table_of, remove_model};

// The checkpoints of a job.
pub use checkpoint::directory::{CheckpointDir, CheckpointState, ListedCheckpoint};
pub use checkpoint::draft::Draft;
pub use checkpoint::error::CheckpointDirError;
pub use checkpoint::manifest::{FileEntry, JobManifest, ShardCut, StateEntry, TableCut};
pub use checkpoint::owner::NewestCheckpoints;
pub use checkpoint::prune::PrunePlan;
pub use checkpoint::row_files::encoder::RowFileEncoder;
pub use checkpoint::row_files::row_file::{RowFileHead, RowFileKind};
pub use checkpoint::row_files::row_file_reader::{RowBlock, RowFileReader};
pub use checkpoint::row_files::row_file_writer::{EndedRowFile, RowFileWriter};
pub use checkpoint::row_files::shard_rows::SavedRowFile;
pub use checkpoint::stores::local_store::LocalStore;
pub use checkpoint::stores::store::{CheckpointStore, OpenedFile, StoreWriter, StoredFile};
pub use checkpoint::verify::Verified;

// Hashes of keys, and hints to the cache.
pub use hash::{hash, mix, shard_of};
pub use image::memory::prefetch::prefetch;

//! Every limit of this crate, and how the limits relate.

use std::time::Duration;

/// Bytes of one chunk: the unit in which regions take file space, and one huge page.
pub const CHUNK_BYTES: usize = 2 << 20;
/// Smallest step in which the tail of a region is allocated, bytes.
pub const GROWTH_STEP_BYTES_MIN: usize = 4 << 10;
/// The grower grows regions from this size on before they are full (in kill tests, small regions too).
pub const GROWTH_AHEAD_BYTES_MIN: usize =
    if cfg!(feature = "kill-points") { GROWTH_STEP_BYTES_MIN } else { 1 << 20 };
/// The most bytes that an owner makes ready at a time when the grower is late.
pub const GROWTH_LATE_BYTES: usize = 64 << 10;
/// The smallest stretch of rows that is registered for RDMA READs, bytes.
pub const READABLE_BYTES_MIN: usize = 64 << 10;
/// The most bytes that an owner makes ready at a time to complete a stretch of rows for registration.
pub const WHOLE_AT_ONCE_BYTES: usize = 2 * CHUNK_BYTES;
/// Bytes reserved (address space only) for the header of a shard.
pub const HEADER_RESERVE_BYTES: usize = CHUNK_BYTES;
/// Most bytes of index buckets in a shard.
pub const INDEX_BYTES_MAX: usize = 2 << 30;
/// Most bytes of overflow buckets in a shard.
pub const OVERFLOW_BYTES_MAX: usize = 512 << 20;
/// Most bytes of rows in a shard (64 shards: 1 TiB a table).
pub const SLAB_BYTES_MAX: usize = 16 << 30;
/// Bytes of addresses reserved for the rows of a shard at first.
pub const SLAB_RESERVE_BYTES: usize = 32 << 20;
/// The factor by which that grows.
pub const SLAB_RESERVE_FACTOR: usize = 32;
/// Most slots in a shard. A slot number fits u32, and `u32::MAX` means "no slot".
pub const SLOTS_MAX: u32 = 1 << 28;
/// Most shards of a table.
pub const SHARDS_MAX: u32 = 4096;
/// Most floats of weights in a row, of all its segments.
pub const DIM_MAX: u32 = 4096;
/// Most segments of a row.
pub const SEGMENTS_MAX: usize = 8;
/// Longest table name, bytes.
pub const TABLE_NAME_BYTES_MAX: usize = 64;
/// Pushers that a shard remembers: a thousand workers with two splits of data each, and the pushers of earlier jobs.
pub const PUSHERS_MAX: usize = 4096;
/// The last deletions that a shard remembers. A reader of changes that needs older ones reads the whole shard.
/// (Few in kill tests, so that the ring is full and overwrites its oldest entries.)
pub const DELETIONS_MAX: usize = if cfg!(feature = "kill-points") { 256 } else { 1 << 14 };
/// Extents that a shard's directory can hold.
pub const EXTENTS_MAX: usize = 1024;
/// Most keys of one pull or push call.
pub const KEYS_PER_CALL_MAX: usize = 1 << 16;
/// Most buckets of the index that one step changes and logs: an insertion 3, an expansion 11 (expansion.rs).
pub const STEP_BUCKETS_MAX: usize = 16;

/// The most bytes whose pages a reader populates when it maps a table's images. Other pages are mapped on first use.
pub const POPULATE_BYTES_MAX: usize = 1 << 30;
/// How often a reader that is not the owner tries to read a row that is being written. Then the row counts as
/// missing.
pub const READ_TRIES: u32 = 16;
/// Overflow buckets of a chain that such a reader follows. The owner may move them to other chains meanwhile.
pub const CHAIN_MAX: usize = 32;

/// Most steps of a program on a table of vectors.
pub const PROGRAM_STEPS_MAX: usize = 64;
/// Most terms of all its steps.
pub const PROGRAM_TERMS_MAX: usize = 1024;
/// Most sums that a program returns: the dot products of 101 vectors (50 pairs and a gradient), and 64 more.
pub const PROGRAM_SUMS_MAX: usize = 101 * 102 / 2 + 64;

/// Most pushes that admission by count can require.
pub const ADMIT_PUSHES_MAX: u32 = 256;
/// Most bytes of a shard's admission sketch.
pub const SKETCH_BYTES_MAX: usize = 1 << 20;

/// Slots that an eviction looks at in one slice, at least.
pub const EVICT_SLICE_SLOTS: usize = 1 << 14;
/// Slots more that it looks at for each row that was made since the last slice. A shard that is full frees a sixteenth
/// of its rows in one pass, so that a row that is freed costs a look at 16 slots.
pub const EVICT_SLOTS_A_ROW: usize = 32;
/// The part of a full shard's rows that one pass frees: one in so many.
pub const EVICT_PART: u64 = 16;
/// Versions from which a pass over a full shard learns which rows are the oldest.
pub const EVICT_SAMPLE: usize = 1 << 12;
/// Rows that one slice evicts because of their age or their weights, at most.
pub const EVICT_SLICE_ROWS: usize = 1 << 10;
/// Of the rows that a table had an hour ago, one in so many may be evicted within an hour because of age or weights.
pub const EVICT_HOURLY_PART: u64 = 2;
/// How long a row must not have been pushed before it is evicted because its weights are small.
pub const EVICT_QUIET: Duration = Duration::from_secs(60);
/// Into how many steps the longest age that matters is divided. A row dies at most two steps late.
pub const EVICT_AGE_STEPS: u32 = 64;
/// The shortest of these steps.
pub const EVICT_STEP_MIN: Duration = Duration::from_millis(10);

/// Bytes of a block of a checkpoint's row file before compression: what its writer collects, and its reader holds.
pub const CHECKPOINT_BLOCK_BYTES: usize = 256 << 10;
/// The most bytes of such a block. A row of the most floats fits, and so does the largest admission sketch.
pub const CHECKPOINT_BLOCK_BYTES_MAX: usize = 4 << 20;
/// The most bytes of a checkpoint's manifest.
pub const CHECKPOINT_MANIFEST_BYTES_MAX: u64 = 64 << 20;
/// The most bytes of a state file of a checkpoint. Its reader holds it in memory.
pub const CHECKPOINT_STATE_BYTES_MAX: u64 = 1 << 30;
/// How many numbers a new checkpoint tries while other processes take them.
pub const CHECKPOINT_NUMBER_TRIES: u32 = 1000;
/// Writes of a checkpoint's file that are in flight through io_uring. Each has a buffer of about a block.
pub const CHECKPOINT_RING_WRITES: usize = 4;
/// Rings of io_uring that a process has for files of checkpoints. Further files are written without.
pub const CHECKPOINT_RINGS_MAX: usize = 8;
/// After so many bytes of a checkpoint's file the system is asked to begin their write-back.
pub const CHECKPOINT_WRITE_BACK_BYTES: u64 = 8 << 20;

/// Row files of a saved model that a reader holds open at once. Many systems allow a process 1,024 descriptors.
pub const MODEL_FILES_HELD_MAX: usize = 512;
/// How often a reader begins again to open a saved model that a save replaces meanwhile.
pub const MODEL_OPENS_MAX: u32 = 1000;
/// How often a reader looks for the newest checkpoint again, because checkpoints came or went meanwhile.
pub const CHECKPOINT_LOOKS_MAX: u32 = 1000;

const _: () = assert!(SLOTS_MAX < u32::MAX);
const _: () = assert!(SLAB_RESERVE_BYTES.is_multiple_of(CHUNK_BYTES) && SLAB_BYTES_MAX > SLAB_RESERVE_BYTES);
const _: () = assert!(SKETCH_BYTES_MAX <= CHECKPOINT_BLOCK_BYTES_MAX);
const _: () = assert!(INDEX_BYTES_MAX / 64 * 6 >= SLOTS_MAX as usize / 2);
const _: () =
    assert!(HEADER_RESERVE_BYTES.is_multiple_of(CHUNK_BYTES) && INDEX_BYTES_MAX.is_multiple_of(CHUNK_BYTES));

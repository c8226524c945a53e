//! The layout of a shard's image: offsets from its base, all of them constants or functions of the stride.
//! docs/image.md has the same layout as byte tables.
//!
//! ```text
//! 0                 header: head | hot words | extent directory | pushers | undo halves | admission sketch
//! DELETIONS         the ring of deletions, at the end of the header
//! INDEX             buckets of the index
//! OVERFLOW          overflow buckets
//! SLAB              slots
//! ```
//! The address range has this shape. The file is dense: the extent directory says which chunk of the file
//! backs which chunk of a region.

use crate::limits::*;

pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"GANNETIM");
pub(crate) const FORMAT: u32 = 5;

/// Immutable head: magic, format, shard, table id, servers, birth, schema, crc. Written once when the image is made.
pub(crate) const HEAD_BYTES: usize = 768;
/// The table's id, 16 bytes; the server that made the image and the number of servers, u32 each; the image's birth,
/// u64.
pub(crate) const HEAD_UID: usize = 24;
pub(crate) const HEAD_SERVER: usize = 40;
pub(crate) const HEAD_BIRTH: usize = 48;
pub(crate) const HEAD_SCHEMA: usize = 64;

/// The page of the words below. When an image is opened, this page is synced before anything else changes. The
/// clean flag and the boot id are in one sector of the page: a power loss keeps both or neither.
pub(crate) const HEAD_PAGE_BYTES: usize = 4096;

// Words that the journal does not cover.
/// [`OPEN`], [`CLOSED_IN_ORDER`] or [`UNSYNCED`].
pub(crate) const CLEAN: usize = 0x300;
pub(crate) const OPEN: u64 = 0;
pub(crate) const CLOSED_IN_ORDER: u64 = 1;
/// The system could not write all of the image when it was closed.
pub(crate) const UNSYNCED: u64 = 2;
pub(crate) const INCARNATION: usize = 0x308;
pub(crate) const BOOT: usize = 0x310; // two words: the boot that opened it last
/// 1 while the image's owner serves it. A reader that has mapped the image stops using it when this is 0 or
/// when the incarnation changes.
pub(crate) const SERVING: usize = 0x320;
/// The first of the shards that the same owner serves. All of these shards stop being served together.
pub(crate) const SERVED_WITH: usize = 0x328;
/// The lowest clock of the workers that keep step over this table. All pushes of steps below it are in the rows.
/// [`NO_CLOCK`] when no workers keep step.
pub(crate) const LOWEST: usize = 0x330;
/// The lowest clock when no workers keep step.
pub const NO_CLOCK: u64 = u64::MAX;
/// Up to which command no death of the owner takes anything back: all backups have them. [`NO_BACKUPS`]: the owner has
/// none.
pub(crate) const ACKNOWLEDGED: usize = 0x338;
pub(crate) const NO_BACKUPS: u64 = u64::MAX;
/// 1 when all servers of the table have made their images, so the table may have had pushes.
pub(crate) const CONFIRMED: usize = 0x340;
/// The births of all shards of the table as one number, as the first worker found them that opened it; 0: none has.
pub(crate) const ALL_BIRTHS: usize = 0x348;
/// `step << 1 | armed`: steps below `step` are completed; armed: undo half `step & 1` is valid.
pub(crate) const COMMIT: usize = 0x400;
/// The number of the last command. The journal does not cover it, but it is never behind the rows.
pub(crate) const COMMAND: usize = 0x408;
/// The epoch of the shard's history. Numbers of commands are compared only within an epoch.
pub(crate) const EPOCH: usize = 0x410;

// Words that an undo record covers as one block.
pub(crate) const HOT: usize = 0x440;
pub(crate) const LIVE_ROWS: usize = HOT;
pub(crate) const HIGH_WATER: usize = HOT + 8;
pub(crate) const FREE_HEAD: usize = HOT + 16; // slot + 1; 0: none
pub(crate) const LEVEL: usize = HOT + 24;
pub(crate) const STAGE: usize = HOT + 32;
pub(crate) const SPLIT: usize = HOT + 40;
pub(crate) const OVERFLOW_USED: usize = HOT + 48;
pub(crate) const OVERFLOW_FREE: usize = HOT + 56; // bucket number; 0: none
pub(crate) const HOT_BYTES: usize = 64;

/// The pusher whose part is being applied (entry + 1); 0 if none.
pub(crate) const CURRENT: usize = 0x4C0;
pub(crate) const PUSHERS_USED: usize = 0x4C8;
/// How many deletions the ring has recorded since the image was made.
pub(crate) const DELETED: usize = 0x4D0;
/// Deletions up to this command may be missing in the ring.
pub(crate) const FORGOTTEN: usize = 0x4D8;
pub(crate) const REGION_BYTES: usize = 0x500; // a word for each region
pub(crate) const EXTENTS_USED: usize = 0x540;

pub(crate) const EXTENTS: usize = 0x1000;
pub(crate) const PUSHERS: usize = EXTENTS + EXTENTS_MAX * 8;
pub(crate) const PUSHER_BYTES: usize = 64;
/// File space for pushers is taken in steps of this many bytes.
pub(crate) const PUSHERS_STEP: usize = 4096;
/// Bytes of the header that every image has from the start, with its first pushers.
pub(crate) const TOUCHED: usize = PUSHERS + PUSHERS_STEP;
pub(crate) const UNDO: usize = PUSHERS + PUSHERS_MAX * PUSHER_BYTES;
/// Bytes of an undo half before its records: the used length.
pub(crate) const UNDO_HEAD: usize = 64;

/// Bytes of one undo half for rows of this stride.
pub(crate) const fn undo_half(stride: usize) -> usize {
    (UNDO_HEAD + STEP_BUCKETS_MAX * 80 + 512 + 2 * stride).next_multiple_of(64)
}

/// Bytes of the header for rows of this stride, without the sketch.
pub(crate) const fn header_bytes(stride: usize) -> usize {
    (UNDO + 2 * undo_half(stride)).next_multiple_of(4096)
}

/// Bytes of the header that have file space when `pushers` entries are used.
pub(crate) fn held_bytes(stride: usize, journaled: bool, pushers: usize) -> usize {
    let pushers = (pushers * PUSHER_BYTES).next_multiple_of(PUSHERS_STEP).max(PUSHERS_STEP);
    PUSHERS + pushers + if journaled { header_bytes(stride) - UNDO } else { 0 }
}

/// The offset of the admission sketch: after the undo halves, in the same chunk.
pub(crate) fn sketch_at(stride: usize) -> usize {
    header_bytes(stride)
}

/// The ring of deletions: (key, command) of each, 16 bytes.
pub(crate) const DELETIONS: usize = HEADER_RESERVE_BYTES - DELETIONS_MAX * DELETION_BYTES;
pub(crate) const DELETION_BYTES: usize = 16;
/// File space for deletions is taken in steps of this many bytes.
pub(crate) const DELETIONS_STEP: usize = 4096;

/// Bytes of the ring that have file space after this many deletions.
pub(crate) fn held_deletions(deleted: u64) -> usize {
    (deleted.min(DELETIONS_MAX as u64) as usize * DELETION_BYTES).next_multiple_of(DELETIONS_STEP)
}

pub(crate) const INDEX: usize = HEADER_RESERVE_BYTES;
pub(crate) const OVERFLOW: usize = INDEX + INDEX_BYTES_MAX;
pub(crate) const SLAB: usize = OVERFLOW + OVERFLOW_BYTES_MAX;

/// The regions that grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Region {
    Index = 0,
    Overflow = 1,
    Slab = 2,
}

pub(crate) const REGIONS: [Region; 3] = [Region::Index, Region::Overflow, Region::Slab];

impl Region {
    pub(crate) fn start(self) -> usize {
        [INDEX, OVERFLOW, SLAB][self as usize]
    }
    pub(crate) fn bytes_max(self) -> usize {
        [INDEX_BYTES_MAX, OVERFLOW_BYTES_MAX, SLAB_BYTES_MAX][self as usize]
    }
    pub(crate) fn name(self) -> &'static str {
        ["index", "overflow buckets", "rows"][self as usize]
    }
}

/// The stride of the widest rows: four planes, and two scalars for each segment.
const STRIDE_MAX: usize = 16 + (4 * DIM_MAX as usize + 2 * SEGMENTS_MAX) * 4;
const _: () = assert!(header_bytes(STRIDE_MAX) + SKETCH_BYTES_MAX <= DELETIONS);
const _: () = assert!(DELETIONS.is_multiple_of(DELETIONS_STEP));
const _: () = assert!(HEAD_SCHEMA + crate::schema::table_schema::SCHEMA_BYTES_MAX + 4 <= HEAD_BYTES);
const _: () = assert!(HEAD_BYTES <= CLEAN && CURRENT >= HOT + HOT_BYTES);
const _: () = assert!(CLEAN / 512 == (BOOT + 15) / 512 && BOOT + 16 <= HEAD_PAGE_BYTES);

//! Rows read in a server's memory over RDMA, without its doing anything for it.
//!
//! Where a row stands is known from an answer to an earlier pull (row_handles.rs); keys without a handle are asked for,
//! with their slots. A batch of rows is three rounds of READs, each completed before the next: the lines that say that
//! each shard is served, in the life that was registered, with the rows' versions; the rows; the versions again (core's
//! `RemoteRowReader`). Rows in one line need no versions of their own where the server's device reads lines whole: two
//! rounds, one READ a row. What does not prove itself is asked for. Lease and own pushes are as for images
//! (one_sided.rs).

use super::one_sided::PullSpec;
use super::row_handles::RowHandles;
use crate::frames::control::RegionsV1;
use crate::limits::HANDLE_BYTES_MAX;
use gannet_core::{
    HEADER_LINE_AT, HEADER_LINE_BYTES, NO_CLOCK, NO_SLOT, RemoteRowReader, Schema, VERSION_BYTES, hash,
    is_served, lowest_of, shard_of,
};
use gannet_transport::{ReadRequest, RemoteReader};
use std::io;
use std::ops::Range;
use std::time::Duration;

/// One table's shards of one server thread, as far as they are readable.
pub(super) struct RdmaTable {
    schema: Schema,
    first: u32,
    shards: Vec<RdmaShard>,
    handles: RowHandles,
    /// Lines are read as they are at one moment.
    whole_lines: bool,
    /// Rows stand where nothing was registered when it was asked last.
    pub(super) outgrown: bool,
    /// The lowest clock that the shards told of which rows were last read.
    pub(super) lowest: u64,
    /// What it must be for rows to be taken.
    least: u64,
    // Used again from pull to pull.
    wants: Vec<ReadRequest>,
    rows: Vec<RowRead>,
    checked: Vec<usize>,
    /// Shards in whose rows steps are missing that are asked for.
    behind: Vec<usize>,
}

/// A shard as its owner registered it.
struct RdmaShard {
    incarnation: u64,
    header: (u64, u32),
    rows: Vec<Extent>,
    /// Its header said that it is not what was registered.
    over: bool,
}

struct Extent {
    bytes: Range<u64>,
    addr: u64,
    rkey: u32,
}

/// A row that is to be read.
struct RowRead {
    /// Its place in the chunk.
    place: usize,
    shard: usize,
    addr: u64,
    rkey: u32,
    /// One READ has it as it is at one moment.
    one_line: bool,
}

impl RdmaTable {
    /// Of shards from `first` on.
    pub(super) fn new(schema: &Schema, first: u32) -> RdmaTable {
        RdmaTable {
            schema: schema.clone(),
            first,
            shards: Vec::new(),
            handles: RowHandles::new(HANDLE_BYTES_MAX),
            whole_lines: false,
            outgrown: false,
            lowest: NO_CLOCK,
            least: 0,
            wants: Vec::new(),
            rows: Vec::new(),
            checked: Vec::new(),
            behind: Vec::new(),
        }
    }

    /// Shards that are known.
    pub(super) fn known(&self) -> usize {
        self.shards.len()
    }

    /// Takes in what the server has registered of its next shards, and whether its device reads lines whole.
    pub(super) fn add(&mut self, regions: &RegionsV1, whole_lines: bool) {
        self.whole_lines = whole_lines && (self.whole_lines || self.shards.is_empty());
        for region in &regions.shards {
            let extent = |row: &crate::frames::control::ExtentV1| Extent {
                bytes: row.offset..row.offset.saturating_add(row.bytes),
                addr: row.addr,
                rkey: row.rkey,
            };
            self.shards.push(RdmaShard {
                incarnation: region.incarnation,
                header: (region.header_addr, region.header_rkey),
                rows: region.rows.iter().map(extent).collect(),
                over: false,
            });
        }
    }

    /// Forgets what was registered, to hear of it anew; rows stay where they are.
    pub(super) fn restart(&mut self) {
        self.shards.clear();
        self.outgrown = false;
    }

    /// What an answer says of where rows are.
    pub(super) fn learn(&mut self, keys: &[u64], slots: &[u32]) {
        for (&key, &slot) in keys.iter().zip(slots).filter(|(_, slot)| **slot != NO_SLOT) {
            self.handles.put(key, slot);
        }
    }

    /// Where in registered memory a row of so many bytes is.
    fn locate(&mut self, place: usize, key: u64, glimpse: &RemoteRowReader) -> Option<RowRead> {
        let slot = self.handles.get(key)?;
        let shard = shard_of(hash(key), self.schema.shards).checked_sub(self.first)? as usize;
        let at = self.shards.get(shard).filter(|shard| !shard.over)?;
        let offset = glimpse.offset(slot);
        let end = offset + glimpse.bytes() as u64;
        let found = at.rows.iter().find(|row| row.bytes.start <= offset && end <= row.bytes.end);
        let Some(row) = found else {
            // Not the few that stand across two registrations: asking again would not help those.
            self.outgrown |= at.rows.last().is_none_or(|row| end > row.bytes.end);
            return None;
        };
        Some(RowRead {
            place,
            shard,
            addr: row.addr.wrapping_add(offset - row.bytes.start),
            rkey: row.rkey,
            one_line: self.whole_lines && glimpse.is_one_line(slot),
        })
    }

    /// Reads what can be read of a chunk into `values`: where each row was found, `NO_SLOT` for those to ask for.
    ///
    /// # Errors
    /// A READ failed: the session is over.
    pub(super) fn read(
        &mut self,
        reader: &mut dyn RemoteReader,
        keys: &[u64],
        wanted: &PullSpec,
        values: &mut [f32],
        timeout: Duration,
    ) -> io::Result<Vec<u32>> {
        let mut slots = vec![NO_SLOT; keys.len()];
        (self.lowest, self.least) = (NO_CLOCK, wanted.least);
        let Ok(mut glimpse) = RemoteRowReader::new(&self.schema, wanted.read, wanted.segments) else {
            return Ok(slots);
        };
        let mut rows = std::mem::take(&mut self.rows);
        rows.clear();
        rows.extend(keys.iter().enumerate().filter_map(|(place, &key)| self.locate(place, key, &glimpse)));
        if rows.is_empty() {
            self.rows = rows;
            return Ok(slots);
        }
        let layout = Layout::new(&rows, glimpse.bytes());
        let done = self.read_rounds(reader, &rows, &layout, timeout);
        if done.is_ok() {
            self.believe(reader.landed(), &rows, &layout, keys, &mut glimpse, (values, &mut slots));
        }
        self.rows = rows;
        done.map(|()| slots)
    }

    /// The rounds.
    fn read_rounds(
        &mut self,
        reader: &mut dyn RemoteReader,
        rows: &[RowRead],
        layout: &Layout,
        timeout: Duration,
    ) -> io::Result<()> {
        reader.landing(layout.end)?;
        self.checked.clear();
        self.wants.clear();
        for row in rows.iter() {
            if self.checked.last() != Some(&row.shard) {
                let (header, rkey) = self.shards[row.shard].header;
                let at = (self.checked.len() * HEADER_LINE_BYTES) as u32;
                let addr = header.wrapping_add(HEADER_LINE_AT as u64);
                self.wants.push(ReadRequest { addr, rkey, bytes: HEADER_LINE_BYTES as u32, at });
                self.checked.push(row.shard);
            }
        }
        let want = |row: &RowRead, bytes: usize, at: usize| ReadRequest {
            addr: row.addr,
            rkey: row.rkey,
            bytes: bytes as u32,
            at: at as u32,
        };
        let numbered = || rows.iter().enumerate();
        let versioned = || numbered().filter(|(_, row)| !row.one_line);
        self.wants
            .extend(versioned().map(|(i, row)| want(row, VERSION_BYTES, layout.before + i * VERSION_BYTES)));
        reader.read(&self.wants, timeout)?;
        self.wants.clear();
        self.wants
            .extend(numbered().map(|(i, row)| want(row, layout.row_bytes, layout.rows + i * layout.stride)));
        reader.read(&self.wants, timeout)?;
        self.wants.clear();
        self.wants
            .extend(versioned().map(|(i, row)| want(row, VERSION_BYTES, layout.after + i * VERSION_BYTES)));
        if self.wants.is_empty() { Ok(()) } else { reader.read(&self.wants, timeout) }
    }

    /// Takes the rows that prove themselves.
    fn believe(
        &mut self,
        landed: &[u8],
        rows: &[RowRead],
        layout: &Layout,
        keys: &[u64],
        glimpse: &mut RemoteRowReader,
        (values, slots): (&mut [f32], &mut [u32]),
    ) {
        let floats = glimpse.floats();
        self.behind.clear();
        for (number, &shard) in self.checked.iter().enumerate() {
            let header = &landed[number * HEADER_LINE_BYTES..][..HEADER_LINE_BYTES];
            let served = is_served(header, self.shards[shard].incarnation);
            self.shards[shard].over |= !served;
            // The header was read before the rows: they have what it speaks of.
            match lowest_of(header) {
                lowest if lowest < self.least => self.behind.push(shard),
                lowest => self.lowest = self.lowest.min(lowest),
            }
        }
        for (i, row) in rows.iter().enumerate() {
            if self.shards[row.shard].over {
                self.outgrown = true;
                continue;
            }
            if self.behind.contains(&row.shard) {
                continue;
            }
            let before = &landed[layout.before + i * VERSION_BYTES..][..VERSION_BYTES];
            let bytes = &landed[layout.rows + i * layout.stride..][..layout.row_bytes];
            let after = &landed[layout.after + i * VERSION_BYTES..][..VERSION_BYTES];
            let (key, out) = (keys[row.place], &mut values[row.place * floats..][..floats]);
            let proven = match row.one_line {
                true => glimpse.is_line(key, bytes, out),
                false => glimpse.is_row(key, before, bytes, after, out),
            };
            if proven {
                slots[row.place] = self.handles.get(key).unwrap_or(NO_SLOT);
            } else if row.one_line || before == after {
                // Steady, and not this key's row.
                self.handles.forget(key);
            }
        }
    }
}

/// Where what is read lands.
struct Layout {
    before: usize,
    rows: usize,
    row_bytes: usize,
    stride: usize,
    after: usize,
    end: usize,
}

impl Layout {
    fn new(rows: &[RowRead], row_bytes: usize) -> Layout {
        let shards = rows.chunk_by(|a, b| a.shard == b.shard).count();
        let stride = row_bytes.next_multiple_of(8);
        let before = shards * HEADER_LINE_BYTES;
        let first = before + rows.len() * VERSION_BYTES;
        let after = first + rows.len() * stride;
        Layout { before, rows: first, row_bytes, stride, after, end: after + rows.len() * VERSION_BYTES }
    }
}

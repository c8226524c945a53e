//! Rows read in a server's memory over RDMA. The server does nothing for it.
//!
//! The worker knows from an answer to an earlier pull where a row is (row_handles.rs). It requests keys without a
//! handle, and the answer brings their slots. A batch of rows takes three rounds of READs, each completed before the
//! next. The first reads the rows' versions, and the lines that say that each shard is served, by the incarnation that
//! registered it. The second reads the rows, the third the versions again (core's `RemoteRowReader`). If the server's
//! device reads lines whole, rows within one line need no separate versions: two rounds, one READ for each row. Rows
//! that do not prove themselves are requested. Lease and own pushes work as for images (one_sided.rs).

use crate::limits::HANDLE_BYTES_MAX;
use crate::reads::row_handles::RowHandles;
use crate::reads::spec::PullSpec;
use gannet_core::{
    HEADER_LINE_AT, HEADER_LINE_BYTES, NO_CLOCK, NO_SLOT, RemoteRowReader, Schema, ShardSet, VERSION_BYTES,
    acknowledged_of, command_of, hash, is_served, lowest_of, shard_of,
};
use gannet_transport::{ReadRequest, RemoteReader};
use gannet_wire::messages::control::RegionsV1;
use std::io;
use std::ops::Range;
use std::time::Duration;

/// One table's shards of one server thread, as far as the worker can read them.
pub(crate) struct RdmaTable {
    schema: Schema,
    /// For each shard of the table its place in `shards`; `u32::MAX` for the shards of other threads.
    places: Vec<u32>,
    shards: Vec<RdmaShard>,
    handles: RowHandles,
    /// The device reads a cache line as it is at one moment.
    whole_lines: bool,
    /// Some rows are outside the regions that were registered when the worker last asked.
    pub(crate) outgrown: bool,
    /// The lowest clock in the headers of the shards whose rows were last read.
    pub(crate) lowest: u64,
    /// The least clock of a shard whose rows may be taken.
    least: u64,
    // Memory that is reused from pull to pull.
    requests: Vec<ReadRequest>,
    rows: Vec<RowRead>,
    shards_read: Vec<usize>,
    /// Shards whose rows lack pushes that the pull must include.
    behind: Vec<usize>,
}

/// A shard as its owner registered it.
struct RdmaShard {
    incarnation: u64,
    header: (u64, u32),
    rows: Vec<Extent>,
    /// Its header does not match what was registered.
    replaced: bool,
    /// The last command that all backups had when the header was last read.
    acknowledged: u64,
}

struct Extent {
    bytes: Range<u64>,
    addr: u64,
    rkey: u32,
}

/// A row to read.
struct RowRead {
    /// Its position in the chunk.
    place: usize,
    shard: usize,
    addr: u64,
    rkey: u32,
    /// One READ gets the whole row as it is at one moment.
    one_line: bool,
}

impl RdmaTable {
    /// A table of which the server thread has the shards `set`.
    pub(crate) fn new(schema: &Schema, set: &ShardSet) -> RdmaTable {
        let mut places = vec![u32::MAX; schema.shards as usize];
        (0..).zip(set.iter()).for_each(|(place, shard)| places[shard as usize] = place);
        RdmaTable {
            schema: schema.clone(),
            places,
            shards: Vec::new(),
            handles: RowHandles::new(HANDLE_BYTES_MAX),
            whole_lines: false,
            outgrown: false,
            lowest: NO_CLOCK,
            least: 0,
            requests: Vec::new(),
            rows: Vec::new(),
            shards_read: Vec::new(),
            behind: Vec::new(),
        }
    }

    /// Number of known shards.
    pub(crate) fn known(&self) -> usize {
        self.shards.len()
    }

    /// Adds what the server has registered of its next shards, and whether its device reads lines whole.
    pub(crate) fn add(&mut self, regions: &RegionsV1, whole_lines: bool) {
        self.whole_lines = whole_lines && (self.whole_lines || self.shards.is_empty());
        for region in &regions.shards {
            let extent = |row: &gannet_wire::messages::control::ExtentV1| Extent {
                bytes: row.offset..row.offset.saturating_add(row.bytes),
                addr: row.addr,
                rkey: row.rkey,
            };
            self.shards.push(RdmaShard {
                incarnation: region.incarnation,
                header: (region.header_addr, region.header_rkey),
                rows: region.rows.iter().map(extent).collect(),
                replaced: false,
                acknowledged: 0,
            });
        }
    }

    /// Forgets the regions, to learn them again. The handles of rows stay valid.
    pub(crate) fn restart(&mut self) {
        self.shards.clear();
        self.outgrown = false;
    }

    /// Learns from an answer where rows are.
    pub(crate) fn learn(&mut self, keys: &[u64], slots: &[u32]) {
        for (&key, &slot) in keys.iter().zip(slots).filter(|(_, slot)| **slot != NO_SLOT) {
            self.handles.put(key, slot);
        }
    }

    /// Where a row is in registered memory.
    fn locate(&mut self, place: usize, key: u64, row_reader: &RemoteRowReader) -> Option<RowRead> {
        let slot = self.handles.get(key)?;
        let shard = self.places[shard_of(hash(key), self.schema.shards) as usize] as usize;
        let at = self.shards.get(shard).filter(|shard| !shard.replaced)?;
        let offset = row_reader.offset(slot);
        let end = offset + row_reader.bytes() as u64;
        let found = at.rows.iter().find(|row| row.bytes.start <= offset && end <= row.bytes.end);
        let Some(row) = found else {
            // Excludes the few rows that cross two registrations: asking again would not help those.
            self.outgrown |= at.rows.last().is_none_or(|row| end > row.bytes.end);
            return None;
        };
        Some(RowRead {
            place,
            shard,
            addr: row.addr.wrapping_add(offset - row.bytes.start),
            rkey: row.rkey,
            one_line: self.whole_lines && row_reader.is_one_line(slot),
        })
    }

    /// Reads what it can of a chunk into `values`. Returns the slot of each row, `NO_SLOT` for rows to request.
    ///
    /// # Errors
    /// A READ failed: the session has ended.
    pub(crate) fn read(
        &mut self,
        reader: &mut dyn RemoteReader,
        keys: &[u64],
        spec: &PullSpec,
        values: &mut [f32],
        timeout: Duration,
    ) -> io::Result<Vec<u32>> {
        let mut slots = vec![NO_SLOT; keys.len()];
        (self.lowest, self.least) = (NO_CLOCK, spec.least);
        let Ok(mut row_reader) = RemoteRowReader::new(&self.schema, spec.read, spec.segments) else {
            return Ok(slots);
        };
        let mut rows = std::mem::take(&mut self.rows);
        rows.clear();
        rows.extend(keys.iter().enumerate().filter_map(|(place, &key)| self.locate(place, key, &row_reader)));
        if rows.is_empty() {
            self.rows = rows;
            return Ok(slots);
        }
        let layout = Layout::new(&rows, row_reader.bytes());
        let done = self.read_rounds(reader, &rows, &layout, timeout);
        if done.is_ok() {
            self.take_proven(reader.landed(), &rows, &layout, keys, &mut row_reader, (values, &mut slots));
        }
        self.rows = rows;
        done.map(|()| slots)
    }

    /// The three rounds of READs.
    fn read_rounds(
        &mut self,
        reader: &mut dyn RemoteReader,
        rows: &[RowRead],
        layout: &Layout,
        timeout: Duration,
    ) -> io::Result<()> {
        reader.landing(layout.end)?;
        self.shards_read.clear();
        self.requests.clear();
        for row in rows.iter() {
            if self.shards_read.last() != Some(&row.shard) {
                let (header, rkey) = self.shards[row.shard].header;
                let at = (self.shards_read.len() * HEADER_LINE_BYTES) as u32;
                let addr = header.wrapping_add(HEADER_LINE_AT as u64);
                self.requests.push(ReadRequest { addr, rkey, bytes: HEADER_LINE_BYTES as u32, at });
                self.shards_read.push(row.shard);
            }
        }
        let request = |row: &RowRead, bytes: usize, at: usize| ReadRequest {
            addr: row.addr,
            rkey: row.rkey,
            bytes: bytes as u32,
            at: at as u32,
        };
        let numbered = || rows.iter().enumerate();
        let versioned = || numbered().filter(|(_, row)| !row.one_line);
        self.requests.extend(
            versioned().map(|(i, row)| request(row, VERSION_BYTES, layout.before + i * VERSION_BYTES)),
        );
        reader.read(&self.requests, timeout)?;
        self.requests.clear();
        self.requests.extend(
            numbered().map(|(i, row)| request(row, layout.row_bytes, layout.rows + i * layout.stride)),
        );
        reader.read(&self.requests, timeout)?;
        self.requests.clear();
        self.requests.extend(
            versioned().map(|(i, row)| request(row, VERSION_BYTES, layout.after + i * VERSION_BYTES)),
        );
        if self.requests.is_empty() { Ok(()) } else { reader.read(&self.requests, timeout) }
    }

    /// Takes the rows that prove themselves.
    fn take_proven(
        &mut self,
        landed: &[u8],
        rows: &[RowRead],
        layout: &Layout,
        keys: &[u64],
        row_reader: &mut RemoteRowReader,
        (values, slots): (&mut [f32], &mut [u32]),
    ) {
        let floats = row_reader.floats();
        self.behind.clear();
        for (number, &shard) in self.shards_read.iter().enumerate() {
            let header = &landed[number * HEADER_LINE_BYTES..][..HEADER_LINE_BYTES];
            let served = is_served(header, self.shards[shard].incarnation);
            self.shards[shard].replaced |= !served;
            self.shards[shard].acknowledged = acknowledged_of(header);
            // The header was read before the rows, so they include all pushes below its clock.
            match lowest_of(header) {
                lowest if lowest < self.least => self.behind.push(shard),
                lowest => self.lowest = self.lowest.min(lowest),
            }
        }
        for (i, row) in rows.iter().enumerate() {
            if self.shards[row.shard].replaced {
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
                true => row_reader.is_line(key, bytes, out),
                false => row_reader.is_row(key, before, bytes, after, out),
            };
            if proven && command_of(bytes) > self.shards[row.shard].acknowledged {
                // The death of the server could undo what changed the row.
                continue;
            }
            if proven {
                slots[row.place] = self.handles.get(key).unwrap_or(NO_SLOT);
            } else if row.one_line || before == after {
                // The versions agree, but it is not this key's row.
                self.handles.forget(key);
            }
        }
    }
}

/// Where the data of READs lands.
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

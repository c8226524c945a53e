//! The bytes of a table in an object. The columns of a row group are read side by side, each from its beginning, so
//! each has a reader of its own that asks ahead.

use crate::limits::{OBJECT_COLUMN_RANGE_MIN, OBJECT_COLUMNS_BYTES, OBJECT_RANGE_BYTES};
use crate::read::bytes::stop_flag::StopFlag;
use gannet_buckets::{ObjectReader, ReadAhead};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// A range of bytes that is read from its beginning, and its reader once it is read.
type ColumnBytes = (Range<u64>, Mutex<Option<ObjectReader>>);

pub(super) struct ObjectColumns {
    url: String,
    bytes: u64,
    stop: StopFlag,
    /// In the order of their bytes. The last one is the whole object, for bytes outside of all others.
    chunks: Vec<ColumnBytes>,
    ahead: ReadAhead,
}

impl ObjectColumns {
    pub fn new(url: &str, whole: ObjectReader, stop: &StopFlag) -> ObjectColumns {
        let bytes = whole.end();
        let chunks = vec![(0..bytes, Mutex::new(Some(whole)))];
        let ahead = ReadAhead { bytes: OBJECT_RANGE_BYTES, at_once: 1 };
        ObjectColumns { url: url.to_owned(), bytes, stop: stop.clone(), chunks, ahead }
    }

    /// The same object with a reader for each of these parts. Together they have a limited memory.
    pub fn with_chunks(&self, mut parts: Vec<Range<u64>>) -> ObjectColumns {
        parts.sort_unstable_by_key(|part| part.start);
        // Two ranges that have arrived, and one on its way.
        let each = OBJECT_COLUMNS_BYTES / (3 * parts.len().max(1) as u64);
        let ahead = ReadAhead { bytes: each.clamp(OBJECT_COLUMN_RANGE_MIN, OBJECT_RANGE_BYTES), at_once: 1 };
        parts.push(0..self.bytes);
        let chunks = parts.into_iter().map(|part| (part, Mutex::default())).collect();
        ObjectColumns { url: self.url.clone(), bytes: self.bytes, stop: self.stop.clone(), chunks, ahead }
    }

    pub fn len(&self) -> u64 {
        self.bytes
    }

    pub fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<usize> {
        let found = self.chunks[..self.chunks.len() - 1].partition_point(|(part, _)| part.end <= at);
        let chunk = self.chunks.get(found).filter(|(part, _)| part.contains(&at));
        let Some((part, reader)) = chunk.or(self.chunks.last()) else { return Ok(0) };
        let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
        let reader = match &mut *reader {
            Some(reader) => reader,
            none => {
                let opened = ObjectReader::open(&self.url, part.clone(), self.ahead, self.stop.shared())?;
                none.insert(opened)
            }
        };
        reader.seek(SeekFrom::Start(at))?;
        reader.read(out)
    }
}

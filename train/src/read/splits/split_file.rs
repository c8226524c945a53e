//! A file on this machine whose lines are handed out in splits: its format, and where the lines of a split begin.
//!
//! A line begins behind a newline. A record of CSV begins behind a newline outside of quotes, and only the bytes before
//! tell whether it is. So the bytes from the last known record on are scanned for quotes. Splits of a file mostly come
//! one after the other: then each byte is scanned once.

use crate::limits::CHUNK_BYTES;
use crate::read::bytes::data_file::{DataFile, is_url, shown_name};
use crate::read::bytes::source::Source;
use crate::read::bytes::stop_flag::StopFlag;
use crate::read::bytes::stream::{ReadPosition, Stream};
use crate::read::data::Data;
use crate::read::error::ReadError;
use crate::read::formats::csv_records::CsvScan;
use crate::read::formats::format::LineReader;
use crate::read::splits::split::{Split, line_from};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// An open file.
pub(crate) struct SplitFile {
    path: String,
    name: String,
    file: DataFile,
    /// The format of its lines.
    pub kind: LineReader,
    /// Bytes before the first line of data.
    pub header: u64,
    /// Of CSV: a position, and the scan of all records before it.
    scanned: Option<(u64, CsvScan)>,
    stop: StopFlag,
}

impl SplitFile {
    /// Opens a file. `None`: it has no lines.
    ///
    /// # Errors
    /// The file cannot be read, or its format is wrong.
    pub(crate) fn open(data: &Data, path: &str) -> Result<Option<SplitFile>, ReadError> {
        let name = shown_name(path).to_owned();
        let io = |source| ReadError::io(path, source);
        let stream = Stream::open(path, Arc::default(), &data.stop).map_err(io)?;
        let mut source = Source::new(name.clone(), stream, &data.stop)?;
        let Some(kind) = LineReader::of(&mut source, data)? else { return Ok(None) };
        let (header, file) = (source.taken(), DataFile::open(path, &data.stop).map_err(io)?);
        let scanned = kind.delimiter().map(|delimiter| (header, CsvScan::new(delimiter)));
        Ok(Some(SplitFile {
            path: path.to_owned(),
            name,
            file,
            kind,
            header,
            scanned,
            stop: data.stop.clone(),
        }))
    }

    /// The lines that begin in a range of bytes; those of the header are no lines. `read` counts bytes that are
    /// scanned.
    ///
    /// # Errors
    /// The file cannot be read, or a line is longer than `most`.
    pub(crate) fn lines(
        &mut self,
        range: Range<u64>,
        most: u64,
        read: &AtomicU64,
    ) -> Result<Range<u64>, ReadError> {
        let start = self.line_from(range.start, most, read)?;
        Ok(start..self.line_from(range.end, most, read)?.max(start))
    }

    fn line_from(&mut self, at: u64, most: u64, read: &AtomicU64) -> Result<u64, ReadError> {
        if at <= self.header {
            return Ok(self.header);
        }
        match self.scanned {
            Some(scanned) => self.record_from(scanned, at, most, read),
            None => line_from(&mut self.file, at, most).map_err(|source| self.failed(source)),
        }
    }

    /// The first record that begins at `at` or later, or the end of the file.
    fn record_from(
        &mut self,
        (mut p, mut scan): (u64, CsvScan),
        at: u64,
        most: u64,
        read: &AtomicU64,
    ) -> Result<u64, ReadError> {
        // A record begins at `at` exactly when the byte before is a newline outside of quotes.
        let before = at - 1;
        if p > before {
            (p, scan) = (self.header, CsvScan::new(scan.delimiter()));
        }
        self.file.seek(SeekFrom::Start(p)).map_err(|source| self.failed(source))?;
        let mut bytes = vec![0; CHUNK_BYTES];
        while p < before {
            let most = CHUNK_BYTES.min(usize::try_from(before - p).unwrap_or(usize::MAX));
            let n = self.read(&mut bytes[..most], read)?;
            if n == 0 {
                return Ok(p);
            }
            scan.last_end(&bytes[..n]);
            p += n as u64;
        }
        self.scanned = Some((p, scan));
        loop {
            let n = self.read(&mut bytes, read)?;
            match scan.first_end(&bytes[..n]) {
                Some(end) => return Ok(p + end as u64),
                None if n == 0 => return Ok(p),
                None if p - before > most => {
                    return Err(self.failed(io::Error::other("a record is longer than the limit")));
                }
                None => p += n as u64,
            }
        }
    }

    fn read(&mut self, out: &mut [u8], read: &AtomicU64) -> Result<usize, ReadError> {
        loop {
            if self.stop.is_set() {
                return Err(ReadError::Stopped { file: self.name.clone() });
            }
            match self.file.read(out) {
                Ok(n) => {
                    read.fetch_add(n as u64, Relaxed);
                    return Ok(n);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    fn failed(&self, source: io::Error) -> ReadError {
        ReadError::io(&self.path, source)
    }

    /// Opens the lines of a split. Returns them, and the position of the first. `None`: no line begins in it.
    ///
    /// # Errors
    /// As for [`lines`](Self::lines).
    pub(crate) fn source(
        &mut self,
        split: &Split,
        position: &ReadPosition,
    ) -> Result<Option<(Source, u64)>, ReadError> {
        let Range { start, end } = self.lines(split.start..split.end, u64::MAX, &position.read)?;
        if start >= end {
            return Ok(None);
        }
        // A handle of its own: the other one has moved when this is read.
        let file =
            DataFile::part(&self.path, start..end, &self.stop).map_err(|source| self.failed(source))?;
        let stream = Stream::over(Box::new(file.take(end - start)), position.read.clone());
        let is_within = start > 0;
        // Counting the lines before would read the object up to there.
        let (name, start) = match is_url(&self.path) && start > 0 {
            true => (format!("{} from byte {start} on", self.name), 0),
            false => (self.name.clone(), start),
        };
        let mut source = match is_within {
            true => Source::within(name, stream, &self.stop),
            false => Source::new(name, stream, &self.stop)?,
        };
        self.kind.go_on(&mut source)?;
        Ok(Some((source, start)))
    }
}

/// The file whose splits are read.
#[derive(Default)]
pub(crate) struct SplitFiles {
    last: Option<Box<(usize, Option<SplitFile>)>>,
}

impl SplitFiles {
    /// The file of this index. `None`: it has no lines.
    ///
    /// # Errors
    /// As for [`SplitFile::open`].
    pub(crate) fn file(&mut self, data: &Data, index: usize) -> Result<Option<&mut SplitFile>, ReadError> {
        if self.last.as_ref().is_none_or(|last| last.0 != index) {
            self.last = Some(Box::new((index, SplitFile::open(data, &data.files[index])?)));
        }
        Ok(self.last.as_mut().and_then(|last| last.1.as_mut()))
    }
}

#[cfg(test)]
#[path = "split_file_tests.rs"]
mod tests;

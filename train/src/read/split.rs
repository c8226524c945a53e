//! Splits: what a scheduler hands out, one at a time, to whichever worker asks. A split is the lines that
//! begin in a range of a file's bytes, so that every line is of one split; its batches are cut from its first line
//! on, and are the same whoever reads it.

use crate::limits::{CHUNK_BYTES, READ_PATIENCE};
use crate::read::data::{Data, shown_name};
use crate::read::decompress::is_packed;
use crate::read::error::ReadError;
use crate::read::format::LineReader;
use crate::read::remote_data::TextSource;
use crate::read::source::Source;
use crate::read::stream::{ReadPosition, Stream};
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

/// A split that was granted to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Its number over all passes.
    pub index: u64,
    /// The pass, from 0.
    pub epoch: u32,
    /// Which of the files.
    pub file: usize,
    /// The first byte.
    pub start: u64,
    /// The byte behind it.
    pub end: u64,
    /// Batches before this one have been learned.
    pub from: u64,
    /// What the servers call its pushes, with the number of the batch, from 1.
    pub name: (u64, u64),
}

/// A source of splits, such as the scheduler.
pub trait Splits: Send + Sync {
    /// The next split to read; waits while others may still give some back. `None`: all are learned, or `stop` said so.
    ///
    /// # Errors
    /// Why there can be none any more, in words.
    fn take(&self, stop: &dyn Fn() -> bool) -> Result<Option<Split>, String>;

    /// A split of so many examples has been learned: the servers have acknowledged every push of it.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    fn done(&self, index: u64, examples: u64) -> Result<(), String>;

    /// The first `batches` of a split have been pushed and acknowledged.
    fn acked(&self, index: u64, batches: u64);

    /// How long the bytes of a split may be waited for: its worker ends then, and others go on with its splits.
    fn patience(&self) -> Duration {
        READ_PATIENCE
    }

    /// The learner has waited for the bytes of a split, of which some have come (true); or it waits no longer.
    fn waits(&self, _for_bytes: bool) {}

    /// Where the bytes of splits are, when they are in no file of this machine.
    fn texts(&self) -> Option<&dyn TextSource> {
        None
    }
}

/// A file as it was when the training began: one that has changed since would be cut and named otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFingerprint {
    /// Its length.
    pub bytes: u64,
    /// A checksum of its beginning and one of its end.
    pub print: u64,
    /// It is packed, and can be read from its beginning only.
    pub packed: bool,
    written: (i64, i64),
}

/// Bytes at each end of a file that its print is of.
const PRINT_BYTES: u64 = 64 << 10;

impl FileFingerprint {
    /// Looks at a file.
    ///
    /// # Errors
    /// It cannot be read, or not more than once.
    pub fn of(path: &str) -> Result<FileFingerprint, ReadError> {
        let io = |source| ReadError::Io { file: path.to_owned(), source };
        if path == "-" || !std::fs::metadata(path).map_err(io)?.is_file() {
            let file = shown_name(path).to_owned();
            return Err(ReadError::ReadOnce { file, what: "handing out its splits" });
        }
        let mut file = File::open(path).map_err(io)?;
        let meta = file.metadata().map_err(io)?;
        let mut head = Vec::new();
        file.by_ref().take(PRINT_BYTES).read_to_end(&mut head).map_err(io)?;
        let mut tail = Vec::new();
        file.seek(SeekFrom::Start(meta.len().saturating_sub(PRINT_BYTES))).map_err(io)?;
        file.take(PRINT_BYTES).read_to_end(&mut tail).map_err(io)?;
        let print = u64::from(crc32c::crc32c(&head)) << 32 | u64::from(crc32c::crc32c(&tail));
        Ok(FileFingerprint { bytes: meta.len(), print, packed: is_packed(&head), written: written(&meta) })
    }

    /// A file of another machine, as the client describes it.
    pub fn told(bytes: u64, print: u64, packed: bool) -> FileFingerprint {
        FileFingerprint { bytes, print, packed, written: (0, 0) }
    }

    /// Holds that a file is still what it was.
    ///
    /// # Errors
    /// It is gone, or has changed.
    pub fn check(&self, path: &str) -> Result<(), ReadError> {
        let meta =
            std::fs::metadata(path).map_err(|source| ReadError::Io { file: path.to_owned(), source })?;
        if (meta.len(), written(&meta)) == (self.bytes, self.written) {
            return Ok(());
        }
        let (file, before, now) = (path.to_owned(), self.bytes, meta.len());
        Err(ReadError::Changed { file, before, now })
    }
}

fn written(meta: &Metadata) -> (i64, i64) {
    (meta.mtime(), meta.mtime_nsec())
}

/// Opens the lines of a split, and the way to read them; `None`: no line begins in it.
pub(crate) fn open(
    data: &Data,
    piece: &Split,
    position: &ReadPosition,
    packed: bool,
) -> Result<Option<(Source, LineReader, u64)>, ReadError> {
    let path = &data.files[piece.file];
    let name = shown_name(path).to_owned();
    let io = |source| ReadError::Io { file: name.clone(), source };
    // The format and the header are the whole file's.
    let read = Arc::default();
    let stream = if packed { position.read.clone() } else { read };
    let stream = Stream::open(path, stream, &data.stop).map_err(io)?;
    let mut source = Source::new(name.clone(), stream, &data.stop)?;
    let Some(kind) = LineReader::of(&mut source, data)? else { return Ok(None) };
    if packed {
        return Ok(Some((source, kind, 0)));
    }
    let header = source.taken();
    let mut file = File::open(path).map_err(io)?;
    let start = line_from(&mut file, piece.start, u64::MAX).map_err(io)?.max(header);
    let end = line_from(&mut file, piece.end, u64::MAX).map_err(io)?;
    if start >= end {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(start)).map_err(io)?;
    let stream = Stream::over(Box::new(file.take(end - start)), position.read.clone());
    Ok(Some((Source::new(name, stream, &data.stop)?, kind, start)))
}

/// Where the first line begins at `at` or behind it; the file's length when none does. No more than `most` bytes are
/// looked at.
pub(crate) fn line_from(file: &mut File, at: u64, most: u64) -> io::Result<u64> {
    if at == 0 {
        return Ok(0);
    }
    // The byte before is the last of a line exactly when a line begins here.
    let mut from = at - 1;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = vec![0; CHUNK_BYTES.min(64 << 10)];
    loop {
        let n = match file.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        match bytes[..n].iter().position(|&b| b == b'\n') {
            Some(newline) => return Ok(from + newline as u64 + 1),
            None if n == 0 => return Ok(from),
            None if from.saturating_sub(at) > most => {
                return Err(io::Error::other("a line is longer than the limit"));
            }
            None => from += n as u64,
        }
    }
}

/// Lines before byte `at` of a file: for messages.
pub(crate) fn lines_before(path: &str, at: u64) -> u64 {
    let count = || -> io::Result<u64> {
        let (mut file, mut lines, mut bytes) = (File::open(path)?.take(at), 0, vec![0; CHUNK_BYTES]);
        loop {
            let n = file.read(&mut bytes)?;
            if n == 0 {
                return Ok(lines);
            }
            lines += bytes[..n].iter().filter(|&&b| b == b'\n').count() as u64;
        }
    };
    count().unwrap_or(0)
}

//! Bytes of a data file, handed out as whole lines: a plain file, gzip (known by its first bytes, also of several
//! members), or `-` for standard input.

use crate::error::ReadError;
use crate::limits::{CHUNK_BYTES, LINE_BYTES_MAX, PAD_BYTES};
use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes read of a file so far, of how many; shared with whoever shows progress.
#[derive(Clone, Debug, Default)]
pub struct Position {
    read: Arc<AtomicU64>,
    total: Option<u64>,
}

impl Position {
    /// Bytes of the file (packed ones, for gzip) read so far in this pass.
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Bytes of the file; `None` for standard input and pipes.
    pub fn bytes_total(&self) -> Option<u64> {
        self.total
    }
}

struct Counted<R> {
    inner: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(out)?;
        self.read.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// The lines of one file. `buffer[at..end]` are whole lines not yet taken, each ended by a newline (one is added to a
/// last line without), and at least [`PAD_BYTES`] readable bytes follow `end`.
pub struct Source {
    file: String,
    reader: Box<dyn Read + Send>,
    gzip: bool,
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    filled: usize,
    unpacked: u64,
    /// Lines taken so far.
    pub(crate) line: u64,
    done: bool,
    position: Position,
}

impl Source {
    /// Opens `path`, `-` being standard input.
    ///
    /// # Errors
    /// The file cannot be opened or read, or is named .gz and is not gzip.
    pub fn open(path: &str) -> Result<Source, ReadError> {
        let file = if path == "-" { "(standard input)".to_owned() } else { path.to_owned() };
        let io = |source| ReadError::Io { file: file.clone(), source };
        let read = Arc::new(AtomicU64::new(0));
        let (inner, total): (Box<dyn Read + Send>, _) = if path == "-" {
            (Box::new(io::stdin()), None)
        } else {
            let opened = File::open(path).map_err(io)?;
            let meta = opened.metadata().map_err(io)?;
            if meta.is_dir() {
                return Err(io(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder")));
            }
            (Box::new(opened), meta.is_file().then_some(meta.len()))
        };
        let counted = Counted { inner, read: read.clone() };
        let mut packed = BufReader::with_capacity(CHUNK_BYTES, counted);
        let head = packed.fill_buf().map_err(io)?;
        let gzip = head.starts_with(&[0x1f, 0x8b]);
        if !gzip && !head.is_empty() && path.ends_with(".gz") {
            return Err(ReadError::NotGzip { file });
        }
        let reader: Box<dyn Read + Send> =
            if gzip { Box::new(MultiGzDecoder::new(packed)) } else { Box::new(packed) };
        Ok(Source {
            file,
            reader,
            gzip,
            buffer: vec![0; 2 * CHUNK_BYTES + PAD_BYTES],
            at: 0,
            end: 0,
            filled: 0,
            unpacked: 0,
            line: 0,
            done: false,
            position: Position { read, total },
        })
    }

    /// The file's name for messages.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Where it stands.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// The whole buffer, and the range in it of the lines not yet taken. Empty at the end of the file only after
    /// [`fill`](Self::fill) said so.
    #[inline(always)]
    pub(crate) fn lines(&self) -> (&[u8], usize, usize) {
        (&self.buffer, self.at, self.end)
    }

    /// Takes the bytes up to `at`, which were `lines` lines.
    #[inline(always)]
    pub(crate) fn take(&mut self, at: usize, lines: u64) {
        debug_assert!(self.at <= at && at <= self.end);
        self.at = at;
        self.line += lines;
    }

    /// Reads more when every line has been taken; false at the end of the file.
    ///
    /// # Errors
    /// The file fails, its gzip stream is damaged or truncated, or a line is too long.
    pub(crate) fn fill(&mut self) -> Result<bool, ReadError> {
        if self.at < self.end {
            return Ok(true);
        }
        self.buffer.copy_within(self.end..self.filled, 0);
        self.filled -= self.end;
        (self.at, self.end) = (0, 0);
        let mut searched = 0;
        while !self.done {
            if self.filled + CHUNK_BYTES + PAD_BYTES > self.buffer.len() {
                if self.filled > LINE_BYTES_MAX {
                    return Err(ReadError::LineTooLong { file: self.file.clone(), line: self.line + 1 });
                }
                let more = (self.buffer.len() - PAD_BYTES) * 2 + PAD_BYTES;
                self.buffer.resize(more, 0);
            }
            let room = self.buffer.len() - PAD_BYTES;
            let n = self.read_some(room.min(self.filled + CHUNK_BYTES))?;
            if n == 0 {
                self.done = true;
                if self.filled > 0 && self.buffer[self.filled - 1] != b'\n' {
                    self.buffer[self.filled] = b'\n';
                    self.filled += 1;
                }
                self.end = self.filled;
                break;
            }
            self.filled += n;
            let fresh = &self.buffer[searched..self.filled];
            if let Some(newline) = fresh.iter().rposition(|&b| b == b'\n') {
                self.end = searched + newline + 1;
                break;
            }
            searched = self.filled;
        }
        Ok(self.end > 0)
    }

    fn read_some(&mut self, to: usize) -> Result<usize, ReadError> {
        loop {
            match self.reader.read(&mut self.buffer[self.filled..to]) {
                Ok(n) => {
                    self.unpacked += n as u64;
                    return Ok(n);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.failed(source)),
            }
        }
    }

    #[cold]
    fn failed(&self, source: io::Error) -> ReadError {
        let (file, bytes) = (self.file.clone(), self.unpacked);
        match source.kind() {
            io::ErrorKind::UnexpectedEof if self.gzip => ReadError::Truncated { file, bytes },
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData if self.gzip => {
                ReadError::Damaged { file, bytes, why: source.to_string() }
            }
            _ => ReadError::Io { file, source },
        }
    }
}

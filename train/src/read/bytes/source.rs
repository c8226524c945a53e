//! The text of one data file, as whole lines or as whole records of CSV.

use crate::limits::{CHUNK_BYTES, LINE_BYTES_MAX, PAD_BYTES};
use crate::read::bytes::decompress::Decompressed;
use crate::read::bytes::stop_flag::StopFlag;
use crate::read::bytes::stream::Stream;
use crate::read::error::ReadError;
use crate::read::formats::csv_records::CsvScan;
use memchr::{memchr, memrchr};
use std::io::{self, Read};

/// The lines of one file. `buffer[at..end]` are whole lines that are not taken yet, and each ends with a newline. (A
/// last line without a newline gets one.) Of CSV they are whole records. At least [`PAD_BYTES`] readable bytes follow
/// `end`.
pub(crate) struct Source {
    file: String,
    bytes: Decompressed,
    stop: StopFlag,
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    filled: usize,
    unpacked: u64,
    /// The number of lines taken so far.
    pub(crate) line: u64,
    /// Whether the byte order mark has been checked.
    begun: bool,
    done: bool,
    /// Whether the last line had no newline and got one.
    ended: bool,
    /// The delimiter of CSV, whose line breaks inside quotes end no record.
    csv: Option<u8>,
}

/// The byte order mark of UTF-8, which some programs write before a text.
const MARK: &[u8] = b"\xEF\xBB\xBF";

impl Source {
    /// The lines of a stream. `file` is its name in messages.
    ///
    /// # Errors
    /// The first bytes cannot be read or are not text, or the name says that the file is packed and it is not.
    pub fn new(file: String, stream: Stream, stop: &StopFlag) -> Result<Source, ReadError> {
        let bytes = Decompressed::new(&file, stream, stop)?;
        Ok(Source::of(file, bytes, false, stop))
    }

    /// The lines of a stream that begins in the middle of a plain file. Its first bytes are those of any line: they say
    /// nothing of a packing, and no mark is left out.
    pub fn within(file: String, stream: Stream, stop: &StopFlag) -> Source {
        Source::of(file, Decompressed::Plain(stream), true, stop)
    }

    /// The lines of a text in memory.
    pub fn of_text(file: String, text: &[u8]) -> Source {
        let ended = text.last().is_some_and(|&last| last != b'\n');
        let mut buffer = Vec::with_capacity(text.len() + usize::from(ended) + PAD_BYTES);
        buffer.extend_from_slice(text);
        buffer.extend(ended.then_some(b'\n'));
        let end = buffer.len();
        buffer.resize(end + PAD_BYTES, 0);
        Source {
            file,
            bytes: Decompressed::Nothing,
            stop: StopFlag::default(),
            at: if text.starts_with(MARK) { MARK.len() } else { 0 },
            buffer,
            end,
            filled: end,
            unpacked: text.len() as u64,
            line: 0,
            begun: true,
            done: true,
            ended,
            csv: None,
        }
    }

    fn of(file: String, bytes: Decompressed, begun: bool, stop: &StopFlag) -> Source {
        Source {
            file,
            bytes,
            stop: stop.clone(),
            buffer: vec![0; 2 * CHUNK_BYTES + PAD_BYTES],
            at: 0,
            end: 0,
            filled: 0,
            unpacked: 0,
            line: 0,
            begun,
            done: false,
            ended: false,
            csv: None,
        }
    }

    /// The file's name for messages.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The whole buffer, and the range of the lines that are not taken yet. At the end of the file the range is empty
    /// once [`fill`](Self::fill) has returned false.
    #[inline(always)]
    pub(crate) fn lines(&self) -> (&[u8], usize, usize) {
        (&self.buffer, self.at, self.end)
    }

    /// From here on the text is CSV with this delimiter. Returns false if there are no more records.
    ///
    /// # Errors
    /// As for [`fill`](Self::fill).
    pub(crate) fn is_csv(&mut self, delimiter: u8) -> Result<bool, ReadError> {
        self.csv = Some(delimiter);
        if !self.done {
            let whole = CsvScan::new(delimiter).last_end(&self.buffer[self.at..self.filled]);
            self.end = self.at + whole.unwrap_or(0);
        }
        self.fill()
    }

    /// Takes the bytes up to `at`, which are `lines` lines.
    #[inline(always)]
    pub(crate) fn take(&mut self, at: usize, lines: u64) {
        debug_assert!(self.at <= at && at <= self.end);
        self.at = at;
        self.line += lines;
    }

    /// The end of the file is in the buffer, and its last line had no newline.
    pub(crate) fn lacks_last_newline(&self) -> bool {
        self.ended
    }

    /// The unpacked bytes of the lines that were taken.
    pub(crate) fn taken(&self) -> u64 {
        self.unpacked + u64::from(self.ended) - (self.filled - self.at) as u64
    }

    /// The text goes on behind its end, which was the end of a part of it.
    pub(crate) fn go_on(&mut self) {
        (self.done, self.ended) = (false, false);
    }

    /// Reads more when every line has been taken. Returns false at the end of the file.
    ///
    /// # Errors
    /// The file cannot be read, its packed stream is damaged or truncated, or a line is too long.
    pub(crate) fn fill(&mut self) -> Result<bool, ReadError> {
        if self.at < self.end {
            return Ok(true);
        }
        self.buffer.copy_within(self.end..self.filled, 0);
        self.filled -= self.end;
        (self.at, self.end) = (0, 0);
        let mut searched = 0;
        let mut csv = self.csv.map(CsvScan::new);
        while !self.done {
            if self.filled + CHUNK_BYTES + PAD_BYTES > self.buffer.len() {
                let more = (self.buffer.len() - PAD_BYTES) * 2 + PAD_BYTES;
                self.buffer.resize(more, 0);
            }
            let capacity = self.buffer.len() - PAD_BYTES;
            let n = self.read_some(capacity.min(self.filled + CHUNK_BYTES))?;
            if n == 0 {
                self.done = true;
                if self.filled > 0 && self.buffer[self.filled - 1] != b'\n' {
                    self.buffer[self.filled] = b'\n';
                    self.filled += 1;
                    self.ended = true;
                }
                self.end = self.filled;
                break;
            }
            self.filled += n;
            if !self.begun
                && let Some(error) = self.bytes.table_inside(&self.file, &self.buffer[..self.filled])
            {
                return Err(error);
            }
            let fresh = &self.buffer[searched..self.filled];
            let first = match csv {
                Some(mut csv) => csv.first_end(fresh).map(|end| end - 1),
                None => memchr(b'\n', fresh),
            };
            if searched + first.unwrap_or(fresh.len()) > LINE_BYTES_MAX {
                let (file, line) = (self.file.clone(), self.line + 1);
                return Err(match csv.is_some_and(CsvScan::in_quotes) {
                    true => ReadError::QuoteTooLong { file, line },
                    false => ReadError::LineTooLong { file, line },
                });
            }
            let last = match &mut csv {
                Some(csv) => csv.last_end(fresh),
                None => memrchr(b'\n', fresh).map(|at| at + 1),
            };
            if let Some(last) = last {
                self.end = searched + last;
                break;
            }
            searched = self.filled;
        }
        if !std::mem::replace(&mut self.begun, true) && self.buffer[..self.end].starts_with(MARK) {
            self.at = MARK.len();
        }
        Ok(self.end > 0)
    }

    fn read_some(&mut self, to: usize) -> Result<usize, ReadError> {
        loop {
            match self.bytes.read(&mut self.buffer[self.filled..to]) {
                Ok(n) => {
                    self.unpacked += n as u64;
                    return Ok(n);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.bytes.failed(&self.file, self.unpacked, e, &self.stop)),
            }
        }
    }
}

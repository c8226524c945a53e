//! Cuts the lines of data files into parcels, which other threads parse. A batch has the same lines as when
//! [`LineBlocks`] reads it.

use crate::limits::PARCEL_BYTES;
use crate::read::error::ReadError;
use crate::read::formats::format::LineReader;
use crate::read::lines::line_blocks::LineBlocks;
use crate::read::lines::parcel::{Parcel, ParcelEnd};
use std::sync::Arc;

/// Cuts the lines of one pass.
pub(crate) struct LineCutter {
    lines: LineBlocks,
    /// Data lines that the present batch still takes. 0: it has ended.
    left: usize,
    /// Data lines before the present batch.
    before: u64,
    /// The present file: how many files were opened, its name, and the reader of its lines.
    file: (usize, Arc<str>, Arc<LineReader>),
}

impl LineCutter {
    /// A cutter for lines of which none has been read.
    pub(crate) fn new(lines: LineBlocks) -> LineCutter {
        let file = LineCutter::file_of(&lines);
        LineCutter { lines, left: 0, before: 0, file }
    }

    fn file_of(lines: &LineBlocks) -> (usize, Arc<str>, Arc<LineReader>) {
        (lines.next_file, lines.source.file().into(), Arc::new(lines.kind.clone()))
    }

    /// Fills a parcel with the next lines: up to the end of a batch of this share, or about [`PARCEL_BYTES`].
    pub(crate) fn cut(&mut self, parcel: &mut Parcel) {
        parcel.clear();
        let cut = self.cut_lines(parcel);
        let (batches, data_lines) = (self.lines.next_batch, self.lines.data_lines);
        let error = match cut {
            Ok(true) if self.left > 0 => None,
            Ok(true) => {
                parcel.end = ParcelEnd::Batch { batches, data_lines };
                None
            }
            Ok(false) => Some(self.lines.check_not_empty().err()),
            Err(error) => Some(Some(error)),
        };
        if let Some(error) = error {
            parcel.end =
                ParcelEnd::Data { batches, data_lines, passed_lines: self.lines.passed_lines, error };
        }
        parcel.seal();
    }

    /// Returns false at the end of the files.
    fn cut_lines(&mut self, parcel: &mut Parcel) -> Result<bool, ReadError> {
        if self.left == 0 && !self.begin_batch()? {
            return Ok(false);
        }
        while self.left > 0 && parcel.bytes() < PARCEL_BYTES {
            if !self.lines.more()? {
                self.left = 0;
                break;
            }
            self.take_lines(parcel);
        }
        self.lines.next_batch += u64::from(self.left == 0);
        // A batch without lines is the end, unless it is a part of a text.
        Ok(self.left > 0 || self.lines.data_lines > self.before || self.lines.parts.is_some())
    }

    /// Passes over batches of other shares. Returns false at the end of the files.
    fn begin_batch(&mut self) -> Result<bool, ReadError> {
        let lines = &mut self.lines;
        while lines.next_batch % u64::from(lines.share.workers) != u64::from(lines.share.worker) {
            let before = lines.data_lines;
            lines.pass_batch()?;
            lines.next_batch += 1;
            if lines.data_lines == before {
                return Ok(false);
            }
        }
        (self.left, self.before) = (lines.batch, lines.data_lines);
        Ok(lines.begin_part())
    }

    /// Takes whole lines from the buffer of the file.
    fn take_lines(&mut self, parcel: &mut Parcel) {
        if self.file.0 != self.lines.next_file {
            self.file = LineCutter::file_of(&self.lines);
        }
        let (lines, (_, file, kind)) = (&mut self.lines, &self.file);
        let (buf, from, end) = lines.source.lines();
        let most = end.min(from + PARCEL_BYTES - parcel.bytes());
        let (mut p, mut taken, mut data_lines) = (from, 0, 0);
        while p < most && data_lines < self.left {
            data_lines += usize::from(!lines.kind.nothing(buf, p));
            let (next, of_it) = lines.kind.next(buf, p, end);
            (p, taken) = (next, taken + of_it);
        }
        parcel.add(&buf[from..p], file, lines.source.line, kind);
        lines.source.take(p, taken);
        lines.data_lines += data_lines as u64;
        self.left -= data_lines;
    }
}

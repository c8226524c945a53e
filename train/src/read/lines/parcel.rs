//! Lines that one thread has cut from files, for another thread to parse.

use crate::limits::PAD_BYTES;
use crate::read::block::Block;
use crate::read::error::{BadLine, BadLines, ReadError, shown};
use crate::read::formats::format::LineReader;
use crate::read::formats::labels::{Labels, zero_bit};
use crate::read::formats::libsvm;
use crate::read::splits::split;
use std::sync::Arc;

/// Consecutive lines of one file.
struct Piece {
    /// Its end in the text of the parcel.
    end: usize,
    /// The file's name in messages.
    file: Arc<str>,
    /// The number of the line before its first, from 1. 0 if there is none.
    line_before: u64,
    kind: Arc<LineReader>,
}

/// Where the lines of a parcel end.
#[derive(Default)]
pub(crate) enum ParcelEnd {
    /// Within a batch.
    #[default]
    Within,
    /// With a batch.
    Batch {
        /// Batches up to here, over all shares.
        batches: u64,
        /// Data lines up to here.
        data_lines: u64,
    },
    /// With the data.
    Data {
        /// Batches, over all shares, and one more: the batch that has no lines.
        batches: u64,
        /// Data lines of all files.
        data_lines: u64,
        /// How many of them belong to other shares and were not parsed.
        passed_lines: u64,
        /// Why there are no more lines. `None`: all files were read.
        error: Option<ReadError>,
    },
}

/// Some lines, and the examples that they become. Its memory is used again.
#[derive(Default)]
pub(crate) struct Parcel {
    text: Vec<u8>,
    pieces: Vec<Piece>,
    pub end: ParcelEnd,
    /// The examples of the lines before the first that is not an example.
    pub block: Block,
    /// Whether every line is an example.
    pub is_whole: bool,
    /// Which labels occur that mean 0: 1 for label 0, 2 for label -1, 3 for both.
    pub zeros: u8,
}

/// Why the parsing of lines stopped.
pub(crate) enum Fault {
    /// A line is not an example: its text, what was expected, and how many lines it has.
    Line { text: String, expected: String, lines: u64 },
    /// Lines have the labels 0 and -1, which both mean 0.
    Mixed { text: String },
}

/// Lines that are being parsed.
pub(crate) struct LineRun<'a> {
    /// The lines, and at least [`PAD_BYTES`] bytes behind them.
    pub buf: &'a [u8],
    /// The start of the next line.
    pub at: usize,
    /// The end of the last line.
    pub end: usize,
    /// Lines before `at`, and how many of them are data lines.
    pub taken: u64,
    pub data_lines: u64,
}

impl Fault {
    /// Notes the fault of a line of a file or split. `start` is the byte of the file where the split begins, and `line`
    /// counts from there.
    ///
    /// # Errors
    /// Labels are mixed, or more lines are bad than may be skipped.
    #[cold]
    pub(crate) fn note(
        self,
        file: &str,
        line: u64,
        start: u64,
        bad: &mut BadLines,
        skip: u64,
    ) -> Result<(), ReadError> {
        let line = line + if start > 0 { split::lines_before(file, start) } else { 0 };
        let file = file.to_owned();
        match self {
            Fault::Line { text, expected, lines } => {
                let line = line + 1 - lines;
                bad.add(BadLine { file, line, text, expected }, lines, skip)
            }
            Fault::Mixed { text } => Err(ReadError::MixedLabels { file, line, text }),
        }
    }
}

impl LineRun<'_> {
    /// Appends the examples of the lines to a block, of at most `most` data lines, until a line is at fault. That line
    /// is taken too. `zeros`: which zeros the labels before were.
    #[inline(always)]
    pub(crate) fn parse(
        &mut self,
        kind: &mut LineReader,
        labels: Labels,
        zeros: &mut u8,
        most: u64,
        block: &mut Block,
    ) -> Option<Fault> {
        let LineRun { buf, end, .. } = *self;
        let (mut p, mut lines, mut left) = (self.at, 0, most);
        let mut breaks = kind.breaks();
        let mut fault = None;
        while p < end && left > 0 && !block.full() {
            lines += 1;
            if kind.nothing(buf, p) {
                p = libsvm::next_line(buf, p);
                continue;
            }
            left -= 1;
            let (before, examples) = (kind.breaks(), block.len());
            match kind.example(buf, p, end, block) {
                Ok(next) => {
                    // A label -0 becomes 0.
                    *zeros |= block.labels[examples..].first_mut().map_or(0, zero_bit);
                    let line = p;
                    p = next;
                    if *zeros == 3 && labels == Labels::Signs {
                        fault = Some(Fault::Mixed { text: shown(&buf[line..next]) });
                        break;
                    }
                }
                Err(expected) => {
                    // Breaks that were read before the fault count among its lines.
                    let (next, of_it) = kind.next(buf, p, end);
                    fault = Some(Fault::Line { text: shown(&buf[p..next]), expected, lines: of_it });
                    lines += of_it - 1;
                    breaks += kind.breaks() - before;
                    p = next;
                    block.undo();
                    break;
                }
            }
        }
        lines += kind.breaks() - breaks;
        (self.at, self.taken, self.data_lines) = (p, self.taken + lines, self.data_lines + (most - left));
        fault
    }
}

impl Parcel {
    /// Empties the parcel and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.pieces.clear();
        self.end = ParcelEnd::Within;
        self.block.clear();
        (self.is_whole, self.zeros) = (true, 0);
    }

    /// Bytes of its lines.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Appends whole lines of a file.
    pub(crate) fn add(&mut self, text: &[u8], file: &Arc<str>, line_before: u64, kind: &Arc<LineReader>) {
        self.text.extend_from_slice(text);
        let end = self.text.len();
        match self.pieces.last_mut() {
            // The lines of a file come in order.
            Some(last) if Arc::ptr_eq(&last.kind, kind) => last.end = end,
            _ => self.pieces.push(Piece { end, file: file.clone(), line_before, kind: kind.clone() }),
        }
    }

    /// Ends the text, so that it can be parsed.
    pub(crate) fn seal(&mut self) {
        self.text.extend_from_slice(&[0; PAD_BYTES]);
    }

    /// Parses the lines, up to the first that is at fault. `kinds` has the reader of the file that was parsed last.
    pub(crate) fn parse(&mut self, kinds: &mut Option<(Arc<LineReader>, LineReader)>, labels: Labels) {
        let Parcel { text, pieces, block, zeros, .. } = self;
        let mut at = 0;
        for piece in pieces.iter() {
            let known = kinds.take().filter(|(shared, _)| Arc::ptr_eq(shared, &piece.kind));
            let (_, kind) =
                kinds.insert(known.unwrap_or_else(|| (piece.kind.clone(), (*piece.kind).clone())));
            let mut lines = LineRun { buf: text, at, end: piece.end, taken: 0, data_lines: 0 };
            if lines.parse(kind, labels, zeros, u64::MAX, block).is_some() {
                self.is_whole = false;
                return;
            }
            at = piece.end;
        }
    }

    /// Parses the lines again, in the order of the data. `fault` is called for each line at fault, with the file and
    /// the number of the line. `zeros`: which zeros the labels before were.
    ///
    /// # Errors
    /// Those of `fault`.
    pub(crate) fn parse_again(
        &mut self,
        labels: Labels,
        zeros: &mut u8,
        mut fault: impl FnMut(&str, u64, Fault) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        self.block.clear();
        let mut at = 0;
        for piece in &self.pieces {
            let mut kind = (*piece.kind).clone();
            let mut lines = LineRun { buf: &self.text, at, end: piece.end, taken: 0, data_lines: 0 };
            while lines.at < lines.end {
                if let Some(found) = lines.parse(&mut kind, labels, zeros, u64::MAX, &mut self.block) {
                    fault(&piece.file, piece.line_before + lines.taken, found)?;
                }
            }
            at = piece.end;
        }
        Ok(())
    }
}

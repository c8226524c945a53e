//! Parses lines on several threads. One thread reads the files and cuts their lines into parcels. It hands the parcels
//! to the parsers in turn, and the reader takes them back in that order. So the batches, the bad lines and the errors
//! are those of one thread. There are three exceptions:
//! - A batch of more than [`OCCURRENCES_PER_BLOCK_MAX`](crate::limits::OCCURRENCES_PER_BLOCK_MAX) features is an error.
//!   One thread cuts it short.
//! - If a client that sends data is lost, its loss may be reported in place of a bad line shortly before.
//! - Where a third label appears, the error may have counted the positive value in lines behind it.

use crate::read::block::Block;
use crate::read::bytes::stream::ReadPosition;
use crate::read::data::Data;
use crate::read::error::{BadLines, ReadError};
use crate::read::formats::labels::Labels;
use crate::read::lines::line_blocks::LineBlocks;
use crate::read::lines::line_cutter::LineCutter;
use crate::read::lines::parcel::{Parcel, ParcelEnd};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

/// The thread that cuts lines, and those that parse them. They end when the data does, or when this is dropped. A drop
/// does not wait for them: the first may wait for the bytes of a pipe.
struct ParserThreads {
    parsed: Vec<Receiver<Parcel>>,
    /// Parcels to be used again.
    spare: SyncSender<Parcel>,
    cutter: Option<JoinHandle<()>>,
    parsers: Vec<Option<JoinHandle<()>>>,
    /// The parser that has the next parcel.
    next: usize,
}

impl ParserThreads {
    fn start(lines: LineBlocks, count: usize) -> std::io::Result<ParserThreads> {
        let labels = lines.data.labels;
        let (mut to_parsers, mut parsed, mut parsers) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..count {
            let (to_parser, to_parse) = sync_channel::<Parcel>(1);
            let (to_reader, done) = sync_channel(1);
            let parse = move || {
                let mut kinds = None;
                for mut parcel in to_parse {
                    parcel.parse(&mut kinds, labels);
                    if to_reader.send(parcel).is_err() {
                        return;
                    }
                }
            };
            parsers.push(Some(Builder::new().name("gannet-parser".into()).spawn(parse)?));
            to_parsers.push(to_parser);
            parsed.push(done);
        }
        // A parser has at most three parcels: the next, the one that it parses, and a parsed one.
        let (spare, returned) = sync_channel::<Parcel>(3 * count + 1);
        let mut cutter = LineCutter::new(lines);
        let cut = move || {
            for parser in to_parsers.iter().cycle() {
                let mut parcel = returned.try_recv().unwrap_or_default();
                cutter.cut(&mut parcel);
                let is_last = matches!(parcel.end, ParcelEnd::Data { .. });
                if parser.send(parcel).is_err() || is_last {
                    return;
                }
            }
        };
        let cutter = Some(Builder::new().name("gannet-lines".into()).spawn(cut)?);
        Ok(ParserThreads { parsed, spare, cutter, parsers, next: 0 })
    }

    /// The next parcel, in the order of the data. No parcel comes after that which ends the data.
    fn next(&mut self) -> Parcel {
        let at = self.next;
        self.next = (at + 1) % self.parsed.len();
        self.parsed[at].recv().unwrap_or_else(|_| {
            // A parser ends early only if it or the cutter has panicked.
            let ended = [self.parsers[at].take(), self.cutter.take()];
            for thread in ended.into_iter().flatten() {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
            unreachable!("the threads end with the data, and the reader asks no further")
        })
    }
}

/// One pass over the lines of data files, parsed on several threads.
pub(crate) struct ParsedBlocks {
    threads: ParserThreads,
    data: Data,
    position: ReadPosition,
    format: &'static str,
    /// The byte of the file at which a split begins.
    start: u64,
    next_batch: u64,
    data_lines: u64,
    examples: u64,
    /// Whether it reads a split, which may have no examples.
    of_split: bool,
    bad: BadLines,
    /// See [`Parcel::zeros`], of all lines so far.
    zeros: u8,
    has_ended: bool,
}

impl ParsedBlocks {
    /// Starts so many parsers, and a thread that reads their lines. The lines come back if one thread must parse them:
    /// of two values of labels, the other one is the first that is read.
    ///
    /// # Errors
    /// The system cannot start the threads.
    pub(crate) fn start(
        lines: LineBlocks,
        parsers: usize,
    ) -> Result<Result<ParsedBlocks, LineBlocks>, ReadError> {
        if matches!(lines.data.labels, Labels::Two(two) if two.other().is_none()) {
            return Ok(Err(lines));
        }
        let (data, position, start) = (lines.data.clone(), lines.position.clone(), lines.start);
        let (format, next_batch, data_lines) = (lines.format(), lines.next_batch, lines.data_lines);
        let (examples, of_split) = (0, lines.of_split);
        let threads = ParserThreads::start(lines, parsers).map_err(ReadError::Thread)?;
        let (bad, zeros, has_ended) = (BadLines::default(), 0, false);
        Ok(Ok(ParsedBlocks {
            threads,
            data,
            position,
            format,
            start,
            next_batch,
            data_lines,
            examples,
            of_split,
            bad,
            zeros,
            has_ended,
        }))
    }

    /// As [`LineBlocks::next`].
    pub(crate) fn next(&mut self, block: &mut Block) -> Result<bool, ReadError> {
        block.clear();
        while !self.has_ended {
            let mut parcel = self.threads.next();
            self.check(&mut parcel)?;
            // Only a whole batch changes places with the caller's block. Otherwise each parcel would in time have
            // memory for a whole batch.
            if block.is_empty() && matches!(parcel.end, ParcelEnd::Batch { .. }) {
                std::mem::swap(block, &mut parcel.block);
            } else {
                block.append(&parcel.block)?;
            }
            let end = std::mem::take(&mut parcel.end);
            // If there is no room, its memory is freed.
            let _ = self.threads.spare.try_send(parcel);
            match end {
                ParcelEnd::Within => {}
                ParcelEnd::Batch { batches, data_lines } => {
                    (self.next_batch, self.data_lines) = (batches, data_lines);
                    // A batch with only bad lines is skipped.
                    if !block.is_empty() {
                        self.examples += block.len() as u64;
                        return Ok(true);
                    }
                }
                ParcelEnd::Data { batches, data_lines, passed_lines, error } => {
                    (self.next_batch, self.data_lines, self.has_ended) = (batches, data_lines, true);
                    block.clear();
                    error.map_or(Ok(()), Err)?;
                    self.check_examples(passed_lines)?;
                    return Ok(false);
                }
            }
        }
        Ok(false)
    }

    /// As [`LineBlocks::check_examples`].
    fn check_examples(&self, passed_lines: u64) -> Result<(), ReadError> {
        if self.examples + passed_lines == 0 && !self.of_split {
            return Err(ReadError::no_example(self.data.name(), self.data_lines, &self.bad));
        }
        Ok(())
    }

    /// Checks the labels of a parcel against those before. If a line is at fault, it parses the parcel again, now that
    /// everything before it is known.
    fn check(&mut self, parcel: &mut Parcel) -> Result<(), ReadError> {
        let ParsedBlocks { data, start, bad, zeros, .. } = self;
        let mixed = data.labels == Labels::Signs && (*zeros | parcel.zeros) == 3;
        if parcel.is_whole && !mixed {
            *zeros |= parcel.zeros;
            return Ok(());
        }
        let checked = parcel.parse_again(data.labels, zeros, |file, line, fault| {
            fault.note(file, line, *start, bad, data.skip_bad_lines)
        });
        self.has_ended |= checked.is_err();
        checked
    }

    /// The batches that were read or passed over.
    pub(crate) fn next_batch(&self) -> u64 {
        self.next_batch
    }

    /// Data lines of the batches so far: examples and bad lines.
    pub(crate) fn data_lines(&self) -> u64 {
        self.data_lines
    }

    /// The position in the files. The parsers are ahead of the batches.
    pub(crate) fn position(&self) -> &ReadPosition {
        &self.position
    }

    /// The bad lines so far.
    pub(crate) fn bad_lines(&self) -> &BadLines {
        &self.bad
    }

    /// See [`LineBlocks::format`].
    pub(crate) fn format(&self) -> &'static str {
        self.format
    }
}

#[cfg(test)]
#[path = "parsers_tests.rs"]
mod tests;

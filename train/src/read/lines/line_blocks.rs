//! Reads examples in batches from lines of files. A batch is `batch` consecutive data lines of the files, which are
//! read as if they were one file. (Empty lines and comments are not data lines.) So batch i is the same for every
//! worker, whatever its share. A skipped bad line leaves its batch shorter. Worker i of n takes batches i mod n, and
//! scans past the others without parsing them.

use crate::limits::BATCH_MAX;
use crate::read::block::Block;
use crate::read::bytes::data_file::{FileFacts, shown_name};
use crate::read::bytes::source::Source;
use crate::read::bytes::stream::{ReadPosition, Stream};
use crate::read::data::{Data, DetectedFile, Share};
use crate::read::error::{BadLines, ReadError};
use crate::read::formats::columns::Columns;
use crate::read::formats::format::LineReader;
use crate::read::growing::text_parts::TextParts;
use crate::read::lines::parcel::LineRun;
use crate::read::splits::split::{self, Split};
use crate::read::splits::split_file::SplitFiles;
use std::io::{self, Read};

/// One pass over the lines of data files.
pub(crate) struct LineBlocks {
    pub(super) data: Data,
    pub(super) position: ReadPosition,
    /// The index of the first file that is not opened yet.
    pub(super) next_file: usize,
    pub(super) source: Source,
    pub(super) kind: LineReader,
    pub(super) batch: usize,
    pub(super) share: Share,
    pub(super) next_batch: u64,
    bad: BadLines,
    /// Which labels occurred of those that become 0: 1 for label 0, 2 for label -1.
    zeros: u8,
    pub(super) data_lines: u64,
    /// Data lines that were passed over, and examples.
    pub(super) passed_lines: u64,
    examples: u64,
    /// The byte of the file at which the source begins.
    pub(super) start: u64,
    /// Whether it reads a split, which may have no lines.
    pub(super) of_split: bool,
    /// The parts of the text, if each of them is a batch.
    pub(super) parts: Option<TextParts>,
}

impl LineBlocks {
    /// Opens the files, finds their format and, in CSV, their columns.
    ///
    /// # Errors
    /// A file cannot be read, all files are empty, the first one's format is unknown, columns are missing, or `batch`
    /// or `share` is out of range.
    pub(crate) fn open(data: &Data, batch: usize, share: Share) -> Result<LineBlocks, ReadError> {
        LineBlocks::check_limits(batch, share)?;
        if let Some(text) = &data.text {
            let source = Source::of_text(text.name.clone(), &text.bytes);
            return LineBlocks::begin(data, source, ReadPosition::default(), batch, share);
        }
        let position = ReadPosition { total: bytes_of(data)?, ..ReadPosition::default() };
        let mut next_file = 0;
        let opened = open_next(data, &mut next_file, &position, None, |_| {})?;
        let Some((source, kind)) = opened else { return Err(ReadError::Empty { file: data.name() }) };
        Ok(LineBlocks::new(data, batch, share, position, next_file, source, kind))
    }

    /// Reads examples from any bytes, plain or packed. Messages use the name in `data.files`.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub(crate) fn over(
        data: &Data,
        bytes: Box<dyn Read + Send>,
        batch: usize,
        share: Share,
    ) -> Result<LineBlocks, ReadError> {
        LineBlocks::check_limits(batch, share)?;
        let position = ReadPosition::default();
        let stream = Stream::over(bytes, position.read.clone());
        LineBlocks::begin(data, Source::new(data.name(), stream, &data.stop)?, position, batch, share)
    }

    /// Begins to read a source that is all of the data.
    fn begin(
        data: &Data,
        mut source: Source,
        position: ReadPosition,
        batch: usize,
        share: Share,
    ) -> Result<LineBlocks, ReadError> {
        let empty = || ReadError::Empty { file: data.name() };
        let kind = LineReader::of(&mut source, data)?.ok_or_else(empty)?;
        Ok(LineBlocks::new(data, batch, share, position, data.files.len(), source, kind))
    }

    fn new(
        data: &Data,
        batch: usize,
        share: Share,
        position: ReadPosition,
        next_file: usize,
        source: Source,
        kind: LineReader,
    ) -> LineBlocks {
        LineBlocks {
            data: data.clone(),
            position,
            next_file,
            source,
            kind,
            batch,
            share,
            next_batch: 0,
            bad: BadLines::default(),
            zeros: 0,
            data_lines: 0,
            passed_lines: 0,
            examples: 0,
            start: 0,
            of_split: false,
            parts: None,
        }
    }

    /// Reads the lines of a split of a file, and skips its first `split.from` batches. All batches belong to this
    /// reader. `None`: no line begins in the split.
    pub(crate) fn of_split(
        data: &Data,
        batch: usize,
        split: &Split,
        packed: bool,
        position: &ReadPosition,
        files: &mut SplitFiles,
    ) -> Result<Option<LineBlocks>, ReadError> {
        LineBlocks::check_limits(batch, Share::ALL)?;
        let Some((source, kind, start)) = split::open(data, split, position, packed, files)? else {
            return Ok(None);
        };
        let files = data.files.len();
        let mut reader = LineBlocks::new(data, batch, Share::ALL, position.clone(), files, source, kind);
        (reader.start, reader.of_split) = (start, true);
        reader.pass(split.from)?;
        Ok(Some(reader))
    }

    /// Reads the lines of a split whose text a client sends.
    pub(crate) fn of_text(
        data: &Data,
        batch: usize,
        split: &Split,
        position: &ReadPosition,
        source: Source,
        kind: LineReader,
    ) -> Result<LineBlocks, ReadError> {
        LineBlocks::check_limits(batch, Share::ALL)?;
        let files = data.files.len();
        let mut reader = LineBlocks::new(data, batch, Share::ALL, position.clone(), files, source, kind);
        reader.of_split = true;
        reader.pass(split.from)?;
        Ok(reader)
    }

    /// Reads the lines of a text, each part of which is a batch.
    pub(crate) fn of_parts(
        data: &Data,
        position: &ReadPosition,
        (source, kind): (Source, LineReader),
        parts: TextParts,
    ) -> LineBlocks {
        let (files, all) = (data.files.len(), usize::MAX);
        let mut reader = LineBlocks::new(data, all, Share::ALL, position.clone(), files, source, kind);
        (reader.of_split, reader.next_batch, reader.parts) = (true, parts.open(), Some(parts));
        reader
    }

    /// Begins the part of the next batch, in a text of parts. Returns false behind the last one.
    pub(super) fn begin_part(&mut self) -> bool {
        let Some(parts) = &self.parts else { return true };
        if parts.open() == self.next_batch {
            return true;
        }
        let is_there = parts.begin(self.next_batch);
        match is_there {
            true => self.source.go_on(),
            false => self.next_batch += 1,
        }
        is_there
    }

    /// Skips so many batches.
    pub(crate) fn pass(&mut self, batches: u64) -> Result<(), ReadError> {
        for _ in 0..batches {
            self.pass_batch()?;
            self.next_batch += 1;
        }
        Ok(())
    }

    /// Data lines that were read or skipped: examples and bad lines.
    pub(crate) fn data_lines(&self) -> u64 {
        self.data_lines
    }

    pub(crate) fn check_limits(batch: usize, share: Share) -> Result<(), ReadError> {
        if batch == 0 || batch > BATCH_MAX {
            return Err(ReadError::Limit { what: "the batch", value: batch as u64, max: BATCH_MAX as u64 });
        }
        if share.worker >= share.workers {
            let (value, max) = (u64::from(share.worker) + 1, u64::from(share.workers));
            return Err(ReadError::Limit { what: "the worker's number, from 1,", value, max });
        }
        Ok(())
    }

    /// Like [`check`](Self::check), and also returns the first file's name and columns.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub(crate) fn look(data: &Data) -> Result<Option<DetectedFile>, ReadError> {
        bytes_of(data)?;
        let again = |file: &&String| *file != "-" && FileFacts::of(file).is_ok_and(|facts| facts.again);
        let files = data.files.iter().filter(again).cloned().collect();
        let data = Data { files, ..data.clone() };
        let (mut next_file, mut first) = (0, None);
        let warn = |file: &str| {
            if data.files.len() > 1 {
                tracing::warn!(file, "this file has no lines");
            }
        };
        let position = ReadPosition::default();
        loop {
            let first_one = first.as_ref().map(|(source, kind)| (source, kind));
            let Some(opened) = open_next(&data, &mut next_file, &position, first_one, warn)? else { break };
            first.get_or_insert(opened);
        }
        let found = |(source, kind): (Source, LineReader)| DetectedFile {
            file: source.file().to_owned(),
            format: kind.name(),
            columns: kind.columns().cloned(),
        };
        Ok(first.map(found))
    }

    /// Fills `block` with the next batch of this share. Returns false, and an empty block, at the end of the files.
    ///
    /// # Errors
    /// There are more bad lines than may be skipped, or a file cannot be read. The reader is then at its end.
    pub(crate) fn next(&mut self, block: &mut Block) -> Result<bool, ReadError> {
        block.clear();
        while self.begin_part() {
            let mine = self.next_batch % u64::from(self.share.workers) == u64::from(self.share.worker);
            let before = self.data_lines;
            if mine {
                self.read_batch(block)?;
                self.examples += block.len() as u64;
            } else {
                self.pass_batch()?;
            }
            let lines = self.data_lines - before;
            self.next_batch += 1;
            if lines == 0 && self.parts.is_none() {
                self.check_not_empty()?;
                self.check_examples()?;
                return Ok(false);
            }
            // A batch with only bad lines is skipped.
            if mine && !block.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Checks, at the end of the data, that there was a line.
    pub(super) fn check_not_empty(&self) -> Result<(), ReadError> {
        if self.data_lines == 0 && !self.of_split {
            return Err(ReadError::Empty { file: self.data.name() });
        }
        Ok(())
    }

    /// Checks, at the end of the data, that a line is an example, or may be one of another share.
    fn check_examples(&self) -> Result<(), ReadError> {
        if self.examples + self.passed_lines == 0 && !self.of_split {
            return Err(ReadError::no_example(self.data.name(), self.data_lines, &self.bad));
        }
        Ok(())
    }

    /// The batches that were read or passed over.
    pub(crate) fn next_batch(&self) -> u64 {
        self.next_batch
    }

    /// The position in the files.
    pub(crate) fn position(&self) -> &ReadPosition {
        &self.position
    }

    /// The bad lines so far.
    pub(crate) fn bad_lines(&self) -> &BadLines {
        &self.bad
    }

    /// The columns, when the files are CSV.
    pub(crate) fn columns(&self) -> Option<&Columns> {
        self.kind.columns()
    }

    /// "libsvm", "csv", "tsv", "criteo" or "vw".
    pub(crate) fn format(&self) -> &'static str {
        self.kind.name()
    }

    /// Whether there are more lines, in this file or the next ones.
    #[inline(always)]
    pub(super) fn more(&mut self) -> Result<bool, ReadError> {
        if self.source.fill()? { Ok(true) } else { self.open_more() }
    }

    #[cold]
    fn open_more(&mut self) -> Result<bool, ReadError> {
        loop {
            let LineBlocks { data, next_file, position, source, kind, .. } = self;
            let Some(opened) = open_next(data, next_file, position, Some((source, kind)), |_| {})? else {
                return Ok(false);
            };
            (self.source, self.kind) = opened;
            if self.source.fill()? {
                return Ok(true);
            }
        }
    }

    fn read_batch(&mut self, block: &mut Block) -> Result<(), ReadError> {
        let mut left = self.batch as u64;
        while left > 0 && !block.full() && self.more()? {
            let (buf, at, end) = self.source.lines();
            let mut lines = LineRun { buf, at, end, taken: 0, data_lines: 0 };
            let fault = lines.parse(&mut self.kind, self.data.labels, &mut self.zeros, left, block);
            let LineRun { at, taken, data_lines, .. } = lines;
            self.data_lines += data_lines;
            left -= data_lines;
            self.source.take(at, taken);
            if let Some(fault) = fault {
                let (file, line) = (self.source.file(), self.source.line);
                fault.note(file, line, self.start, &mut self.bad, self.data.skip_bad_lines)?;
            }
        }
        if self.parts.is_some() && block.full() {
            // The rest of the part would be in a batch of another number.
            return Err(Block::too_large(block.keys.len()));
        }
        Ok(())
    }

    /// Skips another worker's batch: counts its lines without parsing them.
    pub(super) fn pass_batch(&mut self) -> Result<(), ReadError> {
        let mut left = self.batch;
        while left > 0 && self.more()? {
            let (buf, mut p, end) = self.source.lines();
            let mut lines = 0;
            while p < end && left > 0 {
                let (next, of_it) = self.kind.next(buf, p, end);
                if !self.kind.nothing(buf, p) {
                    left -= 1;
                    self.data_lines += 1;
                    self.passed_lines += 1;
                }
                (p, lines) = (next, lines + of_it);
            }
            self.source.take(p, lines);
        }
        Ok(())
    }
}

/// The bytes of all files, when all are regular files or objects. A missing file is an error here, before any reading.
fn bytes_of(data: &Data) -> Result<Option<u64>, ReadError> {
    let mut total = Some(0);
    for file in &data.files {
        if file == "-" {
            total = None;
            continue;
        }
        let io = |source| ReadError::io(file, source);
        let facts = FileFacts::of(file).map_err(io)?;
        if facts.folder {
            return Err(io(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder")));
        }
        total = total.and_then(|total| Some(total + facts.bytes?));
    }
    Ok(total)
}

/// Opens the next file that is not empty. It must have the format of the `first`, if there is one.
fn open_next(
    data: &Data,
    next_file: &mut usize,
    position: &ReadPosition,
    first: Option<(&Source, &LineReader)>,
    empty: impl Fn(&str),
) -> Result<Option<(Source, LineReader)>, ReadError> {
    while let Some(path) = data.files.get(*next_file) {
        *next_file += 1;
        let name = shown_name(path).to_owned();
        let opened = Stream::open(path, position.read.clone(), &data.stop);
        let stream = opened.map_err(|source| ReadError::io(path, source))?;
        let mut source = Source::new(name.clone(), stream, &data.stop)?;
        match LineReader::of(&mut source, data)? {
            Some(kind) => {
                if let Some((source, first)) = first {
                    first.alike(source.file(), &kind, &name)?;
                }
                return Ok(Some((source, kind)));
            }
            // Empty parts of a data set are common. Only a data set without lines is an error.
            None => empty(&name),
        }
    }
    Ok(None)
}

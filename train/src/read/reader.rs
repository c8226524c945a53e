//! Reads examples in batches, wherever they are: in files, or in a source of the program. Batch i is the same for every
//! worker, whatever its share. Worker i of n takes batches i mod n.

use crate::limits::{SURVEY_BATCH, SURVEY_PATIENCE};
use crate::read::block::Block;
use crate::read::block_source::SourceBlocks;
use crate::read::bytes::source::Source;
use crate::read::bytes::stream::ReadPosition;
use crate::read::cache::packed_block::BlockEnd;
use crate::read::cache::pass::CacheUse;
use crate::read::class_weights::ClassWeights;
use crate::read::data::{Data, DetectedFile, Format, Share};
use crate::read::error::{BadLines, ReadError};
use crate::read::fields::example_fields::FieldUse;
use crate::read::first_examples::FirstExamples;
use crate::read::formats::columns::Columns;
use crate::read::formats::format::LineReader;
use crate::read::growing::text_parts::TextParts;
use crate::read::holdout::Holdout;
use crate::read::kept_negatives::KeptNegatives;
use crate::read::lines::line_blocks::LineBlocks;
use crate::read::lines::parsers::ParsedBlocks;
use crate::read::normalization::{Normalization, Normalize};
use crate::read::splits::split::Split;
use crate::read::splits::split_file::SplitFiles;
#[cfg(feature = "parquet")]
use crate::read::tables::table_blocks::{self, TableBlocks};
use std::io::Read;
use std::time::Duration;

/// What data that is not in files is called where a format is expected.
const MEMORY: &str = "memory";

/// One pass over data.
pub struct Reader {
    blocks: Blocks,
    /// Of data that is not in files: it has no bytes, and no bad lines.
    position: ReadPosition,
    bad: BadLines,
    /// The cache of this pass. While it is read, `blocks` has read nothing yet.
    cache: Option<CacheUse>,
    normalize: Normalize,
    fields: FieldUse,
    holdout: Option<Holdout>,
    /// Whether a source of the program has columns.
    source_has_columns: bool,
    /// Whether nobody else counts batches, so that those without examples need not be learned.
    is_alone: bool,
    class_weights: Option<ClassWeights>,
    kept_negatives: Option<KeptNegatives>,
    /// How long the first examples may take to come.
    survey_patience: Duration,
    /// Examples that were read ahead, because they say how large values are.
    first: Option<FirstExamples>,
}

/// Where the blocks of a reader come from.
enum Blocks {
    /// Lines of files.
    Lines(Box<LineBlocks>),
    /// Lines of files, parsed on several threads; and the columns, when the files are CSV.
    Parsed(Box<ParsedBlocks>, Option<Columns>),
    /// A source of the program.
    Source(SourceBlocks),
    /// Files of tables.
    #[cfg(feature = "parquet")]
    Table(Box<TableBlocks>),
}

impl Reader {
    fn of(data: &Data, blocks: Blocks) -> Reader {
        let (position, bad, normalize) =
            (ReadPosition::default(), BadLines::default(), data.normalize.clone());
        let comes_once = normalize.is_to_survey() && data.must_be_files("").is_err();
        let survey_patience = if comes_once { SURVEY_PATIENCE } else { Duration::MAX };
        Reader {
            blocks,
            position,
            bad,
            cache: None,
            normalize,
            fields: data.fields.clone(),
            holdout: data.holdout,
            source_has_columns: data.source.as_ref().is_some_and(|source| source.has_columns()),
            is_alone: false,
            class_weights: data.class_weights,
            kept_negatives: data.kept_negatives,
            survey_patience,
            first: None,
        }
    }

    fn of_lines(data: &Data, lines: LineBlocks) -> Reader {
        Reader::of(data, Blocks::Lines(Box::new(lines)))
    }

    /// Opens the data. In files it finds their format and, in CSV, their columns.
    ///
    /// # Errors
    /// A file cannot be read, all files are empty, the first one's format is unknown, columns are missing, or `batch`
    /// or `share` is out of range.
    pub fn open(data: &Data, batch: usize, share: Share) -> Result<Reader, ReadError> {
        let mut reader = Reader::of_files(data, batch, share)?;
        reader.is_alone = share == Share::ALL;
        reader.cache = CacheUse::begin(data, batch, share);
        Ok(reader)
    }

    fn of_files(data: &Data, batch: usize, share: Share) -> Result<Reader, ReadError> {
        #[cfg(feature = "parquet")]
        if table_blocks::is_of(data) {
            LineBlocks::check_limits(batch, share)?;
            return TableBlocks::open(data, batch, share)
                .map(|table| Reader::of(data, Blocks::Table(Box::new(table))));
        }
        let Some(source) = &data.source else {
            return LineBlocks::open(data, batch, share).map(|lines| Reader::of_lines(data, lines));
        };
        LineBlocks::check_limits(batch, share)?;
        let blocks = SourceBlocks::begin(&**source, data.intercept, batch, share)?;
        Ok(Reader::of(data, Blocks::Source(blocks)))
    }

    /// Reads examples from any bytes, plain or packed. Messages use the name in `data.files`.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn over(
        data: &Data,
        bytes: Box<dyn Read + Send>,
        batch: usize,
        share: Share,
    ) -> Result<Reader, ReadError> {
        LineBlocks::over(data, bytes, batch, share).map(|lines| Reader::of_lines(data, lines))
    }

    /// Lets so many threads parse the lines, besides one that reads them. The batches are the same. With fewer than two
    /// parsers, and for data that is not in files, nothing changes.
    ///
    /// # Errors
    /// The system cannot start the threads.
    pub(crate) fn with_parsers(mut self, parsers: usize) -> Result<Reader, ReadError> {
        self.blocks = match self.blocks {
            Blocks::Lines(lines) if parsers > 1 && !matches!(self.cache, Some(CacheUse::Read(_))) => {
                let columns = lines.columns().cloned();
                match ParsedBlocks::start(*lines, parsers)? {
                    Ok(parsed) => Blocks::Parsed(Box::new(parsed), columns),
                    Err(lines) => Blocks::Lines(Box::new(lines)),
                }
            }
            blocks => blocks,
        };
        Ok(self)
    }

    /// As [`LineBlocks::of_split`].
    pub(crate) fn of_split(
        data: &Data,
        batch: usize,
        split: &Split,
        packed: bool,
        position: &ReadPosition,
        files: &mut SplitFiles,
    ) -> Result<Option<Reader>, ReadError> {
        #[cfg(feature = "parquet")]
        if table_blocks::is_of(data) {
            let table = TableBlocks::of_split(data, batch, split, position)?;
            return Ok(table.map(|table| Reader::of(data, Blocks::Table(Box::new(table)))));
        }
        let lines = LineBlocks::of_split(data, batch, split, packed, position, files)?;
        Ok(lines.map(|lines| Reader::of_lines(data, lines)))
    }

    /// As [`LineBlocks::of_text`].
    pub(crate) fn of_text(
        data: &Data,
        batch: usize,
        split: &Split,
        position: &ReadPosition,
        source: Source,
        kind: LineReader,
    ) -> Result<Reader, ReadError> {
        let lines = LineBlocks::of_text(data, batch, split, position, source, kind)?;
        Ok(Reader::of_lines(data, lines))
    }

    /// As [`LineBlocks::of_parts`].
    pub(crate) fn of_parts(
        data: &Data,
        position: &ReadPosition,
        lines: (Source, LineReader),
        parts: TextParts,
    ) -> Reader {
        Reader::of_lines(data, LineBlocks::of_parts(data, position, lines, parts))
    }

    /// Reads the beginning of every file that can be read again, to find errors before a long reading. Returns the
    /// format, if there is such a file that is not empty.
    ///
    /// # Errors
    /// As for [`open`](Self::open), and files of different formats.
    pub fn check(data: &Data) -> Result<Option<&'static str>, ReadError> {
        Ok(Reader::look(data)?.map(|found| found.format))
    }

    /// Like [`check`](Self::check), and also returns the first file's name and columns.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub fn look(data: &Data) -> Result<Option<DetectedFile>, ReadError> {
        match &data.source {
            Some(source) => Ok(Some(DetectedFile { file: source.name(), format: MEMORY, columns: None })),
            #[cfg(feature = "parquet")]
            None if table_blocks::is_of(data) => table_blocks::look(data),
            None => LineBlocks::look(data),
        }
    }

    /// Checks that a test set has the format of training data from standard input or pipes. Their format was not
    /// known earlier.
    ///
    /// # Errors
    /// The test set has another format, or cannot be read.
    pub(crate) fn check_test(
        test: Option<&Data>,
        data: &Data,
        format: &'static str,
    ) -> Result<(), ReadError> {
        match test {
            Some(test) if data.must_be_files("").is_err() => Reader::alike(test, data, format).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// Checks that a test set has the format of the training data. Returns the format of the test set.
    ///
    /// # Errors
    /// The test set has another format, or cannot be read.
    pub fn alike(test: &Data, data: &Data, format: &'static str) -> Result<Option<DetectedFile>, ReadError> {
        let found = Reader::look(test)?;
        let is_like = |other: &str| match (Format::of_name(other), Format::of_name(format)) {
            (Some(one), Some(other)) => one.is_like(other),
            _ => other == format,
        };
        match &found {
            Some(DetectedFile { file, format: other, .. }) if !is_like(other) => {
                let (test, data) = (file.clone(), data.name());
                Err(ReadError::TestDiffers { test, test_format: other, data, format })
            }
            _ => Ok(found),
        }
    }

    /// Fills `block` with the next batch of this share, with normalized values if the data asks for them. Returns
    /// false, and an empty block, at the end of the data.
    ///
    /// # Errors
    /// There are more bad lines than may be skipped, or a file cannot be read. The reader is then at its end.
    pub fn next(&mut self, block: &mut Block) -> Result<bool, ReadError> {
        if self.normalize.is_to_survey() {
            let first = FirstExamples::read(self.survey_patience, |block| {
                let read = self.next_weighted(block);
                (read, BlockEnd { next_batch: self.next_batch(), data_lines: self.data_lines() })
            });
            let asks = self.normalize.asks(self.has_columns());
            first.settle(&self.normalize, asks, self.kept_negatives)?;
            self.first = Some(first);
        }
        let more = match self.first.as_mut().and_then(|first| first.next(block)) {
            Some(more) => more?,
            None => {
                self.first = None;
                self.next_weighted(block)?
            }
        };
        if let Some(known) = self.normalize.known() {
            known.apply(block);
        }
        self.fields.settle(block);
        if let Some(kept) = self.kept_negatives {
            block.bases.resize(block.len(), 0.0);
            block.bases.iter_mut().for_each(|base| *base += kept.base());
        }
        Ok(more)
    }

    /// The normalization that the first examples of this data give. `None`: there are no examples.
    ///
    /// # Errors
    /// Those of [`next`](Self::next), before an example was read.
    pub fn survey(data: &Data) -> Result<Option<Normalization>, ReadError> {
        let plain = Data { normalize: Normalize::off(), cache: None, ..data.clone() };
        let mut reader = Reader::open(&plain, SURVEY_BATCH, Share::ALL)?;
        let first =
            FirstExamples::read(Duration::MAX, |block| (reader.next_weighted(block), BlockEnd::default()));
        Ok(first.survey(data.normalize.asks(reader.has_columns()), data.kept_negatives))
    }

    /// The labels 1 and the others among the first examples of this data, with their importances.
    ///
    /// # Errors
    /// As for [`survey`](Self::survey).
    pub fn first_labels(data: &Data) -> Result<(f64, f64), ReadError> {
        let plain = Data { normalize: Normalize::off(), class_weights: None, cache: None, ..data.clone() };
        let mut reader = Reader::open(&plain, SURVEY_BATCH, Share::ALL)?;
        let first =
            FirstExamples::read(Duration::MAX, |block| (reader.next_weighted(block), BlockEnd::default()));
        first.labels()
    }

    /// The ids of the fields in the first examples of this data, each once.
    ///
    /// # Errors
    /// As for [`survey`](Self::survey); libsvm has no fields.
    pub fn first_fields(data: &Data) -> Result<Vec<u64>, ReadError> {
        let fields = FieldUse { in_blocks: true, places: None, ..data.fields.clone() };
        let plain =
            Data { normalize: Normalize::off(), class_weights: None, cache: None, fields, ..data.clone() };
        let mut reader = Reader::open(&plain, SURVEY_BATCH, Share::ALL)?;
        let first =
            FirstExamples::read(Duration::MAX, |block| (reader.next_weighted(block), BlockEnd::default()));
        first.fields()
    }

    fn next_weighted(&mut self, block: &mut Block) -> Result<bool, ReadError> {
        let more = loop {
            let more = self.next_as_it_is(block)?;
            let mut is_empty = self.holdout.is_some_and(|holdout| holdout.apply(block));
            is_empty |= self.kept_negatives.is_some_and(|kept| kept.apply(block, self.next_batch()));
            if !(is_empty && self.is_alone) {
                break more;
            }
        };
        if let Some(weights) = self.class_weights {
            weights.apply(block);
        }
        Ok(more)
    }

    fn next_as_it_is(&mut self, block: &mut Block) -> Result<bool, ReadError> {
        if let Some(CacheUse::Read(pass)) = &mut self.cache {
            if let Some(more) = pass.next(block) {
                return Ok(more);
            }
            let read = pass.end().next_batch;
            self.cache = None;
            self.skip(read)?;
        }
        let more = self.next_of_files(block)?;
        let end = BlockEnd { next_batch: self.next_batch(), data_lines: self.data_lines() };
        match self.cache.take() {
            Some(CacheUse::Write(mut writer)) if more => {
                writer.add(block, end);
                self.cache = Some(CacheUse::Write(writer));
            }
            Some(CacheUse::Write(mut writer)) => writer.finish(end, self.bad_lines()),
            other => self.cache = other,
        }
        Ok(more)
    }

    /// Skips so many batches of all shares.
    fn skip(&mut self, batches: u64) -> Result<(), ReadError> {
        match &mut self.blocks {
            Blocks::Lines(lines) => lines.pass(batches),
            #[cfg(feature = "parquet")]
            Blocks::Table(table) => table.blocks().skip(batches),
            Blocks::Parsed(..) | Blocks::Source(_) => unreachable!("neither is beside a cache that is read"),
        }
    }

    fn next_of_files(&mut self, block: &mut Block) -> Result<bool, ReadError> {
        match &mut self.blocks {
            Blocks::Lines(lines) => lines.next(block),
            Blocks::Parsed(parsed, _) => parsed.next(block),
            Blocks::Source(source) => source.next(block),
            #[cfg(feature = "parquet")]
            Blocks::Table(table) => table.blocks().next(block),
        }
    }

    /// The batches that were read or passed over.
    fn next_batch(&self) -> u64 {
        if let Some(first) = &self.first {
            return first.end().next_batch;
        }
        if let Some(CacheUse::Read(pass)) = &self.cache {
            return pass.end().next_batch;
        }
        match &self.blocks {
            Blocks::Lines(lines) => lines.next_batch(),
            Blocks::Parsed(parsed, _) => parsed.next_batch(),
            Blocks::Source(source) => source.next_batch(),
            #[cfg(feature = "parquet")]
            Blocks::Table(table) => table.counts().next_batch(),
        }
    }

    /// The number of the batch that [`next`](Self::next) returned last, from 0 and counted over all shares.
    pub fn batch_number(&self) -> u64 {
        self.next_batch().saturating_sub(1)
    }

    /// The batches of a pass, counted over all shares. Valid at the end.
    pub fn batches(&self) -> u64 {
        self.next_batch().saturating_sub(1)
    }

    /// Data lines that were read or skipped: examples and bad lines.
    pub(crate) fn data_lines(&self) -> u64 {
        if let Some(first) = &self.first {
            return first.end().data_lines;
        }
        if let Some(CacheUse::Read(pass)) = &self.cache {
            return pass.end().data_lines;
        }
        match &self.blocks {
            Blocks::Lines(lines) => lines.data_lines(),
            Blocks::Parsed(parsed, _) => parsed.data_lines(),
            Blocks::Source(source) => source.examples(),
            #[cfg(feature = "parquet")]
            Blocks::Table(table) => table.counts().examples(),
        }
    }

    /// The position in the files, or in the cache of them.
    pub fn position(&self) -> &ReadPosition {
        if let Some(CacheUse::Read(pass)) = &self.cache {
            return pass.position();
        }
        match &self.blocks {
            Blocks::Lines(lines) => lines.position(),
            Blocks::Parsed(parsed, _) => parsed.position(),
            Blocks::Source(_) => &self.position,
            #[cfg(feature = "parquet")]
            Blocks::Table(table) => table.position(),
        }
    }

    /// The bad lines so far.
    pub fn bad_lines(&self) -> &BadLines {
        if let Some(CacheUse::Read(pass)) = &self.cache {
            return pass.bad_lines();
        }
        match &self.blocks {
            Blocks::Lines(lines) => lines.bad_lines(),
            Blocks::Parsed(parsed, _) => parsed.bad_lines(),
            Blocks::Source(_) => &self.bad,
            #[cfg(feature = "parquet")]
            Blocks::Table(_) => &self.bad,
        }
    }

    /// The columns, when the files are CSV.
    pub fn columns(&self) -> Option<&Columns> {
        match &self.blocks {
            Blocks::Lines(lines) => lines.columns(),
            Blocks::Parsed(_, columns) => columns.as_ref(),
            Blocks::Source(_) => None,
            #[cfg(feature = "parquet")]
            Blocks::Table(table) => Some(table.columns()),
        }
    }

    /// Whether the data has columns.
    fn has_columns(&self) -> bool {
        self.source_has_columns || self.columns().is_some()
    }

    /// "libsvm", "csv", "tsv", "criteo" or "vw"; "memory" for data that is not in files.
    pub fn format(&self) -> &'static str {
        match &self.blocks {
            Blocks::Lines(lines) => lines.format(),
            Blocks::Parsed(parsed, _) => parsed.format(),
            Blocks::Source(_) => MEMORY,
            #[cfg(feature = "parquet")]
            Blocks::Table(table) => table.format(),
        }
    }
}

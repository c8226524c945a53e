//! Reads the batches of files of tables: all rows of all files, one after the other as if they were one file, or those
//! of a split.

use crate::read::block::Block;
use crate::read::block_source::{BlockPass, SourceBlocks};
use crate::read::bytes::data_file::{FileFacts, shown_name};
use crate::read::bytes::stream::ReadPosition;
use crate::read::data::{Data, DetectedFile, Format, Share};
use crate::read::error::ReadError;
use crate::read::formats::columns::Columns;
use crate::read::splits::split::Split;
use crate::read::table_rows::TableSettings;
use crate::read::tables::record_batches::BatchRows;
use crate::read::tables::table_file::{BatchReads, TableFile, TableFormat};
use std::ops::Range;
use std::sync::Arc;

/// Whether the data is in files of tables. Their formats must then be alike.
pub(crate) fn is_of(data: &Data) -> bool {
    match data.format {
        Format::Parquet | Format::Arrow => true,
        Format::Auto => data.files.iter().find_map(|file| TableFormat::of(file)).is_some(),
        _ => false,
    }
}

fn settings(data: &Data) -> TableSettings {
    let (choice, scale) = (data.columns.clone(), data.scale.clone());
    TableSettings {
        choice,
        scale,
        labels: data.labels,
        unlabelled: data.unlabelled,
        fields: data.fields.clone(),
    }
}

/// What is known of a file before it is read.
fn facts(path: &str) -> Result<FileFacts, ReadError> {
    if path == "-" {
        let (what, remedy) = ("no file that can be read in any order", "Parquet and Arrow need one: name it");
        return Err(ReadError::NotText { file: shown_name(path).into(), what, remedy });
    }
    FileFacts::of(path).map_err(|source| ReadError::io(path, source))
}

/// Opens a file of a table. It must have the format of the data.
fn open(data: &Data, path: &str) -> Result<(TableFile, TableFormat), ReadError> {
    facts(path)?;
    let format = TableFormat::of(path);
    let expected = match data.format {
        Format::Parquet => "parquet",
        Format::Arrow => "arrow",
        _ => "parquet or arrow",
    };
    match format {
        Some(format) if expected.contains(format.name()) => {
            Ok((TableFile::open(path, format, &data.stop)?, format))
        }
        _ => Err(ReadError::NotTable { file: path.to_owned(), expected }),
    }
}

/// Reads batches of files.
pub(crate) struct TableBlocks {
    blocks: SourceBlocks,
    position: ReadPosition,
    format: &'static str,
    columns: Columns,
}

impl TableBlocks {
    /// Opens the files.
    ///
    /// # Errors
    /// A file cannot be read, is damaged, or differs from the first; or the columns do not fit.
    pub(crate) fn open(data: &Data, batch: usize, share: Share) -> Result<TableBlocks, ReadError> {
        let mut bytes = 0;
        for file in &data.files {
            bytes += facts(file)?.bytes.unwrap_or(0);
        }
        let position = ReadPosition { total: Some(bytes), ..ReadPosition::default() };
        let pass = TablePass::new(data, (0..data.files.len()).map(|file| (file, None)).collect(), &position)?;
        Ok(TableBlocks::of(pass, SourceParts { batch, share, may_be_empty: false }, data, position))
    }

    /// Opens the rows of a split, and skips its first batches. `None`: no part of the file is in it.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub(crate) fn of_split(
        data: &Data,
        batch: usize,
        split: &Split,
        position: &ReadPosition,
    ) -> Result<Option<TableBlocks>, ReadError> {
        let range = split.start..split.end;
        let pass = TablePass::new(data, vec![(split.file, Some(range))], position)?;
        if pass.file.parts.is_empty() {
            return Ok(None);
        }
        let parts = SourceParts { batch, share: Share::ALL, may_be_empty: true };
        let mut blocks = TableBlocks::of(pass, parts, data, position.clone());
        blocks.blocks.skip(split.from)?;
        Ok(Some(blocks))
    }

    fn of(pass: TablePass, parts: SourceParts, data: &Data, position: ReadPosition) -> TableBlocks {
        let (format, columns) = (pass.file.format.name(), pass.file.rows.rows().columns().clone());
        let SourceParts { batch, share, may_be_empty } = parts;
        let blocks = SourceBlocks::of(Box::new(pass), data.name(), batch, share, may_be_empty);
        TableBlocks { blocks, position, format, columns }
    }

    /// The batches.
    pub(crate) fn blocks(&mut self) -> &mut SourceBlocks {
        &mut self.blocks
    }

    /// As [`blocks`](Self::blocks).
    pub(crate) fn counts(&self) -> &SourceBlocks {
        &self.blocks
    }

    /// The position in the files.
    pub(crate) fn position(&self) -> &ReadPosition {
        &self.position
    }

    /// "parquet" or "arrow".
    pub(crate) fn format(&self) -> &'static str {
        self.format
    }

    /// The columns.
    pub(crate) fn columns(&self) -> &Columns {
        &self.columns
    }
}

/// How the rows become batches.
struct SourceParts {
    batch: usize,
    share: Share,
    may_be_empty: bool,
}

/// Reads the descriptions of all files.
///
/// # Errors
/// As for [`TableBlocks::open`].
pub(crate) fn look(data: &Data) -> Result<Option<DetectedFile>, ReadError> {
    let mut first: Option<DetectedFile> = None;
    for path in &data.files {
        let file = OpenTable::new(data, path, None)?;
        let columns = file.rows.rows().columns().clone();
        let found = DetectedFile { file: path.clone(), format: file.format.name(), columns: Some(columns) };
        match &first {
            Some(first) => alike(first, &found)?,
            None => first = Some(found),
        }
    }
    Ok(first)
}

/// Checks that a file has the format and the columns of the first.
fn alike(first: &DetectedFile, other: &DetectedFile) -> Result<(), ReadError> {
    let differs = |what: String, first_what: String| {
        let (file, first) = (other.file.clone(), first.file.clone());
        Err(ReadError::Differs { file, what, first, first_what })
    };
    if first.format != other.format {
        return differs(format!("is {}", other.format), format!("is {}", first.format));
    }
    match (&first.columns, &other.columns) {
        (Some(ours), Some(theirs)) if !ours.alike(theirs) => {
            differs(format!("has {theirs}"), format!("has {ours}"))
        }
        _ => Ok(()),
    }
}

/// An open file, and the parts that are left to read.
struct OpenTable {
    file: TableFile,
    format: TableFormat,
    rows: BatchRows,
    parts: Range<usize>,
    batches: Option<(usize, BatchReads)>,
}

impl OpenTable {
    fn new(data: &Data, path: &str, split: Option<Range<u64>>) -> Result<OpenTable, ReadError> {
        let (file, format) = open(data, path)?;
        let rows = BatchRows::new(path, &file.schema, &settings(data), data.intercept)?;
        let parts = file.parts(split.unwrap_or(0..u64::MAX));
        Ok(OpenTable { file, format, rows, parts, batches: None })
    }

    /// Begins with the next record batch. Returns false at the end of the file.
    fn pull(&mut self, data: &Data, position: &ReadPosition) -> Result<bool, ReadError> {
        self.rows.end();
        loop {
            let Some((part, batches)) = &mut self.batches else {
                let Some(part) = self.parts.next() else { return Ok(false) };
                self.rows.rows_mut().begin_at(self.file.row(part));
                let batches = self.file.batches(part, self.rows.needed(), &position.read, &data.stop);
                let failed = |why| self.file.damaged(part, self.rows.needed(), why, &data.stop);
                self.batches = Some((part, batches.map_err(failed)?));
                continue;
            };
            match batches.next() {
                Some(Ok(batch)) => return self.rows.begin(&batch).map(|()| true),
                Some(Err(why)) => {
                    return Err(self.file.damaged(*part, self.rows.needed(), why, &data.stop));
                }
                None => self.batches = None,
            }
        }
    }
}

/// One pass over the rows of files.
struct TablePass {
    data: Data,
    position: ReadPosition,
    /// The files that are not open yet, last first.
    left: Vec<(usize, Option<Range<u64>>)>,
    first: DetectedFile,
    file: OpenTable,
}

impl TablePass {
    fn new(
        data: &Data,
        mut files: Vec<(usize, Option<Range<u64>>)>,
        position: &ReadPosition,
    ) -> Result<TablePass, ReadError> {
        files.reverse();
        let Some((first, split)) = files.pop() else { return Err(ReadError::Empty { file: data.name() }) };
        let path = &data.files[first];
        let file = OpenTable::new(data, path, split)?;
        let columns = Some(file.rows.rows().columns().clone());
        let first = DetectedFile { file: path.clone(), format: file.format.name(), columns };
        Ok(TablePass { data: data.clone(), position: position.clone(), left: files, first, file })
    }

    /// Opens the next file. Returns false if there is none.
    fn open_next(&mut self) -> Result<bool, ReadError> {
        let Some((index, split)) = self.left.pop() else { return Ok(false) };
        let path = &self.data.files[index];
        let mut next = OpenTable::new(&self.data, path, split)?;
        let columns = Some(next.rows.rows().columns().clone());
        alike(&self.first, &DetectedFile { file: path.clone(), format: next.format.name(), columns })?;
        next.rows.rows_mut().follow(self.file.rows.rows());
        self.file = next;
        Ok(true)
    }
}

impl BlockPass for TablePass {
    fn next(&mut self, most: usize, mut block: Option<&mut Block>) -> Result<usize, ReadError> {
        let mut done = 0;
        while done < most {
            if self.file.rows.is_at_end() {
                if !self.file.pull(&self.data, &self.position)? && !self.open_next()? {
                    break;
                }
                continue;
            }
            let count = self.file.rows.take(most - done, block.as_deref_mut())?;
            if count == 0 {
                break;
            }
            done += count;
        }
        Ok(done)
    }
}

/// The texts of the values of each column, and whether they are in a list, for the first rows of the data.
///
/// # Errors
/// As for [`TableBlocks::open`].
pub(crate) fn texts(
    data: &Data,
    rows: u64,
    mut each: impl FnMut(&str, &[u8], bool),
) -> Result<u64, ReadError> {
    let mut seen = 0;
    for path in &data.files {
        let table = OpenTable::new(data, path, None)?;
        for part in table.parts.clone() {
            let all: Vec<usize> = table.rows.needed().to_vec();
            let failed = |why| table.file.damaged(part, &all, why, &data.stop);
            let batches = table.file.batches(part, &all, &Arc::default(), &data.stop).map_err(failed)?;
            for batch in batches {
                let batch = batch.map_err(failed)?;
                let most = usize::try_from(rows - seen).unwrap_or(usize::MAX).min(batch.num_rows());
                table.rows.texts(&batch, most, &mut each)?;
                seen += most as u64;
                if seen == rows {
                    return Ok(seen);
                }
            }
        }
    }
    Ok(seen)
}

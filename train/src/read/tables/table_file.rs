//! Files of Parquet and Arrow. A part is a row group of Parquet, or a record batch of Arrow: splits are made of them.

use crate::limits::TABLE_ROWS;
use crate::read::bytes::data_file::{self, FileFacts};
use crate::read::bytes::stop_flag::StopFlag;
use crate::read::error::ReadError;
use crate::read::tables::table_bytes::CountedFile;
use arrow_array::RecordBatch;
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::{DataType, FieldRef, Schema, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::ConvertedType;
use parquet::file::reader::Length;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A file of a table.
pub(crate) struct TableFile {
    path: String,
    kind: Kind,
    pub schema: SchemaRef,
    /// The parts in order.
    parts: Vec<Part>,
}

#[derive(Clone)]
enum Kind {
    Parquet(ArrowReaderMetadata),
    /// Record batches and a list of them.
    ArrowFile,
    /// Record batches one after the other: all are one part.
    ArrowStream,
}

/// A part of a file.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// The byte that decides to which split it belongs.
    at: u64,
    /// Its first row.
    row: u64,
}

/// The formats of tables in binary files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableFormat {
    Parquet,
    ArrowFile,
    ArrowStream,
}

/// First bytes of a file that tell its format.
const HEAD_BYTES: u64 = 16;
const PARQUET: &[u8] = b"PAR1";
/// A Parquet file whose description is encrypted.
const ENCRYPTED: &[u8] = b"PARE";
const ARROW: &[u8] = b"ARROW1\0\0";
/// An Arrow stream begins with the length of its schema behind this mark.
const STREAM: &[u8] = b"\xff\xff\xff\xff";

impl TableFormat {
    /// The format of a file, by its first bytes. `None`: it is no regular file, or has another format.
    pub(crate) fn of(path: &str) -> Option<TableFormat> {
        let mut head = Vec::new();
        // Opening a FIFO would wait. Whoever reads the file reports an error.
        FileFacts::of(path).ok().filter(|facts| facts.anywhere)?;
        data_file::first_bytes(path, HEAD_BYTES, &mut head).ok()?;
        let named = |extensions: &[&str]| {
            extensions.iter().any(|extension| path.to_ascii_lowercase().ends_with(extension))
        };
        let is_named = named(&[".parquet", ".pq", ".parq"]);
        if head.starts_with(ENCRYPTED) && is_named {
            return Some(TableFormat::Parquet);
        }
        if head.starts_with(PARQUET) && (head.get(4) == Some(&0x15) || is_named) {
            return Some(TableFormat::Parquet);
        }
        if head.starts_with(ARROW) {
            return Some(TableFormat::ArrowFile);
        }
        (head.starts_with(STREAM) && named(&[".arrow", ".arrows", ".ipc"]))
            .then_some(TableFormat::ArrowStream)
    }

    /// "parquet" or "arrow".
    pub(crate) fn name(self) -> &'static str {
        if self == TableFormat::Parquet { "parquet" } else { "arrow" }
    }
}

/// The record batches of a part, with the words for an error.
pub(crate) type BatchReads = Box<dyn Iterator<Item = Result<RecordBatch, String>> + Send>;

impl TableFile {
    /// Reads what a file says of itself.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub(crate) fn open(path: &str, format: TableFormat, stop: &StopFlag) -> Result<TableFile, ReadError> {
        let counted = || CountedFile::open(path, &Arc::default(), stop);
        let io = |source| ReadError::io(path, source);
        let damaged = |why| ReadError::Table { file: path.to_owned(), part: "its description".into(), why };
        let file = counted().map_err(io)?;
        let bytes = Length::len(&file);
        let opened = unpanicked(|| match format {
            TableFormat::Parquet => {
                let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).map_err(words)?;
                let (mut parts, mut at, mut row) = (Vec::new(), 0, 0);
                for group in metadata.metadata().row_groups() {
                    parts.push(Part { at: at.min(bytes - 1), row });
                    at += u64::try_from(group.compressed_size()).map_err(words)?;
                    row += u64::try_from(group.num_rows()).map_err(words)?;
                }
                Ok((metadata.schema().clone(), Kind::Parquet(metadata), parts))
            }
            TableFormat::ArrowFile => {
                let reader = FileReader::try_new_buffered(file, None).map_err(words)?;
                let count = reader.num_batches() as u64;
                // The rows before a record batch are not known.
                let part = |number: u64| Part { at: number * bytes / count, row: 0 };
                Ok((reader.schema(), Kind::ArrowFile, (0..count).map(part).collect()))
            }
            TableFormat::ArrowStream => {
                let reader = StreamReader::try_new_buffered(file, None).map_err(words)?;
                Ok((reader.schema(), Kind::ArrowStream, vec![Part { at: 0, row: 0 }]))
            }
        });
        let (schema, kind, parts) = opened.map_err(damaged)?;
        Ok(TableFile { path: path.to_owned(), kind, schema, parts })
    }

    /// The parts that belong to a split of these bytes. Every part belongs to one split.
    pub(crate) fn parts(&self, split: Range<u64>) -> Range<usize> {
        let before = |at: u64| self.parts.partition_point(|part| part.at < at);
        before(split.start)..before(split.end)
    }

    /// The first row of a part, if it is known.
    pub(crate) fn row(&self, part: usize) -> u64 {
        self.parts[part].row
    }

    /// The name of a part in messages.
    pub(crate) fn part_name(&self, part: usize) -> String {
        match self.kind {
            Kind::Parquet(_) => format!("row group {part}"),
            Kind::ArrowFile => format!("record batch {part}"),
            Kind::ArrowStream => "its record batches".into(),
        }
    }

    /// The record batches of a part, with these columns only. `read` counts the bytes.
    ///
    /// # Errors
    /// The file cannot be opened, or is damaged: in words.
    pub(crate) fn batches(
        &self,
        part: usize,
        columns: &[usize],
        read: &Arc<AtomicU64>,
        stop: &StopFlag,
    ) -> Result<BatchReads, String> {
        let file = CountedFile::open(&self.path, read, stop).map_err(words)?;
        let columns = columns.to_vec();
        let batches: BatchReads = unpanicked(|| match &self.kind {
            Kind::Parquet(metadata) => {
                let metadata = with_dictionaries(metadata, part);
                let mask = ProjectionMask::roots(metadata.parquet_schema(), columns);
                let group = metadata.metadata().row_group(part);
                let needed = (0..group.num_columns()).filter(|&leaf| mask.leaf_included(leaf));
                let chunks = needed.map(|leaf| group.column(leaf).byte_range());
                let file = file.with_chunks(chunks.map(|(start, bytes)| start..start.saturating_add(bytes)));
                let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata.clone());
                let builder = builder.with_row_groups(vec![part]).with_projection(mask);
                let reader = builder.with_batch_size(TABLE_ROWS).build().map_err(words)?;
                Ok(Box::new(reader.map(|batch| batch.map_err(words))) as BatchReads)
            }
            Kind::ArrowFile => {
                let mut reader = FileReader::try_new_buffered(file, Some(columns)).map_err(words)?;
                reader.set_index(part).map_err(words)?;
                Ok(Box::new(reader.take(1).map(|batch| batch.map_err(words))) as BatchReads)
            }
            Kind::ArrowStream => {
                let reader = StreamReader::try_new_buffered(file, Some(columns)).map_err(words)?;
                Ok(Box::new(reader.map(|batch| batch.map_err(words))) as BatchReads)
            }
        })?;
        Ok(Box::new(Unpanicked { batches, over: false }))
    }

    /// The error of a part that cannot be read. Names the column that cannot, if one alone cannot.
    #[cold]
    pub(crate) fn damaged(&self, part: usize, columns: &[usize], why: String, stop: &StopFlag) -> ReadError {
        if stop.is_set() {
            return ReadError::Stopped { file: self.path.clone() };
        }
        let is_bad = |column: &&usize| {
            let batches = self.batches(part, &[**column], &Arc::default(), stop);
            batches.is_ok_and(|mut batches| batches.any(|batch| batch.is_err()))
        };
        let name = |column: &usize| format!(", column {:?}", self.schema.field(*column).name());
        let column = columns.iter().find(is_bad).map_or(String::new(), name);
        let part = format!("{}{column}", self.part_name(part));
        ReadError::Table { file: self.path.clone(), part, why }
    }
}

/// The description of a Parquet file in which the columns of texts that a row group has as dictionaries are
/// dictionaries. So their texts are not copied for each row, and each has its key made once.
fn with_dictionaries(metadata: &ArrowReaderMetadata, part: usize) -> ArrowReaderMetadata {
    /// In a chunk a text that is no dictionary's takes these bytes for its length alone.
    const LENGTH_BYTES: i64 = 4;
    let (descriptions, schema) = (metadata.metadata(), metadata.schema());
    let mut fields: Vec<FieldRef> = schema.fields().iter().cloned().collect();
    for (leaf, chunk) in descriptions.row_group(part).columns().iter().enumerate() {
        let root = metadata.parquet_schema().get_column_root_idx(leaf);
        let is_text =
            matches!(fields[root].data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
                && chunk.column_descr().converted_type() == ConvertedType::UTF8;
        let is_packed = chunk.uncompressed_size() < LENGTH_BYTES.saturating_mul(chunk.num_values());
        if is_text && is_packed && chunk.dictionary_page_offset().is_some() {
            let packed = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
            fields[root] = Arc::new(fields[root].as_ref().clone().with_data_type(packed));
        }
    }
    let packed = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
    let options = ArrowReaderOptions::new().with_schema(packed);
    // The columns can be read as they are, too.
    ArrowReaderMetadata::try_new(descriptions.clone(), options).unwrap_or_else(|_| metadata.clone())
}

/// Record batches of a decoder that may panic on a damaged file.
struct Unpanicked {
    batches: BatchReads,
    over: bool,
}

impl Iterator for Unpanicked {
    type Item = Result<RecordBatch, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let next = unpanicked(|| Ok(self.batches.next())).unwrap_or_else(|why| Some(Err(why)));
        self.over = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Runs the code of a decoder. A panic in it becomes an error: its file is damaged in a way that it does not check.
fn unpanicked<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    // What a panic leaves behind is dropped.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
        Err(format!("the decoder stops: {text}"))
    })
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

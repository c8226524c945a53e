//! The data to read: files and their format, or a source of examples, and the share of the examples.

use crate::limits::{SCORE_BATCH, TEXT_BATCH};
use crate::read::block_source::BlockSource;
use crate::read::bytes::data_file::{FileFacts, shown_name};
use crate::read::bytes::stop_flag::StopFlag;
use crate::read::cache::place::Cache;
use crate::read::class_weights::ClassWeights;
use crate::read::error::ReadError;
use crate::read::fields::example_fields::FieldUse;
use crate::read::formats::columns::{ColumnChoice, Columns};
use crate::read::formats::criteo::Counts;
use crate::read::formats::labels::Labels;
use crate::read::formats::scale::Scale;
use crate::read::holdout::Holdout;
use crate::read::kept_negatives::KeptNegatives;
use crate::read::normalization::Normalize;
use std::sync::Arc;

/// The format of data files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// By the extension (.csv, .tsv, .jsonl, .ndjson, .svm, .libsvm, .svmlight, .ffm, .libffm, .vw, each also with .gz
    /// or .zst), else by the first line. Criteo's logs are recognised by the first line under any name, Parquet and
    /// Arrow by the first bytes.
    #[default]
    Auto,
    /// `label id:value ...`
    Libsvm,
    /// `label field:id:value ...`
    Libffm,
    /// A header and rows, with commas; or with tabs when the name ends in .tsv or the header has tabs and no comma.
    Csv,
    /// Criteo's click logs: `label`, 13 numbers and 26 hashed categories, with tabs and without a header.
    Criteo,
    /// Vowpal Wabbit text: `label [importance] ['tag]|namespace name:value ...`
    Vw,
    /// vw's JSON lines: an object a line, with the label in `_label` and a namespace for each object inside.
    VwJson,
    /// JSON lines: an object a line.
    Json,
    /// Files of Parquet.
    Parquet,
    /// Files of Arrow: record batches with or without a list of them.
    Arrow,
}

impl Format {
    /// Whether the format has columns: a model that was trained on one such format reads all of them.
    pub fn has_columns(self) -> bool {
        matches!(self, Format::Csv | Format::Json | Format::Parquet | Format::Arrow)
    }

    /// The format with this name, as in [`DetectedFile::format`].
    pub fn of_name(name: &str) -> Option<Format> {
        Some(match name {
            "libsvm" => Format::Libsvm,
            "libffm" => Format::Libffm,
            "csv" | "tsv" => Format::Csv,
            "json" => Format::Json,
            "criteo" => Format::Criteo,
            "vw" => Format::Vw,
            "vw-json" => Format::VwJson,
            "parquet" => Format::Parquet,
            "arrow" => Format::Arrow,
            _ => return None,
        })
    }

    /// Whether data of both formats has the same features.
    pub fn is_like(self, other: Format) -> bool {
        let is_vw = |format| matches!(format, Format::Vw | Format::VwJson);
        self == other || (self.has_columns() && other.has_columns()) || (is_vw(self) && is_vw(other))
    }
}

/// The form of CSV files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsvForm {
    /// What separates fields: an ASCII byte that is no quote and no line break. `None`: a comma, or a tab where
    /// [`Format::Csv`] says so.
    pub delimiter: Option<u8>,
    /// The names of the columns, if the files have no header. Empty names: 1, 2, 3, ...
    pub names: Option<Vec<String>>,
}

impl CsvForm {
    /// The delimiter that a text means: one character, or `tab`.
    ///
    /// # Errors
    /// The text cannot be a delimiter: in words.
    pub fn parse_delimiter(text: &str) -> Result<u8, String> {
        match text.as_bytes() {
            b"tab" | b"\\t" => Ok(b'\t'),
            &[byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r' | 0) => Ok(byte),
            _ => Err("it must be one ASCII character that is no quote and no line break, or `tab`".into()),
        }
    }
}

/// A share of the batches: worker `worker` of `workers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The worker's index, from 0.
    pub worker: u32,
    /// The number of workers.
    pub workers: u32,
}

impl Share {
    /// All of the data.
    pub const ALL: Share = Share { worker: 0, workers: 1 };
}

/// The format of a data file.
#[derive(Clone, Debug)]
pub struct DetectedFile {
    /// The file's name.
    pub file: String,
    /// "libsvm", "libffm", "csv", "tsv", "json", "criteo", "vw" or "vw-json".
    pub format: &'static str,
    /// The columns of a CSV file or of JSON lines.
    pub columns: Option<Columns>,
}

/// A text in memory.
#[derive(Debug)]
pub struct Text {
    /// What messages call it.
    pub name: String,
    /// Its lines.
    pub bytes: Vec<u8>,
}

/// Data and how to read it: files, one after the other, as if they were one file; a text; or a source of examples.
#[derive(Clone, Debug)]
pub struct Data {
    /// The files, as [`files`](crate::files()) lists them; `-` is standard input.
    pub files: Vec<String>,
    /// Their format.
    pub format: Format,
    /// The columns of CSV files.
    pub columns: ColumnChoice,
    /// The form of CSV files.
    pub csv: CsvForm,
    /// What is done with the fields of examples.
    pub fields: FieldUse,
    /// The scaling of the numbers of CSV files.
    pub scale: Scale,
    /// Whether the values of all features are brought to one size.
    pub normalize: Normalize,
    /// How often the examples of each class count.
    pub class_weights: Option<ClassWeights>,
    /// Which side of the data is read, if a share of it is held out.
    pub holdout: Option<Holdout>,
    /// Which share of the examples with the label 0 is learned.
    pub kept_negatives: Option<KeptNegatives>,
    /// The features that the numbers of Criteo's logs become.
    pub counts: Counts,
    /// The allowed labels. Criteo's labels are always clicks.
    pub labels: Labels,
    /// Whether each example gets an intercept.
    pub intercept: bool,
    /// How many bad lines (of all files) are skipped before one is an error.
    pub skip_bad_lines: u64,
    /// Whether examples may have no label (to score them): a CSV file no label column, a line of another format no
    /// label.
    pub unlabelled: bool,
    /// Where the examples are, if they are not in files.
    pub source: Option<Arc<dyn BlockSource>>,
    /// The text that is read as that of a file, if it is in memory.
    pub text: Option<Arc<Text>>,
    /// Keeps what is parsed for later passes over the files.
    pub cache: Option<Cache>,
    /// Ends waits: for bytes of standard input or a FIFO, and for the next split.
    pub stop: StopFlag,
}

impl Data {
    /// The file `path`: format by its name and first line, an intercept, labels needed, no bad lines skipped.
    pub fn new(path: &str) -> Data {
        Data::of(vec![path.to_owned()])
    }

    /// These files, with the other settings of [`new`](Self::new).
    pub fn of(files: Vec<String>) -> Data {
        Data {
            files,
            format: Format::Auto,
            columns: ColumnChoice::default(),
            csv: CsvForm::default(),
            fields: FieldUse::default(),
            scale: Scale::default(),
            normalize: Normalize::off(),
            class_weights: None,
            holdout: None,
            kept_negatives: None,
            counts: Counts::default(),
            labels: Labels::default(),
            intercept: true,
            skip_bad_lines: 0,
            unlabelled: false,
            source: None,
            text: None,
            cache: None,
            stop: StopFlag::default(),
        }
    }

    /// Examples that are not in files, with the other settings of [`new`](Self::new).
    pub fn rows(source: Arc<dyn BlockSource>) -> Data {
        Data { source: Some(source), ..Data::of(Vec::new()) }
    }

    /// A text in memory, with the other settings of [`new`](Self::new). Its format is found as that of a file.
    pub fn text(name: &str, bytes: Vec<u8>) -> Data {
        Data { text: Some(Arc::new(Text { name: name.to_owned(), bytes })), ..Data::of(Vec::new()) }
    }

    /// The name of all files together, for messages.
    pub(crate) fn name(&self) -> String {
        if let Some(source) = &self.source {
            return source.name();
        }
        if let Some(text) = &self.text {
            return text.name.clone();
        }
        match &self.files[..] {
            [] => "(no file)".into(),
            [one] => shown_name(one).into(),
            [first, ..] => format!("{first} and {} more", self.files.len() - 1),
        }
    }

    /// How many examples are scored at once.
    pub(crate) fn score_batch(&self) -> usize {
        if self.text.is_some() { TEXT_BATCH } else { SCORE_BATCH }
    }

    /// Checks that every file can be read again from its beginning.
    ///
    /// # Errors
    /// A file is standard input or a pipe, and `what` would read it twice.
    pub fn must_be_files(&self, what: &'static str) -> Result<(), ReadError> {
        let once = |file: &&String| *file == "-" || FileFacts::of(file).is_ok_and(|facts| !facts.again);
        match self.files.iter().find(once) {
            Some(file) => Err(ReadError::ReadOnce { file: shown_name(file).to_owned(), what }),
            None => Ok(()),
        }
    }
}

//! The errors of reading. Each names the file and line, shows the text, and says what was expected and what to do.

use crate::limits::{BAD_LINES_KEPT, LINE_BYTES_MAX, TEXT_SHOWN_BYTES};
use crate::read::bytes::data_file::{is_url, shown_name};
use std::fmt;
use std::io;

/// A line that is not an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// The file, as it was named.
    pub file: String,
    /// Its line, from 1.
    pub line: u64,
    /// The line's text, cut to about 80 characters.
    pub text: String,
    /// What was expected, and what was found.
    pub expected: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}; the line: {:?}", self.file, self.line, self.expected, self.text)
    }
}

/// Why a data file cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file is missing, unreadable, or failed while being read.
    #[error("{file}: cannot read: {source}; {}", path_remedy(.file))]
    Io {
        /// The file.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// An object is missing, or its server cannot be reached or refuses it.
    #[error("{url}: cannot read: {source}")]
    Object {
        /// Its URL.
        url: String,
        /// What happened and what to do.
        source: io::Error,
    },
    /// The name ends in .gz or .zst, and the bytes are not packed so.
    #[error("{file}: the name says {packing}, the first bytes do not; if it is plain text, rename it")]
    NotPacked {
        /// The file.
        file: String,
        /// "gzip" or "zstd".
        packing: &'static str,
    },
    /// The file is packed in another way, or is not text in UTF-8.
    #[error("{file}: is {what}; {remedy}")]
    NotText {
        /// The file.
        file: String,
        /// What the file is, by its first bytes.
        what: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// The lines end in CR alone.
    #[error(
        "{file}: its lines end in CR alone, as on an old Mac; convert it: tr '\\r' '\\n' < {file} > a new file, and name that"
    )]
    OldMac {
        /// The file.
        file: String,
    },
    /// The packed stream ends too early.
    #[error(
        "{file}: the {packing} stream is truncated at its byte {at}, after {bytes} unpacked bytes; fetch or pack the file again"
    )]
    Truncated {
        /// The file.
        file: String,
        /// "gzip" or "zstd".
        packing: &'static str,
        /// The position in the packed file.
        at: u64,
        /// The unpacked bytes before it.
        bytes: u64,
    },
    /// The packed stream is damaged.
    #[error(
        "{file}: the {packing} stream is damaged at or before its byte {at}, after {bytes} unpacked bytes ({why}); fetch or pack the file again"
    )]
    Damaged {
        /// The file.
        file: String,
        /// "gzip" or "zstd".
        packing: &'static str,
        /// The position in the packed file.
        at: u64,
        /// The unpacked bytes before it.
        bytes: u64,
        /// The unpacker's error.
        why: String,
    },
    /// The file's bytes do not arrive.
    #[error(
        "{file}: nothing could be read for {seconds:.0} s; see whether its disk, network mount or broker answers, then start \
         this worker again (other workers get its unfinished splits; --worker-timeout sets this limit)"
    )]
    Stalled {
        /// The file.
        file: String,
        /// The seconds without a byte.
        seconds: f64,
    },
    /// The stop flag was set during a wait for the bytes of a pipe.
    #[error("{file}: stopped while waiting for more of it")]
    Stopped {
        /// The file.
        file: String,
    },
    /// A name matches no data file.
    #[error("{named}: {what}; check the path, and quote a pattern so that the shell leaves it alone")]
    NoFiles {
        /// The pattern or the folder.
        named: String,
        /// What was found instead.
        what: String,
    },
    /// A file was named twice.
    #[error(
        "{file}: named twice (also as {before}), and its examples would count twice; name it once, or say --epochs for several passes"
    )]
    Twice {
        /// The file.
        file: String,
        /// The earlier name of the same file.
        before: String,
    },
    /// The files have different formats.
    #[error(
        "{file}: {what}, but {first} {first_what}; files that are read together need the same format and columns"
    )]
    Differs {
        /// The file.
        file: String,
        /// The format or columns of this file.
        what: String,
        /// The first file.
        first: String,
        /// The format or columns of the first file.
        first_what: String,
    },
    /// The test set has another format than the training data.
    #[error(
        "--test {test} is {test_format}, and the training data, {data}, is {format}: the features of one mean nothing \
         in the other; test on data of the same format"
    )]
    TestDiffers {
        /// A file of the test set.
        test: String,
        /// The format of the test set.
        test_format: &'static str,
        /// The training data.
        data: String,
        /// The format of the training data.
        format: &'static str,
    },
    /// The file has no examples.
    #[error(
        "{file}: no examples in it; a libsvm file has lines such as `1 3:0.5 17:1`, a CSV file a header and rows, a table rows"
    )]
    Empty {
        /// The file, or a name for all files.
        file: String,
    },
    /// No line of the data is an example.
    #[error("{file}: none of its {lines} lines is an example: {why}")]
    NoExample {
        /// The file, or a name for all files.
        file: String,
        /// How many lines there are.
        lines: u64,
        /// What is wrong with them and what to do.
        why: String,
    },
    /// The first line has no known format.
    #[error(
        "{file}: unknown format: the first line is {text:?}, none of `label id:value ...` (libsvm), `label | name:value ...` (vw), Criteo's 40 fields and a CSV header; name it with --format if it is one of them"
    )]
    UnknownFormat {
        /// The file.
        file: String,
        /// Its first line.
        text: String,
    },
    /// A line is longer than the limit.
    #[error(
        "{file}:{line}: the line is longer than {LINE_BYTES_MAX} bytes, the limit; is this a text file whose lines end in LF?"
    )]
    LineTooLong {
        /// The file.
        file: String,
        /// Its line, from 1.
        line: u64,
    },
    /// A quoted field of CSV is too long.
    #[error(
        "{file}:{line}: a field that begins with a quote does not end within {LINE_BYTES_MAX} bytes; give it its closing quote"
    )]
    QuoteTooLong {
        /// The file.
        file: String,
        /// The line where its record begins, from 1.
        line: u64,
    },
    /// A file of a table is damaged.
    #[error("{file}: {part} cannot be read: {why}; {}", table_remedy(.why))]
    Table {
        /// The file.
        file: String,
        /// The row group or the record batch, and the column if it is known.
        part: String,
        /// The decoder's error.
        why: String,
    },
    /// A file is not one of a table, as others are.
    #[error("{file}: is not a file of {expected}; such data must be files, of one format")]
    NotTable {
        /// The file.
        file: String,
        /// The format that was expected.
        expected: &'static str,
    },
    /// The file is one JSON array.
    #[error(
        "{file}: is a JSON array; JSON lines have an object a line: jq -c '.[]' {file} > a new file, and name that"
    )]
    JsonArray {
        /// The file.
        file: String,
    },
    /// A line is not an example.
    #[error("{0}; correct the line, or skip such lines with --skip-bad-lines N")]
    BadLine(BadLine),
    /// The labels of a file mix -1, 0 and 1.
    #[error(
        "{file}:{line}: labels are a mixture of -1, 0 and 1, first here, in {text:?}: of two classes one has the \
         label 1 and the other 0, or \
         else -1; take the lines of a third class out, or give them the label that they should have"
    )]
    MixedLabels {
        /// The file.
        file: String,
        /// The first line that does not fit those before it.
        line: u64,
        /// The line's text.
        text: String,
    },
    /// More bad lines than may be skipped.
    #[error(
        "{last}: bad line {count} of the {allowed} that --skip-bad-lines allows; the first were:\n{}",
        lines(first)
    )]
    TooManyBadLines {
        /// The line that exceeds the limit.
        last: BadLine,
        /// The number of bad lines, with that one.
        count: u64,
        /// The number of bad lines allowed.
        allowed: u64,
        /// The first few.
        first: Vec<BadLine>,
    },
    /// A requested column is not in the header.
    #[error("{file}: no column {column:?} (named by {flag}); the columns are: {}", few(columns))]
    NoColumn {
        /// The file.
        file: String,
        /// The requested name.
        column: String,
        /// The flag that named it.
        flag: &'static str,
        /// The columns of the header.
        columns: Vec<String>,
    },
    /// The header or the choice of columns cannot be used.
    #[error("{file}: {what}")]
    Columns {
        /// The file.
        file: String,
        /// What is wrong and what to do.
        what: String,
    },
    /// A row of a table is not an example.
    #[error("{data}: row {row} (the first is 0): {what}")]
    Row {
        /// What the table is called.
        data: String,
        /// The row, from 0.
        row: u64,
        /// What is wrong and what to do.
        what: String,
    },
    /// A source of the program cannot give its examples.
    #[error("{data}: {what}")]
    Source {
        /// What the source is called.
        data: String,
        /// What is wrong and what to do.
        what: String,
    },
    /// Standard input and pipes cannot be read twice.
    #[error("{file} can be read only once: {what} needs a file; save it to one and name that")]
    ReadOnce {
        /// The file.
        file: String,
        /// What would read it again.
        what: &'static str,
    },
    /// A file has changed.
    #[error(
        "{file}: has changed since the training began ({before} bytes then, {now} now): its lines would be learned twice or \
         never; train on files that do not change, and start again"
    )]
    Changed {
        /// The file.
        file: String,
        /// Its length then.
        before: u64,
        /// Its length now.
        now: u64,
    },
    /// The source of splits has failed.
    #[error("{0}")]
    Splits(String),
    /// The system cannot start a thread.
    #[error(
        "cannot start a thread that reads or parses the data: {0}; look at the limits on processes and memory, or lower --threads"
    )]
    Thread(io::Error),
    /// A number is out of its range.
    #[error("{what} is {value}; from 1 to {max} is allowed")]
    Limit {
        /// The name of the number.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The greatest allowed value.
        max: u64,
    },
}

impl ReadError {
    /// The error of data whose lines are all bad, or have no label. `file`: a name for all files.
    pub(crate) fn no_example(file: String, lines: u64, bad: &BadLines) -> ReadError {
        let unlabelled = "a training needs labels, and `gannet predict` scores lines without them";
        let why = match (&bad.first[..], lines.saturating_sub(bad.count)) {
            ([], _) => format!("no line has a label; {unlabelled}"),
            ([first, ..], 0) => format!(
                "all were skipped as bad lines, the first: {first}; see which --format the data has, and which column \
                 has the labels"
            ),
            ([first, ..], _) => format!(
                "{} were skipped as bad lines, the first: {first}; the others have no label: {unlabelled}",
                bad.count
            ),
        };
        // A quote may have made a record of several bad lines.
        ReadError::NoExample { file, lines: lines.max(bad.count), why }
    }

    /// The error of a file or an object that cannot be read.
    pub(crate) fn io(file: &str, source: io::Error) -> ReadError {
        match is_url(file) {
            true => ReadError::Object { url: file.to_owned(), source },
            false => ReadError::Io { file: shown_name(file).to_owned(), source },
        }
    }
}

/// What to do about a file that cannot be opened or read.
fn path_remedy(file: &str) -> &'static str {
    match file.contains("://") {
        true => "URLs that can be read begin with s3://, gs://, az://, http:// or https://, in small letters",
        false => "check the path and its permissions",
    }
}

/// What to do about a file of a table for which the decoder gives this reason.
fn table_remedy(why: &str) -> &'static str {
    let why = why.to_ascii_lowercase();
    if why.contains("encrypt") {
        return "decrypt it: gannet has no keys for it";
    }
    match why.contains("disabled feature") {
        true => "write it with zstd, snappy, gzip, lz4 or no compression",
        false => "fetch or write the file again",
    }
}

/// The first few of these names, each cut.
pub(crate) fn few(columns: &[String]) -> String {
    const LETTERS: usize = 400;
    let mut text = String::new();
    for (i, name) in columns.iter().enumerate() {
        if text.len() > LETTERS {
            return format!("{text} and {} more", columns.len() - i);
        }
        text.push_str(if i == 0 { "" } else { ", " });
        text.push_str(&shown(name.as_bytes()));
    }
    text
}

fn lines(bad: &[BadLine]) -> String {
    bad.iter().map(|b| format!("  {b}")).collect::<Vec<_>>().join("\n")
}

/// A line for a message: cut, without its end, with unreadable bytes replaced.
pub(crate) fn shown(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut text = String::from_utf8_lossy(&line[..line.len().min(TEXT_SHOWN_BYTES)]).into_owned();
    if line.len() > TEXT_SHOWN_BYTES {
        text.push_str("...");
    }
    text
}

/// The bad lines of a reading: their number, and the first few.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadLines {
    /// How many there were.
    pub count: u64,
    /// The first few.
    pub first: Vec<BadLine>,
}

impl BadLines {
    /// Adds those of another reading.
    pub(crate) fn add_all(&mut self, other: &BadLines) {
        self.count += other.count;
        let free = BAD_LINES_KEPT.saturating_sub(self.first.len());
        self.first.extend(other.first.iter().take(free).cloned());
    }

    /// Adds one, which a quote may have made a record of several lines.
    ///
    /// # Errors
    /// They are more than `allowed`.
    pub(crate) fn add(&mut self, bad: BadLine, lines: u64, allowed: u64) -> Result<(), ReadError> {
        self.count += lines;
        if allowed == 0 {
            return Err(ReadError::BadLine(bad));
        }
        if self.count > allowed {
            let first = self.first.clone();
            return Err(ReadError::TooManyBadLines { last: bad, count: self.count, allowed, first });
        }
        if self.first.len() < BAD_LINES_KEPT {
            self.first.push(bad);
        }
        Ok(())
    }
}

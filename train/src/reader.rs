//! Examples in batches. A batch is `batch` consecutive data lines of the file (empty lines and comments are none), so
//! that batch i is the same for every worker whatever its share; a bad line that is skipped leaves its batch shorter.
//! Worker i of n takes batches i mod n and scans past the others without parsing them.

use crate::block::Block;
use crate::columns::{ColumnChoice, Columns};
use crate::csv::{self, Records};
use crate::error::{BadLine, BadLines, ReadError, shown};
use crate::libsvm::{self, Lines};
use crate::limits::BATCH_MAX;
use crate::source::{Position, Source};

/// The format of a data file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// By the extension (.csv, .tsv, each also with .gz), else by the first line.
    #[default]
    Auto,
    /// `label id:value ...`
    Libsvm,
    /// A header and rows, by commas, or by tabs when the name says .tsv or the header has tabs and no comma.
    Csv,
}

/// A share of the batches: worker `worker` of `workers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Which, from 0.
    pub worker: u32,
    /// Of how many.
    pub workers: u32,
}

impl Share {
    /// All of it.
    pub const ALL: Share = Share { worker: 0, workers: 1 };
}

/// A data file and how it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// The path; `-` is standard input.
    pub path: String,
    /// Its format.
    pub format: Format,
    /// Which columns of a CSV file.
    pub columns: ColumnChoice,
    /// Whether each example gets an intercept.
    pub intercept: bool,
    /// How many bad lines are skipped before one is an error.
    pub skip_bad_lines: u64,
    /// Whether examples may lack labels (to score them): a CSV file its label column, a libsvm line its label.
    pub unlabelled: bool,
}

impl Data {
    /// The file `path`: format by its name and first line, an intercept, labels needed, no bad lines skipped.
    pub fn new(path: &str) -> Data {
        Data {
            path: path.to_owned(),
            format: Format::Auto,
            columns: ColumnChoice::default(),
            intercept: true,
            skip_bad_lines: 0,
            unlabelled: false,
        }
    }
}

enum Kind {
    Libsvm(Lines),
    Csv(Records, Columns),
}

/// One pass over a data file.
pub struct Reader {
    source: Source,
    kind: Kind,
    batch: usize,
    share: Share,
    next_batch: u64,
    skip_bad_lines: u64,
    bad: BadLines,
    data_lines: u64,
}

impl Reader {
    /// Opens the file, finds its format and, in CSV, its columns.
    ///
    /// # Errors
    /// The file cannot be read or is empty, its format is unknown, columns are not there, or `batch` or `share` is out
    /// of range.
    pub fn open(data: &Data, batch: usize, share: Share) -> Result<Reader, ReadError> {
        if batch == 0 || batch > BATCH_MAX {
            return Err(ReadError::Limit { what: "the batch", value: batch as u64, max: BATCH_MAX as u64 });
        }
        if share.worker >= share.workers {
            let (value, max) = (u64::from(share.worker) + 1, u64::from(share.workers));
            return Err(ReadError::Limit { what: "the worker's number, from 1,", value, max });
        }
        let mut source = Source::open(&data.path)?;
        let kind = open_kind(&mut source, data)?;
        Ok(Reader {
            source,
            kind,
            batch,
            share,
            next_batch: 0,
            skip_bad_lines: data.skip_bad_lines,
            bad: BadLines::default(),
            data_lines: 0,
        })
    }

    /// Fills `block` with the next batch of this share; false, and an empty block, at the end of the file.
    ///
    /// # Errors
    /// A bad line beyond those that may be skipped, or a file that fails; the reader is then at its end.
    pub fn next(&mut self, block: &mut Block) -> Result<bool, ReadError> {
        block.clear();
        loop {
            let mine = self.next_batch % u64::from(self.share.workers) == u64::from(self.share.worker);
            let before = self.data_lines;
            if mine {
                self.read_batch(block)?;
            } else {
                self.pass_batch()?;
            }
            let lines = self.data_lines - before;
            self.next_batch += 1;
            if lines == 0 {
                if self.data_lines == 0 {
                    return Err(ReadError::Empty { file: self.source.file().to_owned() });
                }
                return Ok(false);
            }
            // A batch of which every line was bad is not handed out.
            if mine && !block.is_empty() {
                return Ok(true);
            }
        }
    }

    /// The number, from 0 and counted over all shares, of the batch that [`next`](Self::next) gave last.
    pub fn batch_number(&self) -> u64 {
        self.next_batch.saturating_sub(1)
    }

    /// Where it stands in the file.
    pub fn position(&self) -> &Position {
        self.source.position()
    }

    /// The bad lines so far.
    pub fn bad_lines(&self) -> &BadLines {
        &self.bad
    }

    /// The columns, when the file is CSV.
    pub fn columns(&self) -> Option<&Columns> {
        match &self.kind {
            Kind::Libsvm(_) => None,
            Kind::Csv(_, columns) => Some(columns),
        }
    }

    /// "libsvm", "csv" or "tsv".
    pub fn format(&self) -> &'static str {
        match &self.kind {
            Kind::Libsvm(_) => "libsvm",
            Kind::Csv(records, _) if records.delimiter == b'\t' => "tsv",
            Kind::Csv(..) => "csv",
        }
    }

    fn read_batch(&mut self, block: &mut Block) -> Result<(), ReadError> {
        let mut left = self.batch;
        while left > 0 && !block.full() && self.source.fill()? {
            let (buf, mut p, end) = self.source.lines();
            let mut lines = 0;
            let mut fault = None;
            while p < end && left > 0 && !block.full() {
                lines += 1;
                let parsed = match &mut self.kind {
                    Kind::Libsvm(options) => {
                        let text = libsvm::text_at(buf, p);
                        if libsvm::nothing(buf, text) {
                            p = libsvm::next_line(buf, text);
                            continue;
                        }
                        libsvm::example(buf, text, *options, block).map_err(|f| {
                            format!("{}, at character {}", f.expected, f.at.saturating_sub(p) + 1)
                        })
                    }
                    Kind::Csv(records, _) => {
                        if csv::nothing(buf, p) {
                            p = libsvm::next_line(buf, p);
                            continue;
                        }
                        csv::record(buf, p, records, block).map_err(|f| f.expected)
                    }
                };
                self.data_lines += 1;
                left -= 1;
                match parsed {
                    Ok(next) => p = next,
                    Err(expected) => {
                        let next = libsvm::next_line(buf, p);
                        fault = Some((shown(&buf[p..next]), expected));
                        p = next;
                        break;
                    }
                }
            }
            self.source.take(p, lines);
            if let Some((text, expected)) = fault {
                block.undo();
                let (file, line) = (self.source.file().to_owned(), self.source.line);
                self.bad.add(BadLine { file, line, text, expected }, self.skip_bad_lines)?;
            }
        }
        Ok(())
    }

    /// Goes past another worker's batch: lines are counted, not parsed.
    fn pass_batch(&mut self) -> Result<(), ReadError> {
        let mut left = self.batch;
        while left > 0 && self.source.fill()? {
            let (buf, mut p, end) = self.source.lines();
            let mut lines = 0;
            while p < end && left > 0 {
                let empty = match &self.kind {
                    Kind::Libsvm(_) => libsvm::nothing(buf, libsvm::text_at(buf, p)),
                    Kind::Csv(..) => csv::nothing(buf, p),
                };
                p = libsvm::next_line(buf, p);
                lines += 1;
                if !empty {
                    left -= 1;
                    self.data_lines += 1;
                }
            }
            self.source.take(p, lines);
        }
        Ok(())
    }
}

/// Takes the header, in CSV; looks at the first line without taking it, in libsvm.
fn open_kind(source: &mut Source, data: &Data) -> Result<Kind, ReadError> {
    let empty = |source: &Source| ReadError::Empty { file: source.file().to_owned() };
    let lines = Lines { intercept: data.intercept, unlabelled: data.unlabelled };
    // Empty lines before the first are gone past.
    loop {
        if !source.fill()? {
            return Err(empty(source));
        }
        let (buf, p, _) = source.lines();
        if !csv::nothing(buf, p) {
            break;
        }
        let next = libsvm::next_line(buf, p);
        source.take(next, 1);
    }
    let (buf, p, _) = source.lines();
    let next = libsvm::next_line(buf, p);
    let first = &buf[p..next];
    let name = data.path.strip_suffix(".gz").unwrap_or(&data.path);
    let extension = name.rsplit_once('.').map_or("", |(_, e)| e).to_ascii_lowercase();
    let count = |b: u8| first.iter().filter(|&&x| x == b).count();
    let (tabs, commas) = (count(b'\t'), count(b','));
    let delimiter =
        if extension == "tsv" || (extension != "csv" && tabs > 0 && commas == 0) { b'\t' } else { b',' };
    let text = libsvm::text_at(buf, p);
    let like_libsvm = first[text - p..].starts_with(b"#")
        || libsvm::example(buf, text, lines, &mut Block::default()).is_ok();
    let csv = match data.format {
        Format::Csv => true,
        Format::Libsvm => false,
        Format::Auto if matches!(extension.as_str(), "csv" | "tsv") => true,
        Format::Auto if matches!(extension.as_str(), "libsvm" | "svm" | "svmlight") || like_libsvm => false,
        // A line that begins like an example is one that went wrong: its own message is better.
        Format::Auto if first[0].is_ascii_digit() && count(b':') > commas + tabs => false,
        Format::Auto if commas + tabs > 0 => true,
        Format::Auto => {
            return Err(ReadError::UnknownFormat { file: source.file().to_owned(), text: shown(first) });
        }
    };
    if !csv {
        return Ok(Kind::Libsvm(lines));
    }
    let file = source.file().to_owned();
    let header = csv::header(buf, p, delimiter)
        .map_err(|f| ReadError::Columns { file: file.clone(), what: f.expected })?;
    source.take(next, 1);
    let (columns, roles) = data.columns.resolve(&file, &header, !data.unlabelled)?;
    let records = Records { delimiter, intercept: data.intercept, header, roles, scratch: Vec::new() };
    Ok(Kind::Csv(records, columns))
}

//! The formats of data files: how to recognise each, and the type that reads the lines of any of them.

use crate::limits::PAD_BYTES;
use crate::read::block::Block;
use crate::read::bytes::source::Source;
use crate::read::data::{Data, Format};
use crate::read::error::{ReadError, shown};
use crate::read::formats::columns::Columns;
use crate::read::formats::criteo::{self, Criteo};
use crate::read::formats::csv::{self, Records};
use crate::read::formats::labels::Labels;
use crate::read::formats::libsvm::{self, Lines};
use crate::read::formats::repeated_keys::RepeatedKeys;
use crate::read::formats::scale::{ScaleKind, Scaling};
use crate::read::formats::vw::{self, Vw};

/// Reads the lines of an open file.
#[derive(Clone)]
pub(crate) enum LineReader {
    Libsvm(Lines),
    Csv(Records, Columns),
    Criteo(Criteo),
    Vw(Vw),
}

impl LineReader {
    /// Chooses the format by the setting, the name and the first line. For CSV it consumes the header. `None`: the
    /// file has no line.
    ///
    /// # Errors
    /// The file cannot be read, its format is unknown, or columns are missing.
    pub fn of(source: &mut Source, data: &Data) -> Result<Option<LineReader>, ReadError> {
        // Skips empty lines before the first.
        loop {
            if !source.fill()? {
                return Ok(None);
            }
            let (buf, p, _) = source.lines();
            if !csv::nothing(buf, p) {
                break;
            }
            let next = libsvm::next_line(buf, p);
            source.take(next, 1);
        }
        let (intercept, unlabelled, labels) = (data.intercept, data.unlabelled, data.labels);
        let lines = Lines { intercept, unlabelled, labels };
        let first = FirstLine::of(source);
        first.ends_in_lf(source)?;
        let format = match data.format {
            Format::Auto => first.format(source, lines)?,
            chosen => chosen,
        };
        match format {
            Format::Libsvm | Format::Auto => Ok(Some(LineReader::Libsvm(lines))),
            Format::Criteo => Ok(Some(LineReader::Criteo(Criteo::new(intercept, unlabelled, data.counts)))),
            Format::Vw => Ok(Some(LineReader::Vw(Vw::new(intercept, unlabelled, labels)))),
            Format::Csv => csv_kind(source, data, first.delimiter()).map(Some),
        }
    }

    /// "libsvm", "csv", "tsv", "criteo" or "vw".
    pub fn name(&self) -> &'static str {
        match self {
            LineReader::Libsvm(_) => "libsvm",
            LineReader::Csv(records, _) if records.delimiter == b'\t' => "tsv",
            LineReader::Csv(..) => "csv",
            LineReader::Criteo(_) => "criteo",
            LineReader::Vw(_) => "vw",
        }
    }

    /// The columns of a CSV file.
    pub fn columns(&self) -> Option<&Columns> {
        match self {
            LineReader::Csv(_, columns) => Some(columns),
            _ => None,
        }
    }

    /// Checks that `other`, whose file is read after this one, has the same format and columns.
    ///
    /// # Errors
    /// They differ.
    pub fn alike(&self, file: &str, other: &LineReader, other_file: &str) -> Result<(), ReadError> {
        let differs = |what: String, first_what: String| {
            let (file, first) = (other_file.to_owned(), file.to_owned());
            Err(ReadError::Differs { file, what, first, first_what })
        };
        if self.name() != other.name() {
            return differs(format!("is {}", other.name()), format!("is {}", self.name()));
        }
        match (self.columns(), other.columns()) {
            (Some(ours), Some(theirs)) if !ours.alike(theirs) => {
                differs(format!("has {theirs}"), format!("has {ours}"))
            }
            _ => Ok(()),
        }
    }

    /// Whether the line at `p` is not an example: it is empty, or a comment.
    #[inline(always)]
    pub fn nothing(&self, buf: &[u8], p: usize) -> bool {
        match self {
            LineReader::Libsvm(_) => libsvm::nothing(buf, libsvm::text_at(buf, p)),
            LineReader::Csv(..) | LineReader::Criteo(_) => csv::nothing(buf, p),
            LineReader::Vw(_) => buf.get(libsvm::text_at(buf, p)).is_none_or(|&b| b == b'\n'),
        }
    }

    /// Appends the example of the line at `p`, which must not be [empty](Self::nothing). Returns the start of the
    /// next line.
    ///
    /// # Errors
    /// What was expected. The block may then have features of the line: [`Block::undo`] removes them.
    #[inline(always)]
    pub fn example(&mut self, buf: &[u8], p: usize, block: &mut Block) -> Result<usize, String> {
        match self {
            LineReader::Libsvm(lines) => {
                let labels = lines.labels;
                let read = libsvm::example(buf, libsvm::text_at(buf, p), *lines, block);
                read.map_err(|f| f.from(buf, p, labels))
            }
            LineReader::Csv(records, _) => csv::record(buf, p, records, block).map_err(|f| f.expected),
            LineReader::Criteo(criteo) => criteo.example(buf, p, block),
            LineReader::Vw(vw) => {
                let labels = vw.labels;
                vw.example(buf, libsvm::text_at(buf, p), block).map_err(|f| f.from(buf, p, labels))
            }
        }
    }
}

/// What the name and the first line of a file show.
struct FirstLine {
    extension: String,
    /// The position of the line in the buffer.
    at: usize,
    next: usize,
    tabs: usize,
    commas: usize,
    colons: usize,
}

impl FirstLine {
    fn of(source: &Source) -> FirstLine {
        let (buf, at, _) = source.lines();
        let next = libsvm::next_line(buf, at);
        let name = source.file();
        let name = name.strip_suffix(".gz").or(name.strip_suffix(".zst")).unwrap_or(name);
        let extension = name.rsplit_once('.').map_or("", |(_, e)| e).to_ascii_lowercase();
        let count = |b: u8| buf[at..next].iter().filter(|&&x| x == b).count();
        FirstLine { extension, at, next, tabs: count(b'\t'), commas: count(b','), colons: count(b':') }
    }

    /// Checks that the first line is not a file of old Mac lines. In a file without any LF, a CR outside of quotes ends
    /// an old Mac line. In another file it makes a bad line, whose own error says more.
    fn ends_in_lf(&self, source: &Source) -> Result<(), ReadError> {
        let (buf, _, end) = source.lines();
        if self.next < end || !source.lacks_last_newline() {
            return Ok(());
        }
        let line = &buf[self.at..self.next];
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let mut quoted = false;
        let bare = line.iter().any(|&byte| {
            quoted ^= byte == b'"';
            byte == b'\r' && !quoted
        });
        if bare { Err(ReadError::OldMac { file: source.file().to_owned() }) } else { Ok(()) }
    }

    fn delimiter(&self) -> u8 {
        let tsv = self.extension == "tsv" || (self.extension != "csv" && self.tabs > 0 && self.commas == 0);
        if tsv { b'\t' } else { b',' }
    }

    fn format(&self, source: &Source, lines: Lines) -> Result<Format, ReadError> {
        let (buf, ..) = source.lines();
        let first = &buf[self.at..self.next];
        if criteo::like(first) {
            return Ok(Format::Criteo);
        }
        match self.extension.as_str() {
            "csv" | "tsv" => return Ok(Format::Csv),
            "libsvm" | "svm" | "svmlight" => return Ok(Format::Libsvm),
            "vw" => return Ok(Format::Vw),
            _ => {}
        }
        let text = libsvm::text_at(buf, self.at);
        if buf.get(text) == Some(&b'#') || like_libsvm(&buf[text..self.next], lines) {
            return Ok(Format::Libsvm);
        }
        // A line with a bar after a space is a wrong line of this format, if it is not an example.
        let barred = first.windows(2).any(|w| w == b" |") && self.commas + self.tabs == 0;
        if vw::like(buf, text) || barred {
            return Ok(Format::Vw);
        }
        let columns = self.commas + self.tabs;
        // A line that begins like an example is a wrong line of this format. Its own error says more.
        if first[0].is_ascii_digit() && self.colons > columns {
            return Ok(Format::Libsvm);
        }
        if columns > 0 {
            return Ok(Format::Csv);
        }
        Err(ReadError::UnknownFormat { file: source.file().to_owned(), text: shown(first) })
    }
}

/// Whether a line, without blanks before it, is an example in libsvm.
fn like_libsvm(line: &[u8], lines: Lines) -> bool {
    let end = line.iter().position(|b| b.is_ascii_whitespace()).unwrap_or(line.len());
    let named = matches!(lines.labels, Labels::Two(_));
    // With two named labels any word may be a label. The line may be of another format, so its label must not be
    // remembered.
    let (label, rest) = if named { (&b"1"[..], &line[end..]) } else { (&b""[..], line) };
    if named && (line[..end].contains(&b',') || line[..end].contains(&b':')) {
        return false;
    }
    let lines = if named { Lines { labels: Labels::Signs, ..lines } } else { lines };
    let line = [label, rest, &[b'\n'; PAD_BYTES]].concat();
    libsvm::example(&line, 0, lines, &mut Block::default()).is_ok()
}

/// Reads the header of a CSV file.
fn csv_kind(source: &mut Source, data: &Data, delimiter: u8) -> Result<LineReader, ReadError> {
    let (buf, p, _) = source.lines();
    let file = source.file().to_owned();
    let wrong = |what| ReadError::Columns { file: file.clone(), what };
    let header = csv::header(buf, p, delimiter).map_err(|f| wrong(f.expected))?;
    let next = libsvm::next_line(buf, p);
    let (mut columns, roles) = data.columns.resolve(&file, &header, !data.unlabelled)?;
    columns.scale.clone_from(&data.scale);
    // A label in place of a column's name: the file has no header, and the first example would be lost.
    let label = columns.label.as_deref().filter(|_| data.columns.label.is_none());
    if let Some(label) = label.filter(|name| data.labels.are_like(name)) {
        return Err(wrong(format!(
            "the first line has a label, {label:?}, where a column's name should be: a CSV file begins with a header; add one (if it is one, say --label {label})"
        )));
    }
    source.take(next, 1);
    let scaling = match data.scale.kind {
        ScaleKind::None => Vec::new(),
        _ => scaling(data, &header, &columns).map_err(wrong)?,
    };
    let records = Records {
        delimiter,
        intercept: data.intercept,
        labels: data.labels,
        label_as_first: data.columns.label.is_none() && columns.label.as_deref() != Some("label"),
        header,
        roles,
        scaling,
        scratch: Vec::new(),
        repeats: RepeatedKeys::default(),
    };
    Ok(LineReader::Csv(records, columns))
}

/// The scaling of each column of the header.
fn scaling(data: &Data, header: &[String], columns: &Columns) -> Result<Vec<Scaling>, String> {
    let unknown = |name: &str| {
        format!("column {name:?} holds numbers, and --scale has not seen it in the training data")
    };
    let of = |name: &String| match columns.numeric.contains(name) {
        true => data.scale.of(name).ok_or_else(|| unknown(name)),
        false => Ok(Scaling::Kept),
    };
    header.iter().map(of).collect()
}

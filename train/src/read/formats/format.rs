//! The formats of data files: how to recognise each, and the type that reads the lines of any of them.

use crate::limits::PAD_BYTES;
use crate::read::block::Block;
use crate::read::bytes::source::Source;
use crate::read::data::{CsvForm, Data, Format};
use crate::read::error::{ReadError, shown};
use crate::read::fields::example_fields::ExampleFields;
use crate::read::fields::field::FieldId;
use crate::read::formats::columns::{ColumnChoice, Columns, names_of_features};
use crate::read::formats::criteo::{self, Criteo};
use crate::read::formats::csv::{self, Records};
use crate::read::formats::csv_records;
use crate::read::formats::json::Json;
use crate::read::formats::labels::Labels;
use crate::read::formats::libffm::{self, Libffm};
use crate::read::formats::libsvm::{self, Lines};
use crate::read::formats::repeated_keys::RepeatedKeys;
use crate::read::formats::vw::{self, Vw};
use crate::read::formats::vw_json::{self, VwJson};

/// Reads the lines of an open file.
#[derive(Clone)]
pub(crate) enum LineReader {
    Libsvm(Lines),
    Libffm(Libffm),
    Csv(Box<Records>, Columns),
    Criteo(Criteo),
    Vw(Vw),
    VwJson(Box<VwJson>),
    Json(Box<Json>, Columns),
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
        let fields = ExampleFields::new(&data.fields);
        let lines = Lines { intercept, unlabelled, labels };
        let first = FirstLine::of(source);
        first.ends_in_lf(source)?;
        let format = match data.format {
            Format::Auto if data.csv != CsvForm::default() => Format::Csv,
            Format::Auto => match first.format(source, lines)? {
                // Flags name columns, which vw has not.
                Format::VwJson if data.columns != ColumnChoice::default() => Format::Json,
                found => found,
            },
            chosen => chosen,
        };
        match format {
            Format::Libsvm | Format::Auto if fields.is_used() => Err(ReadError::Columns {
                file: source.file().to_owned(),
                what: "libsvm has no fields, which crosses (--cross) need, and batches that say fields; use libffm, vw or a \
                       format with columns".into(),
            }),
            Format::Libsvm | Format::Auto => Ok(Some(LineReader::Libsvm(lines))),
            Format::Libffm => Ok(Some(LineReader::Libffm(Libffm::new(lines, fields)))),
            Format::Criteo => {
                data.fields.check(source.file(), || criteo::columns().collect())?;
                Ok(Some(LineReader::Criteo(Criteo::new(intercept, unlabelled, data.counts, fields))))
            }
            Format::Vw => Ok(Some(LineReader::Vw(Vw::new(intercept, unlabelled, labels, fields)))),
            Format::VwJson => Ok(Some(LineReader::VwJson(Box::new(VwJson::new(lines, fields))))),
            // Files of tables have another reader.
            Format::Parquet | Format::Arrow => {
                Err(ReadError::NotTable { file: source.file().to_owned(), expected: "Parquet or Arrow" })
            }
            Format::Json => {
                let json = Json::new(&data.columns, &data.scale, lines, fields);
                let (json, mut columns) =
                    json.map_err(|what| ReadError::Columns { file: source.file().to_owned(), what })?;
                columns.scale.clone_from(&data.scale);
                match columns.others {
                    true => data.fields.check_others(source.file(), &columns)?,
                    false => data.fields.check(source.file(), || columns.features())?,
                }
                Ok(Some(LineReader::Json(Box::new(json), columns)))
            }
            Format::Csv => csv_kind(source, data, data.csv.delimiter.unwrap_or(first.delimiter())).map(Some),
        }
    }

    /// "libsvm", "libffm", "csv", "tsv", "json", "criteo", "vw" or "vw-json".
    pub fn name(&self) -> &'static str {
        match self {
            LineReader::Libsvm(_) => "libsvm",
            LineReader::Libffm(_) => "libffm",
            LineReader::Csv(records, _) if records.delimiter == b'\t' => "tsv",
            LineReader::Csv(..) => "csv",
            LineReader::Criteo(_) => "criteo",
            LineReader::Vw(_) => "vw",
            LineReader::VwJson(_) => "vw-json",
            LineReader::Json(..) => "json",
        }
    }

    /// The columns of a CSV file or of JSON lines.
    pub fn columns(&self) -> Option<&Columns> {
        match self {
            LineReader::Csv(_, columns) | LineReader::Json(_, columns) => Some(columns),
            _ => None,
        }
    }

    /// Prepares lines from the middle of a file. The source is at the start of a record.
    ///
    /// # Errors
    /// The first bytes cannot be read.
    pub fn go_on(&self, source: &mut Source) -> Result<(), ReadError> {
        match self.delimiter() {
            Some(delimiter) => source.is_csv(delimiter).map(|_| ()),
            None => Ok(()),
        }
    }

    /// The delimiter of CSV.
    pub fn delimiter(&self) -> Option<u8> {
        match self {
            LineReader::Csv(records, _) => Some(records.delimiter),
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
            LineReader::Libsvm(_) | LineReader::Libffm(_) => libsvm::nothing(buf, libsvm::text_at(buf, p)),
            LineReader::Csv(..) | LineReader::Criteo(_) => csv::nothing(buf, p),
            LineReader::Vw(_) | LineReader::VwJson(_) | LineReader::Json(..) => {
                buf.get(libsvm::text_at(buf, p)).is_none_or(|&b| b == b'\n')
            }
        }
    }

    /// The end of the example at `p`, and how many lines it has. `end` is the end of whole lines.
    #[inline(always)]
    pub fn next(&self, buf: &[u8], p: usize, end: usize) -> (usize, u64) {
        match self {
            LineReader::Csv(records, _) => csv_records::next_record(buf, p, end, records.delimiter),
            _ => (libsvm::next_line(buf, p), 1),
        }
    }

    /// Line breaks inside examples so far.
    #[inline(always)]
    pub fn breaks(&self) -> u64 {
        match self {
            LineReader::Csv(records, _) => records.breaks,
            _ => 0,
        }
    }

    /// Appends the example of the line at `p`, which must not be [empty](Self::nothing). Returns the start of the
    /// next line. `end` is the end of whole lines.
    ///
    /// # Errors
    /// What was expected. The block may then have features of the line: [`Block::undo`] removes them.
    #[inline(always)]
    pub fn example(&mut self, buf: &[u8], p: usize, end: usize, block: &mut Block) -> Result<usize, String> {
        match self {
            LineReader::Libsvm(lines) => {
                let labels = lines.labels;
                let read = libsvm::example(buf, libsvm::text_at(buf, p), *lines, block);
                read.map_err(|f| f.from(buf, p, labels))
            }
            LineReader::Libffm(ffm) => {
                let labels = ffm.lines.labels;
                ffm.example(buf, libsvm::text_at(buf, p), block).map_err(|f| f.from(buf, p, labels))
            }
            LineReader::Csv(records, _) => {
                csv::record(&buf[..end], p, records, block).map_err(|f| f.expected)
            }
            LineReader::Criteo(criteo) => criteo.example(buf, p, block),
            LineReader::Vw(vw) => {
                let labels = vw.labels;
                vw.example(buf, libsvm::text_at(buf, p), block).map_err(|f| f.from(buf, p, labels))
            }
            LineReader::VwJson(json) => {
                let next = libsvm::next_line(buf, p);
                json.example(&buf[p..next], block).map(|()| next)
            }
            LineReader::Json(json, _) => {
                let next = libsvm::next_line(buf, p);
                json.example(&buf[p..next], block).map(|()| next)
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
            "ffm" | "libffm" => return Ok(Format::Libffm),
            _ => {}
        }
        let text = libsvm::text_at(buf, self.at);
        match buf.get(text) {
            Some(b'{') if vw_json::is_like(first) => return Ok(Format::VwJson),
            Some(b'{') => return Ok(Format::Json),
            _ if matches!(self.extension.as_str(), "jsonl" | "ndjson") => return Ok(Format::Json),
            Some(b'[') => return Err(ReadError::JsonArray { file: source.file().to_owned() }),
            _ => {}
        }
        if libffm::is_like(&buf[text..self.next]) {
            return Ok(Format::Libffm);
        }
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
    source.is_csv(delimiter)?;
    let (buf, p, end) = source.lines();
    let file = source.file().to_owned();
    let wrong = |what| ReadError::Columns { file: file.clone(), what };
    let header = csv::header(&buf[..end], p, delimiter).map_err(|f| wrong(f.expected))?;
    let header = named(header, data.csv.names.as_deref()).map_err(wrong)?;
    let has_header = data.csv.names.is_none();
    let (next, lines) = csv_records::next_record(buf, p, end, delimiter);
    let (mut columns, roles) = data.columns.resolve(&file, &header, !data.unlabelled, &|_| false)?;
    columns.scale.clone_from(&data.scale);
    // A label in place of a column's name: the file has no header, and the first example would be lost.
    let label = columns.label.as_deref().filter(|_| data.columns.label.is_none() && has_header);
    if let Some(label) = label.filter(|name| data.labels.are_like(name)) {
        return Err(wrong(format!(
            "the first line has a label, {label:?}, where a column's name should be: a CSV file begins with a header; if this one has none, say --no-header (if it is a header, say --label {label})"
        )));
    }
    if has_header {
        source.take(next, lines);
    }
    let scaling = columns.scaling(&header).map_err(wrong)?;
    data.fields.check(&file, || columns.features())?;
    let features = names_of_features(&header, &roles).map(|name| FieldId::of(name.as_bytes())).collect();
    let records = Records {
        delimiter,
        intercept: data.intercept,
        labels: data.labels,
        fields: ExampleFields::new(&data.fields),
        features,
        label_as_first: data.columns.label.is_none() && columns.label.as_deref() != Some("label"),
        header,
        roles,
        scaling,
        scratch: Vec::new(),
        breaks: 0,
        repeats: RepeatedKeys::default(),
    };
    Ok(LineReader::Csv(Box::new(records), columns))
}

/// The names of the columns: those of the header, or the names for the fields of the first record.
fn named(first: Vec<String>, names: Option<&[String]>) -> Result<Vec<String>, String> {
    let found = first.len();
    match names {
        None => Ok(first),
        Some([]) => Ok((1..=found).map(|at| at.to_string()).collect()),
        Some(names) if names.len() == found => Ok(names.to_vec()),
        Some(names) => Err(format!(
            "the first record has {found} fields, and --columns names {}; is --delimiter right?",
            names.len()
        )),
    }
}

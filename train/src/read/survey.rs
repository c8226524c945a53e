//! Surveys the columns of CSV files and of JSON lines before the training: their values, and the numbers that scaling
//! needs.

use crate::limits::{BOTH_COLUMNS_MAX, COLUMNS_MAX};
use crate::read::block::Block;
use crate::read::bytes::source::Source;
use crate::read::bytes::stream::{ReadPosition, Stream};
use crate::read::data::Data;
use crate::read::error::ReadError;
use crate::read::formats::columns::{Columns, is_missing};
use crate::read::formats::csv;
use crate::read::formats::format::LineReader;
use crate::read::formats::json::Json;
use crate::read::formats::number::parse_float;
use crate::read::formats::scale::{Scale, ScaleKind, ScaledColumn};
#[cfg(feature = "parquet")]
use crate::read::tables::{record_batches::BatchRows, table_blocks};
#[cfg(feature = "parquet")]
use arrow_array::RecordBatch;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// The most different values of a column that are counted.
const DISTINCT_MAX: usize = 64;

/// What the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// Texts, codes, lists, or at most two different numbers.
    Categories,
    /// Numbers, some of them with a decimal point.
    Numbers,
    /// Whole numbers: each may be a category of its own, or only count.
    Both,
}

/// The values of a column.
#[derive(Clone, Debug, Default)]
pub struct ColumnSurvey {
    /// The column's name.
    pub name: String,
    /// The number of values, without empty ones and `NA`.
    pub values: u64,
    /// How many of them are numbers. Codes such as 007 are not.
    pub numbers: u64,
    /// How many of them are numbers with a decimal point or an exponent.
    pub decimals: u64,
    /// How many are codes such as 007.
    pub codes: u64,
    /// Whether a value is in a list.
    pub has_lists: bool,
    distinct: HashSet<Vec<u8>>,
    mean: f64,
    /// The sum of the squared distances from the mean.
    squares: f64,
    least: f64,
    greatest: f64,
}

impl ColumnSurvey {
    /// Whether all values are numbers, and too many different ones to be the codes of a few categories.
    pub fn looks_numeric(&self) -> bool {
        const CODES: usize = 32;
        self.values > 0 && self.numbers == self.values && self.distinct.len() > CODES
    }

    /// The type that these values suggest.
    pub fn column_type(&self) -> ColumnType {
        // A few texts among numbers are not the names of categories. They get features of their own.
        let others = self.values - self.numbers;
        match self.numbers > 0 && others <= self.values / 10 && self.codes == 0 && !self.has_lists {
            true if self.decimals > 0 && others == 0 => ColumnType::Numbers,
            // Two numbers are the names of two categories.
            true if self.distinct.len() > 2 => ColumnType::Both,
            _ => ColumnType::Categories,
        }
    }

    fn add(&mut self, field: &[u8]) {
        let field = field.trim_ascii();
        if is_missing(field) {
            return;
        }
        self.values += 1;
        let Ok(x) = parse_float(field) else { return };
        if self.distinct.len() < DISTINCT_MAX && !self.distinct.contains(field) {
            self.distinct.insert(field.to_vec());
        }
        let code = field.len() > 1 && field[0] == b'0' && field[1].is_ascii_digit();
        let x = f64::from(x);
        self.numbers += u64::from(!code);
        self.codes += u64::from(code);
        self.decimals += u64::from(field.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E')));
        let (n, before) = ((self.numbers + self.codes) as f64, self.mean);
        self.mean += (x - before) / n;
        self.squares += (x - before) * (x - self.mean);
        let first = self.numbers + self.codes == 1;
        self.least = if first { x } else { self.least.min(x) };
        self.greatest = if first { x } else { self.greatest.max(x) };
    }

    fn scaled(&self, kind: ScaleKind) -> ScaledColumn {
        let (center, spread) = match kind {
            ScaleKind::MinMax => (self.least, self.greatest - self.least),
            _ => (self.mean, (self.squares / ((self.numbers + self.codes) as f64).max(1.0)).sqrt()),
        };
        ScaledColumn { name: self.name.clone(), center, spread }
    }
}

/// The values of the columns of CSV files.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// The columns, in the header's order.
    pub columns: Vec<ColumnSurvey>,
    /// The number of lines that are examples, and of bad lines.
    pub lines: (u64, u64),
    /// The places of the columns, by their names.
    places: HashMap<String, usize>,
}

impl Survey {
    /// Surveys `data`: its first lines, or all lines of every file. Empty for files without columns.
    ///
    /// # Errors
    /// A file cannot be read, or only once.
    pub fn of(data: &Data, first_lines: Option<u64>) -> Result<Survey, ReadError> {
        if first_lines.is_none() {
            data.must_be_files("--scale, which looks at all numbers first,")?;
        }
        let mut survey = Survey::default();
        #[cfg(feature = "parquet")]
        if table_blocks::is_of(data) {
            let most = first_lines.unwrap_or(u64::MAX);
            survey.lines.0 = table_blocks::texts(data, most, |name, text, is_listed| {
                survey.add_to(name, text, is_listed)
            })?;
            return Ok(survey);
        }
        for path in &data.files {
            let io = |source| ReadError::io(path, source);
            let stream = Stream::open(path, ReadPosition::default().read, &data.stop).map_err(io)?;
            let mut source = Source::new(path.clone(), stream, &data.stop)?;
            let Some(mut kind) = LineReader::of(&mut source, data)? else { continue };
            survey.look(&mut source, &mut kind, first_lines.unwrap_or(u64::MAX))?;
            if survey.has_seen(first_lines.unwrap_or(u64::MAX)) {
                break;
            }
        }
        Ok(survey)
    }

    /// Surveys the first `most` rows of record batches, which have the schema of `rows`.
    ///
    /// # Errors
    /// That of a record batch.
    #[cfg(feature = "parquet")]
    pub fn of_batches(
        rows: &BatchRows,
        batches: impl Iterator<Item = Result<RecordBatch, ReadError>>,
        most: usize,
    ) -> Result<Survey, ReadError> {
        let (mut survey, mut left) = (Survey::default(), most);
        for batch in batches {
            let batch = batch?;
            let take = batch.num_rows().min(left);
            rows.texts(&batch, take, &mut |name, text, is_listed| survey.add_to(name, text, is_listed))?;
            left -= take;
            if left == 0 {
                break;
            }
        }
        survey.lines.0 = (most - left) as u64;
        Ok(survey)
    }

    fn look(&mut self, source: &mut Source, kind: &mut LineReader, most: u64) -> Result<(), ReadError> {
        // Files of one data set may have their columns in different orders.
        let mut places = match kind {
            LineReader::Csv(records, _) => records.header.iter().map(|name| self.place(name)).collect(),
            LineReader::Json(..) => Vec::new(),
            _ => return Ok(()),
        };
        let mut block = Block::default();
        while !self.has_seen(most) && source.fill()? {
            let (buf, p, end) = source.lines();
            let (next, lines) = kind.next(buf, p, end);
            if !kind.nothing(buf, p) {
                block.clear();
                let sound = kind.example(buf, p, end, &mut block).is_ok();
                (self.lines.0, self.lines.1) =
                    (self.lines.0 + u64::from(sound), self.lines.1 + u64::from(!sound));
                if sound {
                    self.add(kind, &buf[..end], p..next, &mut places);
                }
            }
            source.take(next, lines);
        }
        Ok(())
    }

    /// Whether there were as many examples as this, or hardly anything but bad lines.
    fn has_seen(&self, most: u64) -> bool {
        self.lines.0 >= most || self.lines.1 >= most.saturating_mul(10)
    }

    /// Adds the values of a valid line. `places`: of CSV, the column of each field.
    fn add(&mut self, kind: &mut LineReader, buf: &[u8], line: Range<usize>, places: &mut [usize]) {
        match kind {
            LineReader::Csv(records, _) => {
                let columns = &mut self.columns;
                csv::fields(buf, line.start, records, |at, field| columns[places[at]].add(field));
            }
            LineReader::Json(..) => {
                Json::texts(&buf[line], |name, text, is_listed| self.add_to(name, text, is_listed))
            }
            _ => {}
        }
    }

    /// Adds a value of the column with this name.
    fn add_to(&mut self, name: &str, text: &[u8], is_listed: bool) {
        let place = self.place(name);
        if let Some(column) = self.columns.get_mut(place) {
            column.has_lists |= is_listed;
            column.add(text);
        }
    }

    /// The place of the column with this name. Behind the last if there are too many.
    fn place(&mut self, name: &str) -> usize {
        let known = self.places.get(name).copied();
        if known.is_none() && self.columns.len() < COLUMNS_MAX {
            self.places.insert(name.to_owned(), self.columns.len());
            self.columns.push(ColumnSurvey { name: name.to_owned(), ..ColumnSurvey::default() });
            return self.columns.len() - 1;
        }
        known.unwrap_or(self.columns.len())
    }

    /// The column with this name.
    pub fn column(&self, name: &str) -> Option<&ColumnSurvey> {
        self.places.get(name).map(|&place| &self.columns[place])
    }

    /// Of the columns that no flag names, those with numbers, and those with numbers and categories at once. If there
    /// are many of the latter, an example would have too many features, and they are numbers.
    pub fn numbers_of(&self, columns: &Columns) -> (Vec<String>, Vec<String>) {
        let is_free = |column: &&ColumnSurvey| match columns.others {
            true => columns.takes(&column.name),
            false => columns.categorical.contains(&column.name),
        };
        let of_type = |what: ColumnType| -> Vec<String> {
            let free = self.columns.iter().filter(is_free).filter(|column| column.column_type() == what);
            free.map(|column| column.name.clone()).collect()
        };
        let (numbers, mut both) = (of_type(ColumnType::Numbers), of_type(ColumnType::Both));
        if both.len() <= BOTH_COLUMNS_MAX {
            return (numbers, both);
        }
        // A column with texts is then one of categories.
        both.retain(|name| self.column(name).is_some_and(|column| column.numbers == column.values));
        ([numbers, both].concat(), Vec::new())
    }

    /// The scaling of these columns by their values.
    pub fn scale<'n>(&self, kind: ScaleKind, numeric: impl Iterator<Item = &'n String>) -> Scale {
        let known = numeric.filter_map(|name| self.column(name));
        Scale { kind, columns: known.map(|column| column.scaled(kind)).collect() }
    }
}

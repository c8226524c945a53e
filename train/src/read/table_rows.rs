//! Rows of a table that is not a CSV file, such as those of a data frame. They become the examples that the same table
//! makes as a CSV file: the same keys, values and labels, in the same order.

use crate::limits::{FEATURES_PER_EXAMPLE_MAX, OCCURRENCES_PER_BLOCK_MAX};
use crate::read::block::{Block, INTERCEPT_KEY};
use crate::read::error::ReadError;
use crate::read::fields::example_fields::{ExampleFields, FieldUse};
use crate::read::fields::field::FieldId;
use crate::read::formats::columns::{
    ColumnChoice, Columns, ExampleNumber, Role, names_of_features, number_feature, parse_number,
};
use crate::read::formats::labels::{Labels, zero_bit};
use crate::read::formats::repeated_keys::RepeatedKeys;
use crate::read::formats::scale::{Scale, Scaling};
use std::ops::Range;

/// What the columns of a table mean.
#[derive(Clone, Debug)]
pub struct TableSettings {
    /// The roles of the columns. Columns of floats and decimals are numeric unless it says otherwise.
    pub choice: ColumnChoice,
    /// The scaling of numbers.
    pub scale: Scale,
    /// The allowed labels.
    pub labels: Labels,
    /// Whether there may be no label column.
    pub unlabelled: bool,
    /// What is done with the fields of rows.
    pub fields: FieldUse,
}

/// Makes examples of the rows of a table. A [`BlockSource`](crate::BlockSource) fills blocks with it.
///
/// ```
/// use gannet_train::{Block, ColumnChoice, Labels, ReadError, TableRows};
///
/// let header = ["label", "carrier", "hours"].map(String::from);
/// let choice = ColumnChoice { numeric: vec!["hours".into()], ..ColumnChoice::default() };
/// let mut table = TableRows::new("flights", &header, &choice, Labels::Signs, false)?;
/// let mut block = Block::default();
/// block.clear();
/// let carrier = gannet_train::ColumnKeys::new("carrier");
/// table.append(&mut block, 2, false, |rows| {
///     for (row, text) in ["UA", "AA"].iter().enumerate() {
///         rows.label(row, Some(b"1"))?;
///         rows.category(1, row, carrier.categorical(text.as_bytes()));
///         rows.number(2, row, Some(1.5))?;
///     }
///     Ok(())
/// })?;
/// assert_eq!((block.len(), block.keys[0]), (2, carrier.categorical(b"UA")));
/// # Ok::<(), ReadError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TableRows {
    name: String,
    header: Vec<String>,
    columns: Columns,
    roles: Vec<Role>,
    /// For each column of features its place among the features of an example, without the intercept.
    places: Vec<usize>,
    /// The scaling of each column. Empty: no column is scaled.
    scaling: Vec<Scaling>,
    /// Features of an example, without the intercept.
    features: usize,
    fields: ExampleFields,
    /// The field of each place of an example, without the intercept.
    of_places: Vec<FieldId>,
    labels: Labels,
    /// Whether the label is in the first column because nothing chose another.
    label_as_first: bool,
    repeats: RepeatedKeys,
    /// The [bits](zero_bit) of the labels so far.
    zeros: u8,
    /// Rows that were appended or skipped.
    rows: u64,
}

impl TableRows {
    /// A table with these columns. `name` is for messages. `unlabelled`: it may have no label column.
    ///
    /// # Errors
    /// A chosen column is not in the header (the error lists the columns), is there twice, or is chosen twice; or there
    /// are no features.
    pub fn new(
        name: &str,
        header: &[String],
        choice: &ColumnChoice,
        labels: Labels,
        unlabelled: bool,
    ) -> Result<TableRows, ReadError> {
        let (choice, scale, fields) = (choice.clone(), Scale::default(), FieldUse::default());
        let settings = TableSettings { choice, scale, labels, unlabelled, fields };
        TableRows::typed(name, header, &settings, &|_| false)
    }

    /// As [`new`](Self::new). Columns for which `is_number` returns true are numeric, unless a flag names them. Numbers
    /// are scaled.
    ///
    /// # Errors
    /// As for [`new`](Self::new), or a number's column has no scale.
    pub(crate) fn typed(
        name: &str,
        header: &[String],
        settings: &TableSettings,
        is_number: &dyn Fn(usize) -> bool,
    ) -> Result<TableRows, ReadError> {
        let TableSettings { choice, scale, labels, unlabelled, fields } = settings;
        // As in the header of a CSV file.
        let header: Vec<String> = header.iter().map(|column| column.trim().to_owned()).collect();
        let (mut columns, roles) = choice.resolve(name, &header, !*unlabelled, is_number)?;
        columns.scale.clone_from(scale);
        fields.check(name, || columns.features())?;
        let scaling = columns.scaling(&header);
        let scaling = scaling.map_err(|what| ReadError::Columns { file: name.to_owned(), what })?;
        let mut features = 0;
        let mut place = |role: &Role| {
            let place = features;
            features += role.features();
            place
        };
        let places = roles.iter().map(&mut place).collect();
        let names = names_of_features(&header, &roles);
        let of_places = names.map(|name| FieldId::of(name.as_bytes())).collect();
        let label_as_first = choice.label.is_none() && columns.label.as_deref() != Some("label");
        let (repeats, name) = (RepeatedKeys::default(), name.to_owned());
        Ok(TableRows {
            name,
            header,
            columns,
            roles,
            places,
            scaling,
            features,
            fields: ExampleFields::new(fields),
            of_places,
            labels: *labels,
            label_as_first,
            repeats,
            zeros: 0,
            rows: 0,
        })
    }

    /// The columns by their roles.
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// The names of the columns.
    pub fn header(&self) -> &[String] {
        &self.header
    }

    /// The role of each column of the header.
    pub fn roles(&self) -> &[Role] {
        &self.roles
    }

    /// The allowed labels.
    pub fn labels(&self) -> Labels {
        self.labels
    }

    /// How many more rows a block has space for. A block that is empty has space for one at least.
    pub fn space(&self, block: &Block) -> usize {
        let free = (OCCURRENCES_PER_BLOCK_MAX + 1).saturating_sub(block.keys.len());
        free.div_ceil(self.features + 1)
    }

    /// Goes on where the rows of another part of the data ended, whose labels are then checked together with these.
    #[cfg(feature = "arrow")]
    pub(crate) fn follow(&mut self, before: &TableRows) {
        self.zeros |= before.zeros;
    }

    /// The next row has this number, from 0.
    #[cfg(feature = "arrow")]
    pub(crate) fn begin_at(&mut self, row: u64) {
        self.rows = row;
    }

    /// Passes over the next rows.
    pub fn skip(&mut self, rows: usize) {
        self.rows += rows as u64;
    }

    /// Appends the next rows to the block. `fill` writes the label and each feature of all of them, in any order. At
    /// most [`space`](Self::space) rows are possible. `intercept`: each example begins with the
    /// [intercept](INTERCEPT_KEY).
    ///
    /// # Errors
    /// That of `fill`, or the labels are a mixture of 0 and -1. The block is then as before.
    pub fn append(
        &mut self,
        block: &mut Block,
        rows: usize,
        intercept: bool,
        fill: impl FnOnce(&mut NewRows<'_>) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        let first = usize::from(intercept);
        let (begin, stride) = (block.keys.len(), first + self.features);
        block.keys.resize(begin + rows * stride, INTERCEPT_KEY);
        block.values.resize(begin + rows * stride, 1.0);
        let mut new = NewRows {
            keys: &mut block.keys[begin..],
            values: &mut block.values[begin..],
            labels: vec![f32::NAN; rows],
            bases: Vec::new(),
            importances: Vec::new(),
            lists: Lists::default(),
            first,
            stride,
            table: self,
        };
        let filled = fill(&mut new);
        let NewRows { labels, bases, importances, lists, .. } = new;
        let is_plain = lists.cells.is_empty() && !self.fields.is_used();
        let ends = filled.and_then(|()| match is_plain {
            true => Ok((1..=rows).map(|row| begin + row * stride).collect()),
            false => self.spread(block, begin, stride, rows, lists),
        });
        let numbers = (&bases[..], &importances[..]);
        let ended = ends.and_then(|ends| self.end(block, begin, first, labels, numbers, ends));
        if ended.is_err() {
            block.keys.truncate(begin);
            block.values.truncate(begin);
            block.fields.truncate(begin);
        }
        self.rows += rows as u64;
        ended
    }

    /// Puts the features of lists in the places of their columns, and appends crosses. Returns where each example ends
    /// then.
    fn spread(
        &mut self,
        block: &mut Block,
        begin: usize,
        stride: usize,
        rows: usize,
        mut lists: Lists,
    ) -> Result<Vec<usize>, ReadError> {
        let (keys, values) = (block.keys.split_off(begin), block.values.split_off(begin));
        lists.cells.sort_by_key(|cell| (cell.row, cell.place));
        let first = stride - self.features;
        let mut cells = lists.cells.into_iter().peekable();
        let mut ends = Vec::with_capacity(rows);
        for row in 0..rows {
            let example = block.keys.len();
            for place in 0..stride {
                let at = row * stride + place;
                match cells.next_if(|cell| (cell.row, cell.place) == (row, place)) {
                    None => {
                        block.keys.push(keys[at]);
                        block.values.push(values[at]);
                    }
                    Some(cell) => block.keys.extend_from_slice(&lists.keys[cell.keys]),
                }
                block.values.resize(block.keys.len(), 1.0);
                if let Some(at) = place.checked_sub(first) {
                    self.fields.add(self.of_places[at], block);
                }
            }
            let crossed = self.fields.end(block, example + first);
            crossed.map_err(|what| self.wrong(row, what.to_owned()))?;
            let features = block.keys.len() - example;
            if features > FEATURES_PER_EXAMPLE_MAX {
                let most = FEATURES_PER_EXAMPLE_MAX;
                return Err(self.wrong(row, format!("{features} features; at most {most} are possible")));
            }
            if block.keys.len() > 2 * OCCURRENCES_PER_BLOCK_MAX {
                let (value, max) = (block.keys.len() as u64, OCCURRENCES_PER_BLOCK_MAX as u64);
                return Err(ReadError::Limit { what: "the number of features of a batch", value, max });
            }
            ends.push(block.keys.len());
        }
        Ok(ends)
    }

    /// Ends the examples whose features begin at `begin`.
    fn end(
        &mut self,
        block: &mut Block,
        begin: usize,
        first: usize,
        mut labels: Vec<f32>,
        (bases, importances): (&[f32], &[f32]),
        ends: Vec<usize>,
    ) -> Result<(), ReadError> {
        for (row, label) in labels.iter_mut().enumerate() {
            self.zeros |= zero_bit(label);
            if self.zeros == 3 && self.labels == Labels::Signs {
                return Err(self.wrong(row, MIXED.into()));
            }
        }
        block.append_numbers(bases, importances, labels.len());
        let mut from = begin;
        for (label, end) in labels.into_iter().zip(ends) {
            block.may_repeat |= self.repeats.any(&block.keys[from + first..end]);
            block.labels.push(label);
            block.offsets.push(end as u32);
            from = end;
        }
        Ok(())
    }

    /// An error about one of the next rows.
    #[cold]
    fn wrong(&self, row: usize, what: String) -> ReadError {
        ReadError::Row { data: self.name.clone(), row: self.rows + row as u64, what }
    }
}

const MIXED: &str = "here the labels become a mixture of -1, 0 and 1: of two classes one has the label 1 and the other \
                     0, or else -1; take the rows of a third class out";

/// The cells of lists.
#[derive(Debug, Default)]
struct Lists {
    cells: Vec<ListCell>,
    keys: Vec<u64>,
}

/// The elements that a row has in a column.
#[derive(Debug)]
struct ListCell {
    row: usize,
    /// The column's place among the features of an example.
    place: usize,
    keys: Range<usize>,
}

/// Rows that [`TableRows::append`] has made space for. Rows count from 0 here, and columns as in the header.
#[derive(Debug)]
pub struct NewRows<'a> {
    keys: &'a mut [u64],
    values: &'a mut [f32],
    labels: Vec<f32>,
    /// The bases. Empty: all are 0.
    bases: Vec<f32>,
    /// The importances. Empty: all are 1.
    importances: Vec<f32>,
    lists: Lists,
    /// 1 if each example has an intercept.
    first: usize,
    stride: usize,
    table: &'a TableRows,
}

impl NewRows<'_> {
    /// The number of rows.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    #[inline(always)]
    fn place(&self, column: usize, row: usize) -> usize {
        row * self.stride + self.first + self.table.places[column]
    }

    /// Writes a value of a categorical column, whose key is that of
    /// [`ColumnKeys::categorical`](crate::ColumnKeys::categorical). A missing value is the empty text.
    ///
    /// # Panics
    /// There is no such column or row.
    #[inline(always)]
    pub fn category(&mut self, column: usize, row: usize, key: u64) {
        self.keys[self.place(column, row)] = key;
    }

    /// Writes the values of a categorical column that has lists: none, one or several. A column has lists in all rows
    /// or in none.
    ///
    /// # Panics
    /// There is no such column or row.
    pub fn categories(&mut self, column: usize, row: usize, keys: &[u64]) {
        let (place, begin) = (self.first + self.table.places[column], self.lists.keys.len());
        self.lists.keys.extend_from_slice(keys);
        self.lists.cells.push(ListCell { row, place, keys: begin..begin + keys.len() });
    }

    /// Writes a number of a column that has numbers. `None`: it is missing.
    ///
    /// # Errors
    /// It is not finite, and its column is not also categorical.
    ///
    /// # Panics
    /// The column has no numbers, or there is no such row.
    #[inline(always)]
    pub fn number(&mut self, column: usize, row: usize, number: Option<f32>) -> Result<(), ReadError> {
        let (key, missing, is_both) = match self.table.roles[column] {
            Role::Numeric(key, missing) => (key, missing, false),
            Role::Both(_, key, missing) => (key, missing, true),
            _ => panic!("column {column} has no numbers"),
        };
        let scaling = self.table.scaling.get(column);
        // As the text of it in a CSV file, NaN is a missing number.
        let number = number.filter(|number| !number.is_nan());
        let scaled = number.filter(|number| number.is_finite());
        let scaled = scaled.map(|number| scaling.map_or(number, |scaling| scaling.of(number)));
        let scaled = scaled.filter(|scaled| scaled.is_finite());
        if number.is_some() && scaled.is_none() && !is_both {
            return Err(self.not_finite(column, row));
        }
        // The number is behind the category.
        let place = self.place(column, row) + usize::from(is_both);
        (self.keys[place], self.values[place]) = number_feature(scaled, key, missing);
        Ok(())
    }

    #[cold]
    fn not_finite(&self, column: usize, row: usize) -> ReadError {
        let name = &self.table.header[column];
        self.table.wrong(
            row,
            format!(
                "expected a finite number that fits f32, in column {name:?}; if the number is missing, make it null"
            ),
        )
    }

    /// Writes a number of a column that has numbers, by its text: as in a CSV file, an empty text and `NA` are missing.
    ///
    /// # Errors
    /// It is not a finite number, and its column is not also categorical.
    ///
    /// # Panics
    /// The column has no numbers, or there is no such row.
    pub fn number_of_text(&mut self, column: usize, row: usize, text: &[u8]) -> Result<(), ReadError> {
        match parse_number(text) {
            Ok(number) => self.number(column, row, number),
            Err(_) if matches!(self.table.roles[column], Role::Both(..)) => self.number(column, row, None),
            Err(expected) => {
                let (name, found) = (&self.table.header[column], String::from_utf8_lossy(text));
                Err(self.table.wrong(row, format!("{expected}, in column {name:?}; found {found:?}")))
            }
        }
    }

    /// Writes a number of an example that is no feature. `None`: it is missing, or no number.
    ///
    /// # Errors
    /// It is missing, not finite, or a negative importance.
    ///
    /// # Panics
    /// There is no such row.
    pub fn example_number(
        &mut self,
        which: ExampleNumber,
        row: usize,
        number: Option<f32>,
    ) -> Result<(), ReadError> {
        let columns = &self.table.columns;
        let (numbers, otherwise, name) = match which {
            ExampleNumber::Offset => (&mut self.bases, 0.0, &columns.offset),
            ExampleNumber::Importance => (&mut self.importances, 1.0, &columns.importance),
        };
        let wrong = |expected| {
            let name = name.as_deref().unwrap_or_default();
            self.table.wrong(row, format!("{expected}, in column {name:?}"))
        };
        let number = which.check(number).map_err(wrong)?;
        numbers.resize(self.labels.len(), otherwise);
        numbers[row] = number;
        Ok(())
    }

    /// Writes the label, by its text. `None`: it is missing, which is an error.
    ///
    /// # Errors
    /// It is not one of the table's labels.
    ///
    /// # Panics
    /// There is no label column, or no such row.
    pub fn label(&mut self, row: usize, text: Option<&[u8]>) -> Result<(), ReadError> {
        let text = text.map(<[u8]>::trim_ascii);
        match self.table.labels.parse(text.unwrap_or_default()) {
            Ok(label) if text.is_some() => {
                self.labels[row] = label;
                Ok(())
            }
            Ok(_) => Err(self.no_label(row)),
            Err(expected) => match text {
                None => Err(self.no_label(row)),
                Some(text) => {
                    let column = self.table.columns.label.as_deref().unwrap_or_default();
                    let what = self.table.labels.wrong_in(column, expected, text, self.table.label_as_first);
                    Err(self.table.wrong(row, what))
                }
            },
        }
    }

    #[cold]
    fn no_label(&self, row: usize) -> ReadError {
        let column = self.table.columns.label.as_deref().unwrap_or_default();
        let what = format!("column {column:?} is null: the row has no label; leave such rows out");
        self.table.wrong(row, what)
    }
}

//! Rows of a table that is not a CSV file, such as those of a data frame. They become the examples that the same table
//! makes as a CSV file: the same keys, values and labels, in the same order.

use crate::limits::OCCURRENCES_PER_BLOCK_MAX;
use crate::read::block::{Block, INTERCEPT_KEY};
use crate::read::error::ReadError;
use crate::read::formats::columns::{ColumnChoice, Columns, Role, number_feature, parse_number};
use crate::read::formats::labels::{Labels, zero_bit};
use crate::read::formats::repeated_keys::RepeatedKeys;

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
    /// Features of an example, without the intercept.
    features: usize,
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
        // As in the header of a CSV file.
        let header: Vec<String> = header.iter().map(|column| column.trim().to_owned()).collect();
        let (columns, roles) = choice.resolve(name, &header, !unlabelled)?;
        let mut features = 0;
        let mut place = |role: &Role| {
            let place = features;
            features += usize::from(matches!(role, Role::Categorical(_) | Role::Numeric(..)));
            place
        };
        let places = roles.iter().map(&mut place).collect();
        let label_as_first = choice.label.is_none() && columns.label.as_deref() != Some("label");
        let (repeats, name) = (RepeatedKeys::default(), name.to_owned());
        Ok(TableRows {
            name,
            header,
            columns,
            roles,
            places,
            features,
            labels,
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
            first,
            stride,
            table: self,
        };
        let filled = fill(&mut new);
        let labels = std::mem::take(&mut new.labels);
        let ended = filled.and_then(|()| self.end(block, begin, stride, first, labels));
        if ended.is_err() {
            block.keys.truncate(begin);
            block.values.truncate(begin);
        }
        self.rows += rows as u64;
        ended
    }

    /// Ends the examples whose features begin at `begin`.
    fn end(
        &mut self,
        block: &mut Block,
        begin: usize,
        stride: usize,
        first: usize,
        mut labels: Vec<f32>,
    ) -> Result<(), ReadError> {
        for (row, label) in labels.iter_mut().enumerate() {
            self.zeros |= zero_bit(label);
            if self.zeros == 3 && self.labels == Labels::Signs {
                return Err(self.wrong(row, MIXED.into()));
            }
        }
        for (row, label) in labels.into_iter().enumerate() {
            let from = begin + row * stride;
            block.may_repeat |= self.repeats.any(&block.keys[from + first..from + stride]);
            block.labels.push(label);
            block.offsets.push((from + stride) as u32);
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

/// Rows that [`TableRows::append`] has made space for. Rows count from 0 here, and columns as in the header.
#[derive(Debug)]
pub struct NewRows<'a> {
    keys: &'a mut [u64],
    values: &'a mut [f32],
    labels: Vec<f32>,
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

    /// Writes a number of a numeric column. `None`: it is missing.
    ///
    /// # Errors
    /// It is not finite.
    ///
    /// # Panics
    /// The column is not numeric, or there is no such row.
    #[inline(always)]
    pub fn number(&mut self, column: usize, row: usize, number: Option<f32>) -> Result<(), ReadError> {
        let Role::Numeric(key, missing) = self.table.roles[column] else {
            panic!("column {column} is not numeric");
        };
        if number.is_some_and(|number| !number.is_finite()) {
            return Err(self.not_finite(column, row));
        }
        let place = self.place(column, row);
        (self.keys[place], self.values[place]) = number_feature(number, key, missing);
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

    /// Writes a number of a numeric column, by its text: as in a CSV file, an empty text and `NA` are missing.
    ///
    /// # Errors
    /// It is not a finite number.
    ///
    /// # Panics
    /// The column is not numeric, or there is no such row.
    pub fn number_of_text(&mut self, column: usize, row: usize, text: &[u8]) -> Result<(), ReadError> {
        match parse_number(text) {
            Ok(number) => self.number(column, row, number),
            Err(expected) => {
                let (name, found) = (&self.table.header[column], String::from_utf8_lossy(text));
                Err(self.table.wrong(row, format!("{expected}, in column {name:?}; found {found:?}")))
            }
        }
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

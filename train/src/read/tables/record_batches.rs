//! Makes examples of record batches.

use crate::read::block::Block;
use crate::read::error::ReadError;
use crate::read::formats::columns::{Role, unnamed};
use crate::read::table_rows::{TableRows, TableSettings};
use crate::read::tables::columns::{Column, check, element, has_numbers};
use crate::read::tables::known_keys::KnownKeys;
use arrow_array::RecordBatch;
use arrow_schema::Schema;

/// Fills blocks with the rows of record batches of one schema.
pub struct BatchRows {
    rows: TableRows,
    /// The columns that are needed, by their indices in the schema.
    needed: Vec<usize>,
    /// The keys that are known of each of them.
    known: Vec<KnownKeys>,
    intercept: bool,
    batch: Option<OpenBatch>,
}

/// A record batch, and how far it was read.
struct OpenBatch {
    columns: Vec<Column>,
    rows: usize,
    next: usize,
}

impl BatchRows {
    /// Rows of this schema. `name` is for messages. `intercept`: each example begins with the
    /// [intercept](crate::INTERCEPT_KEY).
    ///
    /// # Errors
    /// A column is missing, chosen twice, or has a type that does not fit its role.
    pub fn new(
        name: &str,
        schema: &Schema,
        settings: &TableSettings,
        intercept: bool,
    ) -> Result<BatchRows, ReadError> {
        // As in a CSV file of the table, a column may have no name.
        let name_of = |at: usize| match schema.field(at).name() {
            name if name.trim().is_empty() => unnamed(at),
            name => name.clone(),
        };
        let header: Vec<String> = (0..schema.fields().len()).map(name_of).collect();
        let is_number = |at: usize| has_numbers(schema.field(at).data_type());
        let rows = TableRows::typed(name, &header, settings, &is_number)?;
        for (field, role) in schema.fields().iter().zip(rows.roles()) {
            let checked = check(field.name(), field.data_type(), role, settings.choice.as_categories);
            checked.map_err(|what| ReadError::Columns { file: name.to_owned(), what })?;
        }
        let is_needed = |at: &usize| rows.roles()[*at] != Role::Skipped;
        let needed: Vec<usize> = (0..header.len()).filter(is_needed).collect();
        let known = needed.iter().map(|_| KnownKeys::default()).collect();
        Ok(BatchRows { rows, needed, known, intercept, batch: None })
    }

    /// The rows that record batches become.
    pub fn rows(&self) -> &TableRows {
        &self.rows
    }

    /// As [`rows`](Self::rows).
    pub fn rows_mut(&mut self) -> &mut TableRows {
        &mut self.rows
    }

    /// The indices of the columns that are needed, ascending.
    pub fn needed(&self) -> &[usize] {
        &self.needed
    }

    /// Begins with the next record batch. It has all columns of the schema, or only those that are
    /// [needed](Self::needed).
    ///
    /// # Errors
    /// None that the cells can cause.
    pub fn begin(&mut self, batch: &RecordBatch) -> Result<(), ReadError> {
        let is_whole = batch.num_columns() == self.rows.roles().len();
        let mut columns = Vec::with_capacity(self.needed.len());
        for (place, &at) in self.needed.iter().enumerate() {
            let array = batch.column(if is_whole { at } else { place });
            columns.extend(Column::of(at, &self.rows.roles()[at], array)?);
        }
        self.batch = Some(OpenBatch { columns, rows: batch.num_rows(), next: 0 });
        Ok(())
    }

    /// Calls `each` with the column's name, the text of every value in the first `most` rows of a record batch, and
    /// whether the column has lists. The text of a missing value is empty. The batch is as for [`begin`](Self::begin).
    ///
    /// # Errors
    /// None that the cells can cause.
    pub fn texts(
        &self,
        batch: &RecordBatch,
        most: usize,
        each: &mut dyn FnMut(&str, &[u8], bool),
    ) -> Result<(), ReadError> {
        let is_whole = batch.num_columns() == self.rows.roles().len();
        for (place, &at) in self.needed.iter().enumerate() {
            let (name, column) = (&self.rows.header()[at], batch.column(if is_whole { at } else { place }));
            let is_listed = element(column.data_type()).is_some();
            Column::texts_of(column, most, &mut |text| each(name, text.unwrap_or_default(), is_listed))?;
        }
        Ok(())
    }

    /// Frees the record batch.
    pub fn end(&mut self) {
        self.batch = None;
    }

    /// Whether all rows of the record batch have been taken.
    pub fn is_at_end(&self) -> bool {
        self.batch.as_ref().is_none_or(|batch| batch.next >= batch.rows)
    }

    /// Appends the next rows of the record batch to the block, or skips them if there is no block. Returns how many: at
    /// most `most`, and 0 if the block is full.
    ///
    /// # Errors
    /// A cell is not a number, or not a label.
    pub fn take(&mut self, most: usize, block: Option<&mut Block>) -> Result<usize, ReadError> {
        let BatchRows { rows, known, intercept, batch: Some(batch), .. } = self else { return Ok(0) };
        let (from, left) = (batch.next, (batch.rows - batch.next).min(most));
        let count = match block {
            Some(block) => {
                let (count, labels) = (left.min(rows.space(block)), rows.labels());
                rows.append(block, count, *intercept, |new| {
                    let mut columns = batch.columns.iter().zip(known);
                    columns
                        .try_for_each(|(column, known)| column.fill(from..from + count, labels, known, new))
                })?;
                count
            }
            None => {
                rows.skip(left);
                left
            }
        };
        batch.next += count;
        Ok(count)
    }
}

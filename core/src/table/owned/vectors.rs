//! Tables whose columns are vectors. A full-batch optimizer (L-BFGS) keeps its vectors on the servers in such a table.
//!
//! A row has column 0, the sum of a pass; then `wide` columns of an f64 each, in two floats; then `narrow` columns of
//! one float each:
//! ```text
//! | pass 2 | sum 2 | column 1: 2 | columns 2, 3: 4 | columns 4 to wide: 2 each | narrow: 1 each |
//!   segment 0        segment 1     segment 2         segment 3                   segment 4
//! ```
//! [`Write::Sum`](crate::Write::Sum) adds to column 0. A [`Program`] computes columns from columns, and dot
//! products, for all rows of a shard in the order of their slots. It never writes a column that it reads, so
//! running it twice has the same effect. A program has a name like a push, so a shard does not run a late
//! resend or a program of an old incarnation.

use crate::schema::init::Init;
use crate::schema::segment::Segment;
use crate::schema::table_schema::Schema;
use gannet_optim::lbfgs::{join, split};
use gannet_optim::{Add, GradientTransform, Rule};

/// Floats of column 0.
const SUM_FLOATS: usize = 4;
/// Bits of a push's sequence number that hold the push's number within its pass.
const WITHIN_BITS: u32 = 16;

/// The number of columns of a table of vectors, besides column 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vectors {
    /// Columns of an f64, numbered from 1; at least 4.
    pub wide: u16,
    /// Columns of a float, numbered after the wide ones.
    pub narrow: u16,
}

impl Vectors {
    /// The highest pass number.
    pub const PASS_MAX: u64 = (1 << (64 - WITHIN_BITS)) - 1;

    /// The first sequence number of a pass's pushes. The pass has the 65,536 numbers from there on.
    pub fn first_seq(pass: u64) -> u64 {
        pass << WITHIN_BITS
    }

    /// The pass that a push belongs to.
    pub(crate) fn pass_of(seq: u64) -> u64 {
        seq >> WITHIN_BITS
    }

    /// The schema of such a table. [`Schema::check`] says whether a row can be that long.
    ///
    /// # Panics
    /// When `wide` is less than 4.
    pub fn schema(self, name: &str, shards: u32) -> Schema {
        assert!(self.wide >= 4, "{} wide columns: at least 4", self.wide);
        let (rule, shaping, init) = (Rule::Add(Add), GradientTransform::NONE, Init::Zero);
        let dims = [2, 4, 2 * (u32::from(self.wide) - 3), u32::from(self.narrow)];
        let more = dims.into_iter().filter(|&dim| dim > 0);
        let more = more.map(|dim| Segment { dim, rule, shaping, init }).collect();
        Schema { dim: SUM_FLOATS as u32, more, shards, ..Schema::scalar(name, rule) }
    }

    /// The columns of a table of vectors, from its schema; `None` when it is the schema of another kind of table.
    pub fn of(schema: &Schema) -> Option<Vectors> {
        let wide = 3 + schema.more.get(2)?.dim / 2;
        let narrow = schema.more.get(3).map_or(0, |segment| segment.dim);
        let vectors = Vectors { wide: u16::try_from(wide).ok()?, narrow: u16::try_from(narrow).ok()? };
        (*schema == vectors.schema(&schema.name, schema.shards)).then_some(vectors)
    }

    /// Columns of a row, including column 0.
    pub fn columns(self) -> u16 {
        1 + self.wide + self.narrow
    }

    /// A column's value in a stored row. Column 0 is the sum of `pass`. It reads as 0 if the row has the sum of
    /// another pass.
    ///
    /// # Panics
    /// When the row is too short to have the column.
    pub fn value(self, row: &[f32], column: u16, pass: u64) -> f64 {
        let pair = |at: usize| join([row[at], row[at + 1]]);
        match column {
            0 if pair(0) == pass as f64 => pair(2),
            0 => 0.0,
            column if column <= self.wide => pair(2 + 2 * column as usize),
            column => f64::from(row[self.narrow_at(column)]),
        }
    }

    fn narrow_at(self, column: u16) -> usize {
        SUM_FLOATS + 2 * self.wide as usize + (column - self.wide - 1) as usize
    }

    /// The value as the column stores it, rounded to the column's format.
    pub(crate) fn rounded(self, column: u16, value: f64) -> f64 {
        if column <= self.wide { join(split(value)) } else { f64::from(value as f32) }
    }

    pub(crate) fn store(self, row: &mut [f32], column: u16, value: f64) {
        if column <= self.wide {
            row[2 + 2 * column as usize..][..2].copy_from_slice(&split(value));
        } else {
            row[self.narrow_at(column)] = value as f32;
        }
    }
}

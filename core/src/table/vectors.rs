//! Tables whose columns are vectors: what an optimizer of the whole of the data (L-BFGS) keeps on the servers.
//!
//! A row has column 0, the sum of a pass, then `wide` columns of an f64 each, in two floats, then `narrow` ones of one float:
//! ```text
//! | pass 2 | sum 2 | column 1: 2 | columns 2, 3: 4 | columns 4 to wide: 2 each | narrow: 1 each |
//!   segment 0        segment 1     segment 2         segment 3                   segment 4
//! ```
//! [`Write::Sum`](crate::Write::Sum) adds to column 0. A [`Program`] makes columns of columns and answers dot products, for
//! all rows of a shard in the order of their slots. It never writes what it reads, so doing it again changes nothing;
//! and it is named like a push, so what comes again late, or from a life of its pusher that is over, is not done.

use crate::schema::init::Init;
use crate::schema::segment::Segment;
use crate::schema::table_schema::Schema;
use gannet_optim::lbfgs::{join, split};
use gannet_optim::{Add, GradientTransform, Rule};

/// Floats of column 0.
const SUM_FLOATS: usize = 4;
/// Bits of a push's sequence number that count the pushes of a pass.
const WITHIN_BITS: u32 = 16;

/// How many columns the rows of a table of vectors have, beside column 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vectors {
    /// Columns of an f64, numbered from 1; at least 4.
    pub wide: u16,
    /// Columns of a float, numbered after those.
    pub narrow: u16,
}

impl Vectors {
    /// The largest number of a pass.
    pub const PASS_MAX: u64 = (1 << (64 - WITHIN_BITS)) - 1;

    /// The first sequence number of a pass's pushes; the 65,536 from there on are its.
    pub fn first_seq(pass: u64) -> u64 {
        pass << WITHIN_BITS
    }

    /// The pass that a push is of.
    pub(crate) fn pass_of(seq: u64) -> u64 {
        seq >> WITHIN_BITS
    }

    /// The schema of such a table. [`Schema::check`] says whether rows can be so long.
    ///
    /// # Panics
    /// When there are fewer than 4 wide columns.
    pub fn schema(self, name: &str, shards: u32) -> Schema {
        assert!(self.wide >= 4, "{} wide columns: at least 4", self.wide);
        let (rule, shaping, init) = (Rule::Add(Add), GradientTransform::NONE, Init::Zero);
        let dims = [2, 4, 2 * (u32::from(self.wide) - 3), u32::from(self.narrow)];
        let more = dims.into_iter().filter(|&dim| dim > 0);
        let more = more.map(|dim| Segment { dim, rule, shaping, init }).collect();
        Schema { dim: SUM_FLOATS as u32, more, shards, ..Schema::scalar(name, rule) }
    }

    /// The other way round; `None` when it is no schema of vectors.
    pub fn of(schema: &Schema) -> Option<Vectors> {
        let wide = 3 + schema.more.get(2)?.dim / 2;
        let narrow = schema.more.get(3).map_or(0, |segment| segment.dim);
        let vectors = Vectors { wide: u16::try_from(wide).ok()?, narrow: u16::try_from(narrow).ok()? };
        (*schema == vectors.schema(&schema.name, schema.shards)).then_some(vectors)
    }

    /// Columns of a row, column 0 among them.
    pub fn columns(self) -> u16 {
        1 + self.wide + self.narrow
    }

    /// A column's value in a stored row; that of column 0 is the sum of `pass`, 0 when the row's is of another.
    ///
    /// # Panics
    /// When the row is shorter than the column's place.
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

    /// What a column keeps of a value.
    pub(crate) fn kept(self, column: u16, value: f64) -> f64 {
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

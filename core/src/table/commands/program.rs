//! Programs on the columns of a table of vectors (vectors.rs). Each step of a program makes one column; then
//! sums over columns are computed.

use crate::limits::{PROGRAM_STEPS_MAX, PROGRAM_SUMS_MAX, PROGRAM_TERMS_MAX};
use crate::table::owned::vectors::Vectors;

/// A column times a factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Term {
    /// The factor.
    pub factor: f64,
    /// The column.
    pub column: u16,
    /// Whether the term is left out in the row of [`Program::free`].
    pub penalised: bool,
}

impl Term {
    /// A term in all rows.
    pub fn new(factor: f64, column: u16) -> Term {
        Term { factor, column, penalised: false }
    }

    /// A term in all rows except that of [`Program::free`].
    pub fn penalised(factor: f64, column: u16) -> Term {
        Term { factor, column, penalised: true }
    }
}

/// A step makes one column, row by row.
#[derive(Clone, Debug, PartialEq)]
pub enum ProgramStep {
    /// The sum of terms.
    Combine {
        /// The column made.
        to: u16,
        /// The terms, added in this order.
        terms: Vec<Term>,
    },
    /// The pseudo-gradient of OWL-QN ([`pseudo_gradient`](gannet_optim::lbfgs::pseudo_gradient)). In the row of
    /// [`Program::free`] the value is the gradient itself.
    Slope {
        /// The column made.
        to: u16,
        /// The gradient of the smooth part of the loss.
        gradient: u16,
        /// The weights.
        weights: u16,
        /// The factor of the L1 penalty.
        l1: f64,
    },
    /// 1 where the column is not 0, and 0 elsewhere.
    Support {
        /// The column made.
        to: u16,
        /// The column.
        of: u16,
    },
    /// Multiplies a column that an earlier step made by another column.
    Multiply {
        /// The column.
        to: u16,
        /// The column to multiply by.
        by: u16,
    },
    /// 1 / (column + number), at most [`RECIPROCAL_MAX`], and 1 where the sum is not above 0. In the row of
    /// [`Program::free`] the number is left out.
    Reciprocal {
        /// The column made.
        to: u16,
        /// The column.
        of: u16,
        /// The number to add.
        plus: f64,
    },
    /// Weights plus a step, with 0 where the sum leaves the orthant
    /// ([`project`](gannet_optim::lbfgs::project)). In the row of [`Program::free`] the value is the plain sum.
    Project {
        /// The column made.
        to: u16,
        /// The weights.
        weights: u16,
        /// The step.
        step: u16,
        /// The slope, which chooses the orthant where the weight is 0.
        slope: u16,
    },
}

/// The largest reciprocal: far inside the range of f32, the format of narrow columns.
pub const RECIPROCAL_MAX: f64 = 1e30;

/// The value that [`ProgramStep::Reciprocal`] computes from a sum.
pub(crate) fn reciprocal(sum: f64) -> f64 {
    if sum > 0.0 { (1.0 / sum).min(RECIPROCAL_MAX) } else { 1.0 }
}

impl ProgramStep {
    fn to(&self) -> u16 {
        match *self {
            ProgramStep::Combine { to, .. }
            | ProgramStep::Slope { to, .. }
            | ProgramStep::Support { to, .. }
            | ProgramStep::Multiply { to, .. }
            | ProgramStep::Reciprocal { to, .. }
            | ProgramStep::Project { to, .. } => to,
        }
    }

    fn reads(&self) -> Vec<u16> {
        match self {
            ProgramStep::Combine { terms, .. } => terms.iter().map(|term| term.column).collect(),
            ProgramStep::Slope { gradient, weights, .. } => vec![*gradient, *weights],
            ProgramStep::Support { of, .. } => vec![*of],
            ProgramStep::Multiply { to, by } => vec![*to, *by],
            ProgramStep::Reciprocal { of, .. } => vec![*of],
            ProgramStep::Project { weights, step, slope, .. } => vec![*weights, *step, *slope],
        }
    }
}

/// A sum over all rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnSum {
    /// The sum of products of two columns.
    Dot {
        /// A column.
        a: u16,
        /// A column.
        b: u16,
        /// Whether the row of [`Program::free`] is left out.
        penalised: bool,
    },
    /// The sum of products of three columns.
    Weighted {
        /// A column.
        a: u16,
        /// A column.
        b: u16,
        /// The weight of each row.
        by: u16,
    },
    /// The sum of absolute values.
    Norm1 {
        /// A column.
        a: u16,
        /// Whether the row of [`Program::free`] is left out.
        penalised: bool,
    },
}

impl ColumnSum {
    pub(crate) fn is_penalised(&self) -> bool {
        match *self {
            ColumnSum::Dot { penalised, .. } | ColumnSum::Norm1 { penalised, .. } => penalised,
            ColumnSum::Weighted { .. } => false,
        }
    }

    fn reads(&self) -> [Option<u16>; 3] {
        match *self {
            ColumnSum::Dot { a, b, .. } => [Some(a), Some(b), None],
            ColumnSum::Weighted { a, b, by } => [Some(a), Some(b), Some(by)],
            ColumnSum::Norm1 { a, .. } => [Some(a), None, None],
        }
    }
}

/// Columns in the order in which they were added, each once.
#[derive(Default)]
struct ColumnList {
    columns: Vec<u16>,
    /// Whether a column is in the list, a bit each.
    bits: Vec<u64>,
}

impl ColumnList {
    fn has(&self, column: u16) -> bool {
        self.bits.get(usize::from(column / 64)).is_some_and(|bits| bits >> (column % 64) & 1 == 1)
    }

    fn add(&mut self, column: u16) {
        if self.has(column) {
            return;
        }
        self.columns.push(column);
        let at = usize::from(column / 64);
        self.bits.resize(self.bits.len().max(at + 1), 0);
        self.bits[at] |= 1 << (column % 64);
    }
}

/// Steps and sums, computed in one pass over a shard's rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// The pass of column 0. A row with the sum of another pass reads as 0.
    pub pass: u64,
    /// The key of the row without penalties, if there is one.
    pub free: Option<u64>,
    /// The columns to make.
    pub steps: Vec<ProgramStep>,
    /// The sums to return, over the columns as they are after all steps.
    pub sums: Vec<ColumnSum>,
}

impl Program {
    /// The columns that are read from the rows, and the columns that steps make. No column is in both lists.
    pub(crate) fn columns(&self) -> (Vec<u16>, Vec<u16>) {
        let (mut loaded, mut written) = (ColumnList::default(), ColumnList::default());
        let read = |column: u16, loaded: &mut ColumnList, written: &ColumnList| {
            if !written.has(column) {
                loaded.add(column);
            }
        };
        for step in &self.steps {
            step.reads().into_iter().for_each(|column| read(column, &mut loaded, &written));
            written.add(step.to());
        }
        for sum in &self.sums {
            sum.reads().into_iter().flatten().for_each(|column| read(column, &mut loaded, &written));
        }
        (loaded.columns, written.columns)
    }

    /// Checks that the program can run, and that a second run gives the same result. Its columns must exist, column 0
    /// is not made, and no step makes a column that is read from the rows.
    ///
    /// # Errors
    /// What is wrong with the program, in words.
    pub fn check(&self, vectors: Vectors) -> Result<(), String> {
        let terms =
            |step: &ProgramStep| if let ProgramStep::Combine { terms, .. } = step { terms.len() } else { 0 };
        let counts = [
            ("steps", self.steps.len(), PROGRAM_STEPS_MAX),
            ("terms", self.steps.iter().map(terms).sum(), PROGRAM_TERMS_MAX),
            ("sums", self.sums.len(), PROGRAM_SUMS_MAX),
        ];
        if let Some((what, count, max)) = counts.into_iter().find(|(_, count, max)| count > max) {
            return Err(format!("a program of {count} {what} is too long: the limit is {max}"));
        }
        if self.pass > Vectors::PASS_MAX {
            return Err(format!("pass {} is too high: the last is {}", self.pass, Vectors::PASS_MAX));
        }
        let (loaded, written) = self.columns();
        let columns = vectors.columns();
        if let Some(column) = loaded.iter().chain(&written).find(|&&column| column >= columns) {
            return Err(format!("column {column} does not exist: the rows have {columns} columns"));
        }
        if written.contains(&0) {
            return Err("column 0 cannot be made by a program: only pushes change it".into());
        }
        match written.iter().find(|column| loaded.contains(column)) {
            Some(column) => Err(format!("column {column} is read before it is made")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reciprocals_stay_in_range() {
        let made = [4.0, 0.0, -1.0, 1e-40, f64::INFINITY].map(reciprocal);
        assert_eq!(made, [0.25, 1.0, 1.0, RECIPROCAL_MAX, 0.0]);
    }

    #[test]
    fn what_cannot_be_done_twice_is_refused() {
        let vectors = Vectors { wide: 4, narrow: 1 };
        let combine = |to, from: u16| ProgramStep::Combine { to, terms: vec![Term::new(1.0, from)] };
        let check = |steps| Program { steps, ..Program::default() }.check(vectors);
        let multiply = |to, by| ProgramStep::Multiply { to, by };
        assert_eq!(check(vec![combine(1, 2), combine(3, 1), multiply(3, 5)]), Ok(()));
        assert_eq!(check(vec![combine(1, 1)]), Err("column 1 is read before it is made".into()));
        assert_eq!(
            check(vec![combine(1, 2), combine(2, 1)]),
            Err("column 2 is read before it is made".into())
        );
        assert_eq!(
            check(vec![ProgramStep::Support { to: 1, of: 1 }]),
            Err("column 1 is read before it is made".into())
        );
        assert_eq!(check(vec![multiply(1, 2)]), Err("column 1 is read before it is made".into()));
        assert_eq!(
            check(vec![combine(0, 1)]),
            Err("column 0 cannot be made by a program: only pushes change it".into())
        );
        assert_eq!(
            check(vec![combine(1, 6)]),
            Err("column 6 does not exist: the rows have 6 columns".into())
        );
        let many = Program { steps: vec![combine(1, 2); PROGRAM_STEPS_MAX + 1], ..Program::default() };
        assert!(many.check(vectors).unwrap_err().contains("steps"));
    }
}

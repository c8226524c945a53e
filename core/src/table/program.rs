//! What is done with the columns of a table of vectors (vectors.rs): steps, each making one column, and sums.

use crate::limits::{PROGRAM_STEPS_MAX, PROGRAM_SUMS_MAX, PROGRAM_TERMS_MAX};
use crate::table::vectors::Vectors;

/// A column times a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Term {
    /// The number.
    pub factor: f64,
    /// The column.
    pub column: u16,
    /// The row of [`Program::free`] leaves it out.
    pub penalised: bool,
}

impl Term {
    /// For all rows.
    pub fn new(factor: f64, column: u16) -> Term {
        Term { factor, column, penalised: false }
    }

    /// For all rows but that of [`Program::free`].
    pub fn penalised(factor: f64, column: u16) -> Term {
        Term { factor, column, penalised: true }
    }
}

/// Makes one column, row by row.
#[derive(Clone, Debug, PartialEq)]
pub enum ProgramStep {
    /// The sum of terms.
    Combine {
        /// The column made.
        to: u16,
        /// What is added, in this order.
        terms: Vec<Term>,
    },
    /// The pseudo-gradient of OWL-QN ([`pseudo_gradient`](gannet_optim::lbfgs::pseudo_gradient)); in the row of
    /// [`Program::free`] the gradient itself.
    Slope {
        /// The column made.
        to: u16,
        /// The gradient of what is smooth.
        gradient: u16,
        /// The weights.
        weights: u16,
        /// The factor of the weights' absolute values.
        l1: f64,
    },
    /// A column that an earlier step made, with 0 where it does not lead down a slope.
    Align {
        /// The column.
        to: u16,
        /// The slope.
        slope: u16,
    },
    /// A column that an earlier step made, times another.
    Multiply {
        /// The column.
        to: u16,
        /// What it is multiplied by.
        by: u16,
    },
    /// One over a column and a number, at most [`RECIPROCAL_MAX`]; 1 where the sum is not above 0. In the row of
    /// [`Program::free`] the number is left out.
    Reciprocal {
        /// The column made.
        to: u16,
        /// The column.
        of: u16,
        /// The number.
        plus: f64,
    },
    /// Weights plus a step, with 0 where the orthant is left ([`project`](gannet_optim::lbfgs::project)); in the row of
    /// [`Program::free`] the sum.
    Project {
        /// The column made.
        to: u16,
        /// The weights.
        weights: u16,
        /// The step.
        step: u16,
        /// The slope that says which orthant a weight of 0 is for.
        slope: u16,
    },
}

/// The largest reciprocal: far inside the range of f32, in which columns are kept.
pub const RECIPROCAL_MAX: f64 = 1e30;

/// What [`ProgramStep::Reciprocal`] makes of a sum.
pub(crate) fn reciprocal(sum: f64) -> f64 {
    if sum > 0.0 { (1.0 / sum).min(RECIPROCAL_MAX) } else { 1.0 }
}

impl ProgramStep {
    fn to(&self) -> u16 {
        match *self {
            ProgramStep::Combine { to, .. }
            | ProgramStep::Slope { to, .. }
            | ProgramStep::Align { to, .. }
            | ProgramStep::Multiply { to, .. }
            | ProgramStep::Reciprocal { to, .. }
            | ProgramStep::Project { to, .. } => to,
        }
    }

    fn reads(&self) -> Vec<u16> {
        match self {
            ProgramStep::Combine { terms, .. } => terms.iter().map(|term| term.column).collect(),
            ProgramStep::Slope { gradient, weights, .. } => vec![*gradient, *weights],
            ProgramStep::Align { to, slope } => vec![*to, *slope],
            ProgramStep::Multiply { to, by } => vec![*to, *by],
            ProgramStep::Reciprocal { of, .. } => vec![*of],
            ProgramStep::Project { weights, step, slope, .. } => vec![*weights, *step, *slope],
        }
    }
}

/// A sum over all rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnSum {
    /// Of products.
    Dot {
        /// A column.
        a: u16,
        /// A column.
        b: u16,
        /// The row of [`Program::free`] is left out.
        penalised: bool,
    },
    /// Of products of three columns.
    Weighted {
        /// A column.
        a: u16,
        /// A column.
        b: u16,
        /// The weight of each row.
        by: u16,
    },
    /// Of absolute values.
    Norm1 {
        /// A column.
        a: u16,
        /// The row of [`Program::free`] is left out.
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

    fn reads(&self) -> Vec<u16> {
        match *self {
            ColumnSum::Dot { a, b, .. } => vec![a, b],
            ColumnSum::Weighted { a, b, by } => vec![a, b, by],
            ColumnSum::Norm1 { a, .. } => vec![a],
        }
    }
}

/// Steps and sums, done in one pass over a shard's rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// The pass whose sums column 0 reads as: a row whose sum is of another reads as 0.
    pub pass: u64,
    /// The key of the row without penalties.
    pub free: Option<u64>,
    /// The columns to make.
    pub steps: Vec<ProgramStep>,
    /// The sums to answer, of the columns as they are afterwards.
    pub sums: Vec<ColumnSum>,
}

impl Program {
    /// The columns that are read from the rows, and those that are made; none is both.
    pub(crate) fn columns(&self) -> (Vec<u16>, Vec<u16>) {
        let (mut loaded, mut written) = (Vec::new(), Vec::new());
        let read = |columns: Vec<u16>, loaded: &mut Vec<u16>, written: &[u16]| {
            for column in columns {
                if !written.contains(&column) && !loaded.contains(&column) {
                    loaded.push(column);
                }
            }
        };
        for step in &self.steps {
            read(step.reads(), &mut loaded, &written);
            if !written.contains(&step.to()) {
                written.push(step.to());
            }
        }
        self.sums.iter().for_each(|sum| read(sum.reads(), &mut loaded, &written));
        (loaded, written)
    }

    /// Whether it can be done, again and again with the same outcome: columns exist, column 0 is not made, and none is made
    /// that was read from the rows.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, vectors: Vectors) -> Result<(), String> {
        let terms =
            |step: &ProgramStep| if let ProgramStep::Combine { terms, .. } = step { terms.len() } else { 0 };
        let counts = [
            ("steps", self.steps.len(), PROGRAM_STEPS_MAX),
            ("terms", self.steps.iter().map(terms).sum(), PROGRAM_TERMS_MAX),
            ("sums", self.sums.len(), PROGRAM_SUMS_MAX),
        ];
        if let Some((what, count, max)) = counts.into_iter().find(|(_, count, max)| count > max) {
            return Err(format!("a program of {count} {what}, {max} are the limit"));
        }
        if self.pass > Vectors::PASS_MAX {
            return Err(format!("pass {}, {} is the last", self.pass, Vectors::PASS_MAX));
        }
        let (loaded, written) = self.columns();
        let columns = vectors.columns();
        if let Some(column) = loaded.iter().chain(&written).find(|&&column| column >= columns) {
            return Err(format!("column {column}, the rows have {columns}"));
        }
        if written.contains(&0) {
            return Err("column 0 is made by pushes only".into());
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
        assert_eq!(check(vec![combine(1, 2), combine(3, 1), ProgramStep::Align { to: 3, slope: 5 }]), Ok(()));
        assert_eq!(check(vec![combine(1, 1)]), Err("column 1 is read before it is made".into()));
        assert_eq!(
            check(vec![combine(1, 2), combine(2, 1)]),
            Err("column 2 is read before it is made".into())
        );
        assert_eq!(
            check(vec![ProgramStep::Align { to: 1, slope: 2 }]),
            Err("column 1 is read before it is made".into())
        );
        assert_eq!(
            check(vec![ProgramStep::Multiply { to: 1, by: 2 }]),
            Err("column 1 is read before it is made".into())
        );
        assert_eq!(check(vec![combine(0, 1)]), Err("column 0 is made by pushes only".into()));
        assert_eq!(check(vec![combine(1, 6)]), Err("column 6, the rows have 6".into()));
        let many = Program { steps: vec![combine(1, 2); PROGRAM_STEPS_MAX + 1], ..Program::default() };
        assert!(many.check(vectors).unwrap_err().contains("steps"));
    }
}

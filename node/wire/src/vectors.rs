//! Encodes programs on tables of vectors for the wire, and decodes them.

use crate::messages::control::{StepV1, VectorV1};
use gannet_core::{ColumnSum, Program, ProgramStep, Term};

const DOT: u16 = 0;
const NORM1: u16 = 1;
/// Added to the kind of a sum that skips the free row.
const PENALISED: u16 = 2;
/// A sum that a column weights. The bits above the kind hold the column's number.
const WEIGHTED: u16 = 4;
const WEIGHT_SHIFT: u32 = 3;

/// The request to run a program on a shard.
pub fn vector_request(shard: u32, seq: u64, program: &Program) -> VectorV1 {
    let Program { pass, free, .. } = *program;
    let steps = program.steps.iter().map(step_message).collect();
    let sums = program.sums.iter().map(|sum| {
        let kind = |kind: u16, penalised: bool| kind + if penalised { PENALISED } else { 0 };
        match *sum {
            ColumnSum::Dot { a, b, penalised } => [kind(DOT, penalised), a, b],
            ColumnSum::Norm1 { a, penalised } => [kind(NORM1, penalised), a, 0],
            ColumnSum::Weighted { a, b, by } => [WEIGHTED | by << WEIGHT_SHIFT, a, b],
        }
    });
    VectorV1 { shard, seq, pass, free, steps, sums: sums.collect() }
}

fn step_message(step: &ProgramStep) -> StepV1 {
    let plain = StepV1 { kind: 0, to: 0, columns: [0; 3], number: 0.0, terms: Vec::new() };
    match *step {
        ProgramStep::Combine { to, ref terms } => {
            let terms = terms.iter().map(|term| (term.factor, term.column, term.penalised));
            StepV1 { to, terms: terms.collect(), ..plain }
        }
        ProgramStep::Slope { to, gradient, weights, l1 } => {
            StepV1 { kind: 1, to, columns: [gradient, weights, 0], number: l1, ..plain }
        }
        ProgramStep::Support { to, of } => StepV1 { kind: 6, to, columns: [of, 0, 0], ..plain },
        ProgramStep::Multiply { to, by } => StepV1 { kind: 4, to, columns: [by, 0, 0], ..plain },
        ProgramStep::Reciprocal { to, of, plus } => {
            StepV1 { kind: 5, to, columns: [of, 0, 0], number: plus, ..plain }
        }
        ProgramStep::Project { to, weights, step, slope } => {
            StepV1 { kind: 3, to, columns: [weights, step, slope], ..plain }
        }
    }
}

/// The program of a request; `None` if it has an unknown kind of step or sum.
pub fn vector_program(request: VectorV1) -> Option<Program> {
    let VectorV1 { pass, free, steps, sums, .. } = request;
    let steps = steps.into_iter().map(|step| {
        let StepV1 { kind, to, columns: [a, b, c], number, terms } = step;
        Some(match kind {
            0 => {
                let term = |(factor, column, penalised)| Term { factor, column, penalised };
                ProgramStep::Combine { to, terms: terms.into_iter().map(term).collect() }
            }
            1 => ProgramStep::Slope { to, gradient: a, weights: b, l1: number },
            3 => ProgramStep::Project { to, weights: a, step: b, slope: c },
            4 => ProgramStep::Multiply { to, by: a },
            5 => ProgramStep::Reciprocal { to, of: a, plus: number },
            6 => ProgramStep::Support { to, of: a },
            // 2 was OWL-QN's alignment.
            _ => return None,
        })
    });
    let sums = sums.into_iter().map(|[kind, a, b]| {
        let by = kind >> WEIGHT_SHIFT;
        if kind & ((1 << WEIGHT_SHIFT) - 1) == WEIGHTED {
            return Some(ColumnSum::Weighted { a, b, by });
        }
        let penalised = kind & PENALISED != 0;
        match kind & !PENALISED {
            DOT => Some(ColumnSum::Dot { a, b, penalised }),
            NORM1 => Some(ColumnSum::Norm1 { a, penalised }),
            _ => None,
        }
    });
    Some(Program { pass, free, steps: steps.collect::<Option<_>>()?, sums: sums.collect::<Option<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_comes_through() {
        let steps = vec![
            ProgramStep::Combine { to: 1, terms: vec![Term::new(0.5, 2), Term::penalised(-1.0, 3)] },
            ProgramStep::Slope { to: 4, gradient: 1, weights: 2, l1: 0.25 },
            ProgramStep::Support { to: 6, of: 4 },
            ProgramStep::Project { to: 3, weights: 2, step: 1, slope: 4 },
            ProgramStep::Multiply { to: 1, by: 5 },
            ProgramStep::Reciprocal { to: 5, of: 0, plus: 0.5 },
        ];
        let both = [false, true];
        let sums = both.map(|penalised| ColumnSum::Dot { a: 1, b: 2, penalised });
        let norms = both.map(|penalised| ColumnSum::Norm1 { a: 3, penalised });
        let weighted = [ColumnSum::Weighted { a: 1, b: 2, by: 5 }];
        let sums = sums.into_iter().chain(norms).chain(weighted).collect();
        let sent = Program { pass: 7, free: Some(u64::MAX), steps, sums };
        let travelled =
            crate::messages::control::open(&crate::messages::control::seal(&vector_request(5, 6, &sent)))
                .unwrap();
        assert_eq!(vector_program(travelled), Some(sent.clone()));
        for unknown in [2, 7] {
            let mut foreign = vector_request(5, 6, &sent);
            foreign.steps[0].kind = unknown;
            assert_eq!(vector_program(foreign), None);
        }
        let mut foreign = vector_request(5, 6, &sent);
        foreign.sums[0][0] = 5;
        assert_eq!(vector_program(foreign), None);
    }
}

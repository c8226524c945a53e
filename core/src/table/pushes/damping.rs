//! Damped changes of state, for several workers. Each worker computes its change from rows that other workers
//! change at the same time. When more than two workers have learned from the same rows, the plain sum of their
//! changes goes too far.
//!
//! In a counting table a row has one more float behind its state: the number of damped pushes applied to it. A
//! push carries for each row the count that it expects: the count of the row from which the change was
//! computed, plus the pusher's own pushes since. If the row's count is `c` higher, other workers have pushed
//! `c` times, and the change is multiplied by 1 / (1 + c). Without other workers nothing is damped, bit for
//! bit.

use crate::schema::init::Init;
use crate::schema::segment::Segment;
use crate::schema::table_schema::Schema;
use crate::table::pushes::effect::Effect;
use gannet_optim::{Add, GradientTransform, Isa, Rule, Update, add_change};

/// A count of this many pushes wraps to 0. Whole numbers below it are exact in a float, and so is a sum of two
/// of them.
const COUNTS: f32 = (1 << 23) as f32;

impl Schema {
    /// The same table with a count of pushes behind each row, for [`Write::Damped`](crate::Write::Damped).
    pub fn counting(&self) -> Schema {
        let count =
            Segment { dim: 1, rule: Rule::Add(Add), shaping: GradientTransform::NONE, init: Init::Zero };
        let mut schema = self.clone();
        schema.more.push(count);
        schema
    }

    /// Whether rows count their pushes, behind a state that can be replayed.
    pub fn counts(&self) -> bool {
        let last = self.more.last();
        self.replays() && last.is_some_and(|last| last.dim == 1 && matches!(last.rule, Rule::Add(_)))
    }
}

/// Pushes of other workers that were applied to a row: its count less the expected count.
#[inline(always)]
fn others(count: f32, expected: f32) -> f32 {
    let ahead = (count - expected).rem_euclid(COUNTS);
    // A count below the expected one means that some of the worker's own pushes were dropped.
    if ahead < COUNTS / 2.0 { ahead } else { 0.0 }
}

/// Damped changes of state.
pub(crate) struct Damped;

impl Effect for Damped {
    #[inline(always)]
    fn apply<I: Isa, U: Update>(&mut self, _: I, _: U, row: &mut [f32], value: &[f32], _: u64) {
        let (Some((count, row)), Some((expected, change))) = (row.split_last_mut(), value.split_last())
        else {
            return;
        };
        let others = others(*count, *expected);
        if others > 0.0 {
            let share = 1.0 / (1.0 + others);
            row.iter_mut().zip(change).for_each(|(row, change)| *row += change * share);
        } else {
            add_change(row, change);
        }
        *count = (*count + 1.0) % COUNTS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_round() {
        assert_eq!(others(7.0, 7.0), 0.0);
        assert_eq!(others(9.0, 7.0), 2.0);
        assert_eq!(others(7.0, 9.0), 0.0);
        assert_eq!(others(1.0, COUNTS - 2.0), 3.0);
        assert_eq!(others(0.0, COUNTS), 0.0);
        assert_eq!(others(COUNTS - 1.0, 0.0), 0.0);
    }
}

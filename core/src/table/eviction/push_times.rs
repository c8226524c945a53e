//! When rows were pushed, without a word in each row: at some times the number of the last command is noted. A row
//! whose version is not above the number of a time was not pushed since.

use crate::limits::{EVICT_AGE_STEPS, EVICT_STEP_MIN};
use std::collections::VecDeque;
use std::time::Duration;

/// The numbers of the last commands at some times, the oldest first. All shards had the same number then.
pub(super) struct PushTimes {
    times: VecDeque<(Duration, u64)>,
    longest: Duration,
    step: Duration,
}

impl PushTimes {
    /// For questions about ages up to `longest`.
    pub(super) fn new(longest: Duration) -> PushTimes {
        let step = (longest / EVICT_AGE_STEPS).max(EVICT_STEP_MIN);
        PushTimes { times: VecDeque::new(), longest, step }
    }

    /// The time between two notes.
    pub(super) fn step(&self) -> Duration {
        self.step
    }

    /// Whether a number should be noted now. A clock that has gone back notes nothing until it is where it was.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.times.back().is_none_or(|(last, _)| now >= *last + self.step)
    }

    /// Notes the number of the last command of all shards.
    pub(super) fn note(&mut self, now: Duration, command: u64) {
        self.times.push_back((now, command));
        // One time that is old enough answers all questions.
        while self.times.get(1).is_some_and(|(second, _)| now.saturating_sub(*second) >= self.longest) {
            self.times.pop_front();
        }
    }

    /// The highest version of rows that were certainly not pushed for so long. `None`: the notes do not reach back so
    /// far, so no row is that old.
    pub(super) fn version_before(&self, now: Duration, age: Duration) -> Option<u64> {
        let limit = now.checked_sub(age)?;
        self.times.iter().rev().find(|(time, _)| *time <= limit).map(|(_, command)| *command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The model keeps every push with its time. A version that counts as old was not pushed for that age, and one
        /// that was not pushed for two steps more counts as old.
        #[test]
        fn an_old_version_is_old_and_not_much_too_late(
            steps in prop::collection::vec((0u64..400, 0u64..5), 1..300), age in 640u64..2000,
        ) {
            let age = Duration::from_millis(age);
            let mut times = PushTimes::new(age);
            let (mut now, mut command, mut pushes) = (Duration::ZERO, 0, Vec::new());
            for (wait, more) in steps {
                now += Duration::from_millis(wait);
                for _ in 0..more {
                    command += 1;
                    pushes.push((now, command));
                }
                if times.is_due(now) {
                    times.note(now, command);
                }
                prop_assert!(times.times.len() <= EVICT_AGE_STEPS as usize + 3);
                let old = times.version_before(now, age).unwrap_or(0);
                let since = |command: u64| now - pushes[command as usize - 1].0;
                prop_assert!((1..=old).all(|command| since(command) >= age));
                // Visits are less than 400 ms apart, so notes are that much more than a step apart.
                let late = age + times.step() + Duration::from_millis(400);
                prop_assert!((1..=command).filter(|&push| since(push) >= late).all(|push| push <= old));
            }
        }
    }
}

//! How many rows may die within an hour because of age or weights: a burst of old rows must not empty a table.

use crate::limits::EVICT_HOURLY_PART;
use std::time::Duration;

/// Minutes that are counted: those of an hour, and the one that has begun before.
const MINUTES: usize = 61;

/// The rows that were evicted in each of the last minutes.
pub(super) struct HourShare {
    minutes: [u64; MINUTES],
    minute: u64,
}

impl HourShare {
    pub(super) fn new() -> HourShare {
        HourShare { minutes: [0; MINUTES], minute: 0 }
    }

    /// How many more rows of a table with so many rows may be evicted now.
    pub(super) fn left(&mut self, now: Duration, rows: u64) -> u64 {
        self.go_on(now);
        let evicted: u64 = self.minutes.iter().sum();
        ((rows + evicted) / EVICT_HOURLY_PART).saturating_sub(evicted)
    }

    /// Counts rows that were evicted.
    pub(super) fn count(&mut self, now: Duration, rows: u64) {
        self.go_on(now);
        self.minutes[self.minute as usize % MINUTES] += rows;
    }

    fn go_on(&mut self, now: Duration) {
        let minute = now.as_secs() / 60;
        let passed = minute.saturating_sub(self.minute).min(MINUTES as u64);
        (1..=passed).for_each(|n| self.minutes[(minute - passed + n) as usize % MINUTES] = 0);
        self.minute = self.minute.max(minute);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hour_takes_more_than_its_part() {
        let (mut share, mut rows, mut evicted) = (HourShare::new(), 10_000u64, Vec::new());
        for minute in 0..300u64 {
            let now = Duration::from_secs(minute * 60 + minute % 60);
            let some = share.left(now, rows).min(700);
            share.count(now, some);
            rows -= some;
            evicted.push(some);
            let hour = &evicted[evicted.len().saturating_sub(61)..];
            let (gone, before) = (hour.iter().sum::<u64>(), rows + hour.iter().sum::<u64>());
            assert!(gone <= before / EVICT_HOURLY_PART, "{gone} of {before} rows by minute {minute}");
        }
        assert!(rows < 1000, "the share is used, hour after hour: {rows} rows are left");
    }
}

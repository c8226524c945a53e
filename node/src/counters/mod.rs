//! What the roles count while they run, and how it is told. Each block of counts has one thread that adds to it, with
//! plain stores, and stands on cache lines of its own; whoever asks reads all blocks, and the numbers add up on his
//! page.
//!
//! A count is told beside its name and meaning (`tell` of its block), so a new one is a field, a line there, and a row
//! of the table in docs/metrics.md, which a test compares with what is told.

mod server;
mod table;
mod worker;

pub use server::ServerCounters;
pub(crate) use server::{Carrier, RequestKind, ThreadCounters};
pub(crate) use table::TableCounters;
pub use worker::WorkerCounters;

use gannet_core::Applied;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Where numbers are told, a call each. Numbers of the same name and labels belong to several threads: they add up.
///
/// Names follow Prometheus: counters end in `_total`, units are seconds and bytes.
pub trait MetricsSink {
    /// A number that only grows.
    fn counter(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
        value: f64,
    );
    /// A number that comes and goes.
    fn gauge(&mut self, name: &'static str, help: &'static str, labels: &[(&'static str, &str)], value: f64);
    /// How often something took how long.
    fn histogram(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
        buckets: &Buckets,
    );
}

/// A number with one writer and any number of readers. An addition is a load and a store; with two writers counts
/// would be lost.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds; the writer's.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Takes away; the writer's.
    #[inline(always)]
    pub fn sub(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(n), Relaxed);
    }

    /// Replaces; the writer's.
    #[inline(always)]
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    /// The number now.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What became of the rows of pushes: the server's counts of what it did, the worker's of what it was told.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) applied: Count,
    pub(crate) duplicate: Count,
    pub(crate) not_finite: Count,
    pub(crate) not_admitted: Count,
}

impl Outcomes {
    /// Counts a part.
    pub(crate) fn count(&self, applied: &Applied) {
        self.applied.add(u64::from(applied.applied));
        self.duplicate.add(u64::from(applied.duplicate));
        self.not_finite.add(u64::from(applied.not_finite));
        self.not_admitted.add(u64::from(applied.not_admitted));
    }

    /// Each with its name.
    fn named(&self) -> [(&'static str, &Count); 4] {
        [
            ("applied", &self.applied),
            ("duplicate", &self.duplicate),
            ("not_finite", &self.not_finite),
            ("not_admitted", &self.not_admitted),
        ]
    }
}

/// Buckets of a histogram of times. Bucket `i` holds what took at most `2^i` nanoseconds and more than the bucket
/// before; the last (over 17 s) has no bound.
pub const BUCKETS: usize = 36;

/// The bucket of a time in nanoseconds.
#[inline(always)]
pub fn bucket(nanos: u64) -> usize {
    ((u64::BITS - nanos.saturating_sub(1).leading_zeros()) as usize).min(BUCKETS - 1)
}

/// A histogram as it was at some moment: counts by [`bucket`], and the sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buckets {
    /// How many, by bucket.
    pub counts: [u64; BUCKETS],
    /// Nanoseconds in all.
    pub sum_nanos: u64,
}

impl Default for Buckets {
    fn default() -> Buckets {
        Buckets { counts: [0; BUCKETS], sum_nanos: 0 }
    }
}

impl Buckets {
    /// How many in all.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds another thread's.
    pub fn add(&mut self, other: &Buckets) {
        self.counts.iter_mut().zip(other.counts).for_each(|(own, other)| *own += other);
        self.sum_nanos += other.sum_nanos;
    }
}

/// How often something took how long, with one writer.
#[derive(Debug)]
pub struct Histogram {
    counts: [Count; BUCKETS],
    sum_nanos: Count,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: std::array::from_fn(|_| Count::default()), sum_nanos: Count::default() }
    }
}

impl Histogram {
    /// `times` things took `took` each.
    #[inline]
    pub fn observe(&self, took: Duration, times: u64) {
        let nanos = took.as_nanos() as u64;
        self.counts[bucket(nanos)].add(times);
        self.sum_nanos.add(nanos * times);
    }

    /// What has been observed.
    pub fn read(&self) -> Buckets {
        let counts = std::array::from_fn(|i| self.counts[i].get());
        Buckets { counts, sum_nanos: self.sum_nanos.get() }
    }

    /// Takes over what was observed elsewhere, all of it each time.
    pub fn replace(&self, with: &Buckets) {
        self.counts.iter().zip(with.counts).for_each(|(own, new)| own.set(new));
        self.sum_nanos.set(with.sum_nanos);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_ends_at_a_power_of_two() {
        for i in 0..BUCKETS - 1 {
            let end = 1u64 << i;
            assert_eq!(bucket(end), i, "{end} ns belong to the bucket that ends there");
            assert_eq!(bucket(end + 1), i + 1);
        }
        assert_eq!((bucket(0), bucket(1), bucket(u64::MAX)), (0, 0, BUCKETS - 1));
    }

    #[test]
    fn what_is_observed_is_read() {
        let histogram = Histogram::default();
        let took = [3u64, 1000, 1024, 1025, 7_000_000_000, 60_000_000_000];
        took.iter().for_each(|&nanos| histogram.observe(Duration::from_nanos(nanos), 2));
        let read = histogram.read();
        assert_eq!((read.count(), read.sum_nanos), (12, 2 * took.iter().sum::<u64>()));
        assert_eq!((read.counts[10], read.counts[11], read.counts[BUCKETS - 1]), (4, 2, 2));
        let mut both = read;
        both.add(&read);
        assert_eq!((both.count(), both.sum_nanos), (24, 2 * read.sum_nanos));
    }
}

//! What servers and workers count while they run, and how metrics are written. Each block of counters has one thread
//! that adds to it, with plain stores, on cache lines of its own. A reader reads all blocks and adds the numbers up.
//!
//! The `tell` function of a block writes each counter with its name and meaning. So a new counter is a field and a line
//! there. The page of metrics is made from what processes report (scripts/book/metrics.py).

use gannet_core::Applied;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Receives metrics, a call for each number. Numbers with the same name and labels come from several threads and add
/// up.
///
/// Names follow Prometheus: counters end in `_total`, units are seconds and bytes.
///
/// ```
/// # use gannet_wire::{Buckets, MetricsSink};
/// # use gannet_server::{Server, ServerConfig};
/// # use gannet_transport::multi::Transports;
/// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// struct Names(Vec<&'static str>);
/// type Labels<'a> = &'a [(&'static str, &'a str)];
/// impl MetricsSink for Names {
///     fn counter(&mut self, name: &'static str, _: &'static str, _: Labels<'_>, _: f64) {
///         self.0.push(name);
///     }
///     // ... gauge() and histogram() do the same ...
/// #     fn gauge(&mut self, name: &'static str, _: &'static str, _: Labels<'_>, _: f64) {
/// #         self.0.push(name);
/// #     }
/// #     fn histogram(&mut self, name: &'static str, _: &'static str, _: Labels<'_>, _: &Buckets) {
/// #         self.0.push(name);
/// #     }
/// }
/// let mut names = Names(Vec::new());
/// server.shared_counters().tell(&mut names);
/// assert!(names.0.contains(&"gannet_server_accepted_connections_total"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait MetricsSink {
    /// A number that only grows.
    fn counter(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
        value: f64,
    );
    /// A number that grows and shrinks.
    fn gauge(&mut self, name: &'static str, help: &'static str, labels: &[(&'static str, &str)], value: f64);
    /// How often an operation took how long.
    fn histogram(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
        buckets: &Buckets,
    );
}

/// A number with one writer and any number of readers. An addition is a load and a store, so a second writer would lose
/// counts.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds. Only the writer may call it.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Subtracts. Only the writer may call it.
    #[inline(always)]
    pub fn sub(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(n), Relaxed);
    }

    /// Replaces the number. Only the writer may call it.
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

/// Outcomes of the rows of pushes: on a server what it did, on a worker what servers answered.
#[derive(Debug, Default)]
pub struct Outcomes {
    pub applied: Count,
    pub duplicate: Count,
    pub not_finite: Count,
    pub not_admitted: Count,
    pub refused: Count,
}

impl Outcomes {
    /// Counts a part of a push.
    pub fn count(&self, applied: &Applied) {
        self.applied.add(u64::from(applied.applied));
        self.duplicate.add(u64::from(applied.duplicate));
        self.not_finite.add(u64::from(applied.not_finite));
        self.not_admitted.add(u64::from(applied.not_admitted));
        self.refused.add(u64::from(applied.refused));
    }

    /// Each counter with its name.
    pub fn named(&self) -> [(&'static str, &Count); 5] {
        [
            ("applied", &self.applied),
            ("duplicate", &self.duplicate),
            ("not_finite", &self.not_finite),
            ("not_admitted", &self.not_admitted),
            ("refused", &self.refused),
        ]
    }
}

/// Number of buckets of a histogram of times. Bucket `i` counts times of at most `2^i` nanoseconds that exceed the
/// bucket before. The last (over 17 s) has no bound. [`bucket_of_nanos`] has an example.
pub const BUCKETS: usize = 36;

/// The bucket of a time in nanoseconds.
///
/// ```
/// use gannet_wire::{BUCKETS, bucket_of_nanos};
///
/// assert_eq!((bucket_of_nanos(1000), bucket_of_nanos(1024), bucket_of_nanos(1025)), (10, 10, 11));
/// assert_eq!(bucket_of_nanos(u64::MAX), BUCKETS - 1);
/// ```
#[inline(always)]
pub fn bucket_of_nanos(nanos: u64) -> usize {
    ((u64::BITS - nanos.saturating_sub(1).leading_zeros()) as usize).min(BUCKETS - 1)
}

/// A histogram at one moment: counts by [`bucket_of_nanos`], and the sum.
///
/// ```
/// use gannet_wire::{Buckets, bucket_of_nanos};
///
/// let (mut all, mut one) = (Buckets::default(), Buckets::default());
/// one.counts[bucket_of_nanos(1000)] += 1;
/// one.sum_nanos += 1000;
/// all.add(&one);
/// all.add(&one);
/// assert_eq!((all.count(), all.sum_nanos), (2, 2000));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buckets {
    /// Counts by bucket.
    pub counts: [u64; BUCKETS],
    /// The sum of all times in nanoseconds.
    pub sum_nanos: u64,
}

impl Default for Buckets {
    fn default() -> Buckets {
        Buckets { counts: [0; BUCKETS], sum_nanos: 0 }
    }
}

impl Buckets {
    /// The sum of all counts.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds another thread's histogram.
    pub fn add(&mut self, other: &Buckets) {
        self.counts.iter_mut().zip(other.counts).for_each(|(own, other)| *own += other);
        self.sum_nanos += other.sum_nanos;
    }
}

/// A histogram of times, with one writer.
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
    /// Counts `times` operations that took `took` each.
    #[inline]
    pub fn observe(&self, took: Duration, times: u64) {
        let nanos = took.as_nanos() as u64;
        self.counts[bucket_of_nanos(nanos)].add(times);
        self.sum_nanos.add(nanos * times);
    }

    /// The counts and the sum now.
    pub fn read(&self) -> Buckets {
        let counts = std::array::from_fn(|i| self.counts[i].get());
        Buckets { counts, sum_nanos: self.sum_nanos.get() }
    }

    /// Replaces the content by a histogram that is kept elsewhere.
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
            assert_eq!(bucket_of_nanos(end), i, "{end} ns belong to the bucket that ends there");
            assert_eq!(bucket_of_nanos(end + 1), i + 1);
        }
        assert_eq!((bucket_of_nanos(0), bucket_of_nanos(1), bucket_of_nanos(u64::MAX)), (0, 0, BUCKETS - 1));
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

//! What a folder that learns counts.

use gannet::metrics::MetricsSink;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The counters.
#[derive(Debug, Default)]
pub struct LearnCounters {
    /// Examples that were taken.
    pub taken: AtomicU64,
    /// Examples whose id had come before.
    pub repeats: AtomicU64,
    /// Of those that were taken: labels of predictions.
    pub joined: AtomicU64,
    /// Labels of predictions that were not known.
    pub unknown: AtomicU64,
    /// Predictions that were kept and got no label.
    pub expired: AtomicU64,
    /// Predictions that wait for a label.
    pub kept: AtomicU64,
    /// Bytes of these.
    pub kept_bytes: AtomicU64,
    /// Examples that are taken and not learned.
    pub waiting: AtomicU64,
    /// When the oldest of these was taken.
    pub oldest: Mutex<Option<Instant>>,
}

impl LearnCounters {
    /// Writes all numbers.
    pub fn tell(&self, page: &mut dyn MetricsSink) {
        let counts = [
            ("gannet_learn_examples_total", "Examples that were taken to be learned.", &self.taken),
            ("gannet_learn_repeats_total", "Examples whose id had come before.", &self.repeats),
            ("gannet_learn_joined_total", "Labels that were joined with a kept prediction.", &self.joined),
            ("gannet_learn_unknown_total", "Labels of predictions that were not known.", &self.unknown),
            (
                "gannet_learn_expired_total",
                "Kept predictions that were forgotten without a label.",
                &self.expired,
            ),
        ];
        for (name, help, count) in counts {
            page.counter(name, help, &[], count.load(Relaxed) as f64);
        }
        let gauges = [
            ("gannet_learn_waiting_examples", "Examples that are taken and not learned.", &self.waiting),
            ("gannet_learn_kept_predictions", "Predictions that are kept for their labels.", &self.kept),
            ("gannet_learn_kept_bytes", "Bytes of these predictions.", &self.kept_bytes),
        ];
        for (name, help, count) in gauges {
            page.gauge(name, help, &[], count.load(Relaxed) as f64);
        }
        let oldest = *self.oldest.lock().unwrap_or_else(PoisonError::into_inner);
        let lag = oldest.map_or(0.0, |since| since.elapsed().as_secs_f64());
        page.gauge("gannet_learn_lag_seconds", "How long the oldest example waits to be learned.", &[], lag);
    }
}

//! The settings of criterion that all benchmarks share.

use criterion::Criterion;
use std::time::Duration;

/// Criterion's settings: short, since ratios within a run are what is read.
pub fn criterion() -> Criterion {
    Criterion::default()
        .sample_size(15)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1200))
        .configure_from_args()
}

//! The metrics of a training, from its loop's latest report.

use gannet::metrics::MetricsSink;
use gannet::train::models::Measured;
use gannet::train::{Progress, Report};
use std::sync::{Mutex, PoisonError};

/// The latest progress of this process's training.
pub struct Training {
    /// Whether it is of logistic regression.
    lr: bool,
    latest: Mutex<Option<Progress>>,
}

impl Training {
    /// A training that has made no step. `lr`: of logistic regression.
    pub fn new(lr: bool) -> Training {
        Training { lr, latest: Mutex::default() }
    }

    /// Stores the loop's progress.
    pub fn progress(&self, progress: &Progress) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(*progress);
    }

    /// Stores the final numbers.
    pub fn finish(&self, report: &Report, epochs: u32) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let loss = if self.lr { report.progressive.as_ref().map(Measured::loss) } else { report.last_loss };
        let loss = loss.unwrap_or(f64::NAN);
        let auc = report.progressive.as_ref().and_then(Measured::click).and_then(|quality| quality.auc);
        let before = latest.unwrap_or(Progress { epoch: epochs - 1, loss, auc, ..Progress::default() });
        let Report { examples, steps, seconds, .. } = *report;
        let loss = if self.lr { before.loss } else { loss };
        let bad_lines = report.bad_lines.count;
        *latest =
            Some(Progress { examples, steps, seconds, loss, bad_lines, queued: 0, in_flight: 0, ..before });
    }

    /// Writes the metrics. Writes nothing before the first batches have been learned.
    pub fn tell(&self, page: &mut dyn MetricsSink) {
        let Some(p) = *self.latest.lock().unwrap_or_else(PoisonError::into_inner) else { return };
        tell_shared(&p, page);
        match self.lr {
            true => tell_lr(&p, page),
            false => tell_model(&p, page),
        }
    }
}

/// Writes what only trainings of logistic regression have.
fn tell_lr(p: &Progress, page: &mut dyn MetricsSink) {
    let (name, help) = ("gannet_train_bad_lines_total", "Bad lines skipped in the first pass.");
    page.counter(name, help, &[], p.bad_lines as f64);
    let mut gauge = |name, help, value: f64| page.gauge(name, help, &[], value);
    gauge(
        "gannet_train_log_loss",
        "Progressive log loss: of the first pass until it ends, then of the current pass.",
        p.loss,
    );
    if let Some(auc) = p.auc {
        gauge("gannet_train_auc", "Progressive AUC of the first pass, once both classes have appeared.", auc);
    }
    gauge(
        "gannet_train_queued_batches",
        "Batches that are read and wait to be learned; at 0, reading is the bottleneck.",
        p.queued as f64,
    );
    gauge("gannet_train_batches_in_flight", "Batches whose rows are being pulled now.", p.in_flight as f64);
    if let Some(stats) = p.local {
        gauge("gannet_train_rows", "Rows of the table, in one process.", stats.rows as f64);
        gauge("gannet_train_bytes", "Bytes of the table, in one process.", stats.bytes as f64);
    }
}

/// Writes what only trainings of other models have.
fn tell_model(p: &Progress, page: &mut dyn MetricsSink) {
    let (name, help) = ("gannet_train_steps_total", "Batches learned, all passes; of models other than lr.");
    page.counter(name, help, &[], p.steps as f64);
    page.gauge(
        "gannet_train_loss",
        "Of models other than lr: loss of the current pass, as log loss or root mean squared error; \
         NaN for lda, whose examples are tokens.",
        &[],
        p.loss,
    );
}

/// Writes what trainings of all models have.
fn tell_shared(p: &Progress, page: &mut dyn MetricsSink) {
    let mut counter = |name, help, value: f64| page.counter(name, help, &[], value);
    counter(
        "gannet_train_examples_total",
        "Examples learned, all passes. Metrics of the training are updated every 0.2 s.",
        p.examples as f64,
    );
    counter("gannet_train_seconds_total", "Time spent in training.", p.seconds);
    let mut gauge = |name, help, value: f64| page.gauge(name, help, &[], value);
    gauge("gannet_train_epoch", "The current pass, from 1.", f64::from(p.epoch) + 1.0);
    gauge("gannet_train_read_bytes", "Bytes of the input read in this pass.", p.bytes_read as f64);
    if let Some(total) = p.bytes_total {
        gauge("gannet_train_input_bytes", "Bytes of the input, if known.", total as f64);
    }
}

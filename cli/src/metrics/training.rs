//! The metrics of a training, from its loop's latest report.

use crate::report::progress::fitting;
use gannet::metrics::MetricsSink;
use gannet::train::models::{Fitted, Fitting};
use gannet::train::{Progress, Report};
use std::sync::{Mutex, PoisonError};

/// The latest progress of this process's training.
#[derive(Default)]
pub struct Training(Mutex<Option<Progress>>);

impl Training {
    /// Stores the loop's progress.
    pub fn progress(&self, progress: &Progress) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(*progress);
    }

    /// Stores the final numbers.
    pub fn finish(&self, report: &Report, epochs: u32) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.unwrap_or(Progress {
            epoch: epochs - 1,
            log_loss: report.progressive.as_ref().map_or(f64::NAN, |quality| quality.log_loss),
            auc: report.progressive.as_ref().and_then(|quality| quality.auc),
            ..Progress::default()
        });
        let (examples, seconds, bad_lines) = (report.examples, report.seconds, report.bad_lines.count);
        *last = Some(Progress { examples, seconds, bad_lines, queued: 0, in_flight: 0, ..before });
    }

    /// Writes the metrics. Writes nothing before the first batches have been learned.
    pub fn tell(&self, page: &mut dyn MetricsSink) {
        let Some(p) = *self.0.lock().unwrap_or_else(PoisonError::into_inner) else { return };
        tell_shared(&fitting(&p), page);
        let (name, help) = ("gannet_train_bad_lines_total", "Bad lines skipped in the first pass.");
        page.counter(name, help, &[], p.bad_lines as f64);
        let mut gauge = |name, help, value: f64| page.gauge(name, help, &[], value);
        gauge(
            "gannet_train_log_loss",
            "Progressive log loss: of the first pass until it ends, then of the current pass.",
            p.log_loss,
        );
        if let Some(auc) = p.auc {
            gauge(
                "gannet_train_auc",
                "Progressive AUC of the first pass, once both classes have appeared.",
                auc,
            );
        }
        gauge(
            "gannet_train_queued_batches",
            "Batches that are read and wait to be learned; at 0, reading is the bottleneck.",
            p.queued as f64,
        );
        gauge(
            "gannet_train_batches_in_flight",
            "Batches whose rows are being pulled now.",
            p.in_flight as f64,
        );
        if let Some(stats) = p.local {
            gauge("gannet_train_rows", "Rows of the table, in one process.", stats.rows as f64);
            gauge("gannet_train_bytes", "Bytes of the table, in one process.", stats.bytes as f64);
        }
    }
}

/// The latest progress of the training of a model other than logistic regression.
#[derive(Default)]
pub struct FitTraining(Mutex<Option<Fitting>>);

impl FitTraining {
    /// Stores the loop's progress.
    pub fn progress(&self, fitting: &Fitting) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(*fitting);
    }

    /// Stores the final numbers.
    pub fn finish(&self, fitted: &Fitted, epochs: u32) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let loss = fitted.last_pass.as_ref().map_or(f64::NAN, |measured| measured.loss());
        let before = last.unwrap_or(Fitting { epoch: epochs - 1, ..Fitting::default() });
        let (examples, steps, seconds) = (fitted.examples, fitted.steps, fitted.seconds);
        *last = Some(Fitting { examples, steps, seconds, loss, ..before });
    }

    /// Writes the metrics. Writes nothing before the first batches have been learned.
    pub fn tell(&self, page: &mut dyn MetricsSink) {
        let Some(f) = *self.0.lock().unwrap_or_else(PoisonError::into_inner) else { return };
        tell_shared(&f, page);
        let (name, help) =
            ("gannet_train_steps_total", "Batches learned, all passes; of models other than lr.");
        page.counter(name, help, &[], f.steps as f64);
        page.gauge(
            "gannet_train_loss",
            "Of models other than lr: loss of the current pass, as log loss or root mean squared error; \
             NaN for lda, whose examples are tokens.",
            &[],
            f.loss,
        );
    }
}

/// Writes what trainings of all models have.
fn tell_shared(f: &Fitting, page: &mut dyn MetricsSink) {
    let mut counter = |name, help, value: f64| page.counter(name, help, &[], value);
    counter(
        "gannet_train_examples_total",
        "Examples learned, all passes. Metrics of the training are updated every 0.2 s.",
        f.examples as f64,
    );
    counter("gannet_train_seconds_total", "Time spent in training.", f.seconds);
    let mut gauge = |name, help, value: f64| page.gauge(name, help, &[], value);
    gauge("gannet_train_epoch", "The current pass, from 1.", f64::from(f.epoch) + 1.0);
    gauge("gannet_train_read_bytes", "Bytes of the input read in this pass.", f.bytes_read as f64);
    if let Some(total) = f.bytes_total {
        gauge("gannet_train_input_bytes", "Bytes of the input, if known.", total as f64);
    }
}

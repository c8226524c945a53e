//! The progress of a training.

use crate::flags::{JobArgs, JobName};
use crate::log;
use crate::report::measures::loss_name;
use crate::report::words::counted;
use gannet::train::Progress;
use gannet::train::models::Objective;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Shows progress: a bar on a terminal, elsewhere a line every few seconds (an object with `--log-json`). Shows
/// nothing with `--json`.
pub struct ProgressDisplay {
    bar: Option<ProgressBar>,
    quiet: bool,
    /// The words after the number of examples.
    whose: &'static str,
    last_line: Instant,
    started: bool,
}

const LINE_EVERY: Duration = Duration::from_secs(5);

impl ProgressDisplay {
    /// A display for a training as a process of this job. A quiet one shows nothing.
    pub fn of(job: &JobArgs, quiet: bool) -> ProgressDisplay {
        let of_many = job.job_name == Some(JobName::Worker) && job.worker_hosts.len() > 1;
        let whose = if of_many { "by this worker" } else { "learned" };
        let bar = (!quiet && !log::is_json() && std::io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("{wide_bar} {msg}");
            ProgressBar::new(1000).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        ProgressDisplay { bar, quiet, whose, last_line: Instant::now(), started: false }
    }

    /// Shows the progress of a training of logistic regression.
    pub fn update_lr(&mut self, p: &Progress, epochs: u32) {
        let Progress { examples, bytes_read, bytes_total, loss: log_loss, auc, .. } = *p;
        // Later passes have no AUC of their own.
        let shown = auc.filter(|_| p.epoch == 0).map_or(String::new(), |auc| format!("  AUC {auc:.4}"));
        self.update(p, epochs, ("log loss", &shown), |epoch, examples_per_second| {
            tracing::info!(
                target: "gannet::progress",
                epoch, epochs, examples, examples_per_second, bytes_read, bytes_total, log_loss, auc, "training"
            );
        });
    }

    /// Shows the progress of a training of another model.
    pub fn update_model(&mut self, p: &Progress, epochs: u32, task: Objective) {
        let name = loss_name(task);
        let Progress { examples, steps, bytes_read, bytes_total, loss, .. } = *p;
        self.update(p, epochs, (name, ""), |epoch, examples_per_second| {
            tracing::info!(
                target: "gannet::progress",
                epoch, epochs, examples, steps, examples_per_second, bytes_read, bytes_total, loss, "training"
            );
        });
    }

    /// Shows the progress with the name of the loss and the words at the end. `log`: takes the pass, from 1, and the
    /// examples a second.
    fn update(&mut self, p: &Progress, epochs: u32, (name, end): (&str, &str), log: impl FnOnce(u32, f64)) {
        let part = p.bytes_total.filter(|&t| t > 0).map(|total| p.bytes_read as f64 / total as f64);
        let (pass, speed, loss) = (p.epoch + 1, p.examples as f64 / p.seconds.max(1e-9), p.loss);
        let read = part.map_or(String::new(), |part| format!("read {:.0}% of ", part * 100.0));
        let (learned, whose) = (counted(p.examples, "example", "examples"), self.whose);
        let text = format!(
            "{read}pass {pass} of {epochs}  {learned} {whose}  {speed:.0}/s  {name} of pass {pass} {loss:.5}{end}"
        );
        self.show(part, text, || log(pass, speed));
    }

    /// Shows the part that is done: on the bar, as the line `text`, or through `log` with `--log-json`.
    pub fn show(&mut self, part: Option<f64>, text: String, log: impl FnOnce()) {
        if self.quiet {
            return;
        }
        match &self.bar {
            Some(bar) => {
                bar.set_position((part.unwrap_or(0.0) * 1000.0) as u64);
                bar.set_message(text);
            }
            None if !self.started || self.last_line.elapsed() >= LINE_EVERY => {
                self.last_line = Instant::now();
                self.started = true;
                if log::is_json() {
                    return log();
                }
                notice!("{text}");
            }
            None => {}
        }
    }

    /// Removes the bar.
    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

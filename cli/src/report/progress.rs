//! The progress of a training.

use crate::flags::{JobName, TrainArgs};
use crate::log;
use crate::report::words::counted;
use gannet::train::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

fn log_progress(p: &Progress, epochs: u32, examples_per_second: f64) {
    let Progress { examples, bytes_read, bytes_total, log_loss, auc, .. } = *p;
    let epoch = p.epoch + 1;
    tracing::info!(
        target: "gannet::progress",
        epoch, epochs, examples, examples_per_second, bytes_read, bytes_total, log_loss, auc, "training"
    );
}

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

/// The start of a progress line: the part that was read.
pub fn read(part: Option<f64>) -> String {
    part.map_or(String::new(), |part| format!("read {:.0}% of ", part * 100.0))
}

const LINE_EVERY: Duration = Duration::from_secs(5);

impl ProgressDisplay {
    /// A display for a training with these flags.
    pub fn of(args: &TrainArgs) -> ProgressDisplay {
        let quiet = args.json;
        let of_many = args.job.job_name == Some(JobName::Worker) && args.job.worker_hosts.len() > 1;
        let whose = if of_many { "by this worker" } else { "learned" };
        let bar = (!quiet && !log::is_json() && std::io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("{wide_bar} {msg}");
            ProgressBar::new(1000).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        ProgressDisplay { bar, quiet, whose, last_line: Instant::now(), started: false }
    }

    /// The number of learned examples, in words.
    pub fn learned(&self, examples: u64) -> String {
        format!("{} {}", counted(examples, "example", "examples"), self.whose)
    }

    /// Shows the progress of a training.
    pub fn update(&mut self, p: &Progress, epochs: u32) {
        let part = p.bytes_total.filter(|&t| t > 0).map(|total| p.bytes_read as f64 / total as f64);
        let speed = p.examples as f64 / p.seconds.max(1e-9);
        let pass = p.epoch + 1;
        // Later passes have no AUC of their own.
        let auc = p.auc.filter(|_| pass == 1).map_or(String::new(), |auc| format!("  AUC {auc:.4}"));
        let (read, learned) = (read(part), self.learned(p.examples));
        let text = format!(
            "{read}pass {pass} of {epochs}  {learned}  {speed:.0}/s  log loss of pass {pass} {:.5}{auc}",
            p.log_loss
        );
        self.show(part, text, || log_progress(p, epochs, speed));
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

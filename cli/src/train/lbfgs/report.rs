//! The results of a training by L-BFGS, and their report.

use crate::failure::{Failure, STOPPED};
use crate::flags::JobArgs;
use crate::report::account::Account;
use crate::report::measures::put_line;
use crate::report::numbers::Numbers;
use crate::report::words::put_size;
use crate::train::lbfgs::plan::LbfgsPlan;
use crate::train::trained::{Summary, Trained};
use gannet::storage::Stats;
use gannet::train::lbfgs::{self, LbfgsSettings, LoadedData};
use gannet::train::models::Measured;
use serde_json::json;

/// The results of a worker, or of the process that trains alone.
pub struct LbfgsResults {
    /// Examples of this worker.
    pub examples: u64,
    /// Passes over them.
    pub passes: u64,
    pub stopped: bool,
    pub loaded: LoadedData,
    /// What only the chief knows.
    pub led: Option<Led>,
}

/// The results of the chief.
pub struct Led {
    pub trained: lbfgs::Trained,
    /// The only label of its examples.
    pub one_class: Option<u8>,
    pub seconds: f64,
    pub load_seconds: f64,
    pub transport: String,
    pub test: Option<Measured>,
    /// Weights that are not 0, with L1.
    pub nonzero: Option<u64>,
    /// Rows and bytes of the table, once they are counted.
    pub stats: Stats,
}

impl Trained for LbfgsResults {
    fn summary(&self) -> Summary<'_> {
        Summary {
            examples: self.examples,
            seconds: self.led.as_ref().map_or(0.0, |led| led.seconds),
            loss: None,
            batches: None,
            rows: self.led.as_ref().map_or(0, |led| led.stats.rows),
            stopped: self.stopped,
            bad_lines: None,
        }
    }

    fn set_stopped(&mut self, stopped: bool) {
        self.stopped = stopped;
    }

    fn ended(&self) -> Result<(), Failure> {
        match self.stopped {
            true => Err(Failure::new(STOPPED, "stopped by a signal".to_owned())),
            false => Ok(()),
        }
    }
}

impl LbfgsResults {
    /// Prints the report.
    pub fn print(&self, job: &JobArgs, is_json: bool, plan: &LbfgsPlan, account: &Account) {
        let mut report = Numbers::default();
        match &self.led {
            Some(led) => led.put(&mut report, job, plan, &self.loaded),
            None => {
                report.line("");
                report.words(format_args!("worker {}: ", job.task_index));
                report.show_count("passes", self.passes, "pass", "passes");
                report.words(" over ");
                report.show("examples", self.examples, " examples");
                report.add("stopped", self.stopped);
            }
        }
        account.put(&mut report);
        report.print(is_json);
    }
}

/// How to train beyond --max-iter.
fn further(job: &JobArgs) -> &'static str {
    // The rows of a job outlive its workers.
    match job.job_name.is_some() || job.data_dir.is_some() {
        true => "--continue with a larger --max-iter goes on",
        false => {
            "a larger --max-iter starts again and goes further (with --data-dir DIR the training could continue)"
        }
    }
}

impl Led {
    fn put(&self, report: &mut Numbers, job: &JobArgs, plan: &LbfgsPlan, loaded: &LoadedData) {
        let t = &self.trained;
        report.line("objective");
        report.show_float("objective", t.objective, 6, "  training log loss ");
        report.show_float("logloss", t.loss / t.importance, 6, "  length of the mean gradient ");
        report.words(format_args!("{:.1e}", t.mean_slope()));
        if !t.converged && !t.stopped {
            let LbfgsSettings { iterations, tolerance, .. } = plan.settings;
            report.line("limit");
            report.words(format_args!(
                "stopped at --max-iter {iterations}, before the gradient was {tolerance:.0e} (--tolerance): {}",
                further(job)
            ));
        }
        report.line("");
        report.show_count("examples", t.examples, "example", "examples");
        report.words(", ");
        report.show_count("iterations", t.iterations, "iteration", "iterations");
        report.words(", ");
        report.show_count("passes", t.passes, "pass", "passes");
        report.words(" in ");
        report.show_float("seconds", self.seconds, 2, " s after ");
        report.show_float("load_seconds", self.load_seconds, 2, " s of reading (");
        report.show("transport", self.transport.as_str(), ", ");
        report.show("format", loaded.format, ", ");
        report.words(match (t.stopped, t.converged) {
            (true, _) => "stopped)",
            (_, true) => "converged)",
            _ => "not converged)",
        });
        report.add_all(json!({
            "loss": t.loss, "gradient": t.slope, "mean_gradient": t.mean_slope(), "tries": t.tries,
            "resumed_at": t.resumed_at, "converged": t.converged, "stopped": t.stopped,
            "workers": plan.settings.workers, "one_class": self.one_class.is_some(),
            "bad_lines": loaded.bad_lines.count, "nonzero": self.nonzero,
        }));
        put_line(report, "test", "test_", self.test.as_ref(), true);
        if let Some(nonzero) = self.nonzero {
            report.line("weights");
            report.show("nonzero", nonzero, " are not 0");
        }
        put_size(report, "table", self.stats.rows, self.stats.bytes);
    }
}

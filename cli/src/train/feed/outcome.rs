//! The results of a job whose data a client sent.

use crate::report::account::Account;
use crate::report::measures::put_line;
use crate::report::numbers::Numbers;
use crate::report::words::put_size;
use gannet::job::{JobStatus, Member, ServedBytes, WorkerState};
use gannet::storage::Stats;
use gannet::train::models::Measured;
use serde_json::{Value, json};

/// Sums the reports of all workers: examples, their mean loss, examples a second.
pub fn together(job: &JobStatus) -> (u64, f64, f64) {
    let learned: u64 = job.members.iter().map(|member| member.progress.examples).sum();
    let loss: f64 = job.members.iter().map(|m| m.progress.loss * m.progress.examples as f64).sum();
    let live = job.members.iter().filter(|member| member.state == WorkerState::Live);
    (
        learned.max(job.examples),
        loss / (learned as f64).max(1.0),
        live.map(|member| member.progress.rate).sum(),
    )
}

/// The results of a job.
pub struct JobOutcome {
    pub job: Option<JobStatus>,
    pub seconds: f64,
    pub stopped: bool,
    pub test: Option<Measured>,
    pub stats: Stats,
    pub transport: String,
    pub served: ServedBytes,
    pub format: &'static str,
}

impl JobOutcome {
    pub fn examples(&self) -> u64 {
        self.job.as_ref().map_or(0, |job| job.examples)
    }

    pub fn print(&self, as_json: bool, more: Numbers, account: &Account) {
        let JobOutcome { job, seconds, stopped, test, stats, transport, served, format } = self;
        let (job, examples, mut report) = (job.as_ref(), self.examples(), Numbers::default());
        report.line("");
        report.show("examples", examples, " examples in ");
        report.show_float("seconds", *seconds, 2, " s, ");
        report.show_float("examples_per_second", examples as f64 / seconds, 0, " examples/s (");
        report.show("transport", transport.as_str(), ", ");
        report.show("format", *format, ")");
        match job {
            Some(job) => {
                report.line("workers");
                report.words(format_args!("{}, their log loss ", job.members.len()));
                report.show_float("logloss", together(job).1, 6, "");
            }
            None => report.add("logloss", Value::Null),
        }
        put_line(&mut report, "test", "test_", test.as_ref(), true);
        put_size(&mut report, "table", stats.rows, stats.bytes);
        report.line("fed");
        report.words(format_args!("{} bytes in {} answers", served.bytes, served.requests));
        report.add("fed", json!({ "answers": served.requests, "bytes": served.bytes }));
        let worker = |member: &Member| {
            let (progress, dead) = (&member.progress, member.state == WorkerState::Dead);
            json!({ "worker": member.incarnation.rank, "examples": progress.examples, "logloss": progress.loss, "dead": dead })
        };
        report.add_all(json!({
            "tasks": job.map(|job| job.tasks), "tasks_done": job.map(|job| job.tasks_done), "stopped": stopped,
            "workers": job.iter().flat_map(|job| &job.members).map(worker).collect::<Vec<_>>(),
        }));
        let more = report.take(more);
        report.add_all(more);
        account.put(&mut report);
        report.print(as_json);
    }
}

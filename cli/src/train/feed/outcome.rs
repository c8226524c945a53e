//! The results of a job whose data a client sent.

use crate::report::account::Account;
use crate::report::measures::clicks_in_words;
use crate::report::words;
use gannet::job::{JobStatus, Member, ServedBytes, WorkerState};
use gannet::storage::Stats;
use gannet::train::Quality;
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
    pub test: Option<Quality>,
    pub stats: Stats,
    pub transport: String,
    pub served: ServedBytes,
    pub format: &'static str,
}

impl JobOutcome {
    pub fn examples(&self) -> u64 {
        self.job.as_ref().map_or(0, |job| job.examples)
    }

    pub fn print(&self, as_json: bool, validations: Option<Vec<Value>>, account: &Account) {
        let JobOutcome { job, seconds, stopped, test, stats, transport, served, format } = self;
        let (job, test, examples) = (job.as_ref(), test.as_ref(), self.examples());
        let (speed, bytes_per_row) =
            (examples as f64 / seconds, stats.bytes as f64 / stats.rows.max(1) as f64);
        if !as_json {
            say!("{examples} examples in {seconds:.2} s, {speed:.0} examples/s ({transport}, {format})");
            if let Some(job) = job {
                say!("workers      {}, their log loss {:.6}", job.members.len(), together(job).1);
            }
            if let Some(quality) = test {
                say!("test         {}", clicks_in_words(quality));
            }
            say!("table        {}", words::size_in_words(stats.rows, bytes_per_row));
            say!("fed          {} bytes in {} answers", served.bytes, served.requests);
            return;
        }
        let worker = |member: &Member| {
            let (progress, dead) = (&member.progress, member.state == WorkerState::Dead);
            json!({ "worker": member.incarnation.rank, "examples": progress.examples, "logloss": progress.loss, "dead": dead })
        };
        let workers: Vec<Value> = job.iter().flat_map(|job| &job.members).map(worker).collect();
        let mut object = json!({
            "examples": examples,
            "seconds": seconds,
            "examples_per_second": speed,
            "logloss": job.map(|job| together(job).1),
            "test_logloss": test.map(|q| q.log_loss),
            "test_auc": test.and_then(|q| q.auc),
            "test_calibration": test.and_then(Quality::calibration),
            "rows": stats.rows,
            "bytes_per_row": bytes_per_row,
            "transport": transport,
            "format": format,
            "tasks": job.map(|job| job.tasks),
            "tasks_done": job.map(|job| job.tasks_done),
            "fed": { "answers": served.requests, "bytes": served.bytes },
            "workers": workers,
            "stopped": stopped,
        });
        if let Some(validations) = validations {
            object["validations"] = validations.into();
        }
        account.put(&mut object);
        say!("{object}");
    }
}

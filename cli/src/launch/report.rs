//! The report of a job: that of its workers together.

use crate::failure::Failure;
use crate::launch::command_line::Job;
use crate::launch::role::system;
use crate::report::words::counted;
use serde_json::{Value, json};
use std::process::{Command, Stdio};

/// How a job has ended.
pub struct Ended {
    pub outcome: Result<(), Failure>,
    pub seconds: f64,
    /// Records that were trained, each counted once a pass. `None`: nobody has counted them.
    pub records: Option<u64>,
    /// How often each process was started again.
    pub restarts: Vec<(String, u32)>,
    /// What each worker has reported.
    pub reports: Vec<Option<Value>>,
}

/// How a number of a job comes from those of its workers.
#[derive(Clone, Copy)]
enum OfJob {
    /// The mean, weighted by the examples of each.
    Mean,
    /// The root of the mean of the squares.
    RootMeanSquare,
    /// The number of the first worker that has one: the chief tests all rows.
    Chief,
}

/// The numbers of a job.
const OF_JOB: [(&str, &str, OfJob); 16] = [
    ("logloss", "progressive log loss", OfJob::Mean),
    ("auc", "progressive AUC, the mean of the workers'", OfJob::Mean),
    ("hinge_loss", "progressive hinge loss", OfJob::Mean),
    ("poisson_deviance", "progressive Poisson deviance", OfJob::Mean),
    ("pinball_loss", "progressive pinball loss", OfJob::Mean),
    ("rmse", "progressive RMSE", OfJob::RootMeanSquare),
    ("last_pass_logloss", "log loss of the last pass", OfJob::Mean),
    ("last_pass_rmse", "RMSE of the last pass", OfJob::RootMeanSquare),
    ("best_validation", "best validation loss", OfJob::Chief),
    ("test_logloss", "test log loss", OfJob::Chief),
    ("test_auc", "test AUC", OfJob::Chief),
    ("test_gauc", "test GAUC", OfJob::Chief),
    ("test_rmse", "test RMSE", OfJob::Chief),
    ("test_poisson_deviance", "test Poisson deviance", OfJob::Chief),
    ("test_pinball_loss", "test pinball loss", OfJob::Chief),
    ("rows", "rows", OfJob::Chief),
];

impl Ended {
    /// Prints the report. Returns the failure of the job.
    pub fn print(self, job: &Job) -> Result<(), Failure> {
        match job.is_json {
            true => say!("{}", self.object(job)),
            false if self.outcome.is_ok() => self.print_words(job),
            false => {}
        }
        self.outcome
    }

    fn sum(&self, name: &str) -> u64 {
        self.reports.iter().flatten().filter_map(|report| report[name].as_u64()).sum()
    }

    /// The numbers of the job that its workers have reported: name, words, value.
    fn of_job(&self) -> Vec<(&'static str, &'static str, Value)> {
        let known = |name: &'static str| {
            let reports = self.reports.iter().flatten();
            reports
                .filter(move |report| !report[name].is_null())
                .map(move |report| (report["examples"].as_f64().unwrap_or(0.0), &report[name]))
        };
        let mean = |name: &'static str, power: i32| {
            let (mut mass, mut sum) = (0.0, 0.0);
            for (examples, value) in known(name) {
                mass += examples;
                sum += examples * value.as_f64().unwrap_or(f64::NAN).powi(power);
            }
            (mass > 0.0).then(|| json!(if power == 2 { (sum / mass).sqrt() } else { sum / mass }))
        };
        let value = |name, how| match how {
            OfJob::Mean => mean(name, 1),
            OfJob::RootMeanSquare => mean(name, 2),
            OfJob::Chief => known(name).next().map(|(_, value)| value.clone()),
        };
        OF_JOB.into_iter().filter_map(|(name, words, how)| Some((name, words, value(name, how)?))).collect()
    }

    fn object(&self, job: &Job) -> Value {
        let (servers, workers) = job.size();
        let code = self.outcome.as_ref().map_or_else(|failure| failure.code, |()| 0);
        let restarts: serde_json::Map<String, Value> =
            self.restarts.iter().map(|(name, times)| (name.clone(), json!(times))).collect();
        let mut object = json!({
            "servers": servers,
            "workers": workers,
            "exit_code": code,
            "seconds": self.seconds,
            "records": self.records,
            "examples": self.sum("examples"),
            "restarts": restarts,
            "reports": self.reports,
        });
        for (name, _, value) in self.of_job() {
            object[name] = value;
        }
        object
    }

    fn print_words(&self, job: &Job) {
        let (servers, workers) = job.size();
        let (learned, seconds) = (self.sum("examples"), self.seconds);
        let examples = self.records.unwrap_or(learned);
        // Of data that is held out or sampled fewer are learned. A process that was started again does not report
        // what it learned before.
        let is_whole =
            self.restarts.iter().all(|(_, times)| *times == 0) && self.reports.iter().all(Option::is_some);
        let of_them = match learned < examples && is_whole {
            true => format!(", of which {learned} were learned,"),
            false => String::new(),
        };
        say!(
            "{examples} examples{of_them} in {seconds:.2} s, {:.0} examples/s ({} and {})",
            examples as f64 / seconds.max(1e-9),
            counted(servers as u64, "server", "servers"),
            counted(u64::from(workers), "worker", "workers"),
        );
        for (_, words, value) in self.of_job() {
            say!("{words}: {}", in_short(&value));
        }
        for (name, times) in self.restarts.iter().filter(|(_, times)| *times > 0) {
            say!("{name} was started again {}", counted(u64::from(*times), "time", "times"));
        }
    }
}

fn in_short(value: &Value) -> String {
    match value.as_f64().filter(|_| value.is_f64()) {
        Some(number) => format!("{number:.6}"),
        None => value.to_string(),
    }
}

impl Job {
    /// How many records the scheduler has counted: each once a pass, however often workers were started again.
    pub fn records(&self) -> Option<u64> {
        let ask = || {
            let program = std::env::current_exe()?;
            Command::new(program)
                .args(self.words_of_status())
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .output()
        };
        match ask() {
            Ok(answer) => {
                let status: Value = serde_json::from_slice(&answer.stdout).ok()?;
                status["job"]["examples"].as_u64()
            }
            Err(error) => {
                let failure = system("asking for the status of the job", &error);
                tracing::warn!(%failure, "the report counts only what the last start of each worker has trained");
                None
            }
        }
    }
}

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

/// What the chief reports about the whole job.
const OF_CHIEF: [(&str, &str); 6] = [
    ("logloss", "progressive log loss, of one worker"),
    ("auc", "progressive AUC, of one worker"),
    ("last_pass_logloss", "log loss of the last pass, of one worker"),
    ("test_logloss", "test log loss"),
    ("test_auc", "test AUC"),
    ("rows", "rows"),
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

    fn object(&self, job: &Job) -> Value {
        let (servers, workers) = job.size();
        let code = self.outcome.as_ref().map_or_else(|failure| failure.code, |()| 0);
        let restarts: serde_json::Map<String, Value> =
            self.restarts.iter().map(|(name, times)| (name.clone(), json!(times))).collect();
        json!({
            "servers": servers,
            "workers": workers,
            "exit_code": code,
            "seconds": self.seconds,
            "records": self.records,
            "examples": self.sum("examples"),
            "restarts": restarts,
            "reports": self.reports,
        })
    }

    fn print_words(&self, job: &Job) {
        let (servers, workers) = job.size();
        let (examples, seconds) = (self.records.unwrap_or_else(|| self.sum("examples")), self.seconds);
        say!(
            "{examples} examples in {seconds:.2} s, {:.0} examples/s ({} and {})",
            examples as f64 / seconds.max(1e-9),
            counted(servers as u64, "server", "servers"),
            counted(u64::from(workers), "worker", "workers"),
        );
        // A number that several workers report is that of the first of them.
        for (name, words) in OF_CHIEF {
            let mut of = self.reports.iter().flatten().map(|report| &report[name]);
            if let Some(value) = of.find(|value| !value.is_null()) {
                say!("{words}: {}", in_short(value));
            }
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

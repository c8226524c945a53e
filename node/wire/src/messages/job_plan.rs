//! What a job trains on, and how its data is cut into splits. This is pure arithmetic over the files' lengths, so
//! every worker and every incarnation of the scheduler finds the same splits.

use crate::limits::{JOB_WORKERS_MAX, READ_TIME_MIN, TASKS_MAX};
use crate::messages::runs::is_of_place;
use rkyv::{Archive, Deserialize, Serialize};
use std::time::Duration;

/// A data file as each worker sees it. [`JobPlan`] has an example.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct PlanFile {
    /// Its name, for messages.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// A hash of its beginning and its end: it shows when two workers have different files.
    pub print: u64,
    /// It cannot be read from the middle (it is compressed), so it is one split.
    pub whole: bool,
}

/// What every worker of a job must agree on.
///
/// ```
/// use gannet_wire::{JobPlan, PlanFile};
///
/// let files = vec![PlanFile { name: "clicks.csv".into(), bytes: 1000, print: 0, whole: false }];
/// let (workers, task_bytes, batch, epochs, worker_timeout_ms) = (2, 300, 64, 2, 10_000);
/// let plan = JobPlan { workers, files, task_bytes, batch, epochs, worker_timeout_ms, settings: Vec::new() };
/// plan.check()?;
/// assert_eq!(plan.tasks(), 8); // 4 splits of equal length in each of 2 passes
/// let last = plan.task(7);
/// assert_eq!((last.epoch, last.number, last.start, last.end), (1, 3, 750, 1000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct JobPlan {
    /// The most workers that the job may have.
    pub workers: u32,
    /// The files, in order. None: the source of the data grows, and workers report its tasks.
    pub files: Vec<PlanFile>,
    /// About how many bytes a split has.
    pub task_bytes: u64,
    /// Examples a batch. Batch and bytes together decide the names of pushes.
    pub batch: u32,
    /// Passes over the data.
    pub epochs: u32,
    /// Milliseconds without a heartbeat after which a worker is given up.
    pub worker_timeout_ms: u64,
    /// What else must be the same, as `flag=value` for messages: the model, its optimizer, how the data is read.
    pub settings: Vec<String>,
}

/// A split of the data: the lines that begin in `start..end` of a file. [`JobPlan`] has an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Split {
    /// Its number in its pass, in the order of the data.
    pub number: u32,
    /// Which pass, from 0.
    pub epoch: u32,
    /// Which file.
    pub file: u32,
    /// Its first byte. A line that began before this byte belongs to the split before.
    pub start: u64,
    /// The byte behind it.
    pub end: u64,
}

impl PlanFile {
    fn tasks(&self, task_bytes: u64) -> u64 {
        match (self.bytes, self.whole) {
            (0, _) => 0,
            (_, true) => 1,
            (bytes, false) => bytes.div_ceil(task_bytes),
        }
    }
}

impl JobPlan {
    /// Why the plan is not valid, in words.
    ///
    /// # Errors
    /// A number is out of range.
    pub fn check(&self) -> Result<(), String> {
        if self.workers == 0 || self.workers > JOB_WORKERS_MAX {
            return Err(format!("{} workers; 1 to {JOB_WORKERS_MAX} are possible", self.workers));
        }
        if self.task_bytes == 0 || self.batch == 0 || self.epochs == 0 {
            return Err("a task, a batch and the number of passes cannot be 0".into());
        }
        if self.grows() {
            let once = self.epochs == 1;
            return if once { Ok(()) } else { Err("data that grows is trained once (--epochs 1)".into()) };
        }
        let tasks = self.tasks_of_a_pass();
        if tasks == 0 {
            return Err("the data is empty".into());
        }
        if tasks > TASKS_MAX {
            return Err(format!(
                "{tasks} tasks of {} bytes; {TASKS_MAX} are possible: use larger ones (--task-bytes)",
                self.task_bytes
            ));
        }
        Ok(())
    }

    /// How long a worker may be silent.
    pub fn worker_timeout(&self) -> Duration {
        Duration::from_millis(self.worker_timeout_ms)
    }

    /// How long a worker waits for the bytes of a data file.
    pub fn read_timeout(&self) -> Duration {
        self.worker_timeout().max(READ_TIME_MIN)
    }

    /// Whether the source of the data grows, so that its tasks are not known at the start.
    pub fn grows(&self) -> bool {
        self.files.is_empty()
    }

    /// Splits of one pass.
    pub fn tasks_of_a_pass(&self) -> u64 {
        self.files.iter().fold(0, |all, file| all.saturating_add(file.tasks(self.task_bytes)))
    }

    /// Splits of all passes.
    pub fn tasks(&self) -> u64 {
        self.tasks_of_a_pass() * u64::from(self.epochs)
    }

    /// Split `index` of all passes, one pass after the other.
    ///
    /// # Panics
    /// There is no such split.
    pub fn task(&self, index: u64) -> Split {
        let pass = self.tasks_of_a_pass();
        let (epoch, number) = ((index / pass) as u32, index % pass);
        let mut first = 0;
        for (at, file) in (0..).zip(&self.files) {
            let tasks = file.tasks(self.task_bytes);
            if number < first + tasks {
                // All splits of a file have one length but for rounding, so the last one is not tiny.
                let cut = |k: u64| (u128::from(file.bytes) * u128::from(k) / u128::from(tasks)) as u64;
                let k = number - first;
                return Split { number: number as u32, epoch, file: at, start: cut(k), end: cut(k + 1) };
            }
            first += tasks;
        }
        panic!("task {index} of {}", self.tasks())
    }

    /// How `other` differs from this, in words; `None` when it does not.
    pub fn differs(&self, other: &JobPlan) -> Option<String> {
        let number = |what: &str, ours: u64, theirs: u64| {
            (ours != theirs).then(|| format!("{what} is {ours} in this job, {theirs} was given"))
        };
        number("the number of workers", self.workers.into(), other.workers.into())
            .or_else(|| number("--batch", self.batch.into(), other.batch.into()))
            .or_else(|| number("--epochs", self.epochs.into(), other.epochs.into()))
            .or_else(|| number("the number of files", self.files.len() as u64, other.files.len() as u64))
            .or_else(|| self.files.iter().zip(&other.files).find_map(|(a, b)| a.differs(b)))
            .or_else(|| number("--worker-timeout (in ms)", self.worker_timeout_ms, other.worker_timeout_ms))
            .or_else(|| number("--task-bytes", self.task_bytes, other.task_bytes))
            .or_else(|| {
                // A job that was restored may be elsewhere. The registry of runs compares these settings.
                let compared =
                    |plan: &JobPlan| plan.settings.iter().filter(|s| !is_of_place(s)).cloned().collect();
                let (ours, theirs): (Vec<String>, Vec<String>) = (compared(self), compared(other));
                let differing = ours.iter().zip(&theirs).find(|(a, b)| a != b);
                let differing = differing.map(|(a, b)| format!("{a} in this job, {b} was given"));
                let unequal = ours.len() != theirs.len();
                differing.or_else(|| unequal.then(|| "another number of settings was given".into()))
            })
    }
}

impl PlanFile {
    fn differs(&self, other: &PlanFile) -> Option<String> {
        let PlanFile { name, bytes, print, whole } = self;
        let name = if *name == other.name { name.clone() } else { format!("{name} ({})", other.name) };
        if *bytes != other.bytes {
            return Some(format!("file {name} has {bytes} bytes in this job, {} here", other.bytes));
        }
        let same = (*print, *whole) == (other.print, other.whole);
        (!same).then(|| format!("file {name} has another content than in this job"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan(files: Vec<(u64, bool)>, task_bytes: u64, epochs: u32) -> JobPlan {
        let files = files.into_iter().enumerate();
        let files =
            files.map(|(i, (bytes, whole))| PlanFile { name: format!("f{i}"), bytes, print: 7, whole });
        let (settings, worker_timeout_ms) = (Vec::new(), 20_000);
        JobPlan {
            workers: 2,
            files: files.collect(),
            task_bytes,
            batch: 10,
            epochs,
            worker_timeout_ms,
            settings,
        }
    }

    proptest! {
        #[test]
        fn tasks_cover_each_byte_once_a_pass(
            files in prop::collection::vec((0u64..5000, any::<bool>()), 1..6), task_bytes in 1u64..3000, epochs in 1u32..3,
        ) {
            let plan = plan(files, task_bytes, epochs);
            prop_assume!(plan.check().is_ok());
            let mut at = 0;
            for epoch in 0..epochs {
                for (number, file) in (0..).zip(&plan.files) {
                    let mut end = 0;
                    while end < file.bytes {
                        let task = plan.task(at);
                        prop_assert_eq!((task.file, task.epoch, task.start), (number, epoch, end));
                        prop_assert!(task.end > task.start && (file.whole || task.end - task.start <= task_bytes));
                        prop_assert!(!file.whole || (task.start, task.end) == (0, file.bytes));
                        (end, at) = (task.end, at + 1);
                    }
                }
            }
            prop_assert_eq!(at, plan.tasks());
        }
    }

    #[test]
    fn more_tasks_than_can_be_are_refused_whatever_the_files_say() {
        let huge = plan(vec![(u64::MAX, false), (u64::MAX, false), (2, true)], 1, u32::MAX);
        assert!(huge.check().unwrap_err().contains("use larger ones (--task-bytes)"));
    }

    #[test]
    fn what_differs_is_named() {
        let ours = plan(vec![(100, false)], 10, 1);
        assert_eq!(ours.differs(&ours), None);
        let mut other = ours.clone();
        other.files[0].bytes = 99;
        assert_eq!(ours.differs(&other).unwrap(), "file f0 has 100 bytes in this job, 99 here");
        let other = JobPlan { batch: 11, ..ours.clone() };
        assert_eq!(ours.differs(&other).unwrap(), "--batch is 10 in this job, 11 was given");
        let other = JobPlan { settings: vec!["--alpha=2".into()], ..ours.clone() };
        assert!(ours.differs(&other).is_some());
    }
}

//! The schedulers of a server: one for each run whose splits are handed out here, each with a job state of its own.
//! A scheduler that sends data has one job, whatever its run is called.

use crate::limits::{RUN_FORGOTTEN_AFTER, RUNS_MAX};
use crate::scheduler::data_server::{DataServer, DataServerConfig};
use crate::scheduler::job_state_file::{forget_job_of, runs_with_jobs};
use crate::scheduler::requests::{Scheduler, SchedulerRefusal};
use gannet_core::Schema;
use gannet_wire::StateFileError;
use gannet_wire::frames::scheduler::FedFrame;
use gannet_wire::messages::data::DataRequest;
use gannet_wire::messages::jobs::{JobTableV3, SchedulerActionV1, SchedulerReplyV1, SchedulerRequestV3};
use gannet_wire::messages::member::{Activity, Progress, WorkerIncarnation};
use gannet_wire::messages::runs::RunId;
use gannet_wire::refusal::Refusal;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// See the module.
#[derive(Debug, Default)]
pub struct Schedulers {
    folder: Option<PathBuf>,
    serves_data: bool,
    jobs: BTreeMap<String, Scheduler>,
    /// Runs whose jobs were forgotten since somebody asked.
    forgotten: Vec<String>,
}

impl Schedulers {
    /// Opens the schedulers whose job states are in `folder`. A scheduler that sends data is the only one.
    pub fn open(
        folder: Option<&Path>,
        config: Option<DataServerConfig>,
        now: Duration,
    ) -> Result<Schedulers, StateFileError> {
        let (mut jobs, serves_data) = (BTreeMap::new(), config.is_some());
        match config {
            Some(_) => {
                jobs.insert(String::new(), Scheduler::open(folder, "", config, now)?);
            }
            None => {
                for run in folder.map_or(Ok(Vec::new()), runs_with_jobs)? {
                    let scheduler = Scheduler::open(folder, &run, None, now)?;
                    jobs.insert(run, scheduler);
                }
            }
        }
        let folder = folder.map(Path::to_path_buf);
        Ok(Schedulers { folder, serves_data, jobs, forgotten: Vec::new() })
    }

    fn key<'a>(&self, run: &'a str) -> &'a str {
        if self.serves_data { "" } else { run }
    }

    /// Answers a request.
    pub fn answer(
        &mut self,
        ask: SchedulerRequestV3,
        session: u32,
        now: Duration,
    ) -> Result<SchedulerReplyV1, SchedulerRefusal> {
        let key = self.key(&ask.run).to_owned();
        if !self.jobs.contains_key(&key) {
            match ask.what {
                SchedulerActionV1::Status => return Ok(SchedulerReplyV1::StatusV2(None)),
                SchedulerActionV1::Register { .. } => self.begin(&key, now)?,
                _ => return Err(unknown(&ask.run, ask.incarnation)),
            }
        }
        match self.jobs.get_mut(&key) {
            Some(scheduler) => scheduler.answer(ask, session, now),
            None => Err(unknown(&ask.run, ask.incarnation)),
        }
    }

    fn begin(&mut self, run: &str, now: Duration) -> Result<(), SchedulerRefusal> {
        if !run.is_empty() {
            RunId::check_name(run).map_err(|text| (Refusal::Malformed, text))?;
        }
        self.make_room(now)?;
        let opened = Scheduler::open(self.folder.as_deref(), run, None, now);
        let scheduler = opened.map_err(|error| (Refusal::NoSpace, error.to_string()))?;
        self.jobs.insert(run.to_owned(), scheduler);
        Ok(())
    }

    /// Forgets the job that has been left for longest, if there is no room for another one. Only a job of which nothing
    /// is trained goes, and only when nothing was heard of it for [`RUN_FORGOTTEN_AFTER`].
    fn make_room(&mut self, now: Duration) -> Result<(), SchedulerRefusal> {
        if self.jobs.len() < RUNS_MAX {
            return Ok(());
        }
        let idle = self.jobs.iter().filter(|(_, job)| job.idle(now) >= RUN_FORGOTTEN_AFTER);
        let Some(run) = idle.max_by_key(|(_, job)| job.idle(now)).map(|(run, _)| run.clone()) else {
            let text = format!(
                "{RUNS_MAX} runs have had their data handed out here, the limit. One of which nothing is trained is \
                 forgotten when it has been left for {} min: delete others with `gannet forget --run NAME`",
                RUN_FORGOTTEN_AFTER.as_secs() / 60
            );
            return Err((Refusal::Limit, text));
        };
        tracing::warn!(run, "a job of which nothing is trained was forgotten: another one needs its place");
        self.forget(&run);
        Ok(())
    }

    /// Forgets the job of a run, with its state in the folder. A scheduler that sends data keeps its only job.
    pub fn forget(&mut self, run: &str) {
        if self.serves_data || self.jobs.remove(run).is_none() {
            return;
        }
        self.forgotten.push(run.to_owned());
        if let Some(folder) = &self.folder
            && let Err(error) = forget_job_of(folder, run)
        {
            // A later start finds the job again. Nobody trains it: its run is gone, and a new one has another birth.
            tracing::warn!(run, %error, "the state of a forgotten job stays in the folder");
        }
    }

    /// A worker reports the rows of a table.
    pub fn note_table(&mut self, report: JobTableV3, now: Duration) -> Result<(), SchedulerRefusal> {
        if let Err(error) = Schema::check_name(&report.table.table) {
            return Err((Refusal::Malformed, error.to_string()));
        }
        let key = self.key(&report.run).to_owned();
        let job = self.jobs.get_mut(&key).ok_or_else(|| unknown(&report.run, report.incarnation))?;
        job.note_table(report, now)
    }

    /// The data server of the workers.
    pub fn feeder(&self) -> Result<&DataServer, SchedulerRefusal> {
        match self.jobs.get("").filter(|_| self.serves_data) {
            Some(scheduler) => scheduler.feeder(),
            None => Err(no_data()),
        }
    }

    /// Reads what `incarnation` requests into `out`.
    pub fn feed(
        &mut self,
        incarnation: WorkerIncarnation,
        request: DataRequest,
        out: &mut [u8],
    ) -> Result<FedFrame, SchedulerRefusal> {
        match self.jobs.get_mut("").filter(|_| self.serves_data) {
            Some(scheduler) => scheduler.feed(incarnation, request, out),
            None => Err(no_data()),
        }
    }

    /// The highest incarnation in a job state.
    pub fn highest_incarnation(&self) -> u64 {
        self.jobs.values().map(Scheduler::highest_incarnation).max().unwrap_or(0)
    }

    /// Whether the split whose pushes have this name is done, so that nobody pushes it again.
    pub fn is_done(&self, run: &str, pusher: u64, incarnation: u64) -> bool {
        self.jobs.get(self.key(run)).is_some_and(|scheduler| scheduler.is_done(pusher, incarnation))
    }

    /// The state of a run's job, as a checkpoint has it (its state `tasks`). `None`: the run has no job here.
    pub fn snapshot(&self, run: &str) -> Option<Vec<u8>> {
        self.jobs.get(self.key(run)).and_then(Scheduler::snapshot)
    }

    /// Goes on with the state of a run's job, as [`snapshot`](Self::snapshot) made it. In a data folder it is also
    /// saved.
    ///
    /// # Errors
    /// The bytes are no such state, or cannot be saved: in words.
    pub fn restore(&mut self, run: &str, bytes: &[u8], now: Duration) -> Result<(), String> {
        let key = self.key(run).to_owned();
        if !self.jobs.contains_key(&key) {
            self.begin(&key, now).map_err(|(_, why)| why)?;
        }
        self.jobs.get_mut(&key).map_or(Ok(()), |scheduler| scheduler.restore(bytes))
    }

    /// Goes on with the state of a run's job on the server that was the scheduler before.
    ///
    /// # Errors
    /// As [`restore`](Self::restore).
    pub fn take_over(&mut self, run: &str, bytes: &[u8], now: Duration) -> Result<(), String> {
        if !self.jobs.contains_key(run) {
            self.begin(run, now).map_err(|(_, why)| why)?;
        }
        self.jobs.get_mut(run).map_or(Ok(()), |scheduler| scheduler.take_over(bytes))
    }

    /// Whether a job has changed that [`take_changed`](Self::take_changed) has not taken.
    pub fn has_changed(&self) -> bool {
        !self.forgotten.is_empty() || self.jobs.values().any(|scheduler| scheduler.changed)
    }

    /// Hands out the state of each job that has changed since the last call, with its run. Nothing: the job is gone.
    pub fn take_changed(&mut self, mut take: impl FnMut(&str, Vec<u8>)) {
        std::mem::take(&mut self.forgotten).iter().for_each(|run| take(run, Vec::new()));
        for (run, scheduler) in self.jobs.iter_mut().filter(|(_, scheduler)| scheduler.changed) {
            scheduler.changed = false;
            take(run, scheduler.snapshot().unwrap_or_default());
        }
    }

    /// All jobs count as changed.
    pub fn note_all_changed(&mut self) {
        self.jobs.values_mut().for_each(|scheduler| scheduler.changed = true);
    }

    /// A session has ended.
    pub fn closed(&mut self, session: u32) {
        self.jobs.values_mut().for_each(|scheduler| scheduler.closed(session));
    }

    /// A worker of a run reports with its heartbeat how far it is. Returns why its job has failed, if it has.
    pub fn note_report(
        &mut self,
        run: &str,
        worker: WorkerIncarnation,
        progress: Progress,
        work: Activity,
    ) -> Option<String> {
        let key = self.key(run).to_owned();
        self.jobs.get_mut(&key)?.note_report(worker, progress, work)
    }

    /// Called once a second.
    pub fn tick(&mut self, now: Duration) {
        self.jobs.values_mut().for_each(|scheduler| scheduler.tick(now));
    }
}

fn unknown(run: &str, incarnation: WorkerIncarnation) -> SchedulerRefusal {
    let of = if run.is_empty() { String::new() } else { format!(" of run {run:?}") };
    let text = format!(
        "worker {} is not in the job{of} (was the scheduler started again without its job state file?)",
        incarnation.rank
    );
    (Refusal::Unknown, text)
}

fn no_data() -> SchedulerRefusal {
    let why =
        "there is no data here to feed workers with: --feed names the client of a job (--job-name client)";
    (Refusal::Unknown, why.to_owned())
}

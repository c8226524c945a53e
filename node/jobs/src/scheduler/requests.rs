//! What workers request of the scheduler, and its replies: one frame kind for each direction, with rkyv archives of
//! the frozen structs here. The scheduler runs in thread 0 of a server, among its sessions.

use crate::limits::{BARRIER_BYTES_MAX, HELD_MAX};
use crate::scheduler::data_server::{DataServer, DataServerConfig};
use crate::scheduler::job_state::{JobState, JobStateError};
use crate::scheduler::job_state_file::{JOB_STATE_FILE, job_state_path};
use crate::scheduler::table_records::RecordOutcome;
use gannet_wire::StateFileError;
use gannet_wire::limits::TEXT_BYTES_MAX;
use gannet_wire::log_limiter::LogLimiter;
use gannet_wire::messages::growing::Found;
use gannet_wire::messages::jobs::{
    JobOrders, JobTableV3, JobV2, SchedulerActionV1, SchedulerReplyV1, SchedulerRequestV3, SplitGrant,
};
use gannet_wire::messages::member::{Activity, Progress, SplitCounts, WorkerIncarnation};
use gannet_wire::messages::runs::JobRun;
use gannet_wire::refusal::Refusal;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A refusal: the code, and why.
pub(crate) type SchedulerRefusal = (Refusal, String);

impl From<JobStateError> for SchedulerRefusal {
    fn from(error: JobStateError) -> SchedulerRefusal {
        let refusal = match &error {
            JobStateError::Unknown(_) => Refusal::Unknown,
            JobStateError::Fenced(_) => Refusal::Fenced,
            JobStateError::Limit(_) => Refusal::Limit,
            _ => Refusal::Mismatch,
        };
        (refusal, error.to_string())
    }
}

/// Checks the limits of what is saved and sent to others.
fn check_action(action: &SchedulerActionV1) -> Result<(), SchedulerRefusal> {
    let (what, n, most) = match action {
        SchedulerActionV1::ReportV3 { progress, .. } => ("tasks are held", progress.acked.len(), HELD_MAX),
        SchedulerActionV1::FencedV2 { acked, .. } => ("tasks are held", acked.len(), HELD_MAX),
        SchedulerActionV1::Take { holding } => ("tasks are held", holding.len(), HELD_MAX),
        SchedulerActionV1::Meet { name } => ("bytes are in a barrier's name", name.len(), BARRIER_BYTES_MAX),
        SchedulerActionV1::Fail { why } => ("bytes say why the job fails", why.len(), TEXT_BYTES_MAX),
        _ => return Ok(()),
    };
    if n <= most { Ok(()) } else { Err((Refusal::Limit, format!("{n} {what}; {most} are possible"))) }
}

/// The scheduler of one job at a time.
#[derive(Debug, Default)]
pub struct Scheduler {
    file: Option<PathBuf>,
    pub job: Option<JobState>,
    /// Present if the scheduler has the data and sends it to the workers.
    pub data_server: Option<DataServer>,
    /// What its workers do, as they last reported.
    works: BTreeMap<u32, (u64, Activity)>,
    /// When something was last heard of the job.
    heard: Duration,
    /// When the scheduler noticed that the job is over.
    pub(crate) over_since: Option<Duration>,
    pub log_limiter: LogLimiter,
    /// The worker of each session.
    pub links: BTreeMap<u32, WorkerIncarnation>,
    /// The job state has changed since somebody asked.
    pub changed: bool,
}

impl Scheduler {
    /// The scheduler of a run. Its job state is kept in `folder`, if there is one, and loaded from there.
    pub fn open(
        folder: Option<&Path>,
        run: &str,
        config: Option<DataServerConfig>,
        now: Duration,
    ) -> Result<Scheduler, StateFileError> {
        let data_server = config.map(DataServer::new);
        let file = folder.map(|folder| job_state_path(folder, run));
        let job = file.as_deref().map_or(Ok(None), |file| JOB_STATE_FILE.load(file))?;
        if let (Some(data_server), Some(job)) = (&data_server, &job) {
            data_server.check_job(job).map_err(|why| StateFileError::OtherJob { why })?;
        }
        if let Some(job) = &job {
            let SplitCounts { done, tasks, .. } = job.counts();
            tracing::info!(done, tasks, "found the state of a job: it continues where it stopped");
        }
        let mut scheduler = Scheduler {
            file,
            job,
            data_server,
            works: BTreeMap::new(),
            heard: now,
            over_since: None,
            log_limiter: LogLimiter::default(),
            links: BTreeMap::new(),
            changed: false,
        };
        scheduler.publish();
        Ok(scheduler)
    }

    /// Whether the split whose pushes have this name is done.
    pub fn is_done(&self, pusher: u64, incarnation: u64) -> bool {
        self.job.as_ref().is_some_and(|job| job.is_done(pusher, incarnation))
    }

    /// The job state as a checkpoint has it. `None`: there is no job.
    pub fn snapshot(&self) -> Option<Vec<u8>> {
        self.job.as_ref().map(|job| JOB_STATE_FILE.encode(job))
    }

    /// Goes on with the job state of a checkpoint. The tables' images were made anew, so the next worker reports their
    /// births. What workers have done behind the checkpoint is undone. So none of them is in the job any more: one that
    /// still runs would report batches as trained whose rows are gone.
    ///
    /// # Errors
    /// The bytes are no job state, are of other data than this scheduler has, or cannot be saved: in words.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut job = JOB_STATE_FILE.decode(bytes)?;
        if let Some(data_server) = &self.data_server {
            data_server.check_job(&job)?;
        }
        job.forget_tables();
        job.end_workers();
        self.go_on_with(job)
    }

    /// Goes on with the job state of the scheduler before, which has died. Its workers may be alive.
    ///
    /// # Errors
    /// As [`restore`](Self::restore).
    pub fn take_over(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.go_on_with(JOB_STATE_FILE.decode(bytes)?)
    }

    fn go_on_with(&mut self, job: JobState) -> Result<(), String> {
        (self.job, self.over_since) = (Some(job), None);
        self.save_job().map_err(|(_, why)| why)?;
        self.publish();
        Ok(())
    }

    /// Answers a request of a worker.
    pub fn answer(
        &mut self,
        ask: SchedulerRequestV3,
        session: u32,
        now: Duration,
    ) -> Result<SchedulerReplyV1, SchedulerRefusal> {
        let SchedulerRequestV3 { run: name, generation, birth, incarnation, what } = ask;
        if matches!(what, SchedulerActionV1::Status) {
            return Ok(SchedulerReplyV1::StatusV2(self.job.as_ref().map(|job| self.status_of(job))));
        }
        check_action(&what)?;
        self.heard = now;
        self.tick(now);
        if let SchedulerActionV1::Register { plan } = what {
            let run = JobRun { name, generation, birth };
            return self.register(incarnation, plan, &run, session, now);
        }
        // A report is not saved: at worst a batch is trained again, and the shards drop its pushes.
        let saves = !matches!(
            what,
            SchedulerActionV1::ReportV3 { .. }
                | SchedulerActionV1::Meet { .. }
                | SchedulerActionV1::Found(Found::Nothing)
        );
        let reply = self.act(incarnation, what, now)?;
        self.links.insert(session, incarnation);
        if saves {
            self.save_job()?;
            self.publish();
        }
        Ok(reply)
    }

    /// Does what a worker requests in the job that it is in.
    fn act(
        &mut self,
        incarnation: WorkerIncarnation,
        what: SchedulerActionV1,
        now: Duration,
    ) -> Result<SchedulerReplyV1, SchedulerRefusal> {
        let unknown = || (Refusal::Unknown, JobStateError::Unknown(incarnation).to_string());
        let job = self.job.as_mut().ok_or_else(unknown)?;
        Ok(match what {
            SchedulerActionV1::Register { .. } | SchedulerActionV1::Status => SchedulerReplyV1::Noted,
            SchedulerActionV1::ReportV3 { progress, work } => {
                let JobOrders { chief, saver, trained, saved, failed, live, unfenced } =
                    job.report(incarnation, progress)?;
                self.works.insert(incarnation.rank, (incarnation.incarnation, work));
                SchedulerReplyV1::OrdersV3 { chief, saver, trained, saved, failed, live, unfenced }
            }
            SchedulerActionV1::Saved => {
                job.saved(incarnation)?;
                SchedulerReplyV1::Noted
            }
            SchedulerActionV1::Take { holding } => match job.take(incarnation, &holding)? {
                SplitGrant::Task { index, from, .. } => SchedulerReplyV1::Task { index, from },
                SplitGrant::Grown { index, task, from } => SchedulerReplyV1::Grown { index, task, from },
                SplitGrant::Wait => SchedulerReplyV1::Wait,
                SplitGrant::Over => SchedulerReplyV1::Over,
            },
            SchedulerActionV1::Done { index, examples } => {
                job.done(incarnation, index, examples)?;
                SchedulerReplyV1::Noted
            }
            SchedulerActionV1::FencedV2 { dead, acked } => {
                job.live_member(incarnation)?;
                if job.fenced(dead, &acked)
                    && let Some(kept_back) = self.log_limiter.allow(now)
                {
                    let (worker, by) = (dead.rank, incarnation.rank);
                    tracing::warn!(worker, by, kept_back, "fenced: its tasks are free");
                }
                SchedulerReplyV1::Noted
            }
            SchedulerActionV1::Found(found) => SchedulerReplyV1::Stand(job.take_found(incarnation, found)?),
            SchedulerActionV1::Enough => {
                job.train_no_more(incarnation)?;
                SchedulerReplyV1::Noted
            }
            SchedulerActionV1::Leave => {
                job.leave(incarnation)?;
                SchedulerReplyV1::Noted
            }
            SchedulerActionV1::Meet { name } => {
                SchedulerReplyV1::Missing { ranks: job.meet(incarnation, &name)? }
            }
            SchedulerActionV1::Fail { why } => {
                if let Some(kept_back) = self.log_limiter.allow(now) {
                    tracing::error!(worker = incarnation.rank, why, kept_back, "the job has failed");
                }
                job.fail(incarnation, why)?;
                SchedulerReplyV1::Noted
            }
        })
    }

    /// For how long the job has been left with nothing trained. Zero: a worker of it has a session, or something is
    /// trained.
    pub(crate) fn idle(&self, now: Duration) -> Duration {
        let in_use = self.job.as_ref().is_some_and(|job| {
            let SplitCounts { done, examples, .. } = job.counts();
            done > 0 || examples > 0 || self.has_linked()
        });
        if in_use { Duration::ZERO } else { now.saturating_sub(self.heard) }
    }

    /// The highest incarnation in the job state.
    pub fn highest_incarnation(&self) -> u64 {
        let Some(job) = &self.job else { return 0 };
        job.members().map(|member| member.incarnation.incarnation).fold(job.started(), u64::max)
    }

    /// A worker reports which rows a table has. If they are not the rows that the job has trained, the job ends.
    pub fn note_table(&mut self, report: JobTableV3, now: Duration) -> Result<(), SchedulerRefusal> {
        let JobTableV3 { run: _, incarnation, table } = report;
        self.tick(now);
        let unknown = || (Refusal::Unknown, JobStateError::Unknown(incarnation).to_string());
        let outcome = self.job.as_mut().ok_or_else(unknown)?.note_table(incarnation, table)?;
        // Also what is known may not be saved yet: the disk may have been full.
        self.save_job()?;
        match outcome {
            RecordOutcome::Gone(why) => {
                if let Some(kept_back) = self.log_limiter.allow(now) {
                    tracing::error!(worker = incarnation.rank, why, kept_back, "the job has failed");
                }
                Err((Refusal::Mismatch, why))
            }
            RecordOutcome::First | RecordOutcome::Same => Ok(()),
        }
    }

    /// A member reports with its heartbeat to the registry, which is in this thread, how far it is. Returns why the job
    /// has failed, if it has. A worker that is not in the job reports nothing.
    pub fn note_report(
        &mut self,
        worker: WorkerIncarnation,
        progress: Progress,
        work: Activity,
    ) -> Option<String> {
        let orders = self.job.as_mut()?.report(worker, progress).ok()?;
        self.works.insert(worker.rank, (worker.incarnation, work));
        orders.failed
    }

    /// A session has ended.
    pub fn closed(&mut self, session: u32) {
        self.links.remove(&session);
    }

    /// Notes the end of the job. Called once a second and by every request.
    pub fn tick(&mut self, now: Duration) {
        if self.job.as_ref().is_some_and(JobState::has_ended) && !self.has_linked() {
            self.over_since.get_or_insert(now);
        }
        self.publish();
    }

    /// Saves the job state. A change is saved before the reply is sent.
    pub(crate) fn save_job(&mut self) -> Result<(), SchedulerRefusal> {
        self.changed = true;
        match (&self.file, &self.job) {
            (Some(file), Some(job)) => {
                let saved = JOB_STATE_FILE.save_unsynced(file, job);
                saved.map_err(|error| (Refusal::NoSpace, error.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// The job, for `gannet status`.
    pub fn status_of(&self, job: &JobState) -> JobV2 {
        let SplitCounts { done, leased, returned, tasks, examples } = job.counts();
        JobV2 {
            workers: job.plan().workers,
            files: job.plan().files.len() as u32,
            epochs: job.plan().epochs,
            members: job.members().cloned().collect(),
            leases: job.leases().map(|(index, lease)| (index, lease.incarnation)).collect(),
            unfenced: job.unfenced_in_a_reply(),
            done,
            leased,
            returned,
            tasks,
            examples,
            failed: job.failure().map(str::to_owned),
            chief: job.chief(),
            saved: job.is_saved(),
            work: job.members().map(|member| self.work_of(member.incarnation)).collect(),
        }
    }

    fn work_of(&self, WorkerIncarnation { rank, incarnation }: WorkerIncarnation) -> Activity {
        let work = self.works.get(&rank).filter(|(of, _)| *of == incarnation);
        work.map_or_else(Activity::default, |(_, work)| *work)
    }
}

//! What workers request of the scheduler, and its replies: one frame kind for each direction, with rkyv archives of
//! the frozen structs here. The scheduler runs in thread 0 of a server, among its sessions.

use super::data_server::{DataServer, DataServerConfig};
use super::job_plan::JobPlan;
use super::job_state::{HeartbeatReply, JobState, JobStateError, SplitCounts};
use super::job_state_file::{self, JobStateFile, JobStateFileError};
use super::leases::SplitGrant;
use super::member::{Activity, Member, Progress, WorkerIncarnation, WorkerState};
use super::table_records::{JobTableV1, RecordOutcome};
use crate::error::Refusal;
use crate::failure_detector::FailureDetector;
use crate::limits::{ASK_EVERY, BARRIER_BYTES_MAX, HELD_MAX, TEXT_BYTES_MAX};
use crate::log_limiter::LogLimiter;
use rkyv::{Archive, Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// A worker's request. `incarnation` says which worker it is.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct SchedulerRequestV1 {
    pub(crate) incarnation: WorkerIncarnation,
    pub(crate) what: SchedulerActionV1,
}

/// See [`JobState`] for each.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) enum SchedulerActionV1 {
    Register {
        plan: JobPlan,
    },
    BeatV2 {
        progress: Progress,
        work: Activity,
    },
    Take {
        holding: Vec<u64>,
    },
    Done {
        index: u64,
        examples: u64,
    },
    Fenced {
        dead: WorkerIncarnation,
    },
    Leave,
    Meet {
        name: String,
    },
    Fail {
        why: String,
    },
    Status,
    /// The chief has tested and saved.
    Saved,
}

/// The scheduler's reply.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) enum SchedulerReplyV1 {
    /// The job's number; how many splits are trained already, and how many there are.
    Registered {
        started: u64,
        done: u64,
        tasks: u64,
    },
    OrdersV2 {
        chief: bool,
        saver: Option<u32>,
        trained: bool,
        saved: bool,
        fence: Vec<WorkerIncarnation>,
        failed: Option<String>,
        live: u32,
    },
    Task {
        index: u64,
        from: u64,
    },
    Wait,
    Over,
    /// The workers that have not entered a barrier. If there are none, the barrier is open.
    Missing {
        ranks: Vec<u32>,
    },
    Noted,
    StatusV2(Option<JobV2>),
}

/// The job, for `gannet status`.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct JobV2 {
    pub(crate) workers: u32,
    pub(crate) files: u32,
    pub(crate) epochs: u32,
    pub(crate) members: Vec<Member>,
    /// Each split that is held, and the worker that holds it.
    pub(crate) leases: Vec<(u64, WorkerIncarnation)>,
    pub(crate) unfenced: Vec<WorkerIncarnation>,
    pub(crate) done: u64,
    pub(crate) leased: u64,
    pub(crate) returned: u64,
    pub(crate) tasks: u64,
    pub(crate) examples: u64,
    pub(crate) failed: Option<String>,
    pub(crate) chief: Option<WorkerIncarnation>,
    pub(crate) saved: bool,
    /// What its members do, in their order.
    pub(crate) work: Vec<Activity>,
}

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

impl SchedulerActionV1 {
    /// Checks the limits of what is saved and sent to others.
    fn check(&self) -> Result<(), SchedulerRefusal> {
        let (what, n, most) = match self {
            SchedulerActionV1::BeatV2 { progress, .. } => ("tasks are held", progress.acked.len(), HELD_MAX),
            SchedulerActionV1::Take { holding } => ("tasks are held", holding.len(), HELD_MAX),
            SchedulerActionV1::Meet { name } => {
                ("bytes are in a barrier's name", name.len(), BARRIER_BYTES_MAX)
            }
            SchedulerActionV1::Fail { why } => ("bytes say why the job fails", why.len(), TEXT_BYTES_MAX),
            _ => return Ok(()),
        };
        if n <= most { Ok(()) } else { Err((Refusal::Limit, format!("{n} {what}; {most} are possible"))) }
    }
}

/// The scheduler of one job at a time.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    file: Option<JobStateFile>,
    pub(super) job: Option<JobState>,
    /// Present if the scheduler has the data and sends it to the workers.
    pub(super) data_server: Option<DataServer>,
    /// Says which workers are alive.
    pub(super) detector: FailureDetector,
    /// When something was last heard of the job, on the detector's clock.
    heard: Duration,
    /// When the time limits of the workers were last checked.
    checked_at: Option<Duration>,
    /// When the scheduler noticed that the job is over.
    pub(super) over_since: Option<Duration>,
    pub(super) log_limiter: LogLimiter,
    /// The worker of each session.
    pub(super) links: BTreeMap<u32, WorkerIncarnation>,
    /// The job state has changed since somebody asked.
    pub(super) changed: bool,
}

impl Scheduler {
    /// The scheduler of a run. Its job state is kept in `folder`, if there is one, and loaded from there.
    pub(crate) fn open(
        folder: Option<&Path>,
        run: &str,
        config: Option<DataServerConfig>,
        detector: &FailureDetector,
        now: Duration,
    ) -> Result<Scheduler, JobStateFileError> {
        let data_server = config.map(DataServer::new);
        let file = folder.map(|folder| JobStateFile::new(folder, run));
        let job = file.as_ref().map_or(Ok(None), JobStateFile::load)?;
        if let (Some(data_server), Some(job)) = (&data_server, &job) {
            data_server.check_job(job).map_err(|why| JobStateFileError::Other { why })?;
        }
        if let Some(job) = &job {
            job.expect_workers(detector, now);
            let SplitCounts { done, tasks, .. } = job.counts();
            tracing::info!(done, tasks, "found the state of a job: it continues where it stopped");
        }
        let mut scheduler = Scheduler {
            file,
            job,
            data_server,
            detector: detector.clone(),
            heard: detector.clock(now),
            checked_at: None,
            over_since: None,
            log_limiter: LogLimiter::default(),
            links: BTreeMap::new(),
            changed: false,
        };
        scheduler.publish();
        Ok(scheduler)
    }

    /// Whether the split whose pushes have this name is done.
    pub(super) fn is_done(&self, pusher: u64, incarnation: u64) -> bool {
        self.job.as_ref().is_some_and(|job| job.is_done(pusher, incarnation))
    }

    /// The job state as a checkpoint has it. `None`: there is no job.
    pub(super) fn snapshot(&self) -> Option<Vec<u8>> {
        self.job.as_ref().map(job_state_file::encode)
    }

    /// Goes on with the job state of a checkpoint. The tables' images were made anew, so the next worker reports their
    /// births. What workers have done behind the checkpoint is undone. So none of them is in the job any more: one that
    /// still runs would report batches as trained whose rows are gone.
    ///
    /// # Errors
    /// The bytes are no job state, are of other data than this scheduler has, or cannot be saved: in words.
    pub(super) fn restore(&mut self, bytes: &[u8], now: Duration) -> Result<(), String> {
        let mut job = job_state_file::decode(bytes)?;
        if let Some(data_server) = &self.data_server {
            data_server.check_job(&job)?;
        }
        job.forget_tables();
        job.end_workers();
        self.go_on_with(job, now)
    }

    /// Goes on with the job state of the scheduler before, which has died. Its workers may be alive.
    ///
    /// # Errors
    /// As [`restore`](Self::restore).
    pub(super) fn take_over(&mut self, bytes: &[u8], now: Duration) -> Result<(), String> {
        self.go_on_with(job_state_file::decode(bytes)?, now)
    }

    fn go_on_with(&mut self, job: JobState, now: Duration) -> Result<(), String> {
        job.expect_workers(&self.detector, now);
        (self.job, self.over_since) = (Some(job), None);
        self.save_job().map_err(|(_, why)| why)?;
        self.publish();
        Ok(())
    }

    /// Answers a request of a program that names no generation.
    #[cfg(test)]
    pub(crate) fn answer(
        &mut self,
        ask: SchedulerRequestV1,
        session: u32,
        now: Duration,
    ) -> Result<SchedulerReplyV1, SchedulerRefusal> {
        self.answer_in((0, 0), ask, session, now)
    }

    /// Answers a request of a worker. `run` is the generation and the birth of its run.
    pub(crate) fn answer_in(
        &mut self,
        run: (u32, u64),
        ask: SchedulerRequestV1,
        session: u32,
        now: Duration,
    ) -> Result<SchedulerReplyV1, SchedulerRefusal> {
        let SchedulerRequestV1 { incarnation, what } = ask;
        if matches!(what, SchedulerActionV1::Status) {
            return Ok(SchedulerReplyV1::StatusV2(self.job.as_ref().map(|job| status(job, &self.detector))));
        }
        what.check()?;
        self.heard = self.detector.clock(now);
        // The request shows that the worker lives, however long it has waited here.
        if let Some(job) = &mut self.job
            && job.live_member(incarnation).is_ok()
        {
            self.detector.hear(incarnation, now);
        }
        self.tick(now)?;
        if let SchedulerActionV1::Register { plan } = what {
            return self.register(incarnation, plan, run, session, now);
        }
        // A heartbeat is not saved: at worst a batch is trained again, and the shards drop its pushes.
        let saves = !matches!(what, SchedulerActionV1::BeatV2 { .. } | SchedulerActionV1::Meet { .. });
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
        let (job, detector) = (self.job.as_mut().ok_or_else(unknown)?, &self.detector);
        Ok(match what {
            SchedulerActionV1::Register { .. } | SchedulerActionV1::Status => SchedulerReplyV1::Noted,
            SchedulerActionV1::BeatV2 { progress, work } => {
                let HeartbeatReply { chief, saver, trained, saved, fence, failed, live } =
                    job.beat(detector, incarnation, (progress, work), now)?;
                SchedulerReplyV1::OrdersV2 { chief, saver, trained, saved, fence, failed, live }
            }
            SchedulerActionV1::Saved => {
                job.saved(incarnation)?;
                SchedulerReplyV1::Noted
            }
            SchedulerActionV1::Take { holding } => match job.take(detector, incarnation, &holding, now)? {
                SplitGrant::Task { index, from, .. } => SchedulerReplyV1::Task { index, from },
                SplitGrant::Wait => SchedulerReplyV1::Wait,
                SplitGrant::Over => SchedulerReplyV1::Over,
            },
            SchedulerActionV1::Done { index, examples } => {
                job.done(incarnation, index, examples)?;
                SchedulerReplyV1::Noted
            }
            SchedulerActionV1::Fenced { dead } => {
                if job.fenced(dead)
                    && let Some(kept_back) = self.log_limiter.allow(now)
                {
                    let (worker, by) = (dead.rank, incarnation.rank);
                    tracing::warn!(worker, by, kept_back, "fenced: its tasks are free");
                }
                SchedulerReplyV1::Noted
            }
            SchedulerActionV1::Leave => {
                job.leave(incarnation)?;
                SchedulerReplyV1::Noted
            }
            SchedulerActionV1::Meet { name } => {
                SchedulerReplyV1::Missing { ranks: job.meet(detector, incarnation, &name, now)? }
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

    /// For how long the job has been left with nothing trained. Zero: a worker is in it, or something is trained.
    pub(super) fn idle(&self, now: Duration) -> Duration {
        let in_use = self.job.as_ref().is_some_and(|job| {
            let SplitCounts { done, examples, .. } = job.counts();
            done > 0 || examples > 0 || job.members().any(|member| member.state == WorkerState::Live)
        });
        if in_use { Duration::ZERO } else { self.detector.clock(now).saturating_sub(self.heard) }
    }

    /// The highest incarnation in the job state.
    pub(crate) fn highest_incarnation(&self) -> u64 {
        let Some(job) = &self.job else { return 0 };
        job.members().map(|member| member.incarnation.incarnation).fold(job.started(), u64::max)
    }

    /// A worker reports which rows a table has. If they are not the rows that the job has trained, the job ends.
    pub(crate) fn note_table(&mut self, report: JobTableV1, now: Duration) -> Result<(), SchedulerRefusal> {
        let JobTableV1 { incarnation, table } = report;
        self.tick(now)?;
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

    /// A session has ended.
    pub(crate) fn closed(&mut self, session: u32) {
        if let Some(incarnation) = self.links.remove(&session)
            && !self.links.values().any(|other| *other == incarnation)
        {
            self.detector.unlink(incarnation);
        }
    }

    /// Checks time limits. Called once a second and by every request.
    pub(crate) fn tick(&mut self, now: Duration) -> Result<(), SchedulerRefusal> {
        self.detector.wake(now);
        // Every request calls this: with many workers that is often.
        if self.checked_at.is_some_and(|at| now.saturating_sub(at) < ASK_EVERY) {
            return Ok(());
        }
        let Some(job) = &mut self.job else { return Ok(()) };
        self.checked_at = Some(now);
        if job.is_over() {
            self.over_since.get_or_insert(now);
        }
        let dead = job.tick(&self.detector, now);
        for (WorkerIncarnation { rank: worker, .. }, verdict) in &dead {
            let Some(kept_back) = self.log_limiter.allow(now) else { continue };
            let (time, why) = verdict.in_words();
            tracing::warn!(worker, seconds = time.as_secs_f64(), kept_back, why, "a worker is given up");
        }
        self.publish();
        if dead.is_empty() { Ok(()) } else { self.save_job() }
    }

    /// Saves the job state. A change is saved before the reply is sent.
    pub(super) fn save_job(&mut self) -> Result<(), SchedulerRefusal> {
        self.changed = true;
        match (&self.file, &self.job) {
            (Some(file), Some(job)) => file.save(job).map_err(|error| (Refusal::NoSpace, error.to_string())),
            _ => Ok(()),
        }
    }
}

pub(super) fn status(job: &JobState, detector: &FailureDetector) -> JobV2 {
    let SplitCounts { done, leased, returned, tasks, examples } = job.counts();
    JobV2 {
        workers: job.plan().workers,
        files: job.plan().files.len() as u32,
        epochs: job.plan().epochs,
        members: job.members().cloned().collect(),
        leases: job.leases().map(|(index, lease)| (index, lease.incarnation)).collect(),
        unfenced: job.unfenced().collect(),
        done,
        leased,
        returned,
        tasks,
        examples,
        failed: job.failure().map(str::to_owned),
        chief: job.chief(),
        saved: job.is_saved(),
        work: job.members().map(|member| detector.work(member.incarnation)).collect(),
    }
}

impl JobV2 {
    /// Whether a live worker is in it.
    pub(crate) fn is_live(&self) -> bool {
        self.members.iter().any(|member| member.state == WorkerState::Live)
    }
}

//! The state of one job: which workers are in it, which splits they hold, and which workers must be fenced before
//! their splits go to others. Pure state: requests and the time come in, replies go out. The scheduler saves it and
//! sends.
//!
//! ```text
//! split:   not yet handed out -> leased -> done
//!                                 |  ^
//!            its worker is dead   v  | the next worker that asks
//!                 to be fenced -> returned
//!
//! member:  live -> dead -> fenced
//!          live -> left (it gave its splits back)
//! ```
//! The registry of runs decides that a member is dead, and a live worker fences it (`runs/dead_workers.rs`). This state
//! learns of it when that worker reports the fence. A member is also dead when a newer incarnation of it comes.
//!
//! The chief is the live worker with the lowest index while splits are left. When all are trained, it is one worker
//! until that one has saved. Another becomes chief only when the first has left without having saved, or is dead and
//! fenced.
//!
//! A split leaves a dead worker only when every shard owner refuses that worker's pushes. So no record is trained
//! twice, also when the worker was only asleep. A worker that was declared dead stays dead: it is refused, and may come
//! back as a new incarnation.

use crate::limits::{BARRIERS_MAX, UNFENCED_MAX};
use crate::scheduler::growing::Growing;
use crate::scheduler::leases::Lease;
use gannet_wire::messages::job_plan::JobPlan;
use gannet_wire::messages::jobs::{JobOrders, TableRecord};
use gannet_wire::messages::member::{Member, Progress, SplitCounts, WorkerIncarnation, WorkerState};
use rkyv::{Archive, Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobStateError {
    /// The worker is not in the job.
    #[error("worker {} is not in this job (was the scheduler started again without its job state file?)", .0.rank)]
    Unknown(WorkerIncarnation),
    /// The worker was declared dead.
    #[error(
        "worker {} was silent for longer than --worker-timeout, or made no progress for several of them, and has been \
         given up; its tasks go to others: start it again to take part",
        .0.rank
    )]
    Fenced(WorkerIncarnation),
    /// The index is not one of the job's.
    #[error("worker {rank} of {workers}: the job has workers 0 to {}", workers - 1)]
    Index {
        /// The index.
        rank: u32,
        /// The number of workers of the job.
        workers: u32,
    },
    /// The job's workers have other flags or data.
    #[error("{0}: every worker of a job must be given the same")]
    Differs(String),
    /// The split is not this worker's.
    #[error("task {0} is not worker {1}'s")]
    NotYours(u64, u32),
    /// A worker that is not the chief reports that it has saved the model.
    #[error(
        "worker {} has saved the model, but was not the one to do so: check that no other worker has written it too",
        .0.rank
    )]
    NotChief(WorkerIncarnation),
    /// A limit.
    #[error("{0}")]
    Limit(String),
}

/// See the module.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct JobState {
    pub(crate) plan: JobPlan,
    /// The number of the job; larger than that of any job before.
    started: u64,
    /// The generation of its run; 0: its workers name none.
    pub(crate) generation: u32,
    /// The birth of its run; 0: its workers name none.
    pub(crate) birth: u64,
    /// Splits from this one on have never been handed out.
    pub(crate) next: u64,
    /// The tasks, if the source of the data grows. `next` then counts those that were handed out.
    pub(crate) growing: Option<Growing>,
    pub(crate) leases: BTreeMap<u64, Lease>,
    /// Splits that are free again, each with its first batch that is not trained.
    pub(crate) returned: BTreeMap<u64, u64>,
    /// Records of the splits that are done.
    pub(crate) examples: u64,
    pub(crate) members: BTreeMap<u32, Member>,
    /// Dead incarnations that are not yet fenced at every shard owner.
    pub(crate) unfenced: BTreeSet<WorkerIncarnation>,
    barriers: BTreeMap<String, BTreeSet<u32>>,
    failed: Option<String>,
    /// The job's tables, as its first worker found them.
    pub(crate) tables: Vec<TableRecord>,
    /// When all is trained: the worker that must test and save.
    pub(crate) chief: Option<WorkerIncarnation>,
    /// That worker has reported that it has saved the model.
    pub(crate) saved: bool,
}

impl JobState {
    /// The state of a new job.
    ///
    /// # Errors
    /// The plan is not valid.
    pub fn new(plan: JobPlan, started: u64) -> Result<JobState, JobStateError> {
        plan.check().map_err(JobStateError::Limit)?;
        let growing = plan.grows().then(Growing::default);
        Ok(JobState {
            plan,
            growing,
            started,
            generation: 0,
            birth: 0,
            next: 0,
            leases: BTreeMap::new(),
            returned: BTreeMap::new(),
            examples: 0,
            members: BTreeMap::new(),
            unfenced: BTreeSet::new(),
            barriers: BTreeMap::new(),
            failed: None,
            tables: Vec::new(),
            chief: None,
            saved: false,
        })
    }

    /// The data of the job.
    pub fn plan(&self) -> &JobPlan {
        &self.plan
    }

    /// The number of the job: pushes of its data have it as their incarnation.
    pub fn started(&self) -> u64 {
        self.started
    }

    /// All splits are done and the model is saved, or the job has failed. When its workers have gone, the next worker
    /// begins another job. (A worker that comes when all is trained and the model is not saved must save it.)
    pub fn has_ended(&self) -> bool {
        self.saved || self.failed.is_some()
    }

    /// Whether a worker of this index has missed the end: it has never been in the job, or it died and the others have
    /// trained the rest.
    pub fn was_missed_by(&self, rank: u32) -> bool {
        let died = |member: &Member| member.state == WorkerState::Dead && self.is_trained();
        self.members.get(&rank).is_none_or(died)
    }

    /// Whether this incarnation is in the job: it has not left, and was not given up.
    pub fn is_live(&self, incarnation: WorkerIncarnation) -> bool {
        let known = self.members.get(&incarnation.rank);
        known.is_some_and(|of| of.incarnation == incarnation && of.state == WorkerState::Live)
    }

    /// Lets a job that failed go on.
    pub fn forgive(&mut self) {
        if !self.saved {
            self.failed = None;
        }
    }

    /// Whether all splits are done.
    pub fn is_trained(&self) -> bool {
        let handed_out = match &self.growing {
            Some(growing) => growing.is_handed_out(),
            None => self.next == self.plan.tasks(),
        };
        handed_out && self.leases.is_empty() && self.returned.is_empty()
    }

    /// All tasks that are known.
    fn tasks(&self) -> u64 {
        self.growing.as_ref().map_or_else(|| self.plan.tasks(), Growing::found)
    }

    /// The live workers of the job, by index.
    pub fn live_incarnations(&self) -> impl Iterator<Item = WorkerIncarnation> {
        self.members
            .values()
            .filter(|member| member.state == WorkerState::Live)
            .map(|member| member.incarnation)
    }

    /// Adds an incarnation of a worker to the job.
    ///
    /// # Errors
    /// It has other data or flags, its index is out of range, or a newer incarnation of it has come.
    pub fn register(&mut self, incarnation: WorkerIncarnation, plan: &JobPlan) -> Result<(), JobStateError> {
        if let Some(difference) = self.plan.differs(plan) {
            return Err(JobStateError::Differs(difference));
        }
        if incarnation.rank >= self.plan.workers {
            return Err(JobStateError::Index { rank: incarnation.rank, workers: self.plan.workers });
        }
        if let Some(known) = self.members.get(&incarnation.rank) {
            let (before, state) = (known.incarnation, known.state);
            if before.incarnation > incarnation.incarnation || self.unfenced.contains(&incarnation) {
                return Err(JobStateError::Fenced(incarnation));
            }
            if before == incarnation {
                // The reply to the first request was lost.
                return match state {
                    WorkerState::Dead => Err(JobStateError::Fenced(incarnation)),
                    WorkerState::Live | WorkerState::Left => Ok(()),
                };
            }
            if state == WorkerState::Live {
                if self.unfenced.len() >= UNFENCED_MAX {
                    let n = self.unfenced.len();
                    return Err(JobStateError::Limit(format!(
                        "{n} workers that died are not yet fenced at every server: see that the servers answer, then start it again"
                    )));
                }
                self.unfenced.insert(before);
            }
        }
        let member = Member { incarnation, state: WorkerState::Live, progress: Progress::default() };
        self.members.insert(incarnation.rank, member);
        self.settle_chief();
        Ok(())
    }

    /// The live member that is this incarnation.
    pub(crate) fn member(&mut self, incarnation: WorkerIncarnation) -> Result<&mut Member, JobStateError> {
        match self.members.get_mut(&incarnation.rank) {
            Some(member) if member.incarnation == incarnation && member.state == WorkerState::Live => {
                Ok(member)
            }
            Some(member) if member.incarnation.incarnation >= incarnation.incarnation => {
                Err(JobStateError::Fenced(incarnation))
            }
            _ => Err(JobStateError::Unknown(incarnation)),
        }
    }

    /// Notes how far a worker is, and returns what it must know of the job.
    ///
    /// # Errors
    /// It is not in the job, or was given up.
    pub fn report(
        &mut self,
        incarnation: WorkerIncarnation,
        progress: Progress,
    ) -> Result<JobOrders, JobStateError> {
        self.member(incarnation)?;
        self.note_acked(incarnation, &progress.acked);
        self.member(incarnation)?.progress = progress;
        let (chief, live) = (self.chief() == Some(incarnation), self.live_incarnations().count() as u32);
        let (saver, trained) = (self.chief.map(|chief| chief.rank), self.is_trained());
        let (failed, unfenced) = (self.failed.clone(), self.unfenced_in_a_reply());
        Ok(JobOrders { chief, saver, trained, saved: self.saved, failed, live, unfenced })
    }

    /// Batches of the splits that an incarnation holds are acknowledged: whoever gets a split next begins behind them.
    pub(crate) fn note_acked(&mut self, incarnation: WorkerIncarnation, acked: &[(u64, u64)]) {
        for &(index, acked) in acked {
            if let Some(lease) = self.leases.get_mut(&index).filter(|lease| lease.incarnation == incarnation)
            {
                lease.from = lease.from.max(acked);
            }
        }
    }

    /// A worker leaves. All its pushes are acknowledged, so the splits that it holds are free without a fence.
    ///
    /// # Errors
    /// It is not in the job, or was given up.
    pub fn leave(&mut self, incarnation: WorkerIncarnation) -> Result<(), JobStateError> {
        self.member(incarnation)?.state = WorkerState::Left;
        self.take_back(incarnation);
        self.settle_chief();
        Ok(())
    }

    /// No worker is in the job any more, and nobody can push to its tables as they were. So splits that were held are
    /// free without a fence.
    pub(crate) fn end_workers(&mut self) {
        for member in self.members.values_mut().filter(|member| member.state == WorkerState::Live) {
            member.state = WorkerState::Left;
        }
        self.unfenced.clear();
        let held = std::mem::take(&mut self.leases);
        self.returned.extend(held.into_iter().map(|(index, lease)| (index, lease.from)));
        self.settle_chief();
    }

    /// A worker waits at a barrier for all workers of the job. Returns those that are not there yet. Workers that
    /// are dead or have left are not waited for. A worker that has passed the barrier may ask again.
    ///
    /// # Errors
    /// It is not in the job, or the job has too many barriers.
    pub fn meet(&mut self, incarnation: WorkerIncarnation, name: &str) -> Result<Vec<u32>, JobStateError> {
        self.member(incarnation)?;
        if !self.barriers.contains_key(name) && self.barriers.len() == BARRIERS_MAX {
            let over = self.barriers.keys().find(|name| self.missing(name).next().is_none()).cloned();
            let over = over.ok_or_else(|| {
                JobStateError::Limit(format!("workers wait at {BARRIERS_MAX} barriers already, the limit"))
            })?;
            self.barriers.remove(&over);
        }
        self.barriers.entry(name.to_owned()).or_default().insert(incarnation.rank);
        Ok(self.missing(name).collect())
    }

    /// The workers that have not entered a barrier.
    fn missing(&self, name: &str) -> impl Iterator<Item = u32> {
        let met = self.barriers.get(name);
        let gone = |rank| self.members.get(&rank).is_some_and(|member| member.state != WorkerState::Live);
        (0..self.plan.workers).filter(move |rank| !met.is_some_and(|met| met.contains(rank)) && !gone(*rank))
    }

    /// Fails the job: it cannot go on, and every worker learns why. Later reasons are ignored.
    ///
    /// # Errors
    /// The reporting worker is not in the job.
    pub fn fail(&mut self, incarnation: WorkerIncarnation, why: String) -> Result<(), JobStateError> {
        self.member(incarnation)?;
        self.failed.get_or_insert(why);
        Ok(())
    }

    /// Fails the job as [`fail`](Self::fail) does, without a report of a worker.
    pub fn fail_all(&mut self, why: &str) {
        self.failed.get_or_insert_with(|| why.to_owned());
    }

    /// Checks that an incarnation is in the job and lives.
    ///
    /// # Errors
    /// It is not in the job, or was given up.
    pub fn live_member(&mut self, incarnation: WorkerIncarnation) -> Result<(), JobStateError> {
        self.member(incarnation).map(|_| ())
    }

    /// Counts splits for `gannet status`: done, held, free again, and all.
    pub fn counts(&self) -> SplitCounts {
        let (leased, returned) = (self.leases.len() as u64, self.returned.len() as u64);
        let done = self.next - leased - returned;
        SplitCounts { done, leased, returned, tasks: self.tasks(), examples: self.examples }
    }

    /// Its workers, by index.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// Takes over the dead workers of the previous job on the same servers, and those that have not left it: all must
    /// be fenced.
    pub fn inherit(&mut self, before: &JobState) {
        self.unfenced.extend(before.unfenced().chain(before.live_incarnations()));
    }

    /// Incarnations that are dead and not yet fenced everywhere.
    pub fn unfenced(&self) -> impl Iterator<Item = WorkerIncarnation> {
        self.unfenced.iter().copied()
    }

    /// As many of them as a reply names. The others follow in later replies, when some of these are fenced.
    pub fn unfenced_in_a_reply(&self) -> Vec<WorkerIncarnation> {
        self.unfenced().take(UNFENCED_MAX).collect()
    }

    /// Why the job failed, if it did.
    pub fn failure(&self) -> Option<&str> {
        self.failed.as_deref()
    }
}

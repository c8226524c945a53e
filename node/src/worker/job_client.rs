//! A worker's requests to the scheduler of its job, over a link of its own. Every call may be repeated: a lost answer
//! does no harm.

use super::no_space::until_space;
use super::tables::{ControlReply, ControlRequest, Recipients};
use super::{NEXT_INCARNATION, Worker, WorkerConfig};
use crate::error::WorkerError;
use crate::frames::control;
use crate::frames::{BookFrame, JobTableFrame};
use crate::limits::{PLAN_BYTES_MAX, TEXT_BYTES_MAX};
use crate::scheduler::job_plan::{JobPlan, Split};
use crate::scheduler::job_state::HeartbeatReply;
use crate::scheduler::leases::SplitGrant;
use crate::scheduler::member::{Activity, Member, Progress, WorkerIncarnation};
use crate::scheduler::table_records::{JobTableV1, TableRecord};
use crate::scheduler::{
    JobTableV2, JobV2, SchedulerActionV1, SchedulerReplyV1, SchedulerRequestV1, SchedulerRequestV2,
};
use gannet_transport::Net;
use std::time::Duration;

/// A worker's connection to the scheduler of its job.
///
/// ```
/// # use gannet_node::{JobClient, JobPlan, PlanFile, Server, ServerConfig, SplitGrant, WorkerConfig};
/// # use gannet_transport::multi::Transports;
/// # let files = vec![PlanFile { name: "clicks.csv".into(), bytes: 1000, print: 0, whole: false }];
/// # let (workers, task_bytes, batch, epochs, worker_timeout_ms) = (1, 300, 64, 2, 10_000);
/// # let plan = JobPlan { workers, files, task_bytes, batch, epochs, worker_timeout_ms, settings: Vec::new() };
/// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
/// let mut job = JobClient::join(Transports::new(), config, 0, plan)?;
/// assert_eq!((job.joined().done, job.joined().tasks), (0, 8));
/// let mut trained = 0;
/// while let SplitGrant::Task { index, task, .. } = job.take(&[])? {
///     // ... train the lines that begin in task.start..task.end ...
///     trained += task.end - task.start;
///     job.done(index, 10)?; // 10 records
/// }
/// assert_eq!(trained, 2 * 1000); // two passes
/// job.saved()?;
/// job.leave()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct JobClient<N: Net> {
    worker: Worker<N>,
    incarnation: WorkerIncarnation,
    plan: JobPlan,
    joined: JobAnswer,
}

/// What a worker learns when it joins a job. [`JobClient`] has an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobAnswer {
    /// The number of the job: larger than that of any earlier job of this scheduler.
    pub started: u64,
    /// Tasks that were trained before.
    pub done: u64,
    /// Tasks of all passes.
    pub tasks: u64,
}

/// A job as its scheduler knows it.
///
/// ```
/// # use gannet_node::{JobClient, JobPlan, JobStatus, PlanFile, Server, ServerConfig, WorkerConfig};
/// # use gannet_transport::multi::Transports;
/// # let files = vec![PlanFile { name: "clicks.csv".into(), bytes: 1000, print: 0, whole: false }];
/// # let (workers, task_bytes, batch, epochs, worker_timeout_ms) = (1, 300, 64, 2, 10_000);
/// # let plan = JobPlan { workers, files, task_bytes, batch, epochs, worker_timeout_ms, settings: Vec::new() };
/// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
/// # let reader = WorkerConfig::reader([server.addr()]);
/// assert_eq!(JobStatus::of(Transports::new(), reader.clone())?, None); // no worker has come yet
/// let job = JobClient::join(Transports::new(), config, 0, plan)?;
/// let status = JobStatus::of(Transports::new(), reader)?;
/// assert_eq!(status.map(|job| (job.live, job.members.len(), job.tasks)), Some((true, 1, 8)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct JobStatus {
    /// The declared number of workers.
    pub workers: u32,
    /// Files of its data.
    pub files: u32,
    /// Passes over them.
    pub epochs: u32,
    /// Its workers.
    pub members: Vec<Member>,
    /// Which worker holds each leased task.
    pub leases: Vec<(u64, WorkerIncarnation)>,
    /// Dead incarnations that are not yet fenced everywhere. Their tasks wait for that.
    pub unfenced: Vec<WorkerIncarnation>,
    /// Tasks that have been trained.
    pub tasks_done: u64,
    /// Tasks that workers hold.
    pub tasks_leased: u64,
    /// Tasks that a worker returned and that are free again.
    pub tasks_returned: u64,
    /// Tasks of all passes.
    pub tasks: u64,
    /// Records of the trained tasks.
    pub examples: u64,
    /// Whether a worker is in the job.
    pub live: bool,
    /// The worker that tests and saves, as things are now.
    pub chief: Option<WorkerIncarnation>,
    /// The chief has saved the model.
    pub saved: bool,
    /// What its workers do, in their order.
    pub work: Vec<Activity>,
    /// Why it failed, if it did.
    pub failed: Option<String>,
}

impl<N: Net> JobClient<N> {
    /// Joins the job of the scheduler that is `config`'s one server, as worker `rank` with the incarnation
    /// `config.incarnation`.
    ///
    /// # Errors
    /// The scheduler is lost; a worker with this index lives; or `plan` differs from the job's.
    pub fn join(net: N, config: WorkerConfig, rank: u32, plan: JobPlan) -> Result<JobClient<N>, WorkerError> {
        if config.incarnation == NEXT_INCARNATION {
            let what =
                "a worker of a job needs an incarnation: allocate one first (Worker::allocate_incarnation)";
            return Err(WorkerError::Call(what.into()));
        }
        let incarnation = WorkerIncarnation { rank, incarnation: config.incarnation };
        let mut worker = Worker::connect(net, WorkerConfig { one_thread: true, ..config })?;
        let ask =
            SchedulerRequestV1 { incarnation, what: SchedulerActionV1::Register { plan: plan.clone() } };
        if control::seal_as(2, &worker.of_run(&ask)).len() > PLAN_BYTES_MAX {
            let files = plan.files.len();
            let text = format!(
                "the names of {files} files are too long for one message: train on fewer, larger ones"
            );
            return Err(WorkerError::Call(text));
        }
        match until_space(worker.config.peer_timeout, || worker.ask_scheduler(&ask))? {
            SchedulerReplyV1::Registered { started, done, tasks } => {
                let joined = JobAnswer { started, done, tasks };
                Ok(JobClient { worker, incarnation, plan, joined })
            }
            other => Err(worker.nonsense(&other)),
        }
    }

    /// How long it waits for a scheduler that has no space for its state.
    pub(super) fn patience(&self) -> Duration {
        self.worker.config.peer_timeout
    }

    /// This worker and its incarnation.
    pub fn incarnation(&self) -> WorkerIncarnation {
        self.incarnation
    }

    /// The scheduler's answer to the join.
    pub fn joined(&self) -> JobAnswer {
        self.joined
    }

    /// The data of the job.
    pub fn plan(&self) -> &JobPlan {
        &self.plan
    }

    fn ask(&mut self, what: SchedulerActionV1) -> Result<SchedulerReplyV1, WorkerError> {
        self.worker.ask_scheduler(&SchedulerRequestV1 { incarnation: self.incarnation, what })
    }

    fn note(&mut self, what: SchedulerActionV1) -> Result<(), WorkerError> {
        match self.ask(what)? {
            SchedulerReplyV1::Noted => Ok(()),
            other => Err(self.worker.nonsense(&other)),
        }
    }

    /// Tells the scheduler that this worker lives, how far it is, and what it does.
    ///
    /// ```
    /// # use gannet_node::{Activity, JobClient, JobPlan, PlanFile, Progress, Server, ServerConfig, WorkerConfig};
    /// # use gannet_transport::multi::Transports;
    /// # let files = vec![PlanFile { name: "clicks.csv".into(), bytes: 1000, print: 0, whole: false }];
    /// # let (workers, task_bytes, batch, epochs, worker_timeout_ms) = (1, 300, 64, 2, 10_000);
    /// # let plan = JobPlan { workers, files, task_bytes, batch, epochs, worker_timeout_ms, settings: Vec::new() };
    /// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
    /// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
    /// # let mut job = JobClient::join(Transports::new(), config, 0, plan)?;
    /// let progress = Progress { clock: 3, examples: 192, ..Progress::default() };
    /// let reply = job.beat(progress, Activity::default())?;
    /// assert!(reply.chief && !reply.trained);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The scheduler is lost, or has given this worker up.
    pub fn beat(&mut self, progress: Progress, work: Activity) -> Result<HeartbeatReply, WorkerError> {
        match self.ask(SchedulerActionV1::BeatV2 { progress, work })? {
            SchedulerReplyV1::OrdersV2 { chief, saver, trained, saved, fence, failed, live } => {
                Ok(HeartbeatReply { chief, saver, trained, saved, fence, failed, live })
            }
            other => Err(self.worker.nonsense(&other)),
        }
    }

    /// Asks for a task in addition to those that the worker holds.
    ///
    /// # Errors
    /// As [`beat`](Self::beat).
    pub fn take(&mut self, holding: &[u64]) -> Result<SplitGrant, WorkerError> {
        match self.ask(SchedulerActionV1::Take { holding: holding.to_vec() })? {
            SchedulerReplyV1::Task { index, from } if index < self.plan.tasks() => {
                let task: Split = self.plan.task(index);
                Ok(SplitGrant::Task { index, task, from })
            }
            SchedulerReplyV1::Wait => Ok(SplitGrant::Wait),
            SchedulerReplyV1::Over => Ok(SplitGrant::Over),
            other => Err(self.worker.nonsense(&other)),
        }
    }

    /// Reports that a task of so many records is trained: every push of it has been acknowledged.
    ///
    /// # Errors
    /// As [`beat`](Self::beat).
    pub fn done(&mut self, index: u64, examples: u64) -> Result<(), WorkerError> {
        self.note(SchedulerActionV1::Done { index, examples })
    }

    /// Reports that every owner of shards refuses pushes of this incarnation.
    ///
    /// # Errors
    /// As [`beat`](Self::beat).
    pub fn fenced(&mut self, dead: WorkerIncarnation) -> Result<(), WorkerError> {
        self.note(SchedulerActionV1::Fenced { dead })
    }

    /// Reports that this worker, the chief when all is trained, has tested and saved.
    ///
    /// # Errors
    /// As [`beat`](Self::beat); or it is not the chief.
    pub fn saved(&mut self) -> Result<(), WorkerError> {
        self.note(SchedulerActionV1::Saved)
    }

    /// Leaves the job. Every push of this worker has been acknowledged. The scheduler gives its tasks to others.
    ///
    /// # Errors
    /// As [`beat`](Self::beat).
    pub fn leave(&mut self) -> Result<(), WorkerError> {
        self.note(SchedulerActionV1::Leave)
    }

    /// Enters a barrier, and returns the workers that have not entered it. If there are none, it is open.
    ///
    /// # Errors
    /// As [`beat`](Self::beat).
    pub fn meet(&mut self, name: &str) -> Result<Vec<u32>, WorkerError> {
        match self.ask(SchedulerActionV1::Meet { name: name.to_owned() })? {
            SchedulerReplyV1::Missing { ranks } => Ok(ranks),
            other => Err(self.worker.nonsense(&other)),
        }
    }

    /// Reports what rows of a table of the job this worker found at the servers.
    ///
    /// # Errors
    /// As [`beat`](Self::beat); or they are not the rows that the job has trained, which ends the job.
    pub fn note_table(&mut self, table: TableRecord) -> Result<(), WorkerError> {
        let (record, run) = (JobTableV1 { incarnation: self.incarnation, table }, self.worker.run_name());
        let report = JobTableV2 { run, record };
        let payload = |_: usize, _: u32| control::seal_as(2, &report);
        self.worker
            .ask(&ControlRequest::with_payload(&JobTableFrame {}, None, &payload), Recipients::First(1))
            .map(|_| ())
    }

    /// Reports that the job cannot go on. All workers learn why.
    ///
    /// # Errors
    /// As [`beat`](Self::beat).
    pub fn fail(&mut self, why: &str) -> Result<(), WorkerError> {
        let end = (0..=TEXT_BYTES_MAX.min(why.len())).rev().find(|&end| why.is_char_boundary(end));
        self.note(SchedulerActionV1::Fail { why: why[..end.unwrap_or(0)].to_owned() })
    }
}

impl JobStatus {
    /// Asks the scheduler that is `config`'s one server for its job; `None` if it has had none.
    ///
    /// # Errors
    /// The scheduler is lost.
    pub fn of<N: Net>(net: N, config: WorkerConfig) -> Result<Option<JobStatus>, WorkerError> {
        let mut worker = Worker::connect(net, WorkerConfig { one_thread: true, ..config })?;
        let incarnation = WorkerIncarnation { rank: u32::MAX, incarnation: 0 };
        match worker.ask_scheduler(&SchedulerRequestV1 { incarnation, what: SchedulerActionV1::Status })? {
            SchedulerReplyV1::StatusV2(job) => Ok(job.map(JobStatus::from)),
            other => Err(worker.nonsense(&other)),
        }
    }
}

impl From<JobV2> for JobStatus {
    fn from(job: JobV2) -> JobStatus {
        let live = job.is_live();
        let JobV2 { workers, files, epochs, members, leases, unfenced, chief, saved, work, .. } = job;
        let JobV2 { done, leased, returned, tasks, examples, failed, .. } = job;
        JobStatus {
            workers,
            files,
            epochs,
            members,
            leases,
            unfenced,
            tasks_done: done,
            tasks_leased: leased,
            tasks_returned: returned,
            tasks,
            examples,
            live,
            chief,
            saved,
            work,
            failed,
        }
    }
}

impl<N: Net> Worker<N> {
    /// Asks the scheduler, which is thread 0 of the first server.
    fn ask_scheduler(&mut self, ask: &SchedulerRequestV1) -> Result<SchedulerReplyV1, WorkerError> {
        let ask = self.of_run(ask);
        let payload = |_: usize, _: u32| control::seal_as(2, &ask);
        let answers =
            self.ask(&ControlRequest::with_payload(&BookFrame {}, None, &payload), Recipients::First(1))?;
        let nonsense = |what: String| WorkerError::Protocol { peer: self.peers[0].name.clone(), what };
        let Some(ControlReply { payload, .. }) = answers.first() else {
            return Err(nonsense("no answer from the scheduler".into()));
        };
        control::open(payload).map_err(|error| nonsense(error.to_string()))
    }

    fn run_name(&self) -> String {
        self.config.run.as_ref().map_or(String::new(), |run| run.name.clone())
    }

    /// A request to the scheduler of this worker's run.
    fn of_run(&self, ask: &SchedulerRequestV1) -> SchedulerRequestV2 {
        let (generation, birth) = self.config.run.as_ref().map_or((0, 0), |run| (run.generation, run.birth));
        SchedulerRequestV2 { run: self.run_name(), generation, birth, ask: ask.clone() }
    }

    fn nonsense(&self, reply: &SchedulerReplyV1) -> WorkerError {
        let what = format!("{reply:?}, which does not answer the request");
        WorkerError::Protocol { peer: self.peers[0].name.clone(), what }
    }
}

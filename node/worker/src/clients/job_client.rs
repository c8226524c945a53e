//! A worker's requests to the scheduler of its job: over the link of its run if the scheduler is in the server that
//! keeps the registry of runs, else over one of its own. Every call may be repeated: a lost answer does no harm.

use crate::clients::job_answer::JobAnswer;
use crate::clients::no_space::until_space;
use crate::clients::run_session::RunSession;
use crate::config::worker_config::WorkerConfig;
use crate::error::WorkerError;
use crate::requests::control::{ControlReply, ControlRequest, Recipients};
use crate::worker::Worker;
use gannet_transport::Net;
use gannet_wire::frames::scheduler::{BookFrame, JobTableFrame};
use gannet_wire::incarnation::NEXT_INCARNATION;
use gannet_wire::limits::{PLAN_BYTES_MAX, TEXT_BYTES_MAX};
use gannet_wire::messages::control;
use gannet_wire::messages::growing::{Found, SourceStand};
use gannet_wire::messages::job_plan::{JobPlan, Split};
use gannet_wire::messages::jobs::{
    JobOrders, JobStatus, JobTableV3, SchedulerActionV1, SchedulerReplyV1, SchedulerRequestV3, SplitGrant,
    TableRecord,
};
use gannet_wire::messages::member::{Activity, Progress, WorkerIncarnation};
use gannet_wire::messages::runs::{JobRun, RunId};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A worker's connection to the scheduler of its job.
///
/// ```
/// # use gannet_worker::{JobClient, WorkerConfig};
/// # use gannet_wire::{JobPlan, PlanFile, SplitGrant};
/// # use gannet_server::{Server, ServerConfig};
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
    worker: Arc<Mutex<Worker<N>>>,
    /// The run of the job.
    run: JobRun,
    /// Heartbeats go over the same link.
    beside_run: bool,
    incarnation: WorkerIncarnation,
    plan: JobPlan,
    joined: JobAnswer,
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
        let run = config.run.as_ref().map(RunId::of_job).unwrap_or_default();
        let worker = Worker::connect(net, WorkerConfig { one_thread: true, ..config })?;
        Self::register(Arc::new(Mutex::new(worker)), false, run, incarnation, plan)
    }

    /// Joins the job of a run's worker, whose scheduler is the server that keeps the registry of the run.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub fn join_beside(run: &RunSession<N>, plan: JobPlan) -> Result<JobClient<N>, WorkerError> {
        Self::register(run.link(), true, run.id().of_job(), run.incarnation(), plan)
    }

    fn register(
        worker: Arc<Mutex<Worker<N>>>,
        beside_run: bool,
        run: JobRun,
        incarnation: WorkerIncarnation,
        plan: JobPlan,
    ) -> Result<JobClient<N>, WorkerError> {
        let joined = JobAnswer::default();
        let mut client = JobClient { worker, run, beside_run, incarnation, plan, joined };
        let what = SchedulerActionV1::Register { plan: client.plan.clone() };
        if control::seal_as(3, &client.request(what.clone())).len() > PLAN_BYTES_MAX {
            let files = client.plan.files.len();
            let text = format!(
                "the names of {files} files are too long for one message: train on fewer, larger ones"
            );
            return Err(WorkerError::Call(text));
        }
        match until_space(client.patience(), || client.ask(what.clone()))? {
            SchedulerReplyV1::RegisteredV2 { started, done, tasks, unfenced } => {
                client.joined = JobAnswer { started, done, tasks, unfenced };
                Ok(client)
            }
            other => Err(nonsense(&client.link(), &other)),
        }
    }

    fn link(&self) -> MutexGuard<'_, Worker<N>> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether heartbeats go to the same server, and tell it how far the worker is.
    pub(crate) fn is_beside_run(&self) -> bool {
        self.beside_run
    }

    /// How long it waits for a scheduler that has no space for its state.
    pub(crate) fn patience(&self) -> Duration {
        self.link().links.config.peer_timeout
    }

    /// This worker and its incarnation.
    pub fn incarnation(&self) -> WorkerIncarnation {
        self.incarnation
    }

    /// The scheduler's answer to the join.
    pub fn joined(&self) -> &JobAnswer {
        &self.joined
    }

    /// The data of the job.
    pub fn plan(&self) -> &JobPlan {
        &self.plan
    }

    /// A request to the scheduler of this worker's run.
    pub(crate) fn request(&self, what: SchedulerActionV1) -> SchedulerRequestV3 {
        SchedulerRequestV3::of(self.run.clone(), self.incarnation, what)
    }

    fn ask(&mut self, what: SchedulerActionV1) -> Result<SchedulerReplyV1, WorkerError> {
        ask_scheduler(&mut self.link(), &self.request(what))
    }

    fn note(&mut self, what: SchedulerActionV1) -> Result<(), WorkerError> {
        match self.ask(what)? {
            SchedulerReplyV1::Noted => Ok(()),
            other => Err(nonsense(&self.link(), &other)),
        }
    }

    /// Tells the scheduler how far this worker is and what it does, and returns what it must know of the job. The
    /// registry of the run decides whether the worker lives, and hears of that over
    /// [`RunSession::beat`](crate::clients::run_session::RunSession::beat).
    ///
    /// ```
    /// # use gannet_wire::{Activity, JobPlan, PlanFile, Progress};
    /// # use gannet_worker::{JobClient, WorkerConfig};
    /// # use gannet_server::{Server, ServerConfig};
    /// # use gannet_transport::multi::Transports;
    /// # let files = vec![PlanFile { name: "clicks.csv".into(), bytes: 1000, print: 0, whole: false }];
    /// # let (workers, task_bytes, batch, epochs, worker_timeout_ms) = (1, 300, 64, 2, 10_000);
    /// # let plan = JobPlan { workers, files, task_bytes, batch, epochs, worker_timeout_ms, settings: Vec::new() };
    /// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
    /// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
    /// # let mut job = JobClient::join(Transports::new(), config, 0, plan)?;
    /// let progress = Progress { clock: 3, examples: 192, ..Progress::default() };
    /// let orders = job.report(progress, Activity::default())?;
    /// assert!(orders.chief && !orders.trained);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The scheduler is lost, or has given this worker up.
    pub fn report(&mut self, progress: Progress, work: Activity) -> Result<JobOrders, WorkerError> {
        match self.ask(SchedulerActionV1::ReportV3 { progress, work })? {
            SchedulerReplyV1::OrdersV3 { chief, saver, trained, saved, failed, live, unfenced } => {
                Ok(JobOrders { chief, saver, trained, saved, failed, live, unfenced })
            }
            other => Err(nonsense(&self.link(), &other)),
        }
    }

    /// Asks for a task in addition to those that the worker holds.
    ///
    /// # Errors
    /// As [`report`](Self::report).
    pub fn take(&mut self, holding: &[u64]) -> Result<SplitGrant, WorkerError> {
        match self.ask(SchedulerActionV1::Take { holding: holding.to_vec() })? {
            SchedulerReplyV1::Task { index, from } if index < self.plan.tasks() => {
                let task: Split = self.plan.task(index);
                Ok(SplitGrant::Task { index, task, from })
            }
            SchedulerReplyV1::Grown { index, task, from } if self.plan.grows() => {
                Ok(SplitGrant::Grown { index, task, from })
            }
            SchedulerReplyV1::Wait => Ok(SplitGrant::Wait),
            SchedulerReplyV1::Over => Ok(SplitGrant::Over),
            other => Err(nonsense(&self.link(), &other)),
        }
    }

    /// Reports what this worker found in the source of the data, which grows. Returns what the scheduler knows of it.
    ///
    /// # Errors
    /// As [`report`](Self::report); or the data of the job does not grow.
    pub fn found(&mut self, found: Found) -> Result<SourceStand, WorkerError> {
        match self.ask(SchedulerActionV1::Found(found))? {
            SchedulerReplyV1::Stand(stand) => Ok(stand),
            other => Err(nonsense(&self.link(), &other)),
        }
    }

    /// Reports that a task of so many records is trained: every push of it has been acknowledged.
    ///
    /// # Errors
    /// As [`report`](Self::report).
    pub fn done(&mut self, index: u64, examples: u64) -> Result<(), WorkerError> {
        self.note(SchedulerActionV1::Done { index, examples })
    }

    /// Reports that every owner of shards refuses pushes of this dead incarnation, so its splits are free. `acked`: how
    /// many batches of each are acknowledged, as it last reported.
    ///
    /// # Errors
    /// As [`report`](Self::report).
    pub fn fenced(&mut self, dead: WorkerIncarnation, acked: &[(u64, u64)]) -> Result<(), WorkerError> {
        self.note(SchedulerActionV1::FencedV2 { dead, acked: acked.to_vec() })
    }

    /// Reports that this worker, the chief when all is trained, has tested and saved.
    ///
    /// # Errors
    /// As [`report`](Self::report); or it is not the chief.
    pub fn saved(&mut self) -> Result<(), WorkerError> {
        self.note(SchedulerActionV1::Saved)
    }

    /// Leaves the job. Every push of this worker has been acknowledged. The scheduler gives its tasks to others.
    ///
    /// # Errors
    /// As [`report`](Self::report).
    pub fn leave(&mut self) -> Result<(), WorkerError> {
        self.note(SchedulerActionV1::Leave)
    }

    /// Enters a barrier, and returns the workers that have not entered it. If there are none, it is open.
    ///
    /// # Errors
    /// As [`report`](Self::report).
    pub fn meet(&mut self, name: &str) -> Result<Vec<u32>, WorkerError> {
        match self.ask(SchedulerActionV1::Meet { name: name.to_owned() })? {
            SchedulerReplyV1::Missing { ranks } => Ok(ranks),
            other => Err(nonsense(&self.link(), &other)),
        }
    }

    /// Reports what rows of a table of the job this worker found at the servers.
    ///
    /// # Errors
    /// As [`report`](Self::report); or they are not the rows that the job has trained, which ends the job.
    pub fn note_table(&mut self, table: TableRecord) -> Result<(), WorkerError> {
        let report = JobTableV3 { run: self.run.name.clone(), incarnation: self.incarnation, table };
        let payload = |_: usize, _: u32| control::seal_as(3, &report);
        self.link()
            .ask(&ControlRequest::with_payload(&JobTableFrame {}, None, &payload), Recipients::First(1))
            .map(|_| ())
    }

    /// Reports, as the chief, that the job has trained enough: no split is handed out any more.
    ///
    /// # Errors
    /// As [`report`](Self::report), or this worker is not the chief.
    pub fn train_no_more(&mut self) -> Result<(), WorkerError> {
        self.note(SchedulerActionV1::Enough)
    }

    /// Reports that the job cannot go on. All workers learn why.
    ///
    /// # Errors
    /// As [`report`](Self::report).
    pub fn fail(&mut self, why: &str) -> Result<(), WorkerError> {
        let end = (0..=TEXT_BYTES_MAX.min(why.len())).rev().find(|&end| why.is_char_boundary(end));
        self.note(SchedulerActionV1::Fail { why: why[..end.unwrap_or(0)].to_owned() })
    }
}

impl<N: Net> JobClient<N> {
    /// Asks the scheduler that is `config`'s one server for its job; `None` if it has had none.
    ///
    /// # Errors
    /// The scheduler is lost.
    pub fn status_of(net: N, config: WorkerConfig) -> Result<Option<JobStatus>, WorkerError> {
        let run = config.run.as_ref().map(RunId::of_job).unwrap_or_default();
        let mut worker = Worker::connect(net, WorkerConfig { one_thread: true, ..config })?;
        let incarnation = WorkerIncarnation { rank: u32::MAX, incarnation: 0 };
        let ask = SchedulerRequestV3::of(run, incarnation, SchedulerActionV1::Status);
        match ask_scheduler(&mut worker, &ask)? {
            SchedulerReplyV1::StatusV2(job) => Ok(job.map(JobStatus::from)),
            other => Err(nonsense(&worker, &other)),
        }
    }
}

/// Asks the scheduler, which is thread 0 of the first server.
fn ask_scheduler<N: Net>(
    worker: &mut Worker<N>,
    ask: &SchedulerRequestV3,
) -> Result<SchedulerReplyV1, WorkerError> {
    let payload = |_: usize, _: u32| control::seal_as(3, ask);
    let answers =
        worker.ask(&ControlRequest::with_payload(&BookFrame {}, None, &payload), Recipients::First(1))?;
    let nonsense = |what: String| WorkerError::Protocol { peer: worker.links.peers[0].name.clone(), what };
    let Some(ControlReply { payload, .. }) = answers.first() else {
        return Err(nonsense("no answer from the scheduler".into()));
    };
    control::open(payload).map_err(|error| nonsense(error.to_string()))
}

fn nonsense<N: Net>(worker: &Worker<N>, reply: &SchedulerReplyV1) -> WorkerError {
    let what = format!("{reply:?}, which does not answer the request");
    WorkerError::Protocol { peer: worker.links.peers[0].name.clone(), what }
}

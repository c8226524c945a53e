//! The requests to a job's scheduler and its replies: frozen structs.

use crate::messages::growing::{Found, GrownTask, SourceStand};
use crate::messages::job_plan::{JobPlan, Split};
use crate::messages::member::{Activity, Member, Progress, WorkerIncarnation, WorkerState};
use crate::messages::runs::JobRun;
use gannet_core::ShardSet;
use gannet_core::limits::SHARDS_MAX;
use rkyv::{Archive, Deserialize, Serialize};

/// What a worker must know of its job. `JobClient::report` has an example.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobOrders {
    /// This worker is the chief: the live one with the lowest index. When all is trained, the chief does not change
    /// with the live workers.
    pub chief: bool,
    /// When all is trained: the index of the chief, which may be dead and not yet fenced.
    pub saver: Option<u32>,
    /// All splits are done.
    pub trained: bool,
    /// The chief has reported that it has saved the model.
    pub saved: bool,
    /// Why the job has failed, if it has.
    pub failed: Option<String>,
    /// Workers that are in the job and live.
    pub live: u32,
    /// Incarnations whose places others have taken, and that are not yet fenced. The registry of runs must know them.
    pub unfenced: Vec<WorkerIncarnation>,
}

/// A worker's request to the scheduler of its run. A program that names no run belongs to the run without a name.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct SchedulerRequestV3 {
    pub run: String,
    /// The generation of the run. 0: unknown; then another job follows a job that is over.
    pub generation: u32,
    /// The birth of the run; 0: unknown.
    pub birth: u64,
    /// Which worker it is.
    pub incarnation: WorkerIncarnation,
    pub what: SchedulerActionV1,
}

impl SchedulerRequestV3 {
    /// That of a worker of this run.
    pub fn of(run: JobRun, incarnation: WorkerIncarnation, what: SchedulerActionV1) -> SchedulerRequestV3 {
        let JobRun { name: run, generation, birth } = run;
        SchedulerRequestV3 { run, generation, birth, incarnation, what }
    }

    /// That of a program that names no run.
    pub fn of_no_run(incarnation: WorkerIncarnation, what: SchedulerActionV1) -> SchedulerRequestV3 {
        SchedulerRequestV3::of(JobRun::default(), incarnation, what)
    }
}

/// A worker of a run reports a table to its scheduler.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct JobTableV3 {
    pub run: String,
    pub incarnation: WorkerIncarnation,
    pub table: TableRecord,
}

/// The reply to a worker that asks for a split. `JobClient` has an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SplitGrant {
    /// A split: its number over all passes, what it is, and its first batch to train.
    Task {
        /// Its number over all passes.
        index: u64,
        /// What it is.
        task: Split,
        /// Its first batch to train.
        from: u64,
    },
    /// A task of a source that grows: its number, what it is, and its first batch to train.
    Grown {
        /// Its number, which the names of its pushes have.
        index: u64,
        /// What it is.
        task: GrownTask,
        /// Its first batch to train.
        from: u64,
    },
    /// No split is free, but workers may return some, or the source may grow.
    Wait,
    /// All splits are done.
    Over,
}

/// See `JobState` for each.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub enum SchedulerActionV1 {
    Register {
        plan: JobPlan,
    },
    ReportV3 {
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
    /// Every shard owner refuses this incarnation. For each split that it held: its acknowledged batches.
    FencedV2 {
        dead: WorkerIncarnation,
        acked: Vec<(u64, u64)>,
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
    /// What a worker found in the source that grows.
    Found(Found),
    /// The chief has trained enough: no split is handed out any more.
    Enough,
}

/// The scheduler's reply.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub enum SchedulerReplyV1 {
    /// The job's number; how many splits are trained already, and how many there are; and incarnations whose places
    /// others have taken. They must be fenced.
    RegisteredV2 {
        started: u64,
        done: u64,
        tasks: u64,
        unfenced: Vec<WorkerIncarnation>,
    },
    OrdersV3 {
        chief: bool,
        saver: Option<u32>,
        trained: bool,
        saved: bool,
        failed: Option<String>,
        live: u32,
        unfenced: Vec<WorkerIncarnation>,
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
    /// A task of a source that grows.
    Grown {
        index: u64,
        task: GrownTask,
        from: u64,
    },
    /// What the scheduler knows of the source that grows.
    Stand(SourceStand),
}

/// The job, for `gannet status`.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct JobV2 {
    pub workers: u32,
    pub files: u32,
    pub epochs: u32,
    pub members: Vec<Member>,
    /// Each split that is held, and the worker that holds it.
    pub leases: Vec<(u64, WorkerIncarnation)>,
    pub unfenced: Vec<WorkerIncarnation>,
    pub done: u64,
    pub leased: u64,
    pub returned: u64,
    pub tasks: u64,
    pub examples: u64,
    pub failed: Option<String>,
    pub chief: Option<WorkerIncarnation>,
    pub saved: bool,
    /// What its members do, in their order.
    pub work: Vec<Activity>,
}

impl JobV2 {
    /// Whether a live worker is in it.
    pub fn is_live(&self) -> bool {
        self.members.iter().any(|member| member.state == WorkerState::Live)
    }
}

/// A table of a job, as a worker found it at the servers.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct TableRecord {
    /// Its name.
    pub table: String,
    /// Its id, drawn when it was made.
    pub uid: [u8; 16],
    /// For each shard, the random number that it got when it was made.
    pub births: Vec<u64>,
    /// Which server has which shards. A server has an entry for each run of shards without gaps.
    pub holders: Vec<ShardHolder>,
}

/// A run of shards of a table that a server has.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct ShardHolder {
    /// Its address.
    pub addr: String,
    /// Its first shard.
    pub first: u32,
    /// The shard behind its last one.
    pub end: u32,
}

impl TableRecord {
    /// Checks the limits of a record, which is saved and sent to others.
    pub fn check(&self) -> Result<(), String> {
        let (shards, holders) = (self.births.len(), self.holders.len());
        let bytes = self.table.len() + self.holders.iter().map(|holder| holder.addr.len()).sum::<usize>();
        let sound = |holder: &ShardHolder| holder.first <= holder.end && holder.end as usize <= shards;
        if shards > SHARDS_MAX as usize || holders > RECORD_HOLDERS_MAX || bytes > RECORD_TEXT_BYTES_MAX {
            return Err(format!(
                "a table of {shards} shards in {holders} runs at its servers, and {bytes} bytes of names"
            ));
        }
        match self.holders.iter().all(sound) {
            true => Ok(()),
            false => Err("a server with shards that the table does not have".into()),
        }
    }

    /// Says which rows are gone, if the rows that are there `now` are others.
    pub fn gone(&self, now: &TableRecord) -> Option<String> {
        let other = |shard: u32| {
            let shard = shard as usize;
            self.uid != now.uid || self.births.get(shard) != now.births.get(shard)
        };
        let mut lost = Vec::new();
        for ShardHolder { addr, first, end } in &self.holders {
            let mut shard = *first;
            while let Some(from) = (shard..*end).find(|&shard| other(shard)) {
                shard = (from..*end).find(|&shard| !other(shard)).unwrap_or(*end);
                let shards = ShardSet::from(from..shard);
                lost.push(format!("{shards} of table {:?} that {addr} held", self.table));
            }
        }
        if lost.is_empty() && (self.uid, self.births.len()) != (now.uid, now.births.len()) {
            lost.push(format!("table {:?}", self.table));
        }
        if lost.is_empty() {
            return None;
        }
        Some(format!(
            "the rows of {} are gone, and what was trained with them: start the server on the folder that it had (--data-dir), \
             or begin the training anew",
            lost.join(", and of ")
        ))
    }
}

/// The most entries of servers in a record.
pub const RECORD_HOLDERS_MAX: usize = SHARDS_MAX as usize;
/// The most bytes of names in a record.
pub const RECORD_TEXT_BYTES_MAX: usize = 64 << 10;

/// A job as its scheduler knows it.
///
/// ```
/// # use gannet_worker::{JobClient, WorkerConfig};
/// # use gannet_wire::{JobPlan, PlanFile};
/// # use gannet_server::{Server, ServerConfig};
/// # use gannet_transport::multi::Transports;
/// # let files = vec![PlanFile { name: "clicks.csv".into(), bytes: 1000, print: 0, whole: false }];
/// # let (workers, task_bytes, batch, epochs, worker_timeout_ms) = (1, 300, 64, 2, 10_000);
/// # let plan = JobPlan { workers, files, task_bytes, batch, epochs, worker_timeout_ms, settings: Vec::new() };
/// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
/// # let reader = WorkerConfig::reader([server.addr()]);
/// assert_eq!(JobClient::status_of(Transports::new(), reader.clone())?, None); // no worker has come yet
/// let job = JobClient::join(Transports::new(), config, 0, plan)?;
/// let status = JobClient::status_of(Transports::new(), reader)?;
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

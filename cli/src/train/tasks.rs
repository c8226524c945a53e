//! A worker in a job whose scheduler hands out splits of the data: how it joins, trains splits, fences dead workers and
//! leaves.

use crate::failure::{Failure, INPUT, PEER, STOPPED};
use crate::flags::{DataArgs, JobArgs, JobName, ModelName, TasksName};
use crate::input;
use crate::job::connection::WorkerConnection;
use crate::job::servers::named_scheduler;
use crate::job::sync;
use crate::metrics::Metrics;
use crate::runs::in_run::InRun;
use crate::train::feed::data_client::DataClient;
use crate::train::follow;
use gannet::job::{
    FenceFn, Heartbeat, JOB_WORKERS_MAX, JobAnswer, JobClient, JobPlan, PlanFile, WorkerIncarnation,
};
use gannet::runs::RunSetting;
use gannet::train::{FileFingerprint, Options, Scheduled, plan_files};
use gannet::worker::{Refusal, WorkerError};
use gannet::{Schema, Transports, Worker, WorkerConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// The least and most bytes of a split without `--task-bytes`: small enough that the last splits keep all workers busy.
const TASK_BYTES: (u64, u64) = (64 << 10, 4 << 20);

const TASKS_A_WORKER: u64 = 16;

/// A worker's membership in a job.
pub struct InJob {
    scheduled: Arc<Scheduled<Transports>>,
    /// Whether its data comes from a client, which tests and saves.
    is_remote: bool,
    /// The tables that it trains.
    schemas: Vec<Schema>,
    /// What the scheduler answered.
    answer: JobAnswer,
}

/// Decides what `--tasks auto` means for a worker that reads the data itself, and says so. Data that grows is always
/// handed out; what does not go with that is refused.
pub fn settle(job: &mut JobArgs, data: &DataArgs, model: ModelName, lbfgs: bool) {
    let of_it = job.job_name == Some(JobName::Worker) && job.data_server.feed.is_none();
    if !of_it || job.tasks.tasks != TasksName::Auto {
        return;
    }
    let why_not = if data.follow.grows() { None } else { why_not(job, data, model, lbfgs) };
    job.tasks.tasks = if why_not.is_some() { TasksName::Off } else { TasksName::On };
    match why_not {
        None => tracing::info!("the scheduler hands out the data in splits (--tasks auto)"),
        Some(why) => {
            notice!("gannet: each worker takes a fixed share of the data (--tasks auto), because of {why}");
        }
    }
}

/// The reason why a scheduler cannot hand out the data.
fn why_not(job: &JobArgs, data: &DataArgs, model: ModelName, lbfgs: bool) -> Option<&'static str> {
    let workers = job.worker_hosts.len() as u32;
    let read_once = || {
        let data = input::data(&data.files, &data.input, !data.no_intercept);
        data.is_ok_and(|data| data.must_be_files("--tasks").is_err())
    };
    let reasons = [
        (model == ModelName::Lda, "--model lda, whose workers keep the topics of their words"),
        (lbfgs, "--optimizer lbfgs, whose workers keep their data"),
        (job.sync.deterministic, "--deterministic"),
        (job.sync.replicas_to_aggregate.is_some_and(|k| k < workers), "--replicas-to-aggregate"),
        (workers > JOB_WORKERS_MAX, "the number of workers"),
    ];
    let reason = reasons.into_iter().find(|(is_so, _)| *is_so).map(|(_, why)| why);
    reason.or_else(|| read_once().then_some("data that can be read only once"))
}

/// Whether a scheduler hands out the job's data.
pub fn are_wanted(job: &JobArgs, options: &Options) -> Result<bool, Failure> {
    let on = job.tasks.tasks == TasksName::On;
    if on {
        options.data.must_be_files("--tasks").map_err(|error| Failure::input(error.to_string()))?;
    }
    Ok(on)
}

/// The plan on which all workers must agree.
pub fn plan(
    job: &JobArgs,
    options: &Options,
    files: Vec<PlanFile>,
    settings: &[RunSetting],
) -> Result<JobPlan, Failure> {
    // The least timeout that a scheduler and its workers can keep.
    let timeout = sync::timeout(&job.sync).max(Duration::from_millis(100));
    let workers = job.worker_hosts.len() as u32;
    let bytes: u64 = files.iter().map(|file| file.bytes).sum();
    let own = bytes / (u64::from(workers) * TASKS_A_WORKER);
    let task_bytes = job.tasks.task_bytes.map_or(own.clamp(TASK_BYTES.0, TASK_BYTES.1), |size| size.as_u64());
    // Each worker may have its own folder for the model, and files are compared by their content.
    let own = ["DATA", "--out", "--test", "--worker-timeout", "--task-bytes", "--scheduler", "--shards"];
    let compared = settings.iter().filter(|setting| !own.iter().any(|flag| setting.flag.starts_with(flag)));
    let named = [format!("--run {}", job.run.name())];
    let plan = JobPlan {
        workers,
        files,
        task_bytes,
        batch: options.batch as u32,
        epochs: options.epochs,
        worker_timeout_ms: timeout.as_millis() as u64,
        settings: named.into_iter().chain(compared.map(in_words)).collect(),
    };
    plan.check().map_err(Failure::input)?;
    Ok(plan)
}

/// A setting, in the form of a plan.
fn in_words(setting: &RunSetting) -> String {
    format!("{} {}", setting.flag, setting.value)
}

/// Joins the job that trains these tables. Afterwards the data of `options` comes in splits from the scheduler.
pub fn join(
    (job, data, metrics): (&JobArgs, &DataArgs, &Metrics),
    options: &mut Options,
    schemas: &[Schema],
    line: &WorkerConnection,
    client: Option<DataClient>,
    (settings, run): (&[RunSetting], &InRun),
) -> Result<InJob, Failure> {
    let (net, config) = (&line.net, &line.config);
    let (plan, fingerprints) = match &client {
        Some(client) => {
            let plan = JobPlan {
                task_bytes: client.plan().task_bytes,
                ..plan(job, options, client.plan().files.clone(), settings)?
            };
            (plan, client.fingerprints())
        }
        None => {
            let grows = data.follow.grows();
            let fingerprints = if grows { Vec::new() } else { fingerprints(options)? };
            (plan(job, options, plan_files(&options.data.files, &fingerprints), settings)?, fingerprints)
        }
    };
    // The server that keeps the run's registry keeps the state of its job, too, at whatever address it is.
    let client_of_job = match named_scheduler(job).filter(|server| *server != run.registry()) {
        None => JobClient::join_beside(run.client().session(), plan),
        Some(server) => {
            let own = WorkerConfig { servers: vec![server.to_owned()], ..config.clone() };
            JobClient::join(net.clone(), own, job.task_index, plan)
        }
    };
    let client_of_job = client_of_job.map_err(|error| match error {
        // The other workers were started with other settings.
        WorkerError::Refused { refusal: Refusal::Mismatch, .. } => Failure::input(error.to_string()),
        error => error.into(),
    })?;
    let joined = client_of_job.joined().clone();
    if joined.done > 0 {
        tracing::info!(done = joined.done, tasks = joined.tasks, "the job continues");
    }
    let fence = fence_fn(net.clone(), config.clone(), schemas.to_vec());
    let heartbeat = Heartbeat::begin(run.client(), client_of_job, fence, line.counters.clone())
        .map_err(|error| Failure::new(crate::failure::SYSTEM, error.to_string()))?;
    let is_remote = client.is_some();
    let source = follow::source(&data.follow, &job.tasks, job.checkpoint.checkpoint.as_deref())?;
    if let Some(source) = &source {
        follow::tell_lags(metrics, source);
    }
    let scheduled = Arc::new(match (client, source) {
        (Some(client), _) => Scheduled::remote(heartbeat, joined.started, client.into_texts()),
        (None, Some(source)) => Scheduled::growing(heartbeat, joined.started, source),
        (None, None) => Scheduled::new(heartbeat, joined.started),
    });
    options.splits = Some((scheduled.clone(), fingerprints));
    Ok(InJob { scheduled, is_remote, schemas: schemas.to_vec(), answer: joined })
}

/// The fingerprints of the data files, which must not change from here on.
pub fn fingerprints(options: &Options) -> Result<Vec<FileFingerprint>, Failure> {
    let fingerprints =
        options.data.files.iter().map(|file| FileFingerprint::of(file)).collect::<Result<Vec<_>, _>>();
    fingerprints.map_err(|error| Failure::input(error.to_string()))
}

/// Fences an incarnation at every shard owner of these tables. It uses its own links, because those of the training may
/// be waiting.
fn fence_fn(net: Transports, config: WorkerConfig, schemas: Vec<Schema>) -> FenceFn {
    Box::new(move |dead: WorkerIncarnation| -> Result<(), WorkerError> {
        let limit = Duration::from_secs(5).min(config.peer_timeout);
        let mut worker =
            Worker::connect(net.clone(), WorkerConfig { peer_timeout: limit, ..config.clone() })?;
        schemas.iter().try_for_each(|schema| {
            let table = worker.open_table(schema)?;
            worker.fence(table, u64::from(dead.rank) + 1, dead.incarnation)
        })
    })
}

impl InJob {
    /// Refuses a job that is not the one that has trained the rows of the run so far.
    pub fn check_number(&self, run: &InRun) -> Result<(), Failure> {
        run.note_job(&self.answer)
    }

    /// Opens the job's tables and reports their identity to the scheduler. If these are not the rows that the job has
    /// trained, the job ends for all its workers.
    pub fn open_tables(&self, worker: &mut Worker<Transports>) -> Result<(), Failure> {
        for schema in &self.schemas {
            let opened = worker.open_table(schema).map_err(Failure::from);
            let table =
                opened.map_err(|failure| if failure.rows_gone { self.failed(failure) } else { failure })?;
            let noted = self.scheduled.heartbeat().note_table(worker.table_record(table));
            noted.map_err(|why| Failure::new(PEER, why))?;
        }
        Ok(())
    }

    /// Reports this worker's progress to the scheduler.
    pub fn report_progress(&self, examples: u64, loss: f64, seconds: f64) {
        let rate = examples as f64 / seconds.max(1e-9);
        self.scheduled.heartbeat().tell(|progress| {
            (progress.examples, progress.loss, progress.rate) = (examples, loss, rate);
        });
    }

    /// Reports the end of the training (examples, loss, seconds), and whether this worker saved the model; then leaves
    /// the job.
    pub fn end(self, options: &mut Options, (examples, loss, seconds): (u64, Option<f64>, f64), saved: bool) {
        self.report_end(examples, loss, seconds);
        if saved {
            self.saved();
        }
        self.leave(options);
    }

    /// Reports the last progress. Without a loss the last reported one stays.
    fn report_end(&self, examples: u64, loss: Option<f64>, seconds: f64) {
        let rate = examples as f64 / seconds.max(1e-9);
        self.scheduled.heartbeat().tell(|progress| {
            (progress.examples, progress.rate) = (examples, rate);
            progress.loss = loss.unwrap_or(progress.loss);
        });
    }

    /// With `--start-together`, waits until all workers have joined. `stop` ends the wait.
    pub fn start_together(&self, job: &JobArgs, stop: &AtomicBool) -> Result<(), Failure> {
        if job.tasks.start_together {
            let limit = Duration::from_secs_f64(job.peer_timeout);
            let met = self.scheduled.heartbeat().meet("the start", limit, &|| stop.load(Relaxed));
            met.map_err(|why| {
                Failure::new(
                    PEER,
                    format!("{why} (--start-together): start all workers within --peer-timeout, or raise it"),
                )
            })?;
        }
        Ok(())
    }

    /// Why the training failed. An error of the scheduler is the cause of the others, so it is returned first.
    /// If the data is bad or rows are gone, no worker can continue: the scheduler tells all of them.
    pub fn failed(&self, failure: Failure) -> Failure {
        if failure.code == INPUT || failure.rows_gone {
            self.scheduled.heartbeat().fail(&failure.to_string());
            return failure;
        }
        match self.scheduled.heartbeat().lost() {
            Some(why) if failure.code != STOPPED => Failure::new(PEER, why),
            _ => failure,
        }
    }

    /// Ends the training of all workers, behind the tasks that they hold. A chief that the scheduler does not reach now
    /// trains on.
    pub fn train_no_more(&self) {
        if let Err(why) = self.scheduled.heartbeat().train_no_more() {
            tracing::warn!(
                why,
                "the training goes on: its scheduler could not be told to end it (--patience)"
            );
        }
    }

    /// Whether this worker tests and saves during the training.
    pub fn is_chief(&self) -> bool {
        !self.is_remote && self.scheduled.heartbeat().report_now().is_ok_and(|orders| orders.chief)
    }

    /// Whether this worker tests and saves, now that all data is trained. If it does not, it waits until another worker
    /// has saved, so a worker that ends without an error knows that the model is saved. Nobody saves while the
    /// scheduler is away: its next incarnation may have chosen another chief.
    pub fn sums_up(&self, stop: &AtomicBool) -> Result<bool, Failure> {
        if self.is_remote {
            return Ok(false);
        }
        let chief = self.scheduled.heartbeat().sum_up(&|| stop.load(Relaxed));
        chief.map_err(|why| {
            Failure::new(
                PEER,
                format!(
                    "all data is trained, but this worker does not know whether another one has saved the \
                     model: {why}. The servers have the rows. Make sure that the scheduler runs (with its \
                     --data-dir), and start this worker again to save the model"
                ),
            )
        })
    }

    /// Reports to the scheduler that this worker has tested and saved.
    fn saved(&self) {
        if let Err(why) = self.scheduled.heartbeat().saved() {
            tracing::warn!(why, "the model is saved, but the scheduler could not be told");
        }
    }

    /// Leaves the job.
    fn leave(self, options: &mut Options) {
        options.splits = None;
        if let Some(scheduled) = Arc::into_inner(self.scheduled)
            && let Err(why) = scheduled.into_heartbeat().leave()
        {
            tracing::warn!(why, "this worker left the job, but the scheduler could not be told");
        }
    }
}

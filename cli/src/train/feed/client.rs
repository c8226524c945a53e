//! `gannet train --job-name client`: one process has the data and sends it to the workers (in-graph replication). It is
//! the job's scheduler, shows the progress, and tests and saves the model as a reader of the servers.

use crate::failure::{Failure, INPUT, PEER, SYSTEM};
use crate::flags::{JobName, ModelName, TasksName, TrainArgs};
use crate::job::{check, sync};
use crate::metrics::Metrics;
use crate::metrics::training::Training;
use crate::model::lr::Notes;
use crate::model::{lr, saves};
use crate::report::training;
use crate::report::training::ProgressDisplay;
use crate::runs::in_run;
use crate::runs::in_run::{Account, InRun};
use crate::train::feed::worker;
use crate::train::validation::Validator;
use crate::train::{lbfgs, tasks};
use crate::{input, security, server, signals, train};
use gannet::job::{DataServerConfig, FeedStatus, JobStatus, Member, ServedBytes, WorkerState, forget_job};
use gannet::runs::{RunMember, RunSetting};
use gannet::storage::Stats;
use gannet::train::models::Objective;
use gannet::train::{
    Backend, BadLines, Columns, FileDataSource, Options, Progress, PushContent, Quality, ReadError, Reader,
    RemoteBackend, Share, StepReport, TrainError, evaluate, plan_files,
};
use gannet::{Server, ServerConfig, Transports};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The pusher id of the client at the servers. It only reads, and no worker has such an index.
const READER: u64 = u32::MAX as u64 - 1;

const POLL_EVERY: Duration = Duration::from_millis(50);

/// How often it asks which workers live.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// How long the client of a failed job waits for its workers to read the error.
const FAILURE_WAIT: Duration = Duration::from_secs(5);

/// Refuses flags that do not go with `--feed`, or that only the client or only its workers may have.
pub fn check_role(args: &TrainArgs) -> Result<(), Failure> {
    let job = &args.job;
    let has_feed = job.data_server.feed.is_some();
    let client = job.job_name == Some(JobName::Client);
    let remote_worker = has_feed && job.job_name == Some(JobName::Worker);
    let input = &args.input;
    let reads = input.label.is_some() || !input.categorical.is_empty() || !input.numeric.is_empty();
    let reads = reads || input.format != crate::flags::FormatName::Auto || input.criteo_counts.is_some();
    let misplaced = [
        (has_feed && !client && !remote_worker, "--feed: works only in a worker or the client of a job"),
        (
            client && !has_feed,
            "--job-name client: --feed HOST:PORT is missing: it says where the client listens for its workers",
        ),
        (
            client && args.data.is_empty(),
            "--job-name client: DATA is missing: name the files that the client sends to the workers",
        ),
        (client && job.task_index != 0, "--task-index: a job has one client; leave it out"),
        (
            remote_worker && !args.data.is_empty(),
            "DATA: with --feed only the client reads the data; leave it out",
        ),
        (
            remote_worker
                && (reads || input.positive.is_some() || input.skip_bad_lines != 0 || args.no_intercept),
            "--format, --label, --categorical, --numeric, --criteo-counts, --positive, --skip-bad-lines, \
             --no-intercept: with --feed the client decides how the data is read; leave them out",
        ),
        (
            remote_worker && job.tasks.task_bytes.is_some(),
            "--task-bytes: with --feed the client makes the splits; leave it out",
        ),
        (
            remote_worker && (!args.test.is_empty() || args.out.is_some()),
            "--test, --out: with --feed the client tests and saves; leave them out",
        ),
        (
            has_feed && job.tasks.scheduler.is_some(),
            "--scheduler: the client (--feed) is the job's scheduler; leave it out",
        ),
        (
            remote_worker && job.data_dir.is_some(),
            "--data-dir: works only in the client (the job's state) or a ps (its shards); leave it out",
        ),
    ];
    match misplaced.iter().find(|(wrong, _)| *wrong) {
        Some((_, text)) => Err(Failure::input(*text)),
        None => Ok(()),
    }
}

/// Refuses trainings that cannot use data from a client.
pub fn check_model(args: &TrainArgs) -> Result<(), Failure> {
    if args.input.scale.is_some() {
        let text = "--scale: the workers of a client cannot read its files before the training; scale the numbers \
                    when you write the files, and leave --scale out";
        return Err(Failure::input(text));
    }
    if args.model.model != ModelName::Lr || lbfgs::is_chosen(args)? {
        let text = "--feed: works only with --model lr, and not with --optimizer lbfgs; leave --feed out, and let the \
                    workers read the data";
        return Err(Failure::input(text));
    }
    Ok(())
}

/// Runs the client of a job.
pub fn client(args: &mut TrainArgs) -> Result<(), Failure> {
    check_model(args)?;
    args.job.tasks.tasks = TasksName::On;
    let (args, job) = (&*args, &args.job);
    check::check(job)?;
    let schema = train::schema(args)?;
    let mut options = train::options(args, Share::ALL, true)?;
    let push = PushContent::choose(options.push, &schema).map_err(train::backend_failure)?;
    tasks::are_wanted(args, &options)?;
    train::preflight(args, &options, &schema)?;
    let Offer { config, settings, format, columns } = offer(args, &options)?;
    let stop = signals::stop_flag()?;
    options.stop_on(&stop);
    let metrics = Metrics::start(&args.metrics, "client")?;
    let mut line = check::line_of_reader(job, READER)?;
    let mut of_run = line.clone();
    of_run.config.incarnation = line.allocate()?;
    let tables = [schema.name.as_str()];
    let of_data = (settings, &options.data.scale);
    let joined = in_run::join(args, &mut of_run, of_data, &tables, gannet::runs::CLIENT)?;
    let Some(run) = joined else { return Ok(()) };
    line.config.run = of_run.config.run;
    let status = config.status.clone();
    let timeout = config.plan.worker_timeout();
    let bytes = config.plan.files.iter().map(|file| file.bytes).sum();
    let serving = listen(args, config, &metrics)?;
    let training = Arc::<Training>::default();
    let shared = training.clone();
    metrics.add(move |page| shared.tell(page));
    let (options, status, stop, start) = (&options, &*status, &*stop, Instant::now());
    let mut job = ServedJob {
        args,
        options,
        status,
        stop,
        training,
        serving: &serving,
        bytes,
        start,
        timeout,
        format,
        columns,
        run: &run,
        asked: None,
    };
    let worked = line.connect(&metrics).and_then(|worker| {
        let opened = match sync::is_damped(&args.job, push)? {
            true => RemoteBackend::open_damped(worker, &schema, 0),
            false => RemoteBackend::open(worker, &schema, 0),
        };
        let account = run.account();
        let rows = job.run(&mut opened.map_err(train::backend_failure)?, &account)?;
        run.finish(rows, &account)
    });
    drop(job);
    end(args, serving, (status, timeout), stop, worked)
}

/// What the client offers to its workers.
struct Offer {
    config: DataServerConfig,
    settings: Vec<RunSetting>,
    format: &'static str,
    columns: Option<Columns>,
}

/// Reads the beginnings of the files, finds their format, and plans the splits.
fn offer(args: &TrainArgs, options: &Options) -> Result<Offer, Failure> {
    let fingerprints = tasks::fingerprints(options)?;
    let files = plan_files(&options.data.files, &fingerprints);
    let settings = in_run::settings(args, &options.data.files, Some(&files), Some(options))?;
    let plan = tasks::plan(args, options, files, &settings)?;
    let reader = Reader::open(&options.data, options.batch, Share::ALL);
    let reader = reader.map_err(|error| Failure::input(error.to_string()))?;
    let (format, columns) = (reader.format(), reader.columns().cloned());
    let config = DataServerConfig {
        plan,
        reading: worker::reading(args),
        source: Arc::new(FileDataSource::new(&options.data.files, &fingerprints)),
        status: Arc::default(),
    };
    config.check().map_err(Failure::input)?;
    Ok(Offer { config, settings, format, columns })
}

/// Ends the job: the workers learn how it ended, and the file with the state of a finished job is removed.
fn end(
    args: &TrainArgs,
    serving: Server,
    (status, timeout): (&FeedStatus, Duration),
    stop: &AtomicBool,
    worked: Result<(), Failure>,
) -> Result<(), Failure> {
    let state_folder = args.job.data_dir.as_deref();
    let patience = match &worked {
        Ok(()) => timeout,
        // A restarted client continues from the state file. Until then its workers wait, at most for their
        // --peer-timeout.
        Err(_) if state_folder.is_some() && (stop.load(Relaxed) || !has_failed(status)) => Duration::ZERO,
        Err(failure) => {
            status.end(&failure.to_string());
            FAILURE_WAIT
        }
    };
    wait_for_workers(status, patience);
    serving.stop()?;
    if let (Ok(()), Some(folder)) = (&worked, state_folder) {
        forget_job(folder).map_err(|error| Failure::new(SYSTEM, format!("{}: {error}", folder.display())))?;
    }
    worked
}

fn has_failed(status: &FeedStatus) -> bool {
    status.job().is_some_and(|job| job.failed.is_some())
}

/// Waits until the workers have read how the job ended, and have left.
fn wait_for_workers(status: &FeedStatus, patience: Duration) {
    let since = Instant::now();
    while since.elapsed() < patience && status.job().is_some_and(|job| job.live) {
        std::thread::sleep(POLL_EVERY);
    }
}

/// Starts the server for the workers.
fn listen(args: &TrainArgs, data: DataServerConfig, metrics: &Metrics) -> Result<Server, Failure> {
    let job = &args.job;
    let listen = job.data_server.feed.as_deref().unwrap_or_default();
    let net = args.sessions.net(job.transport.transport.net(job.io));
    let secured = security::of_server(net, ("--feed", listen), &job.security, &job.tls_server)?;
    let config = ServerConfig {
        threads: 1,
        token: secured.token,
        limits: args.sessions.limits(),
        scheduler_only: true,
        store: server::own_store(job.data_dir.as_deref(), &args.memory)?,
        data_server: Some(data),
        ..ServerConfig::new(listen)
    };
    let server = Server::start(secured.net, config).map_err(|error| match error {
        gannet::server::ServerError::StateFile(error) => Failure::input(error.to_string()),
        error => error.into(),
    })?;
    metrics.add_server(server.shared_counters());
    notice!("gannet client listening on {}", server.addr());
    Ok(server)
}

/// A job whose data this process sends to the workers.
struct ServedJob<'a> {
    args: &'a TrainArgs,
    options: &'a Options,
    status: &'a FeedStatus,
    stop: &'a AtomicBool,
    training: Arc<Training>,
    serving: &'a Server,
    /// Bytes of all files.
    bytes: u64,
    /// When the first worker joined.
    start: Instant,
    timeout: Duration,
    format: &'static str,
    columns: Option<Columns>,
    run: &'a InRun,
    /// When the registry was asked who lives, and whether a worker did.
    asked: Option<(Instant, bool)>,
}

/// Sums the reports of all workers: examples, their mean loss, examples a second.
fn together(job: &JobStatus) -> (u64, f64, f64) {
    let learned: u64 = job.members.iter().map(|member| member.progress.examples).sum();
    let loss: f64 = job.members.iter().map(|m| m.progress.loss * m.progress.examples as f64).sum();
    let live = job.members.iter().filter(|member| member.state == WorkerState::Live);
    (
        learned.max(job.examples),
        loss / (learned as f64).max(1.0),
        live.map(|member| member.progress.rate).sum(),
    )
}

impl ServedJob<'_> {
    /// Watches until all splits are trained, then evaluates and saves. Returns the number of rows.
    fn run(&mut self, backend: &mut RemoteBackend<Transports>, account: &Account) -> Result<u64, Failure> {
        let mut validator = Validator::new(self.args, self.options.test.as_ref(), Objective::Click, &|| true);
        let mut display = ProgressDisplay::of(self.args);
        let trained = self.watch(backend, &mut validator, &mut display);
        display.finish();
        let (job, seconds) = (trained?, self.start.elapsed().as_secs_f64());
        let mut stopped = job.is_none();
        let test = match &self.options.test {
            Some(data) if !stopped => match evaluate(data, backend) {
                Err(TrainError::Read(ReadError::Stopped { .. })) => {
                    stopped = true;
                    None
                }
                tested => tested.map_err(train::train_failure)?,
            },
            _ => None,
        };
        let stats = backend.stats().map_err(train::backend_failure)?;
        let examples = job.as_ref().map_or(0, |job| job.examples);
        let may_save = |folder: &Path| {
            saves::may_save(folder, (examples, stats.rows, false), stopped, &BadLines::default())
        };
        let saved = match &self.args.out {
            Some(folder) if may_save(folder)? => {
                let (counts, intercept) = (input::counts(&self.args.input), !self.args.no_intercept);
                let columns = self.columns.as_ref();
                let ended = lr::ended_how(stopped, examples, &[]);
                let notes = Notes { format: self.format, columns, counts, intercept, ended };
                Some((folder.as_path(), lr::save(folder, backend, &notes)?))
            }
            _ => None,
        };
        if !stopped {
            // The last report of each worker has its final numbers.
            wait_for_workers(self.status, self.timeout);
        }
        let report = JobOutcome {
            job: self.status.job().or(job),
            seconds,
            stopped,
            test,
            stats,
            transport: backend.transport(),
            served: self.status.served(),
            format: self.format,
        };
        report.print(self.args.json, validator.into_validations(), account);
        train::print_saved(self.args, stopped, saved);
        train::ended_early(stopped, report.examples())?;
        Ok(report.stats.rows)
    }

    /// Watches until all splits are trained. `None`: a signal came first.
    fn watch(
        &mut self,
        mut backend: &mut RemoteBackend<Transports>,
        validator: &mut Validator<'_>,
        display: &mut ProgressDisplay,
    ) -> Result<Option<JobStatus>, Failure> {
        let limit = Duration::from_secs_f64(self.args.job.peer_timeout);
        let (mut alone_since, mut validated, mut losses) = (Instant::now(), 0, (0.0, 0.0));
        loop {
            if self.stop.load(Relaxed) {
                return Ok(None);
            }
            if let Some(why) = self.serving.wait_for_death(Duration::ZERO) {
                return Err(Failure::new(
                    SYSTEM,
                    format!("the server that sends data to the workers has died: {why}"),
                ));
            }
            let job = self.status.job();
            if job.is_none() {
                self.start = Instant::now();
            }
            if let Some(why) = job.as_ref().and_then(|job| job.failed.clone()) {
                return Err(Failure::new(INPUT, why));
            }
            if job.as_ref().is_some_and(|job| job.live) && self.has_live_worker() {
                alone_since = Instant::now();
            }
            if let Some(job) = &job {
                if job.tasks_done == job.tasks {
                    return Ok(Some(job.clone()));
                }
                let (learned, loss, _) = together(job);
                self.tell(job, display);
                let step = learned / self.options.batch as u64;
                let every = self.args.watch.validate_every.unwrap_or(u64::MAX);
                let due = step / every > validated;
                if due || !step.is_multiple_of(every) {
                    // The losses of the examples since the last validation are not known, so this uses the mean so
                    // far.
                    losses = if due { (losses.0 + 1.0, losses.1 + loss) } else { losses };
                    let number = if due { step / every * every } else { step };
                    validated = step / every;
                    let (format, columns) = (self.format, self.columns.as_ref());
                    let step = StepReport { number, mass: losses.0, loss: losses.1, format, columns };
                    let flow = validator.step(&step, &mut backend);
                    validator.failed()?;
                    if flow.is_break() {
                        return Ok(None);
                    }
                }
            }
            if alone_since.elapsed() > limit {
                let feed = self.args.job.data_server.feed.as_deref().unwrap_or_default();
                let seconds = limit.as_secs_f64();
                return Err(Failure::new(
                    PEER,
                    format!(
                        "no worker has been in the job for {seconds:.0} s: start workers (--job-name worker --feed \
                         {feed}), or wait longer (--peer-timeout)"
                    ),
                ));
            }
            std::thread::sleep(POLL_EVERY);
        }
    }

    /// Whether a worker of the job lives, as the registry of runs says. It is asked once in a while.
    fn has_live_worker(&mut self) -> bool {
        match self.asked {
            Some((at, lives)) if at.elapsed() < ASK_EVERY => lives,
            _ => {
                let is_worker =
                    |member: &RunMember| member.live && member.incarnation.rank != gannet::runs::CLIENT;
                let members = self.run.client().members();
                // While nobody knows, workers may live.
                let lives = members.map_or(true, |members| members.iter().any(is_worker));
                self.asked = Some((Instant::now(), lives));
                lives
            }
        }
    }

    /// Shows the progress.
    fn tell(&self, job: &JobStatus, display: &mut ProgressDisplay) {
        let (examples, log_loss, _) = together(job);
        let pass = (job.tasks / u64::from(job.epochs)).max(1);
        let all = self.bytes;
        let progress = Progress {
            epoch: ((job.tasks_done / pass) as u32).min(job.epochs - 1),
            examples,
            bytes_read: (all as f64 * (job.tasks_done % pass) as f64 / pass as f64) as u64,
            bytes_total: Some(all),
            log_loss,
            seconds: self.start.elapsed().as_secs_f64(),
            ..Progress::default()
        };
        self.training.progress(&progress);
        display.update(&progress, job.epochs);
    }
}

/// The results of a job.
struct JobOutcome {
    job: Option<JobStatus>,
    seconds: f64,
    stopped: bool,
    test: Option<Quality>,
    stats: Stats,
    transport: String,
    served: ServedBytes,
    format: &'static str,
}

impl JobOutcome {
    fn examples(&self) -> u64 {
        self.job.as_ref().map_or(0, |job| job.examples)
    }

    fn print(&self, as_json: bool, validations: Option<Vec<Value>>, account: &Account) {
        let JobOutcome { job, seconds, stopped, test, stats, transport, served, format } = self;
        let (job, test, examples) = (job.as_ref(), test.as_ref(), self.examples());
        let (speed, bytes_per_row) =
            (examples as f64 / seconds, stats.bytes as f64 / stats.rows.max(1) as f64);
        if !as_json {
            say!("{examples} examples in {seconds:.2} s, {speed:.0} examples/s ({transport}, {format})");
            if let Some(job) = job {
                say!("workers      {}, their log loss {:.6}", job.members.len(), together(job).1);
            }
            if let Some(quality) = test {
                say!("test         {}", training::words(quality));
            }
            say!("table        {}", training::size_in_words(stats.rows, bytes_per_row));
            say!("fed          {} bytes in {} answers", served.bytes, served.requests);
            return;
        }
        let worker = |member: &Member| {
            let (progress, dead) = (&member.progress, member.state == WorkerState::Dead);
            json!({ "worker": member.incarnation.rank, "examples": progress.examples, "logloss": progress.loss, "dead": dead })
        };
        let workers: Vec<Value> = job.iter().flat_map(|job| &job.members).map(worker).collect();
        let mut object = json!({
            "examples": examples,
            "seconds": seconds,
            "examples_per_second": speed,
            "logloss": job.map(|job| together(job).1),
            "test_logloss": test.map(|q| q.log_loss),
            "test_auc": test.and_then(|q| q.auc),
            "test_calibration": test.and_then(Quality::calibration),
            "rows": stats.rows,
            "bytes_per_row": bytes_per_row,
            "transport": transport,
            "format": format,
            "tasks": job.map(|job| job.tasks),
            "tasks_done": job.map(|job| job.tasks_done),
            "fed": { "answers": served.requests, "bytes": served.bytes },
            "workers": workers,
            "stopped": stopped,
        });
        if let Some(validations) = validations {
            object["validations"] = validations.into();
        }
        account.put(&mut object);
        say!("{object}");
    }
}

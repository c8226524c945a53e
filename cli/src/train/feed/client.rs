//! `gannet train --job-name client`: one process has the data and sends it to the workers (in-graph replication). It is
//! the job's scheduler, shows the progress, and tests and saves the model as a reader of the servers.

use crate::failure::{Failure, INPUT, PEER, SYSTEM};
use crate::flags::{JobArgs, SessionArgs, StoreArgs, TasksName, TrainArgs};
use crate::job::{check, connection, sync};
use crate::metrics::Metrics;
use crate::metrics::training::Training;
use crate::model::lr;
use crate::model::notes::of_job;
use crate::report::account::Account;
use crate::report::measures::measured;
use crate::report::progress::ProgressDisplay;
use crate::runs::begin::notes;
use crate::runs::in_run::InRun;
use crate::runs::{in_run, settings};
use crate::server::store;
use crate::train::ending::{Learned, Results};
use crate::train::feed::outcome::{JobOutcome, together};
use crate::train::feed::reading;
use crate::train::normalize;
use crate::train::validation::Validator;
use crate::train::{ending, options, tasks};
use crate::{security, signals};
use gannet::job::{DataServerConfig, FeedStatus, JobPlan, JobStatus, forget_job};
use gannet::runs::RunMember;
use gannet::table::Admission;
use gannet::train::models::Objective;
use gannet::train::{
    Backend, BadLines, Columns, FileDataSource, FileFingerprint, Options, Progress, PushContent, Reader,
    RemoteBackend, Share, StepReport, TrainedRows, evaluate, plan_files, test_at_end,
};
use gannet::{Server, ServerConfig, Transports};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The pusher id of the client at the servers. It only reads, and no worker has such an index.
const READER: u64 = u32::MAX as u64 - 1;

const POLL_EVERY: Duration = Duration::from_millis(50);

/// How often it asks which workers live.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// How long the client of a failed job waits for its workers to read the error.
const FAILURE_WAIT: Duration = Duration::from_secs(5);

/// Runs the client of a job.
pub fn client(args: &mut TrainArgs) -> Result<(), Failure> {
    args.job.tasks.tasks = TasksName::On;
    let (args, job) = (&*args, &args.job);
    check::check_job(job)?;
    let schema = options::schema(&args.optimizer, &args.admission, &job.table)?;
    let mut options = options::options(args, Share::ALL, true)?;
    let push = PushContent::choose(options.push, &schema)?;
    tasks::are_wanted(job, &options)?;
    options::preflight(args.output.out.as_deref(), &options, &schema)?;
    let fingerprints = tasks::fingerprints(&options)?;
    let files = plan_files(&options.data.files, &fingerprints);
    let settings = settings::of_run(args, &files, Some(&options));
    let plan = tasks::plan(job, &options, files, &settings)?;
    let reading = reading::reading(&args.data, &job.tasks);
    let Offer { config, format, columns } = offer(plan, reading, &options, &fingerprints)?;
    let stop = signals::stop_flag()?;
    options.stop_on(&stop);
    let metrics = Metrics::start(&args.metrics, "client")?;
    let mut line = connection::line_of_reader(job, READER)?;
    let mut of_run = line.clone();
    of_run.config.incarnation = line.allocate()?;
    let tables = normalize::with_table(&[&schema.name]);
    let of_model = of_job(&args.data, &options.data, &gannet::train::saved::Shape::lr().notes())?;
    let noted = (settings, notes(&options.data, of_model));
    let joined =
        in_run::join(job, args.output.json, &mut of_run, noted, &tables, (gannet::runs::CLIENT, ""))?;
    let Some(run) = joined else { return Ok(()) };
    // Before a worker can come: what it is sent says nothing about the first examples.
    normalize::agree_at_servers(&options.data, (&of_run.net, &of_run.config), &schema.name, true)?;
    line.config.run = of_run.config.run;
    let status = config.status.clone();
    let timeout = config.plan.worker_timeout();
    let bytes = config.plan.files.iter().map(|file| file.bytes).sum();
    let serving = listen(job, &args.sessions, &args.memory, config, &metrics)?;
    let training = Arc::new(Training::new(true));
    let shared = training.clone();
    metrics.add(move |page| shared.tell(page));
    let (options, status, stop, start) = (&options, &*status, &*stop, Instant::now());
    let mut served = ServedJob {
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
        let opened = match sync::is_damped(job, push)? {
            true => RemoteBackend::open_damped(worker, &schema, 0),
            false => RemoteBackend::open(worker, &schema, 0),
        };
        let account = run.account();
        let rows = served.run(&mut opened?, &account)?;
        run.finish(rows, &account)
    });
    drop(served);
    end(job.data_dir.as_deref(), serving, (status, timeout), stop, worked)
}

/// What the client offers to its workers.
struct Offer {
    config: DataServerConfig,
    format: &'static str,
    columns: Option<Columns>,
}

/// Reads the beginnings of the files, and finds their format.
fn offer(
    plan: JobPlan,
    reading: String,
    options: &Options,
    fingerprints: &[FileFingerprint],
) -> Result<Offer, Failure> {
    let reader = Reader::open(&options.data, options.batch, Share::ALL);
    let reader = reader.map_err(|error| Failure::input(error.to_string()))?;
    let (format, columns) = (reader.format(), reader.columns().cloned());
    if matches!(format, "parquet" | "arrow") {
        return Err(Failure::input(format!(
            "{}: --feed sends lines of text, and this is {format}; leave --feed out, and let the workers read the files \
             (--tasks on)",
            options.data.files[0]
        )));
    }
    let config = DataServerConfig {
        plan,
        reading,
        source: Arc::new(FileDataSource::new(&options.data, fingerprints)),
        status: Arc::default(),
    };
    config.check().map_err(Failure::input)?;
    Ok(Offer { config, format, columns })
}

/// Ends the job: the workers learn how it ended, and the file with the state of a finished job is removed.
fn end(
    state_folder: Option<&Path>,
    serving: Server,
    (status, timeout): (&FeedStatus, Duration),
    stop: &AtomicBool,
    worked: Result<(), Failure>,
) -> Result<(), Failure> {
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
    let is_needed = || status.is_ending() || status.job().is_some_and(|job| job.live);
    while since.elapsed() < patience && is_needed() {
        std::thread::sleep(POLL_EVERY);
    }
}

/// Starts the server for the workers.
fn listen(
    job: &JobArgs,
    sessions: &SessionArgs,
    memory: &StoreArgs,
    data: DataServerConfig,
    metrics: &Metrics,
) -> Result<Server, Failure> {
    let listen = job.data_server.feed.as_deref().unwrap_or_default();
    let net = sessions.net(job.transport.transport.net(job.io));
    let secured = security::of_server(net, ("--feed", listen), &job.security, &job.tls_server)?;
    let config = ServerConfig {
        threads: 1,
        token: secured.token,
        limits: sessions.limits(),
        scheduler_only: true,
        store: store::own_store(job.data_dir.as_deref(), memory)?,
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

impl ServedJob<'_> {
    /// Watches until all splits are trained, then evaluates and saves. Returns the number of rows.
    fn run(&mut self, backend: &mut RemoteBackend<Transports>, account: &Account) -> Result<u64, Failure> {
        let results = Results::of(self.args);
        let mut validator = Validator::new(results, self.options.test.as_ref(), Objective::Click, &|| true);
        let mut display = ProgressDisplay::of(&self.args.job, self.args.output.json);
        let trained = self.watch(backend, &mut validator, &mut display);
        display.finish();
        let (job, seconds) = (trained?, self.start.elapsed().as_secs_f64());
        let mut stopped = job.is_none();
        let test = self.options.test.as_ref();
        let test = test_at_end(test, &mut stopped, |data| evaluate(data, backend))?.map(measured);
        let stats = backend.stats()?;
        let examples = job.as_ref().map_or(0, |job| job.examples);
        let learned = Learned {
            examples,
            rows: stats.rows,
            stopped,
            bad_lines: &BadLines::default(),
            format: self.format,
            columns: self.columns.as_ref(),
            intercept: results.intercept,
            missing: &[],
        };
        let saved = results.save(&learned, |folder, notes| lr::save_lr(folder, backend, notes))?;
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
        report.print(results.output.json, validator.validated().numbers(), account);
        results.print_saved(saved, stopped);
        ending::ended_early(stopped, report.examples())?;
        let has_all_rows = self.args.admission.admission() == Admission::All;
        ending::learned_something(examples, None, report.stats.rows == 0 && has_all_rows)?;
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
                let every = self.args.output.watch.validate_every.unwrap_or(u64::MAX);
                let due = step / every > validated;
                if due || !step.is_multiple_of(every) {
                    // The losses of the examples since the last validation are not known, so this uses the mean so
                    // far.
                    losses = if due { (losses.0 + 1.0, losses.1 + loss) } else { losses };
                    let number = if due { step / every * every } else { step };
                    validated = step / every;
                    let (format, columns) = (self.format, self.columns.as_ref());
                    let step =
                        StepReport { number, epoch: 0, mass: losses.0, loss: losses.1, format, columns };
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
        let (examples, loss, _) = together(job);
        let pass = (job.tasks / u64::from(job.epochs)).max(1);
        let all = self.bytes;
        let progress = Progress {
            epoch: ((job.tasks_done / pass) as u32).min(job.epochs - 1),
            examples,
            bytes_read: (all as f64 * (job.tasks_done % pass) as f64 / pass as f64) as u64,
            bytes_total: Some(all),
            loss,
            seconds: self.start.elapsed().as_secs_f64(),
            ..Progress::default()
        };
        self.training.progress(&progress);
        display.update_lr(&progress, job.epochs);
    }
}

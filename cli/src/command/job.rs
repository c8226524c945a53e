//! A worker of a job: trains its share of the batches against servers; worker 0 waits for the others, evaluates and saves.

use super::args::{JobArgs, JobName, TasksName, TrainArgs};
use super::fed_worker::FedClient;
use super::metrics::Metrics;
use super::tasks::InJob;
use super::validation::Watching;
use super::{Failure, cache_flags, data_server, runs, security, signals, sync_flags, tasks, train};
use gannet::sync::SyncMode;
use gannet::train::models::Objective;
use gannet::train::{
    Backend, Progress, PushContent, Quality, ReadError, Reduce, RemoteBackend, Share, TrainError, evaluate,
};
use gannet::worker::{WorkerCounters, WorkerError};
use gannet::{Read, Transports, Worker, WorkerConfig};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Batches pulled ahead of the one that is learned: a second one gained nothing on one machine.
const DEPTH: usize = 1;
pub const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Flags that this process has no use for, alone or as what it is in a job, are more likely a mistake than nothing.
pub fn check_role(args: &TrainArgs) -> Result<(), Failure> {
    let TrainArgs { job, memory, sessions, .. } = args;
    let ps = job.job_name == Some(JobName::Ps);
    let client = job.job_name == Some(JobName::Client);
    let worker = job.job_name == Some(JobName::Worker);
    data_server::check_role(args)?;
    let tls_ca = job.tls_client.tls_ca.is_some();
    if args.data.is_empty() && !ps && job.feeding.feed.is_none() {
        let text = "DATA is missing: name the files to train on, such as `gannet train clicks.svm`; - is standard input";
        return Err(Failure::input(text));
    }
    let misplaced = [
        (ps && tls_ca, "--tls-ca", "a worker; a ps speaks TLS with --tls-cert and --tls-key"),
        (ps && job.tls_client.tls_name.is_some(), "--tls-name", "a worker"),
        (
            worker && job.tls_server.tls_client_ca.is_some(),
            "--tls-client-ca",
            "a ps; a worker believes servers by --tls-ca",
        ),
        (
            (worker || client) && memory.memory_limit.is_some(),
            "--memory-limit",
            "a process that has tables, which a worker has not",
        ),
        (runs::misplaced(job).is_some(), runs::misplaced(job).unwrap_or_default(), "a worker or a client"),
        (ps && job.one_sided.one_sided.is_some(), "--one-sided", "a worker"),
        (
            worker && job.data_dir.is_some(),
            "--data-dir",
            "a ps or a client; servers keep the rows, and a worker keeps nothing",
        ),
    ];
    if let Some(flag) = misplaced_alone(job) {
        return Err(Failure::input(format!("{flag}: for a process of a job (--job-name)")));
    }
    let misplaced = misplaced.iter().find(|(given, ..)| *given).map(|&(_, flag, whose)| (flag, whose));
    let of_sessions = sessions.given().filter(|_| !ps && !client).map(|flag| (flag, "a ps or gannet server"));
    let shards = job.table.shards.map(|_| "--shards").filter(|_| !client);
    let of_lr =
        cache_flags::given(&job.cache).or(shards).filter(|_| !worker || !cache_flags::learns_so(args));
    match (misplaced.or(of_sessions), of_lr) {
        (Some((flag, whose)), _) => Err(Failure::input(format!("{flag}: for {whose}"))),
        (None, Some(flag)) => Err(Failure::input(format!(
            "{flag} works only in a worker of a job with --model lr, and not with --optimizer lbfgs"
        ))),
        (None, None) => Ok(()),
    }
}

/// A flag of a job in a process that belongs to none.
fn misplaced_alone(job: &JobArgs) -> Option<String> {
    if job.job_name.is_some() {
        return None;
    }
    let given = [
        (job.one_sided.one_sided.is_some(), "--one-sided"),
        (job.damping.damping.is_some(), "--damping"),
        (job.security.token_file.is_some(), "--token-file"),
        (job.security.insecure, "--insecure"),
        (job.tls_client.tls_ca.is_some() || job.security.tls_cert.is_some(), "TLS"),
        (job.given.task_index, "--task-index"),
        (job.given.peer_timeout, "--peer-timeout"),
        (job.tasks.tasks != TasksName::Auto, "--tasks"),
        (job.tasks.task_bytes.is_some(), "--task-bytes"),
        (job.tasks.start_together, "--start-together"),
        (job.tasks.scheduler.is_some(), "--scheduler"),
    ];
    let flag = given.iter().find(|(given, _)| *given).map(|(_, flag)| (*flag).to_owned());
    flag.or_else(|| sync_flags::misplaced(job))
}

/// Checks the flags of a job.
pub fn check(job: &JobArgs) -> Result<(), Failure> {
    if job.worker_hosts.is_empty() {
        return Err(Failure::input("--worker-hosts is missing: name an address for each worker of the job"));
    }
    let (flag, hosts) = match job.job_name {
        Some(JobName::Ps) => ("--ps-hosts", &job.ps_hosts),
        _ => ("--worker-hosts", &job.worker_hosts),
    };
    if job.task_index as usize >= hosts.len() {
        let (index, n) = (job.task_index, hosts.len());
        return Err(Failure::input(format!(
            "--task-index {index}: {flag} names {n}, so 0 to {} is allowed",
            n - 1
        )));
    }
    for host in job.ps_hosts.iter().chain(&job.worker_hosts).chain(&job.feeding.feed) {
        let port = host.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        if port.is_none() {
            return Err(Failure::input(format!(
                "address {host:?}: HOST:PORT is needed, for example 127.0.0.1:7700"
            )));
        }
    }
    if let Some(twice) = (1..job.ps_hosts.len()).find(|&i| job.ps_hosts[..i].contains(&job.ps_hosts[i])) {
        let twice = &job.ps_hosts[twice];
        return Err(Failure::input(format!("--ps-hosts names {twice} twice: name each server once")));
    }
    sync_flags::check(job)?;
    if !(job.peer_timeout > 0.0 && job.peer_timeout <= 86_400.0) {
        return Err(Failure::input(format!(
            "--peer-timeout {}: more than 0 s and at most a day",
            job.peer_timeout
        )));
    }
    Ok(())
}

/// Who worker `index` is to the shards.
pub fn pusher(index: u32) -> u64 {
    u64::from(index) + 1
}

/// What a worker connects with.
#[derive(Clone)]
pub struct WorkerConnection {
    /// Its network.
    pub net: Transports,
    /// Whom it calls, and who it is.
    pub config: WorkerConfig,
    /// The servers and the scheduler: who knows of incarnations.
    counting: Vec<String>,
    /// Its counts.
    pub tally: Arc<WorkerCounters>,
    /// A page of metrics has the counts.
    told: bool,
}

/// What the worker of this process connects with: its life is a new one, which a server numbers.
pub fn line(job: &JobArgs, metrics: Option<&Metrics>) -> Result<WorkerConnection, Failure> {
    let mut line = line_of_reader(job, pusher(job.task_index))?;
    let scheduler = tasks::scheduler(job);
    if !line.counting.iter().any(|host| host == scheduler) {
        line.counting.push(scheduler.to_owned());
    }
    if let Some(metrics) = metrics {
        line.tell(metrics);
    }
    line.config.incarnation = line.allocate()?;
    line.config.seed ^= line.config.incarnation;
    Ok(line)
}

/// The same for somebody who never pushes.
pub fn line_of_reader(job: &JobArgs, pusher: u64) -> Result<WorkerConnection, Failure> {
    let net = job.transport.transport.net(job.io);
    let hosts: Vec<String> = job.ps_hosts.iter().chain(&job.feeding.feed).cloned().collect();
    let secured = security::of_worker(net, &hosts, &job.security, &job.tls_client)?;
    let mut config = WorkerConfig { pusher, ..WorkerConfig::reader(&job.ps_hosts) };
    config.seed = pusher.rotate_left(32);
    config.token = secured.token;
    config.one_sided = job.one_sided.choice();
    config.peer_timeout = Duration::from_secs_f64(job.peer_timeout);
    Ok(WorkerConnection {
        net: secured.net,
        config,
        counting: job.ps_hosts.clone(),
        tally: Arc::default(),
        told: false,
    })
}

impl WorkerConnection {
    /// Connects to every server of the job.
    pub fn connect(&self, metrics: &Metrics) -> Result<Worker<Transports>, Failure> {
        if !self.told {
            self.clone().tell(metrics);
        }
        Ok(Worker::connect_told(self.net.clone(), self.config.clone(), self.tally.clone())?)
    }

    fn tell(&mut self, metrics: &Metrics) {
        let tally = self.tally.clone();
        metrics.add(move |page| tally.tell(page));
        self.told = true;
    }

    /// Takes an incarnation that no life of any worker has had.
    pub fn allocate(&self) -> Result<u64, WorkerError> {
        let config = WorkerConfig { servers: self.counting.clone(), ..self.config.clone() };
        Worker::allocate_incarnation_told(self.net.clone(), &config, self.tally.clone())
    }
}

/// Runs a worker.
pub fn worker(args: &TrainArgs) -> Result<(), Failure> {
    work(args, None)
}

/// The same, of one that is perhaps fed by a client, which is then the one to sum up.
pub fn work(args: &TrainArgs, fed: Option<FedClient>) -> Result<(), Failure> {
    let job = &args.job;
    check(job)?;
    let schema = train::schema(args)?;
    let share = Share { worker: job.task_index, workers: job.worker_hosts.len() as u32 };
    let chief = job.task_index == 0 && fed.is_none();
    // With a scheduler any worker may become the chief.
    let mut options = train::options(args, share, chief || job.tasks.tasks == TasksName::On)?;
    let push = PushContent::choose(options.push, &schema).map_err(train::backend_failure)?;
    options.push = Some(push);
    let damped = sync_flags::is_damped(job, push)?;
    if let Some(fed) = &fed {
        options.data.files = fed.files();
    }
    // What the servers have of it.
    let kept = if damped { schema.counting() } else { schema.clone() };
    if chief {
        train::preflight(args, &options, &schema)?;
    }
    let stop = signals::stop_flag()?;
    options.stop_on(&stop);
    // Looked at when every worker is done, not by the training itself.
    let mut held_out = options.test.take();
    let metrics = Metrics::start(&args.metrics, "worker")?;
    let reduce = options.reduce.unwrap_or(Reduce::suits(&schema.rule));
    let workers = job.worker_hosts.len() as u32;
    let member = sync_flags::membership(&job.sync, job.task_index, workers, push, reduce);
    let cache = cache_flags::of_training(args, &schema, push, member.mode)?;
    if damped && cache.is_some() {
        return Err(Failure::input(
            "--cache-bytes cannot be had with damped replay, of which only the servers know what it makes of a row: leave it out, or say \
             --damping off",
        ));
    }
    let scheduled = tasks::are_wanted(args, &options)?;
    let mut line = match &fed {
        Some(fed) => fed.line(),
        None => line(job, Some(&metrics))?,
    };
    let files = fed.as_ref().map(|fed| &fed.plan().files[..]);
    let settings = runs::settings(args, &options.data.files, files, Some(&options))?;
    let of_run = (settings.clone(), &options.data.scale);
    let joined = runs::join(args, &mut line, of_run, &[&kept.name], job.task_index)?;
    let Some(run) = joined else { return Ok(()) };
    run.scale(&mut options.data, held_out.as_mut());
    // First of all: a second process of this index is to be refused before it takes the place of the first at the servers.
    let seat = match scheduled {
        true => Some(tasks::join(args, &mut options, std::slice::from_ref(&kept), &line, fed, &settings)?),
        false => None,
    };
    let mut worker = line.connect(&metrics)?;
    let fixed = seat.is_none() && workers > 1;
    if fixed {
        run.say_who_is_missing()?;
    }
    if let Some(seat) = &seat {
        seat.open_tables(&mut worker)?;
    }
    let backend = if damped {
        RemoteBackend::open_damped(worker, &schema, DEPTH)
    } else {
        RemoteBackend::open(worker, &schema, DEPTH)
    };
    let mut backend = backend.map_err(train::backend_failure)?;
    if let Some(cache) = cache {
        backend.cache(Read::State, cache).map_err(train::backend_failure)?;
    }
    // Alone there is nobody to keep step with.
    if workers > 1 || member.mode != SyncMode::Asp {
        backend.join(member).map_err(train::backend_failure)?;
    }

    if let Some(seat) = &seat {
        seat.start_together(job, &stop)?;
    }
    let leads = || seat.as_ref().map_or(chief, InJob::is_chief);
    let trained = |batches| run.trained(batches);
    let mut watching = Watching::new(args, held_out.as_ref(), Objective::Click, &leads).telling(&trained);
    let mut tell = |p: &Progress| {
        if let Some(seat) = &seat {
            seat.tell(p.examples, p.log_loss, p.seconds);
        }
    };
    let of = (args, &metrics);
    let trained = train::learn(&options, &mut backend, &stop, of, &mut tell, &mut watching);
    let validations = watching.into_validations();
    let mut trained = match (trained, &seat) {
        (Err(failure), Some(seat)) => return Err(seat.failed(failure)),
        (trained, _) => trained?,
    };
    let table = backend.table();
    backend.leave().map_err(train::backend_failure)?;
    backend.worker().close_pusher(table)?;
    if !trained.stopped {
        run.done()?;
    }
    let mut account = run.account();
    let batches = trained.batches;
    let share = |rank| Some(runs::share(batches, args.epochs, rank, workers));
    let is_first = job.task_index == 0;
    let chief = seat.as_ref().map_or(Ok(chief), |seat| seat.sums_up(&stop))?;
    let mut test: Option<Quality> = None;
    if fixed && !trained.stopped {
        account = match is_first {
            true => run.wait(backend.worker(), table, &share, &stop)?,
            false => run.wait_for_chief(&share, &stop)?,
        };
        trained.stopped = stop.load(Relaxed);
    }
    if chief && !trained.stopped {
        if let Some(data) = held_out {
            match evaluate(&data, &mut backend) {
                // Whoever ends the wait for the test set keeps what was learned.
                Err(TrainError::Read(ReadError::Stopped { .. })) => trained.stopped = true,
                tested => test = tested.map_err(train::train_failure)?,
            }
        }
        let stats = backend.stats().map_err(train::backend_failure)?;
        trained.rows = stats.rows;
        trained.bytes_per_row = stats.bytes as f64 / stats.rows.max(1) as f64;
    }
    if chief {
        train::finish(args, &mut backend, &trained, (test.as_ref(), &account), validations)?;
        if !trained.stopped {
            run.finish(trained.rows, &account)?;
        }
    } else {
        super::report::warn_of_no_positive(trained.examples);
        super::report::print_or_json(args.json, &trained, &account);
    }
    if let Some(seat) = seat {
        let loss = trained.progressive.as_ref().map(|quality| quality.log_loss);
        seat.tell_end(trained.examples, loss, trained.seconds);
        if chief {
            seat.saved();
        }
        seat.leave(&mut options);
    }
    train::ended(&trained)?;
    if !scheduled {
        train::learned_something(trained.examples, &trained.bad_lines)?;
    }
    run.ended(&account, args.out.as_deref().filter(|_| chief))
}

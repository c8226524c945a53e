//! Checks of flags that every process of a job makes, and the connection of a worker to the servers.

use crate::failure::Failure;
use crate::flags::{JobArgs, JobName, TasksName, TrainArgs};
use crate::job::{backups, cache, sync};
use crate::metrics::Metrics;
use crate::runs::in_run;
use crate::security;
use crate::train::feed::client;
use crate::train::tasks;
use gannet::worker::{OneSided, WorkerCounters, WorkerError};
use gannet::{Transports, Worker, WorkerConfig};
use std::sync::Arc;
use std::time::Duration;

/// Time between two checks of something that a loop waits for.
pub const POLL_EVERY: Duration = Duration::from_millis(50);

/// Refuses flags that have no effect in this process, because they are probably a mistake. `is_launched`: all processes
/// of the job have the same flags, so flags of the other role are none.
pub fn check_role(args: &TrainArgs, is_launched: bool) -> Result<(), Failure> {
    let TrainArgs { job, memory, sessions, .. } = args;
    let ps = job.job_name == Some(JobName::Ps);
    let client = job.job_name == Some(JobName::Client);
    let worker = job.job_name == Some(JobName::Worker);
    client::check_role(args)?;
    let tls_ca = job.tls_client.tls_ca.is_some();
    // A ps with backups, or one that asks for the end of its run, is also a client of other servers.
    let joins = job.backups.coordinator.is_some() || job.exit_with_job;
    if args.data.is_empty() && !ps && job.data_server.feed.is_none() {
        let text = "DATA is missing: name the files to train on, such as `gannet train clicks.svm`; - is standard input";
        return Err(Failure::input(text));
    }
    if is_launched && ps {
        return Ok(());
    }
    let misplaced = [
        (ps && tls_ca && !joins, "--tls-ca", "a worker; a ps speaks TLS with --tls-cert and --tls-key"),
        (ps && job.tls_client.tls_name.is_some() && !joins, "--tls-name", "a worker"),
        (
            worker && job.tls_server.tls_client_ca.is_some(),
            "--tls-client-ca",
            "a ps; a worker trusts servers by --tls-ca",
        ),
        (
            (worker || client) && memory.memory_limit.is_some(),
            "--memory-limit",
            "a process that has tables; a worker has none",
        ),
        (
            in_run::misplaced(job).is_some(),
            in_run::misplaced(job).unwrap_or_default(),
            "a worker or a client (--run: also in a ps with --checkpoint, --coordinator or --exit-with-job)",
        ),
        (backups::misplaced(job).is_some(), backups::misplaced(job).unwrap_or_default(), "a ps"),
        (ps && job.one_sided.one_sided.is_some(), "--one-sided", "a worker"),
        ((ps || client) && job.wire.wire.is_some(), "--wire", "a worker"),
        (job.exit_with_job && !ps, "--exit-with-job", "a ps: other processes end with their job anyway"),
        (job.listen.is_some() && !ps, "--listen", "a ps; workers and clients use --ps-hosts and --feed"),
        (client && job.checkpoint.checkpoint.is_some(), "--checkpoint", "a ps or a worker"),
        (worker && job.data_dir.is_some(), "--data-dir", "a ps or a client; a worker keeps no rows"),
    ];
    if let Some(flag) = misplaced_alone(job) {
        return Err(Failure::input(format!("{flag}: works only in a process of a job (--job-name)")));
    }
    let misplaced = misplaced.iter().find(|(is_given, ..)| *is_given).map(|&(_, flag, whose)| (flag, whose));
    let of_sessions =
        sessions.first_given().filter(|_| !ps && !client).map(|flag| (flag, "a ps or gannet server"));
    let misplaced = misplaced.or(of_sessions).filter(|_| !is_launched);
    let shards = job.table.shards.map(|_| "--shards").filter(|_| !client);
    let of_lr = cache::first_given(&job.cache).or(shards).filter(|_| !worker || !cache::learns_so(args));
    match (misplaced, of_lr) {
        (Some((flag, whose)), _) => Err(Failure::input(format!("{flag}: works only in {whose}"))),
        (None, Some(flag)) => Err(Failure::input(format!(
            "{flag} works only in a worker of a job with --model lr, and not with --optimizer lbfgs"
        ))),
        (None, None) => Ok(()),
    }
}

/// A flag of jobs that was given to a process without a job.
fn misplaced_alone(job: &JobArgs) -> Option<String> {
    if job.job_name.is_some() {
        return None;
    }
    let flags = [
        (job.one_sided.one_sided.is_some(), "--one-sided"),
        (job.wire.wire.is_some(), "--wire"),
        (job.damping.damping.is_some(), "--damping"),
        (job.security.token_file.is_some(), "--token-file"),
        (job.security.insecure, "--insecure"),
        (job.tls_client.tls_ca.is_some() || job.security.tls_cert.is_some(), "TLS"),
        (job.typed.task_index, "--task-index"),
        (job.typed.peer_timeout, "--peer-timeout"),
        (job.tasks.tasks != TasksName::Auto, "--tasks"),
        (job.tasks.task_bytes.is_some(), "--task-bytes"),
        (job.tasks.start_together, "--start-together"),
        (job.tasks.scheduler.is_some(), "--scheduler"),
        (job.checkpoint.checkpoint.is_some(), "--checkpoint"),
        (job.backups.coordinator.is_some(), "--coordinator"),
    ];
    let flag = flags.iter().find(|(is_given, _)| *is_given).map(|(_, flag)| (*flag).to_owned());
    flag.or_else(|| sync::misplaced(job))
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
    for host in job.ps_hosts.iter().chain(&job.worker_hosts).chain(&job.data_server.feed) {
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
    sync::check(job)?;
    check_checkpoint(job)?;
    backups::check(job)?;
    if !(job.peer_timeout > 0.0 && job.peer_timeout <= 86_400.0) {
        return Err(Failure::input(format!(
            "--peer-timeout {}: more than 0 s and at most a day",
            job.peer_timeout
        )));
    }
    Ok(())
}

/// Refuses checkpoints of a job whose tasks are kept where no checkpoint is restored. Such a job would train again what
/// the checkpoint has.
fn check_checkpoint(job: &JobArgs) -> Result<(), Failure> {
    let first = tasks::first_server(&job.ps_hosts);
    let named = tasks::named_scheduler(job).filter(|named| *named != first);
    let (Some(_), Some(scheduler)) = (&job.checkpoint.checkpoint, named) else { return Ok(()) };
    Err(Failure::input(format!(
        "--checkpoint: the scheduler of this job is {scheduler}, but only a job whose scheduler is {first}, the first of \
         --ps-hosts in alphabetical order, can go on from a checkpoint; leave --scheduler and --feed out"
    )))
}

/// The pusher id of worker `index` at the shards.
pub fn pusher(index: u32) -> u64 {
    u64::from(index) + 1
}

/// The number of batches of worker `rank` of `workers` in all passes. Workers take the batches of a pass in turn.
pub fn share(batches: u64, epochs: u32, rank: u32, workers: u32) -> u64 {
    let (rank, workers) = (u64::from(rank), u64::from(workers.max(1)));
    batches.saturating_sub(rank).div_ceil(workers) * u64::from(epochs)
}

/// The configuration of a worker's connection.
#[derive(Clone)]
pub struct WorkerConnection {
    /// Its network.
    pub net: Transports,
    /// The servers, and who this worker is.
    pub config: WorkerConfig,
    /// The servers and the scheduler, which allocate incarnations.
    allocators: Vec<String>,
    /// Its counters.
    pub counters: Arc<WorkerCounters>,
    /// Whether the counters are already part of the metrics.
    in_metrics: bool,
}

/// The connection of this process's worker. A server allocates its incarnation.
pub fn line(job: &JobArgs, metrics: Option<&Metrics>) -> Result<WorkerConnection, Failure> {
    let mut line = line_of_reader(job, pusher(job.task_index))?;
    let scheduler = tasks::named_scheduler(job);
    if let Some(scheduler) = scheduler.filter(|named| !line.allocators.iter().any(|host| host == named)) {
        line.allocators.push(scheduler.to_owned());
    }
    if let Some(metrics) = metrics {
        line.add_metrics(metrics);
    }
    line.config.incarnation = line.allocate()?;
    line.config.seed ^= line.config.incarnation;
    Ok(line)
}

/// The connection of a process that never pushes.
pub fn line_of_reader(job: &JobArgs, pusher: u64) -> Result<WorkerConnection, Failure> {
    let net = job.transport.transport.net(job.io);
    let coordinator = backups::server_of(job.backups.coordinator.as_deref());
    let others = job.data_server.feed.iter().chain(&coordinator);
    let hosts: Vec<String> = job.ps_hosts.iter().chain(others).cloned().collect();
    let secured = security::of_worker(net, &hosts, &job.security, &job.tls_client)?;
    let servers = backups::in_places(job);
    let mut config = WorkerConfig { pusher, ..WorkerConfig::reader(&servers) };
    config.seed = pusher.rotate_left(32);
    config.token = secured.token;
    config.places = backups::places(job, &secured.net, config.token.as_ref())?;
    // Requests are the default where a server can lose its place: reads of its memory rely on clocks.
    let relies_on_clocks = config.places.is_some() && job.one_sided.one_sided.is_none();
    config.one_sided = if relies_on_clocks { OneSided::Never } else { job.one_sided.choice() };
    config.peer_timeout = Duration::from_secs_f64(job.peer_timeout);
    Ok(WorkerConnection {
        net: secured.net,
        config,
        allocators: servers,
        counters: Arc::default(),
        in_metrics: false,
    })
}

impl WorkerConnection {
    /// Connects to every server of the job.
    pub fn connect(&self, metrics: &Metrics) -> Result<Worker<Transports>, Failure> {
        if !self.in_metrics {
            self.clone().add_metrics(metrics);
        }
        Ok(Worker::connect_with_counters(self.net.clone(), self.config.clone(), self.counters.clone())?)
    }

    fn add_metrics(&mut self, metrics: &Metrics) {
        let counters = self.counters.clone();
        metrics.add(move |page| counters.tell(page));
        self.in_metrics = true;
    }

    /// The configuration of a client of all servers and the scheduler.
    pub fn of_all_servers(&self) -> WorkerConfig {
        WorkerConfig { servers: self.allocators.clone(), ..self.config.clone() }
    }

    /// Allocates an incarnation that no worker has had.
    pub fn allocate(&self) -> Result<u64, WorkerError> {
        let config = self.of_all_servers();
        Worker::allocate_incarnation_with_counters(self.net.clone(), &config, self.counters.clone())
    }
}

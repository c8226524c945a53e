//! The connection of a worker to the servers.

use crate::failure::Failure;
use crate::flags::JobArgs;
use crate::job::{backups, servers};
use crate::metrics::Metrics;
use crate::security;
use gannet::worker::{OneSided, WorkerCounters, WorkerError};
use gannet::{Transports, Worker, WorkerConfig};
use std::sync::Arc;
use std::time::Duration;

/// Time between two checks of something that a loop waits for.
pub const POLL_EVERY: Duration = Duration::from_millis(50);

/// The pusher id of worker `index` at the shards.
pub fn pusher(index: u32) -> u64 {
    u64::from(index) + 1
}

/// The configuration of a worker's connection.
#[derive(Clone)]
pub struct WorkerConnection {
    /// Its network.
    pub net: Transports,
    /// The servers, and who this worker is.
    pub config: WorkerConfig,
    /// The servers and the scheduler, which allocate incarnations.
    pub allocators: Vec<String>,
    /// Its counters.
    pub counters: Arc<WorkerCounters>,
    /// Whether the counters are already part of the metrics.
    pub in_metrics: bool,
}

/// The connection of this process's worker. A server allocates its incarnation.
pub fn line(job: &JobArgs, metrics: Option<&Metrics>) -> Result<WorkerConnection, Failure> {
    let mut line = line_of_reader(job, pusher(job.task_index))?;
    let scheduler = servers::named_scheduler(job);
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

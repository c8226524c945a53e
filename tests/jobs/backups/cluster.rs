//! A job with a coordinator, servers that are backups of each other, and workers.

use crate::harness;
use crate::world::until;

use gannet::backups::{Coordinator, Places, RemoteCoordinator};
use gannet::optim::Sgd;
use gannet::runs::RunId;
use gannet::security::{TlsClient, Token};
use gannet::train::INTERCEPT_KEY;
use gannet::{Rule, Schema, Transports, Worker, WorkerConfig};
use harness::ports::free_addr;
use harness::*;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LINES: u64 = 60_000;
/// Of each server, in seconds.
const LEASE: u32 = 2;
/// At this rate nothing is learned, so the probability stays one half, and each record adds exactly half of it to the
/// weight of each of its keys: the weights count records.
const RATE: f32 = f32::from_bits((127 - 100) << 23);

/// What a cluster is like.
pub struct Setup {
    pub servers: usize,
    pub backups: u32,
    /// How often each record is counted.
    pub passes: u64,
    /// The coordinator is this cluster of etcd.
    pub etcd: Option<String>,
    /// The coordinator has a data folder.
    pub keeps: bool,
    /// Each server of `--ps-hosts` has a data folder.
    pub folders: bool,
    /// More flags of the coordinator.
    pub coordinator: String,
    /// More flags of each server.
    pub server: String,
    /// More flags of workers and of `gannet status`.
    pub client: String,
    /// More flags of workers.
    pub worker: String,
}

impl Default for Setup {
    /// Two servers with a backup each, without TLS, whose coordinator keeps nothing.
    fn default() -> Setup {
        Setup {
            servers: 2,
            backups: 1,
            passes: 2,
            etcd: None,
            keeps: false,
            folders: false,
            coordinator: String::new(),
            server: String::new(),
            client: String::new(),
            worker: String::new(),
        }
    }
}

/// A coordinator, servers that are backups of each other, and data.
pub struct Cluster {
    folder: tempfile::TempDir,
    setup: Setup,
    data: PathBuf,
    /// The data with positive labels only: so the weights count.
    positive: PathBuf,
    pub coordinator: Option<Served>,
    coordinator_addr: String,
    /// First those of `--ps-hosts`, then those of spares.
    hosts: Vec<String>,
    pub servers: Vec<Option<Served>>,
    /// Flags of all processes of the job.
    flags: String,
}

impl Cluster {
    pub fn new(servers: usize, backups: u32) -> Cluster {
        Cluster::of(Setup { servers, backups, ..Setup::default() })
    }

    pub fn of(setup: Setup) -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let data = clicks(&folder.path().join("train.svm"), LINES, 1);
        let text = std::fs::read_to_string(&data).unwrap();
        let labelled = text.lines().map(|line| format!("1 {}\n", line.split_once(' ').unwrap().1));
        let positive = folder.path().join("positive.svm");
        std::fs::write(&positive, labelled.collect::<String>()).unwrap();
        let mut hosts: Vec<String> = (0..setup.servers).map(|_| free_addr()).collect();
        hosts.sort();
        let (coordinator_addr, all) = (setup.etcd.clone().unwrap_or_else(free_addr), hosts.join(","));
        let flags = format!(
            "--ps-hosts {all} --worker-hosts a:1,b:1 --backups {} --coordinator {coordinator_addr}",
            setup.backups
        );
        let (coordinator, servers) = (None, Vec::new());
        let mut cluster =
            Cluster { folder, setup, data, positive, coordinator, coordinator_addr, hosts, servers, flags };
        if cluster.setup.etcd.is_none() {
            cluster.start_coordinator();
        }
        cluster.servers = (0..cluster.hosts.len()).map(|at| Some(cluster.server(at))).collect();
        cluster
    }

    pub fn start_coordinator(&mut self) {
        let Setup { keeps, coordinator: flags, .. } = &self.setup;
        let kept = self.coordinator_folder();
        let kept = if *keeps { format!("--data-dir {}", kept.display()) } else { String::new() };
        let line = format!("scheduler --listen {} {kept} {flags}", self.coordinator_addr);
        self.coordinator = Some(Served::start(gannet(&line)));
    }

    pub fn server(&self, at: usize) -> Served {
        Served::start(gannet(&self.server_line(at)))
    }

    /// The command of a server of `--ps-hosts`.
    pub fn server_line(&self, at: usize) -> String {
        let (flags, more) = (&self.flags, &self.setup.server);
        let kept = if self.setup.folders {
            format!("--data-dir {}", self.data_dir(at).display())
        } else {
            String::new()
        };
        format!("train --job-name ps --task-index {at} --lease {LEASE} --threads 2 {kept} {flags} {more}")
    }

    /// The coordinator, as the flag names it.
    pub fn coordinator_addr(&self) -> &str {
        &self.coordinator_addr
    }

    /// Where a coordinator keeps what it knows.
    pub fn coordinator_folder(&self) -> PathBuf {
        self.folder.path().join("coordinator")
    }

    /// The data of the workers.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The data folder of a server.
    pub fn data_dir(&self, at: usize) -> PathBuf {
        self.folder.path().join(format!("ps-{at}"))
    }

    /// Kills all servers at once.
    pub fn kill_all(&mut self) {
        (0..self.servers.len()).for_each(|at| self.kill(at));
    }

    /// Starts all servers again, the last one first.
    pub fn start_all(&mut self) {
        (0..self.servers.len()).rev().for_each(|at| self.servers[at] = Some(self.server(at)));
    }

    /// Starts a server at a new address, without a place. Returns its number.
    pub fn start_spare(&mut self) -> usize {
        let addr = free_addr();
        let (flags, more) = (&self.flags, &self.setup.server);
        let line = format!("train --job-name ps --spare {addr} --lease {LEASE} --threads 2 {flags} {more}");
        self.servers.push(Some(Served::start(gannet(&line))));
        self.hosts.push(addr);
        self.hosts.len() - 1
    }

    pub fn kill(&mut self, at: usize) {
        self.servers[at].take().unwrap().kill();
    }

    /// A worker whose rows count records. It trains by splits.
    pub fn worker(&self, index: u32, sync: &str) -> Process {
        self.counter(index, &format!("--sync {sync} --tasks on --task-bytes 64KiB"))
    }

    /// A worker whose rows count records.
    pub fn counter(&self, index: u32, how: &str) -> Process {
        let passes = self.setup.passes;
        let how = format!(
            "{how} --batch 64 --epochs {passes} --optimizer sgd --push gradient --reduce sum --alpha {RATE:e} --damping off"
        );
        self.begin(index, &self.positive, &how)
    }

    /// A worker that learns something.
    pub fn learner(&self, index: u32, how: &str) -> Process {
        self.begin(index, &self.data, how)
    }

    fn begin(&self, index: u32, data: &Path, how: &str) -> Process {
        let (data, flags, more) = (data.display(), &self.flags, &self.setup.client);
        let more = format!("{more} {}", self.setup.worker);
        let line = format!("train {data} --job-name worker --task-index {index} {flags} {more} --json {how}");
        Process::start(gannet(&format!("{line} --peer-timeout 30")))
    }

    /// The report of one process that learns the same without servers.
    pub fn embedded(&self, how: &str) -> serde_json::Value {
        ok(&format!("train {} --json {how}", self.data.display())).json()
    }

    pub fn status(&self) -> serde_json::Value {
        self.status_by(&format!("--ps-hosts {} --json", self.hosts[..self.setup.servers].join(","))).json()
    }

    /// As the coordinator knows the job, with these flags.
    pub fn status_by(&self, flags: &str) -> Done {
        let (coordinator, more) = (&self.coordinator_addr, &self.setup.client);
        run(&format!("status --coordinator {coordinator} --peer-timeout 5 {more} {flags}"))
    }

    pub fn until_done(&self, tasks: u64) {
        until("tasks", || self.status()["job"]["tasks_done"].as_u64().is_some_and(|done| done >= tasks));
    }

    /// Waits until so many workers are in the run.
    pub fn until_workers(&self, count: u64) {
        until("workers", || {
            self.status()["runs"][0]["live_workers"].as_u64().is_some_and(|live| live >= count)
        });
    }

    /// The address of a server.
    pub fn host(&self, at: usize) -> &str {
        &self.hosts[at]
    }

    /// The server that has a place.
    pub fn owner(&self, place: usize) -> usize {
        let owner = self.status()["places"][place]["owner"].as_str().unwrap().to_owned();
        self.hosts.iter().position(|host| *host == owner).unwrap()
    }

    /// The first backup of a place.
    pub fn backup(&self, place: usize) -> usize {
        let backup = self.status()["places"][place]["backups"][0].as_str().unwrap().to_owned();
        self.hosts.iter().position(|host| *host == backup).unwrap()
    }

    /// Waits until other servers have the places of one that was killed. Until its lease ends, they seem to be its own,
    /// with the backups that they had.
    pub fn until_taken(&self, victim: usize) {
        until("other owners", || {
            let status = self.status();
            let Some(places) = status["places"].as_array() else { return false };
            places.len() == self.setup.servers
                && places.iter().all(|place| place["owner"] != self.hosts[victim])
        });
    }

    /// Waits until a living server serves a place that had another owner, and returns it. It asks the coordinator so
    /// often that the server has just begun.
    pub fn until_taken_by(&self, place: u32, before: usize) -> usize {
        let coordinator = self.remote_coordinator(&Transports::new(), &None);
        let taken = || {
            let known = gannet::backups::place_status(&*coordinator, "default", place).ok()??;
            (known.ready && known.owner != self.hosts[before]).then_some(known.owner)
        };
        let end = Instant::now() + Duration::from_secs(60);
        let owner = loop {
            assert!(Instant::now() < end, "nobody has taken place {place} within a minute");
            match taken() {
                Some(owner) => break owner,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        self.hosts.iter().position(|host| *host == owner).unwrap()
    }

    /// Waits until each place has this many backups, and an owner that serves.
    pub fn until_backed(&self, least: usize) {
        until("backups", || {
            let status = self.status();
            let Some(places) = status["places"].as_array() else { return false };
            places.len() == self.setup.servers
                && places.iter().all(|place| {
                    place["state"] == "serves" && place["backups"].as_array().unwrap().len() >= least
                })
        });
    }

    /// The network and the settings of a worker in this process. `config` says what it is.
    pub fn client(&self, config: WorkerConfig) -> (Transports, WorkerConfig) {
        let flag = |name: &str| {
            let mut words = self.setup.client.split_whitespace();
            words.find(|word| *word == name).and(words.next()).map(Path::new)
        };
        let tls = flag("--tls-ca").map(|ca| TlsClient::load(ca, None, None).unwrap());
        let net = tls.map_or(Transports::new(), |tls| Transports::new().with_tls_client(tls));
        let token = flag("--token-file").map(|file| Token::load(file).unwrap());
        let coordinator = self.remote_coordinator(&net, &token);
        let places = Some(Places { coordinator, job: "default".into() });
        (net, WorkerConfig { token, places, servers: self.hosts[..self.setup.servers].to_vec(), ..config })
    }

    /// For each key, how many records of all passes its row has counted.
    fn counts(&self) -> HashMap<u64, u64> {
        let run = Some(RunId { name: "default".into(), generation: 1, rows_since: 1, birth: 0 });
        let (net, config) = self.client(WorkerConfig { run, ..WorkerConfig::reader(&self.hosts) });
        let mut worker = Worker::connect(net, config).unwrap();
        let table = worker.open_table(&Schema::scalar("lr", Rule::Sgd(Sgd { lr: RATE }))).unwrap();
        let mut counts = HashMap::new();
        let page = |keys: &[u64], rows: &[f32]| {
            counts.extend(keys.iter().copied().zip(rows.iter().map(|row| (row / RATE * 2.0) as u64)));
        };
        worker.scan(table, page).unwrap();
        counts
    }

    fn remote_coordinator(&self, net: &Transports, token: &Option<Token>) -> Arc<dyn Coordinator> {
        #[cfg(feature = "etcd")]
        if let Some(etcd) = &self.setup.etcd {
            let members: Vec<String> = etcd["etcd://".len()..].split(',').map(str::to_owned).collect();
            return Arc::new(gannet::backups::EtcdCoordinator::new(&members, None).unwrap());
        }
        Arc::new(RemoteCoordinator::new(net.clone(), &self.coordinator_addr, token.clone()))
    }

    /// Checks that every record was trained once a pass, by the scheduler's count and by the rows.
    pub fn check(&self) {
        let job = self.status()["job"].clone();
        assert_eq!(job["tasks_done"], job["tasks"], "{job}");
        assert_eq!(job["examples"], self.setup.passes * LINES, "{job}");
        self.check_rows();
    }

    /// Checks that every record was trained once a pass, by the rows.
    pub fn check_rows(&self) {
        let mut wanted: HashMap<u64, u64> = HashMap::from([(INTERCEPT_KEY, self.setup.passes * LINES)]);
        for line in std::fs::read_to_string(&self.data).unwrap().lines() {
            for feature in line.split_whitespace().skip(1) {
                let key = feature.split(':').next().unwrap().parse().unwrap();
                *wanted.entry(key).or_default() += self.setup.passes;
            }
        }
        let counts = self.counts();
        let wrong = wanted.iter().filter(|(key, count)| counts.get(key) != Some(count));
        let wrong: Vec<_> = wrong.map(|(key, count)| (key, count, counts.get(key))).collect();
        assert!(
            wrong.is_empty(),
            "{} keys, as (key, of the data, of the row): {:?}",
            wrong.len(),
            &wrong[0..1]
        );
        assert_eq!(wanted.len(), counts.len(), "keys");
    }
}

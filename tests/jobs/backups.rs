//! Jobs whose servers die for good, with real processes: another server goes on in the place of each.

use crate::harness;
use crate::world::until;

use gannet::backups::{Places, RemoteCoordinator};
use gannet::optim::Sgd;
use gannet::runs::RunId;
use gannet::train::INTERCEPT_KEY;
use gannet::transport::Tcp;
use gannet::{Rule, Schema, Worker, WorkerConfig};
use harness::*;
use rustix::process::Signal;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

const LINES: u64 = 60_000;
const PASSES: u64 = 2;
/// At this rate nothing is learned, so the probability stays one half, and each record adds exactly half of it to the
/// weight of each of its keys: the weights count records.
const RATE: f32 = f32::from_bits((127 - 100) << 23);

/// A coordinator, servers that are backups of each other, and data.
struct Cluster {
    _folder: tempfile::TempDir,
    data: PathBuf,
    coordinator: Served,
    hosts: Vec<String>,
    servers: Vec<Option<Served>>,
    /// Flags of all processes.
    flags: String,
}

impl Cluster {
    fn new(servers: usize, backups: u32) -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let data = clicks(&folder.path().join("train.svm"), LINES, 1);
        // All labels are positive: the weights count.
        let text = std::fs::read_to_string(&data).unwrap();
        let positive: Vec<String> =
            text.lines().map(|line| format!("1 {}\n", line.split_once(' ').unwrap().1)).collect();
        std::fs::write(&data, positive.concat()).unwrap();
        let coordinator = Served::start(gannet("scheduler --listen 127.0.0.1:0"));
        let mut hosts: Vec<String> = (0..servers).map(|_| free_addr()).collect();
        hosts.sort();
        let flags = format!(
            "--ps-hosts {} --worker-hosts a:1,b:1 --backups {backups} --coordinator {}",
            hosts.join(","),
            coordinator.addr
        );
        let mut cluster = Cluster { _folder: folder, data, coordinator, hosts, servers: Vec::new(), flags };
        (0..servers).for_each(|at| {
            let served = cluster.server(at);
            cluster.servers.push(Some(served));
        });
        cluster
    }

    fn server(&self, at: usize) -> Served {
        let flags = &self.flags;
        Served::start(gannet(&format!("train --job-name ps --task-index {at} --lease 1 --threads 2 {flags}")))
    }

    fn kill(&mut self, at: usize) {
        self.servers[at].take().unwrap().kill();
    }

    fn worker(&self, index: u32, sync: &str) -> Process {
        let (data, flags) = (self.data.display(), &self.flags);
        Process::start(gannet(&format!(
            "train {data} --job-name worker --task-index {index} {flags} --json --batch 64 --epochs {PASSES} --tasks on \
             --task-bytes 64KiB --peer-timeout 30 --sync {sync} --optimizer sgd --push gradient --reduce sum \
             --alpha {RATE:e} --damping off"
        )))
    }

    fn status(&self) -> serde_json::Value {
        let (hosts, coordinator) = (self.hosts.join(","), &self.coordinator.addr);
        run(&format!("status --ps-hosts {hosts} --coordinator {coordinator} --peer-timeout 5 --json")).json()
    }

    fn until_done(&self, tasks: u64) {
        until("tasks", || self.status()["job"]["tasks_done"].as_u64().is_some_and(|done| done >= tasks));
    }

    /// The server that has a place.
    fn owner(&self, place: usize) -> usize {
        let owner = self.status()["places"][place]["owner"].as_str().unwrap().to_owned();
        self.hosts.iter().position(|host| *host == owner).unwrap()
    }

    /// Waits until each place has this many backups, and an owner that serves.
    fn until_backed(&self, least: usize) {
        until("backups", || {
            let status = self.status();
            let places = status["places"].as_array().unwrap();
            places.len() == self.hosts.len()
                && places.iter().all(|place| {
                    place["state"] == "serves" && place["backups"].as_array().unwrap().len() >= least
                })
        });
    }

    /// For each key, how many records of all passes its row has counted.
    fn counts(&self) -> HashMap<u64, u64> {
        let coordinator = Arc::new(RemoteCoordinator::new(Tcp::new(), &self.coordinator.addr, None));
        let config = WorkerConfig {
            places: Some(Places { coordinator, job: "default".into() }),
            run: Some(RunId { name: "default".into(), generation: 1, rows_since: 1, birth: 0 }),
            ..WorkerConfig::reader(&self.hosts)
        };
        let mut worker = Worker::connect(Tcp::new(), config).unwrap();
        let table = worker.open_table(&Schema::scalar("lr", Rule::Sgd(Sgd { lr: RATE }))).unwrap();
        let mut counts = HashMap::new();
        let page = |keys: &[u64], rows: &[f32]| {
            counts.extend(keys.iter().copied().zip(rows.iter().map(|row| (row / RATE * 2.0) as u64)));
        };
        worker.scan(table, page).unwrap();
        counts
    }

    /// Checks that every record was trained once a pass, by the scheduler's count and by the rows.
    fn check(&self) {
        let job = self.status()["job"].clone();
        assert_eq!(job["tasks_done"], job["tasks"], "{job}");
        assert_eq!(job["examples"], PASSES * LINES, "{job}");
        let mut wanted: HashMap<u64, u64> = HashMap::from([(INTERCEPT_KEY, PASSES * LINES)]);
        for line in std::fs::read_to_string(&self.data).unwrap().lines() {
            for feature in line.split_whitespace().skip(1) {
                let key = feature.split(':').next().unwrap().parse().unwrap();
                *wanted.entry(key).or_default() += PASSES;
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

fn two_of_three_servers_die_for_good(sync: &str) {
    let mut cluster = Cluster::new(3, 2);
    cluster.until_backed(0);
    let workers = [cluster.worker(0, sync), cluster.worker(1, sync)];
    cluster.until_done(4);
    cluster.until_backed(2);
    // This one is the scheduler, too.
    cluster.kill(0);
    cluster.until_done(12);
    cluster.until_backed(1);
    let scheduler = cluster.owner(0);
    cluster.kill(scheduler);
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    cluster.check();
}

#[test]
fn two_of_three_servers_die_for_good_and_every_record_counts_once() {
    two_of_three_servers_die_for_good("asp");
}

#[test]
fn so_it_is_within_a_bound() {
    two_of_three_servers_die_for_good("ssp:4");
}

#[test]
fn so_it_is_in_synchronous_steps() {
    two_of_three_servers_die_for_good("bsp");
}

#[test]
fn a_server_that_comes_back_is_a_backup_and_takes_the_place_of_the_next_that_dies() {
    let mut cluster = Cluster::new(2, 1);
    cluster.until_backed(0);
    let workers = [cluster.worker(0, "asp"), cluster.worker(1, "asp")];
    cluster.until_done(2);
    cluster.until_backed(1);
    for victim in [0, 1, 0] {
        cluster.kill(victim);
        cluster.servers[victim] = Some(cluster.server(victim));
        cluster.until_backed(1);
        assert_eq!((cluster.owner(0), cluster.owner(1)), (1 - victim, 1 - victim));
    }
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    cluster.check();
}

#[test]
fn a_server_that_slept_longer_than_its_lease_ends_by_itself() {
    let mut cluster = Cluster::new(2, 1);
    cluster.until_backed(0);
    let workers = [cluster.worker(0, "asp"), cluster.worker(1, "asp")];
    cluster.until_done(2);
    cluster.until_backed(1);
    let asleep = cluster.servers[0].take().unwrap();
    asleep.child.signal(Signal::STOP);
    until("the place is taken", || cluster.owner(0) == 1);
    asleep.child.signal(Signal::CONT);
    let mut asleep = asleep;
    assert_eq!(asleep.child.ended().code(), Some(1), "it has lost its place");
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    cluster.check();
}

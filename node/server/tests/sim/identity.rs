//! A server's folder records which table it has, and which of how many servers made it. A job that opens it
//! with other hosts is either refused by name or served correctly. Each test was written against code on which
//! it failed.

use crate::model;

use gannet_core::{Read, Schema, Store, Write};
use gannet_server::{Server, ServerConfig};
use gannet_sim::{Faults, Sim};
use gannet_transport::tcp::Tcp;
use gannet_wire::{Activity, JobPlan, PlanFile, Progress, SplitGrant};
use gannet_worker::{JobClient, TableId, Worker, WorkerConfig, WorkerError};
use model::{schema, start};
use std::sync::Barrier;

const KEYS: std::ops::Range<u64> = 0..2000;

/// Servers that are stopped and restarted, each with its own folder or in memory.
struct Cluster {
    sim: Sim,
    folders: Vec<Option<tempfile::TempDir>>,
    /// The actor, if it runs, and the address.
    servers: Vec<(Option<u64>, String)>,
}

impl Cluster {
    fn new(seed: u64, durable: &[bool]) -> Cluster {
        let folder = |durable: &bool| durable.then(crate::folder_in_memory);
        let folders: Vec<_> = durable.iter().map(folder).collect();
        let sim = Sim::new(seed, Faults::none());
        let mut cluster = Cluster { sim, servers: Vec::new(), folders };
        for server in 0..durable.len() {
            cluster.servers.push((None, "sim:0".into()));
            cluster.start(server, 2);
        }
        cluster
    }

    fn start(&mut self, server: usize, threads: usize) {
        let store = match &self.folders[server] {
            Some(folder) => Store::open_dir(folder.path()).unwrap(),
            None => Store::memory(),
        };
        let addr = self.servers[server].1.clone();
        let (actor, addr) = start(&self.sim, &addr, &store, threads);
        self.servers[server] = (Some(actor), addr);
    }

    /// Kills a server.
    fn kill(&mut self, server: usize) {
        if let Some(actor) = self.servers[server].0.take() {
            self.sim.remove_actor(actor);
            self.sim.reset_all(&self.servers[server].1);
        }
    }

    fn restart_all(&mut self, threads: usize) {
        for server in 0..self.servers.len() {
            self.kill(server);
            self.start(server, threads);
        }
    }

    fn path(&self, server: usize) -> &std::path::Path {
        self.folders[server].as_ref().unwrap().path()
    }

    fn addr(&self, server: usize) -> &str {
        &self.servers[server].1
    }

    /// A worker of these servers, in this order.
    fn worker(&self, hosts: &[usize], incarnation: u64) -> Worker<Sim> {
        let hosts: Vec<_> = hosts.iter().map(|&host| self.servers[host].1.clone()).collect();
        Worker::connect(self.sim.clone(), WorkerConfig::new(hosts, 1, incarnation)).unwrap()
    }

    /// Returns why the table cannot be opened.
    fn refused(&self, hosts: &[usize], schema: &Schema) -> String {
        match self.worker(hosts, 9).open_table(schema) {
            Ok(_) => panic!("the table was opened"),
            Err(error) => error.to_string(),
        }
    }
}

/// Adds each key to its row.
fn add(worker: &mut Worker<Sim>, table: TableId) -> Result<(), WorkerError> {
    let (keys, values): (Vec<u64>, Vec<f32>) = KEYS.map(|key| (key, key as f32)).unzip();
    worker.push(table, &keys, Write::Gradient, &values).map(|_| ())
}

/// Counts the rows that differ from `times` calls of [`add`].
fn wrong(worker: &mut Worker<Sim>, table: TableId, times: f32) -> usize {
    let keys: Vec<u64> = KEYS.collect();
    let mut out = vec![0.0; keys.len()];
    worker.pull(table, &keys, Read::Weights, &mut out).unwrap();
    keys.iter().zip(&out).filter(|&(&key, &value)| value != key as f32 * times).count()
}

/// Opens the table and pushes once.
fn fill(cluster: &Cluster, hosts: &[usize], schema: &Schema) {
    let mut worker = cluster.worker(hosts, 1);
    let table = worker.open_table(schema).unwrap();
    add(&mut worker, table).unwrap();
}

#[test]
fn hosts_in_another_order_read_every_row_as_initial() {
    let t = schema("t", 1, 16);
    for (seed, order) in [[0, 2, 1], [2, 1, 0], [1, 2, 0]].into_iter().enumerate() {
        let mut cluster = Cluster::new(seed as u64, &[true; 3]);
        fill(&cluster, &[0, 1, 2], &t);
        for (incarnation, threads) in [(2, 2), (3, 1), (4, 3)] {
            cluster.restart_all(threads);
            let mut worker = cluster.worker(&order, incarnation);
            let table = worker.open_table(&t).unwrap();
            assert_eq!(
                wrong(&mut worker, table, (incarnation - 1) as f32),
                0,
                "hosts {order:?}, incarnation {incarnation}"
            );
            add(&mut worker, table).unwrap();
        }
    }
}

#[test]
fn a_table_that_is_open_in_memory_is_refused_to_a_job_with_another_order_of_hosts() {
    let t = schema("t", 1, 16);
    let cluster = Cluster::new(1, &[false; 2]);
    fill(&cluster, &[0, 1], &t);
    let mut worker = cluster.worker(&[1, 0], 2);
    let table = worker.open_table(&t).unwrap();
    assert_eq!(wrong(&mut worker, table, 1.0), 0);
}

#[test]
fn another_number_of_servers_on_the_same_folders_reads_rows_as_initial() {
    let t = schema("t", 1, 16);
    let mut cluster = Cluster::new(1, &[true; 3]);
    fill(&cluster, &[0, 1], &t);
    cluster.restart_all(2);
    for hosts in [&[0][..], &[1], &[0, 1, 2], &[2, 1, 0]] {
        let error = cluster.refused(hosts, &t);
        let (made, hosts_in_words) = ("made by 2 servers".to_owned(), format!("{} are given", hosts.len()));
        assert!(error.contains(&made) && error.contains(&hosts_in_words), "{hosts:?}: {error}");
    }
    let mut worker = cluster.worker(&[1, 0], 2);
    let table = worker.open_table(&t).unwrap();
    assert_eq!(wrong(&mut worker, table, 1.0), 0);
}

/// Removes a table, and the list of tables, which would name the loss when the server starts.
fn lose(folder: &std::path::Path, table: &str) {
    std::fs::remove_dir_all(folder.join(table)).unwrap();
    std::fs::remove_file(folder.join("TABLES")).unwrap();
}

#[test]
fn the_next_incarnation_did_not_notice_an_emptied_folder() {
    let t = schema("t", 1, 16);
    let mut cluster = Cluster::new(1, &[true; 2]);
    fill(&cluster, &[0, 1], &t);
    cluster.kill(1);
    lose(cluster.path(1), "t");
    cluster.restart_all(2);
    for hosts in [[0, 1], [1, 0]] {
        let error = cluster.refused(&hosts, &t);
        let says = |text: &str| error.contains(text);
        assert!(says(cluster.addr(1)) && says("shards 8 to 15") && says("gone"), "{error}");
    }
}

#[test]
fn a_second_life_of_a_memory_server_is_not_noticed_by_a_restarted_worker() {
    let t = schema("t", 1, 16);
    let mut cluster = Cluster::new(1, &[true, false]);
    fill(&cluster, &[0, 1], &t);
    cluster.kill(1);
    cluster.start(1, 2);
    let error = cluster.refused(&[0, 1], &t);
    let says = |text: &str| error.contains(text);
    assert!(says(cluster.addr(1)) && says("shards 8 to 15") && says("gone"), "{error}");
}

/// A worker that has only pulled gets an error too: the rows that it read belonged to an incarnation that has ended.
#[test]
fn a_worker_that_has_pushed_nothing_goes_on_with_a_memory_servers_second_life() {
    let t = schema("t", 1, 16);
    let mut cluster = Cluster::new(1, &[true, false]);
    fill(&cluster, &[0, 1], &t);
    let mut reader = cluster.worker(&[1, 0], 2);
    let table = reader.open_table(&t).unwrap();
    assert_eq!(wrong(&mut reader, table, 1.0), 0);
    cluster.kill(1);
    cluster.start(1, 2);
    let keys: Vec<u64> = KEYS.collect();
    let error = reader.pull(table, &keys, Read::Weights, &mut vec![0.0; keys.len()]).unwrap_err();
    let WorkerError::Forgot { peer, table, .. } = &error else { panic!("{error}") };
    assert!(peer.contains(cluster.addr(1)) && table == "t", "{error}");
}

#[test]
fn a_deleted_image_file_is_made_anew_without_a_word() {
    let t = schema("t", 1, 16);
    let mut cluster = Cluster::new(1, &[true; 2]);
    fill(&cluster, &[0, 1], &t);
    cluster.kill(0);
    std::fs::remove_file(cluster.path(0).join("t/shard-0003.image")).unwrap();
    cluster.start(0, 2);
    let error = cluster.refused(&[0, 1], &t);
    assert!(error.contains("shard-0003.image") && error.contains("gone"), "{error}");
}

#[test]
fn folders_of_two_runs_side_by_side_are_taken_for_one_table() {
    let t = schema("t", 1, 16);
    let mut cluster = Cluster::new(1, &[true; 4]);
    fill(&cluster, &[0, 1], &t);
    fill(&cluster, &[2, 3], &t);
    cluster.restart_all(1);
    let error = cluster.refused(&[0, 3], &t);
    let says = |text: &str| error.contains(text);
    assert!(says(cluster.addr(0)) && says(cluster.addr(3)) && says("two tables"), "{error}");
    // One server's image in another server's folder.
    (0..4).for_each(|server| cluster.kill(server));
    let image = "t/shard-0002.image";
    std::fs::copy(cluster.path(2).join(image), cluster.path(0).join(image)).unwrap();
    (0..2).for_each(|server| cluster.start(server, 1));
    let error = cluster.refused(&[0, 1], &t);
    assert!(error.contains("shard-0002.image") && error.contains("another table"), "{error}");
}

#[test]
fn folders_of_two_tables_that_are_swapped_are_refused_by_name() {
    let (wide, deep) = (schema("wide", 1, 8), schema("deep", 1, 8));
    let mut cluster = Cluster::new(1, &[true; 2]);
    for table in [&wide, &deep] {
        fill(&cluster, &[0, 1], table);
    }
    cluster.kill(1);
    let at = |name: &str| cluster.path(1).join(name);
    std::fs::rename(at("wide"), at("other")).unwrap();
    std::fs::rename(at("deep"), at("wide")).unwrap();
    std::fs::rename(at("other"), at("deep")).unwrap();
    cluster.start(1, 2);
    for (table, holds) in [(&wide, "deep"), (&deep, "wide")] {
        let error = cluster.refused(&[0, 1], table);
        assert!(error.contains(&format!("its name is {holds:?}")), "{error}");
    }
}

/// More servers than shards: servers without a shard have no image, and none is missed.
#[test]
fn servers_without_a_shard_are_not_missed() {
    let t = schema("t", 1, 2);
    let mut cluster = Cluster::new(1, &[true, true, false]);
    fill(&cluster, &[2, 0, 1], &t);
    for (incarnation, hosts) in [(2, [0, 1, 2]), (3, [1, 2, 0])] {
        cluster.restart_all(3);
        let mut worker = cluster.worker(&hosts, incarnation);
        let table = worker.open_table(&t).unwrap();
        assert_eq!(wrong(&mut worker, table, 1.0), 0, "{hosts:?}");
    }
}

/// Workers that open a new table at the same time must make a single table, even if they list the servers in
/// different orders.
#[test]
fn workers_that_open_a_fresh_table_at_once_make_two_of_it() {
    for round in 0..12 {
        let start =
            || Server::start(Tcp::new(), ServerConfig { threads: 2, ..ServerConfig::new("127.0.0.1:0") });
        let servers: Vec<_> = (0..3).map(|_| start().unwrap()).collect();
        let addrs: Vec<String> = servers.iter().map(|server| server.addr().to_owned()).collect();
        let (ready, t) = (Barrier::new(4), schema("t", 1, 16));
        std::thread::scope(|scope| {
            for pusher in 1..=4 {
                let (addrs, ready, t) = (&addrs, &ready, &t);
                scope.spawn(move || {
                    let mut hosts = addrs.clone();
                    hosts.rotate_left(if round % 2 == 0 { 0 } else { pusher as usize % 3 });
                    let config = WorkerConfig::new(hosts, pusher, 1);
                    let mut worker = Worker::connect(Tcp::new(), config).unwrap();
                    ready.wait();
                    let table = worker.open_table(t).unwrap();
                    let (keys, values): (Vec<u64>, Vec<f32>) = KEYS.map(|key| (key, key as f32)).unzip();
                    worker.push(table, &keys, Write::Gradient, &values).unwrap();
                });
            }
        });
        let mut worker = Worker::connect(Tcp::new(), WorkerConfig::new(addrs, 9, 1)).unwrap();
        let table = worker.open_table(&t).unwrap();
        let keys: Vec<u64> = KEYS.collect();
        let mut out = vec![0.0; keys.len()];
        worker.pull(table, &keys, Read::Weights, &mut out).unwrap();
        let wrong = keys.iter().zip(&out).filter(|&(&key, &value)| value != 4.0 * key as f32).count();
        assert_eq!(wrong, 0, "round {round}");
    }
}

/// Members of a job whose scheduler has its own folder.
fn join(cluster: &Cluster, scheduler: &str, rank: u32, incarnation: u64) -> JobClient<Sim> {
    let file = PlanFile { name: "part".into(), bytes: 1000, print: 1, whole: false };
    let (files, settings) = (vec![file], Vec::new());
    let plan = JobPlan {
        workers: 2,
        files,
        task_bytes: 100,
        batch: 8,
        epochs: 1,
        worker_timeout_ms: 2000,
        settings,
    };
    let config = WorkerConfig::new([scheduler], u64::from(rank) + 1, incarnation);
    JobClient::join(cluster.sim.clone(), config, rank, plan).unwrap()
}

#[test]
fn the_schedulers_file_continued_with_tables_that_were_made_again() {
    let (wide, deep) = (schema("wide", 1, 8), schema("deep", 1, 8));
    let mut cluster = Cluster::new(1, &[true, true, true]);
    let mut client = join(&cluster, cluster.addr(2), 0, 1);
    let mut worker = cluster.worker(&[0, 1], 1);
    for t in [&wide, &deep] {
        let table = worker.open_table(t).unwrap();
        // Recording a table twice has the same effect as once.
        (0..2).for_each(|_| client.note_table(worker.table_record(table)).unwrap());
    }
    assert!(matches!(client.take(&[]).unwrap(), SplitGrant::Task { .. }));
    drop((client, worker));
    // A server loses the rows of one of two tables, and no worker that used them is connected.
    for server in 0..3 {
        cluster.kill(server);
    }
    (0..2).for_each(|server| lose(cluster.path(server), "deep"));
    (0..3).for_each(|server| cluster.start(server, 1));
    let mut other = join(&cluster, cluster.addr(2), 1, 1);
    let mut client = join(&cluster, cluster.addr(2), 0, 2);
    let mut worker = cluster.worker(&[1, 0], 2);
    let table = worker.open_table(&wide).unwrap();
    client.note_table(worker.table_record(table)).unwrap();
    let table = worker.open_table(&deep).unwrap();
    let error = client.note_table(worker.table_record(table)).unwrap_err().to_string();
    let gone = |at: usize, shards: &str| format!("{shards} of table \"deep\" that {} held", cluster.addr(at));
    assert!(
        error.contains(&gone(0, "shards 0 to 3")) && error.contains(&gone(1, "shards 4 to 7")),
        "{error}"
    );
    // All members learn of it, also from the scheduler's next incarnation.
    let failed = |client: &mut JobClient<Sim>| {
        client.report(Progress::default(), Activity::default()).unwrap().failed.unwrap()
    };
    assert!(error.contains(&failed(&mut other)));
    cluster.kill(2);
    cluster.start(2, 1);
    assert!(error.contains(&failed(&mut other)));
    // Another job begins on these tables: it has nothing to lose.
    client.leave().unwrap();
    other.leave().unwrap();
    let mut next = join(&cluster, cluster.addr(2), 0, 3);
    next.note_table(worker.table_record(table)).unwrap();
    assert_eq!(next.report(Progress::default(), Activity::default()).unwrap().failed, None);
}

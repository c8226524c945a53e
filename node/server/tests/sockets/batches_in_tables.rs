//! Cuts of models of several tables: a batch, which pushes to all of them under one name, is in a cut in all tables or
//! in none.

use gannet_core::{CheckpointDir, DATA_PUSHERS, JobManifest, Schema, Store, Write};
use gannet_optim::{Add, Rule};
use gannet_server::{Server, ServerConfig};
use gannet_transport::multi::Transports;
use gannet_wire::{JobPlan, Merge, PlanFile, SplitGrant, StepReduce, SyncConfig, SyncMode};
use gannet_worker::{CheckpointOptions, DataName, JobClient, Worker, WorkerConfig, save_checkpoint};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Barrier};
use std::time::Duration;

const TABLES: [&str; 3] = ["wide", "deep.1", "deep.2"];
const WORKERS: u32 = 2;

fn servers(folder: &Path, threads: [usize; 2]) -> Vec<Server> {
    let server = |threads| {
        let config = ServerConfig {
            threads,
            checkpoints: Some(CheckpointDir::open(folder).unwrap()),
            ..ServerConfig::new("127.0.0.1:0")
        };
        Server::start(Transports::new(), config).unwrap()
    };
    threads.map(server).into()
}

fn config(servers: &[Server], worker: u64, incarnation: u64) -> WorkerConfig {
    WorkerConfig::new(servers.iter().map(|server| server.addr().to_owned()), worker, incarnation)
}

/// Stops the workers at the end of the test, also when it fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Pushes batches to all tables, each under its worker's share of the data, until `stop`.
fn train(config: WorkerConfig, rank: u32, mode: Option<SyncMode>, ready: &Barrier, stop: &AtomicBool) {
    let mut worker = Worker::connect(Transports::new(), config).unwrap();
    let schema = |name| Schema { shards: 8, ..Schema::scalar(name, Rule::Add(Add)) };
    let tables = TABLES.map(|name| worker.open_table(&schema(name)).unwrap());
    // Tables of different sizes: their pushes take different times, and some threads have no row of the small ones.
    let keys = [2000u64, 300, 2].map(|keys| (0..keys).map(|i| u64::from(rank) << 32 | i).collect::<Vec<_>>());
    let cuts = [0, 1, 2].map(|i| Arc::new(worker.cut(tables[i], &keys[i])));
    if let Some(mode) = mode {
        let worker_timeout = Duration::from_secs(60);
        let member = SyncConfig { rank, workers: WORKERS, mode, worker_timeout, strict: false };
        worker.join_all(&tables, member).unwrap();
    }
    ready.wait();
    let mut batch = 0;
    while !stop.load(Relaxed) {
        batch += 1;
        for (table, cut) in tables.into_iter().zip(&cuts) {
            let name =
                DataName { pusher: DATA_PUSHERS + u64::from(rank), incarnation: 7, seq: batch, clock: batch };
            let (ones, seq) = (vec![1.0; cut.keys().len()], worker.next_seq(table));
            worker
                .begin_push_named(table, cut.clone(), Write::Gradient, ones, None, (seq, Some(name)))
                .unwrap();
            if mode.is_some() {
                worker.tick(table).unwrap();
            }
            if batch % 3 == 0 {
                std::thread::sleep(Duration::from_millis(2)); // so that freezes fall between two tables
            }
        }
        if batch % 4 == 0 || mode.is_some() {
            worker.drain().unwrap();
        }
    }
    if mode.is_some() {
        tables.into_iter().for_each(|table| worker.leave(table).unwrap());
    }
}

/// Checks that all tables of a checkpoint have the same batches. Returns how many.
fn batches(directory: &CheckpointDir, manifest: &JobManifest) -> u64 {
    let mut sum = 0;
    for rank in 0..u64::from(WORKERS) {
        let of = |table| {
            let cursors = &manifest.table(table).unwrap().1.cursors;
            cursors.iter().find(|cursor| cursor.pusher == DATA_PUSHERS + rank).map_or(0, |cursor| cursor.seq)
        };
        let all = TABLES.map(of);
        assert!(all.iter().all(|&seq| seq == all[0]), "checkpoint {}: {all:?}", manifest.number);
        let chain = directory.chain(manifest.number).unwrap();
        for table in TABLES {
            for shard in 0..8 {
                let check = |keys: &[u64], rows: &[f32]| {
                    let own = |&(key, _): &(&u64, &f32)| key >> 32 == rank;
                    for (key, row) in keys.iter().zip(rows).filter(own) {
                        assert_eq!(*row, all[0] as f32, "key {key:x} of table {table}");
                    }
                };
                directory.shard_rows(&chain, table, shard, check).unwrap();
            }
        }
        sum += all[0];
    }
    sum
}

fn cuts_hold_batches_in_all_tables(mode: Option<SyncMode>) {
    let folder = tempfile::tempdir().unwrap();
    let servers = servers(folder.path(), [2, 3]);
    let directory = CheckpointDir::open(folder.path()).unwrap();
    let (stop, ready) = (AtomicBool::new(false), Barrier::new(WORKERS as usize + 1));
    std::thread::scope(|scope| {
        let _stopped = Stop(&stop);
        for rank in 0..WORKERS {
            let (config, stop, ready) = (config(&servers, u64::from(rank), 1), &stop, &ready);
            scope.spawn(move || train(config, rank, mode, ready, stop));
        }
        ready.wait();
        let mut before = 0;
        for round in 0..10 {
            std::thread::sleep(Duration::from_millis(15));
            // The later saves learn from the earlier checkpoint which tables belong together.
            let batch_tables = if round == 0 { TABLES.map(str::to_owned).into() } else { Vec::new() };
            let options = CheckpointOptions {
                increment: round % 4 != 0,
                batch_tables,
                tries: 20,
                ..Default::default()
            };
            let saved =
                save_checkpoint(Transports::new(), &config(&servers, 9, 0), &directory, &options).unwrap();
            let now = batches(&directory, &saved.manifest);
            assert!(now >= before, "a later cut has fewer batches");
            before = now;
        }
        assert!(before > 0);
    });
}

#[test]
fn a_cut_has_a_batch_in_all_tables_or_in_none() {
    cuts_hold_batches_in_all_tables(None);
}

#[test]
fn a_cut_of_synchronous_steps_has_a_batch_in_all_tables_or_in_none() {
    let step = StepReduce { aggregate: WORKERS, merge: Merge::Sum };
    cuts_hold_batches_in_all_tables(Some(SyncMode::Bsp(step)));
}

/// A worker died when it had closed the data of a done split on some threads. Nobody closed it on the others, and no
/// checkpoint was saved any more.
#[test]
fn a_worker_that_dies_while_it_closes_a_done_split_stops_no_checkpoint() {
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let directory = CheckpointDir::open(folder.path()).unwrap();
    let server = |addr: &str, store: Store| {
        let checkpoints = Some(directory.clone());
        let config = ServerConfig { threads: 2, store, checkpoints, ..ServerConfig::new(addr) };
        Server::start(Transports::new(), config).unwrap()
    };
    let first = server("127.0.0.1:0", Store::memory());
    let mut second = Some(server("127.0.0.1:0", Store::open_dir(data.path()).unwrap()));
    let addrs = [first.addr().to_owned(), second.as_ref().unwrap().addr().to_owned()];
    let config = |pusher| WorkerConfig::new(addrs.iter().cloned(), pusher, 1);
    let file = PlanFile { name: "part".into(), bytes: 400, print: 1, whole: false };
    let (workers, task_bytes, batch, epochs, worker_timeout_ms) = (2, 100, 8, 2, 60_000);
    let (files, settings) = (vec![file], Vec::new());
    let plan = JobPlan { workers, files, task_bytes, batch, epochs, worker_timeout_ms, settings };
    let scheduler = WorkerConfig::new([first.addr()], 1, 1);
    let mut job = JobClient::join(Transports::new(), scheduler, 0, plan).unwrap();
    let started = job.joined().started;
    let mut worker = Worker::connect(Transports::new(), config(1)).unwrap();
    let table = worker.open_table(&Schema { shards: 8, ..Schema::scalar("wide", Rule::Add(Add)) }).unwrap();
    let cut = Arc::new(worker.cut(table, &(0..500).collect::<Vec<u64>>()));
    let save = || {
        let options = CheckpointOptions { tries: 2, ..CheckpointOptions::default() };
        save_checkpoint(Transports::new(), &config(9), &directory, &options)
    };
    // Two splits are pushed. A worker closes each on the first server only, because it cannot reach the second. The
    // first split is done. Of the second one nobody has said so.
    for split in 0..2 {
        assert!(matches!(job.take(&[]).unwrap(), SplitGrant::Task { index, .. } if index == split));
        let name = DataName { pusher: DATA_PUSHERS | split, incarnation: started, seq: 1, clock: 1 };
        let named = (worker.next_seq(table), Some(name));
        let push = worker.begin_push_named(table, cut.clone(), Write::Gradient, vec![1.0; 500], None, named);
        worker.finish_push(push.unwrap()).unwrap();
        if split == 0 {
            job.done(0, 8).unwrap();
        }
        let soon = WorkerConfig { peer_timeout: Duration::from_millis(500), ..config(2 + split) };
        let mut dying = Worker::connect(Transports::new(), soon).unwrap();
        let schema = Schema { shards: 8, ..Schema::scalar("wide", Rule::Add(Add)) };
        let part = dying.open_table(&schema).unwrap();
        drop(second.take());
        assert!(dying.close_data(part, DATA_PUSHERS | split, started).is_err());
        second = Some(server(&addrs[1], Store::open_dir(data.path()).unwrap()));
        worker.open_table(&schema).unwrap();
        worker.status(table).unwrap();
        if split == 0 {
            let saved = save().unwrap().manifest;
            let cursors = &saved.table("wide").unwrap().1.cursors;
            assert!(
                cursors.iter().all(|cursor| cursor.pusher != DATA_PUSHERS || cursor.closed),
                "{cursors:?}"
            );
        }
    }
    // Either side may give the cut up first.
    assert!(save().is_err(), "a split that nobody has said to be done was closed");
    job.done(1, 8).unwrap();
    assert_eq!(save().unwrap().manifest.rows(), 500);
}

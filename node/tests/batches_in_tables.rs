//! Cuts of models of several tables: a batch, which pushes to all of them under one name, is in a cut in all tables or
//! in none.

use gannet_core::{CheckpointDir, DATA_PUSHERS, JobManifest, Schema, Write};
use gannet_node::{
    CheckpointOptions, DataName, Merge, Server, ServerConfig, StepReduce, SyncConfig, SyncMode, Worker,
    WorkerConfig, save_checkpoint,
};
use gannet_optim::{Add, Rule};
use gannet_transport::multi::Transports;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
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

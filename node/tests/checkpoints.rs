//! Checkpoints of running servers: every cut holds whole pushes, and the cursor of each pusher tells how many.

use gannet_core::{CheckpointDir, JobManifest, Schema, Write};
use gannet_node::{
    CheckpointOptions, Server, ServerConfig, Worker, WorkerConfig, WorkerError, save_checkpoint,
};
use gannet_optim::{Add, Rule};
use gannet_transport::multi::Transports;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

const SHARDS: u32 = 8;

fn schema(name: &str) -> Schema {
    Schema { shards: SHARDS, ..Schema::scalar(name, Rule::Add(Add)) }
}

fn servers(folder: &Path, threads: [usize; 2]) -> Vec<Server> {
    let server = |threads| {
        let config =
            ServerConfig { threads, checkpoints: Some(folder.into()), ..ServerConfig::new("127.0.0.1:0") };
        Server::start(Transports::new(), config).unwrap()
    };
    threads.map(server).into()
}

fn config(servers: &[Server], worker: u64, incarnation: u64) -> WorkerConfig {
    WorkerConfig::new(servers.iter().map(|server| server.addr().to_owned()), worker, incarnation)
}

/// The keys of a worker: every push of it adds 1 to each.
fn keys(worker: u64) -> Vec<u64> {
    (0..3000).map(|i| worker << 32 | i).collect()
}

/// All rows of a table in a checkpoint.
fn rows(directory: &CheckpointDir, number: u64, table: &str) -> HashMap<u64, Vec<f32>> {
    let (chain, mut all) = (directory.chain(number).unwrap(), HashMap::new());
    let floats = chain[0].table(table).unwrap().1.schema.floats();
    for shard in 0..SHARDS {
        let add = |keys: &[u64], rows: &[f32]| {
            for (&key, row) in keys.iter().zip(rows.chunks(floats)) {
                assert_eq!(all.insert(key, row.to_vec()), None, "key {key} came twice");
            }
        };
        directory.shard_rows(&chain, table, shard, add).unwrap();
    }
    all
}

/// Every key of a worker has the value of its cursor: its pushes have the sequence numbers 1, 2, ...
fn check(directory: &CheckpointDir, manifest: &JobManifest, table: &str, workers: u64) -> u64 {
    let rows = rows(directory, manifest.number, table);
    let cursors = &manifest.table(table).unwrap().1.cursors;
    let mut least = u64::MAX;
    for worker in 0..workers {
        let cursor = cursors.iter().find(|cursor| cursor.pusher == worker);
        let pushes = cursor.map_or(0, |cursor| cursor.seq);
        for key in keys(worker) {
            let value = rows.get(&key).map_or(0.0, |row| row[0]);
            assert_eq!(
                value, pushes as f32,
                "key {key:x} of worker {worker} in checkpoint {}",
                manifest.number
            );
        }
        least = least.min(pushes);
    }
    least
}

/// Stops the workers at the end of the test, also when it fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn every_cut_holds_whole_pushes_while_workers_push() {
    let folder = tempfile::tempdir().unwrap();
    let servers = servers(folder.path(), [2, 3]);
    let directory = CheckpointDir::open(folder.path()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stopped = Stop(&stop);
        for worker in 0..3 {
            let (config, stop) = (config(&servers, worker, 1), &stop);
            scope.spawn(move || {
                let mut worker_link = Worker::connect(Transports::new(), config).unwrap();
                let table = worker_link.open_table(&schema("clicks")).unwrap();
                let cut = Arc::new(worker_link.cut(table, &keys(worker)));
                let mut seq = 0;
                while !stop.load(Relaxed) {
                    // Several pushes are in flight, so that some are under way in every cut.
                    for _ in 0..4 {
                        seq += 1;
                        let (cut, ones) = (cut.clone(), vec![1.0; cut.keys().len()]);
                        worker_link.begin_push(table, cut, Write::Gradient, ones, None, seq).unwrap();
                    }
                    worker_link.drain().unwrap();
                }
            });
        }
        let options = |increment| CheckpointOptions { increment, run: "r".into(), ..Default::default() };
        let mut before = 0;
        for round in 0..12 {
            std::thread::sleep(Duration::from_millis(30));
            let at = config(&servers, 9, 0);
            let saved = save_checkpoint(Transports::new(), &at, &directory, &options(round % 4 != 0));
            let saved = match saved {
                Err(WorkerError::Call(text)) if round == 0 && text.contains("no table") => continue,
                saved => saved.unwrap(),
            };
            let least = check(&directory, &saved.manifest, "clicks", 3);
            assert!(least >= before, "a later cut has fewer pushes");
            before = least;
        }
        assert!(before > 0);
    });
    assert!(directory.newest_valid().unwrap().unwrap().number > 3);
}

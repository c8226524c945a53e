//! Synchronous steps under a memory limit. The pushes that servers hold for steps count towards the limit, over
//! all threads and tables. Steps that fit are applied exactly, whichever pushes wait for space.

use crate::model;

use gannet_core::{GrowthConfig, Read, Schema, Store, Write};
use gannet_server::{Server, ServerConfig};
use gannet_transport::tcp::Tcp;
use gannet_wire::{Buckets, Merge, MetricsSink, Refusal, StepReduce, SyncConfig, SyncMode};
use gannet_worker::{TableId, Worker, WorkerConfig, WorkerError};
use model::schema;
use std::sync::Arc;
use std::time::Duration;

const DIM: u32 = 64;
const LIMIT: u64 = 96 << 20;
/// A quarter of the limit.
const KEPT_MAX: u64 = LIMIT / 4;
/// Bytes of a row as it is pushed.
const ROW_BYTES: u64 = 8 + 4 * DIM as u64;
const WORKERS: u32 = 2;

/// The gauges of the bytes held for steps.
#[derive(Default, Debug, PartialEq)]
struct Kept {
    now: f64,
    most: f64,
}

impl MetricsSink for Kept {
    fn counter(&mut self, _: &'static str, _: &'static str, _: &[(&'static str, &str)], _: f64) {}

    fn gauge(&mut self, name: &'static str, _: &'static str, _: &[(&'static str, &str)], value: f64) {
        match name {
            "gannet_server_kept_bytes" => self.now += value,
            "gannet_server_kept_limit_bytes" => self.most += value,
            _ => {}
        }
    }

    fn histogram(&mut self, _: &'static str, _: &'static str, _: &[(&'static str, &str)], _: &Buckets) {}
}

fn server(store: &Store) -> Server {
    let store = store.clone();
    Server::start(Tcp::new(), ServerConfig { threads: 2, store, ..ServerConfig::new("127.0.0.1:0") }).unwrap()
}

fn limited() -> Store {
    Store::memory_with(GrowthConfig { memory_limit: LIMIT, clock: None })
}

/// A worker that has joined the steps of a table.
fn joined(server: &Server, schema: &Schema, rank: u32) -> (Worker<Tcp>, TableId) {
    let config = WorkerConfig::new([server.addr()], u64::from(rank) + 1, 1);
    let mut worker = Worker::connect(Tcp::new(), config).unwrap();
    let table = worker.open_table(schema).unwrap();
    worker.join_all(&[table], member(rank)).unwrap();
    (worker, table)
}

fn member(rank: u32) -> SyncConfig {
    let mode = SyncMode::Bsp(StepReduce { aggregate: WORKERS, merge: Merge::Sum });
    SyncConfig { rank, workers: WORKERS, mode, worker_timeout: Duration::from_secs(5), strict: false }
}

/// Runs each worker on its own thread, for `steps` steps with `rows` rows in each table. Returns how each ended.
fn train(server: &Server, tables: &[Schema], steps: usize, rows: u64) -> Vec<Result<(), WorkerError>> {
    let worker = |rank: u32| {
        let config = WorkerConfig {
            peer_timeout: Duration::from_secs(20),
            ..WorkerConfig::new([server.addr()], u64::from(rank) + 1, 1)
        };
        let mut worker = Worker::connect(Tcp::new(), config)?;
        let open = |schema: &Schema| worker.open_table(schema);
        let tables = tables.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        worker.join_all(&tables, member(rank))?;
        let keys: Vec<u64> = (0..rows).collect();
        for _ in 0..steps {
            for &table in &tables {
                let cut = Arc::new(worker.cut(table, &keys));
                let (values, seq) = (vec![1.0; keys.len() * DIM as usize], worker.next_seq(table));
                worker.begin_push(table, cut, Write::Gradient, values, None, seq)?;
                worker.tick(table)?;
            }
        }
        worker.drain()?;
        tables.iter().try_for_each(|&table| worker.leave(table))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..WORKERS).map(|rank| scope.spawn(move || worker(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn kept_pushes_took_more_than_the_memory_limit_of_their_server() {
    let server = server(&limited());
    // Each of two threads needs more than the budget for the pushes of both workers.
    let rows = KEPT_MAX / ROW_BYTES * 3 / 2;
    let ended = train(&server, &[schema("t", DIM, 8)], 1, rows);
    let refused = |ended: &&Result<(), WorkerError>| match ended {
        Err(WorkerError::Refused { refusal, text, .. }) => {
            *refusal == Refusal::Limit && text.contains("--memory-limit")
        }
        _ => false,
    };
    assert!(ended.iter().any(|ended| refused(&ended)), "{ended:?}");
}

#[test]
fn steps_that_fit_are_applied_exactly_though_others_wait_for_room() {
    let store = limited();
    let server = server(&store);
    let tables = [schema("a", DIM, 8), schema("b", DIM, 8)];
    // All threads and tables together need more than half of the budget, and each step needs less.
    let (steps, rows) = (6, KEPT_MAX / ROW_BYTES / 5);
    let ended = train(&server, &tables, steps, rows);
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    let mut worker = Worker::connect(Tcp::new(), WorkerConfig::new([server.addr()], 9, 1)).unwrap();
    for schema in &tables {
        let table = worker.open_table(schema).unwrap();
        let keys: Vec<u64> = (0..rows).collect();
        let mut out = vec![0.0; keys.len() * DIM as usize];
        worker.pull(table, &keys, Read::Weights, &mut out).unwrap();
        let sum = (steps as u32 * WORKERS) as f32;
        assert!(out.iter().all(|&value| value == sum), "{} instead of {sum}", out[0]);
    }
    assert!(store.memory_used() >= KEPT_MAX && store.memory_used() <= LIMIT);
    let gauges = || {
        let mut kept = Kept::default();
        server.shared_counters().tell(&mut kept);
        kept
    };
    // Threads report this once a second.
    let start = std::time::Instant::now();
    while gauges() != (Kept { now: 0.0, most: KEPT_MAX as f64 }) {
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", gauges());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Once, pushes stayed in memory after all of their workers had died, and steps of another job found no space.
#[test]
fn pushes_of_workers_that_are_all_gone_are_forgotten() {
    let server = server(&limited());
    let schema = schema("t", DIM, 8);
    let held_bytes = || {
        let mut kept = Kept::default();
        server.shared_counters().tell(&mut kept);
        kept.now
    };
    let until = |what: &str, is: &dyn Fn(f64) -> bool| {
        let start = std::time::Instant::now();
        while !is(held_bytes()) {
            assert!(start.elapsed() < Duration::from_secs(20), "{what}: {}", held_bytes());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let mut workers: Vec<_> = (0..WORKERS).map(|rank| joined(&server, &schema, rank)).collect();
    // The other worker makes no step.
    let (worker, table) = &mut workers[0];
    let keys: Vec<u64> = (0..KEPT_MAX / ROW_BYTES / 4).collect();
    let (cut, seq) = (Arc::new(worker.cut(*table, &keys)), worker.next_seq(*table));
    let values = vec![1.0; keys.len() * DIM as usize];
    worker.begin_push(*table, cut, Write::Gradient, values, None, seq).unwrap();
    worker.tick(*table).unwrap();
    let start = std::time::Instant::now();
    while held_bytes() < (keys.len() as u64 * ROW_BYTES) as f64 {
        assert!(start.elapsed() < Duration::from_secs(20), "not all is kept: {}", held_bytes());
        workers[0].0.poll().unwrap();
    }
    drop(workers.pop());
    drop(workers);
    until("kept for the dead", &|bytes| bytes == 0.0);
}

#[test]
fn a_job_whose_steps_have_no_memory_left_is_refused_by_name() {
    let store = limited();
    let server = server(&store);
    assert!(store.set_aside(LIMIT - KEPT_MAX / 8));
    let ended = train(&server, &[schema("t", DIM, 8)], 1, 10);
    let says = |ended: &Result<(), WorkerError>| {
        ended
            .as_ref()
            .is_err_and(|error| error.to_string().contains("start the server with a larger --memory-limit"))
    };
    assert!(ended.iter().all(says), "{ended:?}");
}

//! Servers hand out increasing numbers for the incarnations of workers. These tests check what is refused, by
//! name, and what happens when a server in memory loses its counter.

use crate::model;

use gannet_core::{Read, Store, Write};
use gannet_server::{LocalServer, ServerConfig};
use gannet_sim::{Faults, Sim};
use gannet_transport::Net;
use gannet_wire::{JobPlan, Merge, PlanFile, Refusal, StepReduce, SyncConfig, SyncMode};
use gannet_worker::{JobClient, Worker, WorkerConfig, WorkerError};
use model::{schema, start};
use std::time::Duration;

fn allocate(sim: &Sim, servers: &[&str]) -> Result<u64, WorkerError> {
    Worker::allocate_incarnation(sim.clone(), &WorkerConfig::reader(servers.iter().copied()))
}

/// Pushes 1 to a key in this incarnation.
fn push(sim: &Sim, addr: &str, pusher: u64, incarnation: u64) -> Result<f32, WorkerError> {
    let mut worker = Worker::connect(sim.clone(), WorkerConfig::new([addr], pusher, incarnation))?;
    let table = worker.open_table(&schema("t", 1, 4))?;
    worker.push(table, &[7], Write::Gradient, &[1.0])?;
    let mut out = [0.0];
    worker.pull(table, &[7], Read::Weights, &mut out)?;
    Ok(out[0])
}

fn refusal<T>(result: Result<T, WorkerError>) -> (Refusal, String) {
    match result {
        Err(WorkerError::Refused { refusal, text, .. }) => (refusal, text),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was not refused"),
    }
}

/// Once, a worker's incarnation came from its clock. A worker that restarted after its clock had gone back was
/// refused, because a newer incarnation of it was known. Now the server hands out a number above all earlier
/// ones.
#[test]
fn a_worker_was_locked_out_when_its_clock_had_gone_back() {
    let folder = crate::folder_in_memory();
    for store in [Store::memory(), Store::open_dir(folder.path()).unwrap()] {
        let sim = Sim::new(1, Faults::none());
        let (_, addr) = start(&sim, "sim:0", &store, 2);
        let (by_time, an_hour_before) = (1_795_318_731_182_531_430, 1_795_315_131_182_531_430);
        assert_eq!(push(&sim, &addr, 1, by_time).unwrap(), 1.0);
        let (refused, text) = refusal(push(&sim, &addr, 1, an_hour_before));
        assert!(
            refused == Refusal::Fenced && text.contains("a newer incarnation of this worker is there"),
            "{text}"
        );
        let handed_out = allocate(&sim, &[&addr]).unwrap();
        assert_eq!(handed_out, by_time + 1);
        assert_eq!(push(&sim, &addr, 1, handed_out).unwrap(), 2.0);
    }
}

#[test]
fn a_session_without_an_incarnation_reads_and_may_not_push() {
    let sim = Sim::new(2, Faults::none());
    let (_, addr) = start(&sim, "sim:0", &Store::memory(), 2);
    push(&sim, &addr, 1, 1).unwrap();
    let mut reader = Worker::connect(sim.clone(), WorkerConfig::reader([&addr])).unwrap();
    let table = reader.open_table(&schema("t", 1, 4)).unwrap();
    let mut out = [0.0];
    reader.pull(table, &[7], Read::Weights, &mut out).unwrap();
    assert_eq!((out, reader.status(table).unwrap().pushers.len()), ([1.0], 1));
    let sync = StepReduce { aggregate: 2, merge: Merge::Sum };
    let member = SyncConfig {
        rank: 0,
        workers: 2,
        mode: SyncMode::Bsp(sync),
        worker_timeout: Duration::from_secs(9),
        strict: false,
    };
    let refused =
        [refusal(reader.push(table, &[7], Write::Gradient, &[1.0])), refusal(reader.join(table, member))];
    for (refused, text) in refused {
        assert!(refused == Refusal::Name && text.contains("no incarnation"), "{text}");
    }
    let mut reader = Worker::connect(sim.clone(), WorkerConfig::reader([&addr])).unwrap();
    let table = reader.open_table(&schema("t", 1, 4)).unwrap();
    let (refused, text) = refusal(reader.close_pusher(table));
    assert!(refused == Refusal::Name && text.contains("no incarnation"), "{text}");
    let mut reader = Worker::connect(sim.clone(), WorkerConfig::reader([&addr])).unwrap();
    let table = reader.open_table(&schema("t", 1, 4)).unwrap();
    reader.pull(table, &[7], Read::Weights, &mut out).unwrap();
    assert_eq!(out, [1.0], "what was refused changed a row");
}

/// When a server in memory restarts, its counter is lost. The other servers still have theirs.
#[test]
fn a_server_that_has_forgotten_its_counter_hands_out_no_lower_number() {
    let sim = Sim::new(3, Faults::none());
    let (first, a) = start(&sim, "sim:0", &Store::memory(), 1);
    let (_, b) = start(&sim, "sim:0", &Store::memory(), 2);
    for number in 1..=5 {
        assert_eq!(allocate(&sim, &[&a, &b]).unwrap(), number);
    }
    push(&sim, &b, 3, 5).unwrap();
    sim.remove_actor(first);
    sim.reset_all(&a);
    start(&sim, &a, &Store::memory(), 1);
    assert_eq!(allocate(&sim, &[&a, &b]).unwrap(), 6);
    // The same if another server is listed first.
    assert_eq!(allocate(&sim, &[&b, &a]).unwrap(), 7);
}

fn plan(file: &str) -> JobPlan {
    let print = u64::from(file.as_bytes()[0]);
    let file = PlanFile { name: file.into(), bytes: 100, print, whole: false };
    let (settings, worker_timeout_ms) = (Vec::new(), 2_000);
    JobPlan {
        workers: 2,
        files: vec![file],
        task_bytes: 100,
        batch: 8,
        epochs: 1,
        worker_timeout_ms,
        settings,
    }
}

fn join(
    sim: &Sim,
    addr: &str,
    rank: u32,
    incarnation: u64,
    file: &str,
) -> Result<JobClient<Sim>, WorkerError> {
    let config = WorkerConfig::new([addr], u64::from(rank) + 1, incarnation);
    JobClient::join(sim.clone(), config, rank, plan(file))
}

/// Once, a job was named by the time of its scheduler's host. Now it is named by the incarnation that begins
/// it, and the next job gets a larger number, even if the scheduler's clock goes back.
#[test]
fn a_job_was_named_by_the_clock_of_its_scheduler() {
    let folder = crate::folder_in_memory();
    let store = Store::open_dir(folder.path()).unwrap();
    let sim = Sim::new(4, Faults::none());
    let (_, tables) = start(&sim, "sim:0", &Store::memory(), 1);
    let scheduler = |sim: &Sim, addr: &str| {
        let config = ServerConfig {
            threads: 1,
            store: store.clone(),
            scheduler_only: true,
            ..ServerConfig::new(addr)
        };
        let mut server = LocalServer::new(sim.clone(), config).unwrap();
        let addr = server.addr().to_owned();
        (sim.add_actor(move || server.run().unwrap()), addr)
    };
    let (actor, addr) = scheduler(&sim.ahead(Duration::from_secs(7_200)), "sim:0");
    let (refused, text) = refusal(join(&sim, &addr, 0, 0, "a"));
    assert!(refused == Refusal::Name && text.contains("no incarnation"), "{text}");
    let (refused, text) = refusal(allocate(&sim, &[&addr]));
    assert!(refused == Refusal::Mismatch && text.contains("this is a scheduler"), "{text}");

    let first = allocate(&sim, &[&tables, &addr]).unwrap();
    let mut worker = join(&sim, &addr, 0, first, "a").unwrap();
    assert_eq!((first, worker.joined().started), (1, 1));
    let later = allocate(&sim, &[&tables, &addr]).unwrap();
    let mut other = join(&sim, &addr, 1, later, "a").unwrap();
    assert_eq!((later, other.joined().started), (2, 1));
    worker.leave().unwrap();
    other.leave().unwrap();
    drop((worker, other));
    // The scheduler's clock goes back two hours, and the server's counter is lost with its memory.
    sim.remove_actor(actor);
    sim.reset_all(&addr);
    let (_, addr) = scheduler(&sim, &addr);
    let (_, emptied) = start(&sim, "sim:0", &Store::memory(), 1);
    let (refused, text) = refusal(join(&sim, &addr, 0, 1, "b"));
    assert!(refused == Refusal::Fenced && text.contains("start the worker again"), "{text}");
    let next = allocate(&sim, &[&emptied, &addr]).unwrap();
    assert_eq!((next, join(&sim, &addr, 0, next, "b").unwrap().joined().started), (3, 3));
    assert!(sim.now() < Duration::from_secs(7_200));
}

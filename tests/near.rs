//! Rows of a server's images, read by another process while the server is stopped, goes on, and is killed.

mod harness;

use gannet::{Read, Rule, Schema, Sgd, TableId, Wires, Worker, WorkerConfig, WorkerError, Write};
use harness::*;
use rustix::process::Signal;
use std::time::{Duration, Instant};

const KEYS: u64 = 5_000;

/// As docs/consistency.md promises.
const LEASE: Duration = Duration::from_secs(2);

fn connect(addr: &str) -> (Worker<Wires>, TableId) {
    let config = WorkerConfig { peer_timeout: Duration::from_secs(3), ..WorkerConfig::new([addr], 1, 1) };
    let mut worker = Worker::connect(Wires::default(), config).unwrap();
    assert_eq!(worker.transport(), "shm");
    let rule = Rule::Sgd(Sgd { lr: 1.0 });
    let table = worker.open_table(&Schema { dim: 3, ..Schema::scalar("near", rule) }).unwrap();
    let keys: Vec<u64> = (0..KEYS).collect();
    let gradients: Vec<f32> = keys.iter().flat_map(|&key| [-(key as f32); 3]).collect();
    worker.push(table, &keys, Write::Gradient, &gradients).unwrap();
    (worker, table)
}

/// Every row, which is known; `Ok(true)`: all of them were read where they are.
fn pull(worker: &mut Worker<Wires>, table: TableId) -> Result<bool, WorkerError> {
    let keys: Vec<u64> = (0..KEYS).collect();
    let before = worker.counters().near_rows;
    let mut out = vec![0.0; keys.len() * 3];
    worker.pull(table, &keys, Read::Weights, &mut out)?;
    for (&key, row) in keys.iter().zip(out.chunks_exact(3)) {
        assert_eq!(row, [key as f32; 3]);
    }
    Ok(worker.counters().near_rows == before + KEYS)
}

fn until_near(worker: &mut Worker<Wires>, table: TableId) {
    let from = Instant::now();
    while !pull(worker, table).unwrap() {
        assert!(from.elapsed() < LIMIT, "rows are still asked for");
    }
}

#[test]
fn a_stopped_server_is_believed_for_a_lease_and_named_after_it() {
    for threads in [1, 2] {
        let server = Served::start(gannet(&format!("server --listen 127.0.0.1:0 --threads {threads}")));
        let (mut worker, table) = connect(&server.addr);
        until_near(&mut worker, table);
        server.child.signal(Signal::STOP);
        let stopped = Instant::now();
        let error = loop {
            let now = stopped.elapsed();
            match pull(&mut worker, table) {
                // Only what was heard before the stop keeps the lease.
                Ok(near) => assert!(!near || now <= LEASE, "{now:?} after the stop"),
                Err(error) => break error,
            }
            assert!(now < LIMIT);
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(matches!(error, WorkerError::PeerLost { .. }), "{error}");
        assert!(error.to_string().contains(&server.addr), "{error}");
        server.child.signal(Signal::CONT);
        let from = Instant::now();
        while pull(&mut worker, table).is_err() {
            assert!(from.elapsed() < LIMIT, "the server goes on and is not reached");
        }
        until_near(&mut worker, table);
    }
}

#[test]
fn a_killed_server_leaves_its_readers_with_an_error() {
    let server = Served::start(gannet("server --listen 127.0.0.1:0 --threads 2"));
    let (mut worker, table) = connect(&server.addr);
    until_near(&mut worker, table);
    let addr = server.addr.clone();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        server.kill();
    });
    // Reads go on while it dies.
    let from = Instant::now();
    let error = loop {
        if let Err(error) = pull(&mut worker, table) {
            break error;
        }
        assert!(from.elapsed() < LIMIT, "a killed server is still believed");
    };
    killer.join().unwrap();
    assert!(error.to_string().contains(&addr), "{error}");
}

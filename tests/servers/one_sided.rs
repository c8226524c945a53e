//! Another process reads rows of a server's images while the server is stopped, continued, and killed.

use crate::harness;
use crate::reader;

use gannet::worker::WorkerError;
use gannet::{Transports, WorkerConfig};
use harness::*;
use reader::{LEASE, Reader};
use rustix::process::Signal;
use std::time::{Duration, Instant};

const KEYS: u64 = 5_000;

fn connect(addr: &str) -> Reader {
    let config = WorkerConfig { peer_timeout: Duration::from_secs(3), ..WorkerConfig::new([addr], 1, 1) };
    Reader::new(Transports::default(), config, "shm", KEYS)
}

fn until_near(reader: &mut Reader) {
    let from = Instant::now();
    while reader.pull().unwrap() < KEYS {
        assert!(from.elapsed() < LIMIT, "rows are still requested");
    }
}

#[test]
fn a_stopped_server_is_believed_for_a_lease_and_named_after_it() {
    for threads in [1, 2] {
        let server = Served::start(gannet(&format!("server --listen 127.0.0.1:0 --threads {threads}")));
        let mut reader = connect(&server.addr);
        until_near(&mut reader);
        server.child.signal(Signal::STOP);
        let stopped = Instant::now();
        let error = loop {
            let now = stopped.elapsed();
            match reader.pull() {
                // Only replies that came before the stop extend the lease.
                Ok(read) => assert!(read < KEYS || now <= LEASE, "{now:?} after the stop"),
                Err(error) => break error,
            }
            assert!(now < LIMIT);
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(matches!(error, WorkerError::PeerLost { .. }), "{error}");
        assert!(error.to_string().contains(&server.addr), "{error}");
        server.child.signal(Signal::CONT);
        let from = Instant::now();
        while reader.pull().is_err() {
            assert!(from.elapsed() < LIMIT, "the server goes on and is not reached");
        }
        until_near(&mut reader);
    }
}

#[test]
fn a_killed_server_leaves_its_readers_with_an_error() {
    let server = Served::start(gannet("server --listen 127.0.0.1:0 --threads 2"));
    let mut reader = connect(&server.addr);
    until_near(&mut reader);
    let addr = server.addr.clone();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        server.kill();
    });
    // Reads continue while the server dies.
    let from = Instant::now();
    let error = loop {
        if let Err(error) = reader.pull() {
            break error;
        }
        assert!(from.elapsed() < LIMIT, "a killed server is still believed");
    };
    killer.join().unwrap();
    assert!(error.to_string().contains(&addr), "{error}");
}

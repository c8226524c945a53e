//! Another process READs rows of a server's registered memory while the server is stopped and continued. The device
//! answers for a stopped process, so only the lease keeps its rows from being taken as current. It needs a device:
//! `make test-rdma` has one; elsewhere the test says that it is skipped.

use crate::harness::*;
use crate::reader::{LEASE, Reader};
use gannet::transport::Transport;
use gannet::worker::{OneSided, WorkerError};
use gannet::{Transports, WorkerConfig};
use rustix::process::Signal;
use std::time::{Duration, Instant};

const KEYS: u64 = 300;

/// Connecting takes seconds on an emulated machine.
const PEER_TIMEOUT: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(120);

fn connect(addr: &str, one_sided: OneSided) -> Reader {
    let config = WorkerConfig { peer_timeout: PEER_TIMEOUT, one_sided, ..WorkerConfig::new([addr], 1, 1) };
    Reader::new(Transports::default().with_transport(Transport::Verbs), config, "verbs", KEYS)
}

/// The server's address on the device.
fn here() -> Option<String> {
    let ip = std::env::var("NODE_IP").ok().filter(|ip| !ip.is_empty());
    if ip.is_none() {
        eprintln!("skipped: NODE_IP names no address of an RDMA device; make test-rdma does");
    }
    ip
}

#[test]
fn a_stopped_server_whose_rows_are_read_is_believed_for_a_lease_and_named_after_it() {
    let Some(ip) = here() else { return };
    let server =
        Served::start(gannet(&format!("server --listen {ip}:0 --threads 2 --transport verbs --insecure")));
    let mut reader = connect(&server.addr, OneSided::Always);
    let start = Instant::now();
    // The worker learns the slot of every row once. After that it READs all of them.
    while reader.pull().unwrap() < KEYS {
        assert!(start.elapsed() < PATIENCE, "rows are still requested");
    }
    server.child.signal(Signal::STOP);
    let stopped = Instant::now();
    let mut read = 0;
    let error = loop {
        let now = stopped.elapsed();
        match reader.pull() {
            // Only replies that came before the stop extend the lease.
            Ok(rows) => {
                assert!(rows == 0 || now <= LEASE, "{rows} rows were READ {now:?} after the stop");
                read += rows;
            }
            Err(error) => break error,
        }
        assert!(now < PATIENCE);
    };
    assert!(read > 0, "the device answered nothing for the stopped server: the test shows nothing");
    let counted = reader.worker.counters().near_rows;
    assert!(matches!(error, WorkerError::PeerLost { .. }), "{error}");
    assert!(error.to_string().contains(&server.addr), "{error}");
    assert!(reader.pull().is_err());
    assert_eq!(
        reader.worker.counters().near_rows,
        counted,
        "rows of a stopped server were taken for current"
    );
    server.child.signal(Signal::CONT);
    let start = Instant::now();
    while reader.pull().is_err() {
        assert!(start.elapsed() < PATIENCE, "the server goes on and is not reached");
    }
}

/// On a software device, a READ costs the processor more than its share of a request.
#[test]
fn a_software_device_is_used_for_reads_only_on_request() {
    let Some(ip) = here().filter(|_| std::env::var_os("GANNET_GUEST").is_some()) else { return };
    let server =
        Served::start(gannet(&format!("server --listen {ip}:0 --threads 1 --transport verbs --insecure")));
    for (one_sided, reads) in [(OneSided::Auto, false), (OneSided::Always, true), (OneSided::Never, false)] {
        let mut reader = connect(&server.addr, one_sided);
        let read = (0..50).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            reader.pull().unwrap() > 0
        });
        assert_eq!(read, reads, "{one_sided:?}");
    }
}

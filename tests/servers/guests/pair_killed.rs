//! Two machines joined by a network (scripts/test_rdma.sh). The server is killed while WRITEs to it are in
//! flight, at moments from a seed. In another test it has no memory left for a session. A worker on the other
//! machine counts its pushes.

use crate::harness::pair::Pair;
use crate::harness::*;
use gannet::optim::Add;
use gannet::table::TableId;
use gannet::transport::Transport;
use gannet::worker::PushId;
use gannet::{Read, Rule, Schema, Transports, Worker, WorkerConfig, Write};
use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Keys of a push, and floats of a row: 590 KB, several parts of a push.
const KEYS: u64 = 8192;
const DIM: u32 = 16;
/// Lists of keys; pushes take them in turn.
const LISTS: u64 = 4;
/// Pushes in flight at a time.
const OPEN: usize = 4;
/// How often the server is killed.
const KILLS: u64 = 5;

fn sums() -> Schema {
    Schema { dim: DIM, ..Schema::scalar("sums", Rule::Add(Add)) }
}

fn worker(addr: &str, transport: Transport, pusher: u64, incarnation: u64) -> Worker<Transports> {
    let config = WorkerConfig { peer_timeout: limit(), ..WorkerConfig::new([addr], pusher, incarnation) };
    Worker::connect(Transports::new().with_transport(transport), config).unwrap()
}

fn keys(list: u64) -> Vec<u64> {
    (0..KEYS).map(|key| 1 + list * KEYS + key).collect()
}

/// A worker that always has pushes of ones in flight, and counts its pushes of each list.
struct Pushing<'a> {
    worker: Worker<Transports>,
    table: TableId,
    open: VecDeque<PushId>,
    pushed: &'a mut [u64; LISTS as usize],
}

impl Pushing<'_> {
    fn push(&mut self) {
        let list = self.pushed.iter().sum::<u64>() % LISTS;
        let cut = Arc::new(self.worker.cut(self.table, &keys(list)));
        let ones = vec![1.0; (KEYS * u64::from(DIM)) as usize];
        let seq = self.worker.next_seq(self.table);
        let push = self.worker.begin_push(self.table, cut, Write::Gradient, ones, None, seq).unwrap();
        self.pushed[list as usize] += 1;
        self.open.push_back(push);
        if self.open.len() == OPEN {
            let oldest = self.open.pop_front().unwrap();
            self.worker.finish_push(oldest).unwrap();
        }
    }

    /// Compares the table with what was pushed.
    fn check(&mut self) {
        self.worker.drain().unwrap();
        for (list, &pushed) in self.pushed.iter().enumerate() {
            let mut out = vec![f32::NAN; (KEYS * u64::from(DIM)) as usize];
            self.worker.pull(self.table, &keys(list as u64), Read::Weights, &mut out).unwrap();
            let wrong = out.iter().filter(|&&sum| sum != pushed as f32).count();
            assert_eq!(wrong, 0, "list {list}, {pushed} pushes: sums are wrong, one is {}", out[0]);
        }
    }
}

#[test]
fn a_server_that_is_killed_amid_writes_applies_every_push_exactly_once() {
    let Some(pair) = Pair::of("amid") else { return };
    if pair.rank == 0 {
        let folder = tempfile::tempdir().unwrap();
        let mut port = "0".to_owned();
        let mut start = || {
            let listen = format!("server --listen {}:{port} --threads 2 --insecure", pair.ip);
            let served = Served::start(gannet(&format!(
                "{listen} --transport verbs --data-dir {}",
                folder.path().display()
            )));
            port = served.addr.rsplit_once(':').unwrap().1.to_owned();
            served
        };
        let (mut served, mut seed) = (start(), 0x5EED_u64);
        pair.send("addr", &served.addr);
        for kill in 0..KILLS {
            pair.wait_for(&format!("pushing.{kill}"));
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            std::thread::sleep(Duration::from_millis(5 + (seed >> 33) % 400));
            served.kill();
            served = start();
            pair.send(&format!("back.{kill}"), "");
        }
        pair.wait_for("done");
        served.stop();
        return;
    }
    let addr = pair.wait_for("addr");
    let (mut pushed, mut again, mut duplicate) = ([0; LISTS as usize], 0, 0);
    for kill in 0..KILLS {
        // A new worker each time. Its first session must be over RDMA.
        let mut worker = worker(&addr, Transport::Verbs, 7, 1 + kill);
        assert_eq!(worker.transport(), "verbs");
        let table = worker.open_table(&sums()).unwrap();
        let mut pushing = Pushing { worker, table, open: VecDeque::new(), pushed: &mut pushed };
        (0..OPEN).for_each(|_| pushing.push());
        pair.send(&format!("pushing.{kill}"), "");
        let started = Instant::now();
        while pair.message(&format!("back.{kill}")).is_none() {
            assert!(started.elapsed() < limit(), "the server does not come back");
            pushing.push();
        }
        (0..OPEN).for_each(|_| pushing.push());
        pushing.check();
        let counters = pushing.worker.counters();
        assert!(counters.links_lost > 0 && counters.resends > 0, "nothing was under way: {counters:?}");
        (again, duplicate) = (again + counters.resends, duplicate + counters.duplicate);
    }
    println!("{pushed:?} pushes, {again} requests sent again, {duplicate} rows were there already");
    pair.send("done", "");
}

fn page(addr: &str) -> String {
    let mut stream = std::net::TcpStream::connect(addr).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_server_without_memory_for_a_session_says_so_and_gives_tcp() {
    let Some(pair) = Pair::of("memory") else { return };
    if pair.rank == 0 {
        // Two threads: memory for the sessions of one worker.
        let metrics = "127.0.0.1:19100";
        let served = Served::start(gannet(&format!(
            "server --listen {}:0 --threads 2 --insecure --rdma-memory 2MiB --metrics {metrics}",
            pair.ip
        )));
        pair.send("addr", &served.addr);
        pair.wait_for("both");
        let started = Instant::now();
        let wanted = [
            r#"gannet_server_sessions{transport="verbs"} 2"#,
            r#"gannet_server_sessions{transport="tcp"} 2"#,
            "gannet_server_pinned_bytes 2097152",
        ];
        loop {
            let page = page(metrics);
            let bytes = page.lines().find_map(|line| {
                line.strip_prefix(r#"gannet_server_received_bytes_total{transport="verbs"} "#)
            });
            if wanted.iter().all(|line| page.lines().any(|found| found == *line)) {
                assert!(bytes.unwrap().parse::<f64>().unwrap() > (KEYS * u64::from(DIM) * 4) as f64);
                break;
            }
            assert!(started.elapsed() < limit(), "{page}");
            std::thread::sleep(Duration::from_millis(100));
        }
        pair.send("seen", "");
        // A worker that comes before all this memory is free gets tcp for some of its links.
        pair.wait_for("gone");
        let started = Instant::now();
        while !page(metrics).lines().any(|line| line == "gannet_server_pinned_bytes 0") {
            assert!(started.elapsed() < limit(), "{}", page(metrics));
            std::thread::sleep(Duration::from_millis(100));
        }
        pair.send("free", "");
        pair.wait_for("done");
        served.stop();
        return;
    }
    let addr = pair.wait_for("addr");
    let push = |mut worker: Worker<Transports>| {
        let table = worker.open_table(&sums()).unwrap();
        worker.push(table, &keys(0), Write::Gradient, &vec![1.0; (KEYS * u64::from(DIM)) as usize]).unwrap();
        worker
    };
    let first = push(worker(&addr, Transport::Verbs, 1, 1));
    let second = push(worker(&addr, Transport::Auto, 2, 1));
    assert_eq!((&*first.transport(), &*second.transport()), ("verbs", "tcp"));
    // A worker that accepts only RDMA gets an error that names the limit.
    let config = WorkerConfig { peer_timeout: Duration::from_secs(3), ..WorkerConfig::new([&addr], 3, 1) };
    let refused = Worker::connect(Transports::new().with_transport(Transport::Verbs), config).err().unwrap();
    let refused = refused.to_string();
    assert!(refused.contains("2097152 bytes") && refused.contains("--rdma-memory"), "{refused}");
    pair.send("both", "");
    pair.wait_for("seen");
    // There is space again after the first has gone.
    drop(first);
    pair.send("gone", "");
    pair.wait_for("free");
    let third = push(worker(&addr, Transport::Verbs, 4, 1));
    assert_eq!(third.transport(), "verbs");
    drop((second, third));
    pair.send("done", "");
}

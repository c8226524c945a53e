//! One thread of a server dies. The whole server must end and report why, and its images must be as after a
//! kill. Its workers must continue with the server's next incarnation.

use crate::model;

use gannet_core::{Read, Shards, Store, Write};
use gannet_server::{Server, ServerConfig};
use gannet_transport::tcp::{Tcp, TcpListener, TcpPoll, TcpStream, TcpWaker};
use gannet_transport::{Event, Net, NetError, Poll, Prng};
use gannet_worker::{Worker, WorkerConfig};
use model::{Model, random_values, schema, unique_keys};
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The longest time that a test waits for anything.
const LIMIT: Duration = Duration::from_secs(30);
const NOBODY: usize = usize::MAX;
const SHARDS: u32 = 8;

/// Loopback on which one chosen poll panics. Polls are numbered in the order in which they are made: thread N
/// has poll N, and the acceptor has the last one.
#[derive(Clone)]
struct Breaking {
    tcp: Tcp,
    polls: Arc<AtomicUsize>,
    victim: Arc<AtomicUsize>,
}

struct BreakingPoll {
    poll: TcpPoll,
    number: usize,
    victim: Arc<AtomicUsize>,
}

impl Breaking {
    fn new() -> Breaking {
        let (polls, victim) = (Arc::default(), Arc::new(AtomicUsize::new(NOBODY)));
        Breaking { tcp: Tcp::new(), polls, victim }
    }
}

impl Net for Breaking {
    type Stream = TcpStream;
    type Listener = TcpListener;
    type Poll = BreakingPoll;
    type Waker = TcpWaker;

    fn connect(&self, addr: &str, timeout: Duration) -> Result<TcpStream, NetError> {
        self.tcp.connect(addr, timeout)
    }

    fn begin_connect(&self, addr: &str, attempt: usize) -> Result<TcpStream, NetError> {
        self.tcp.begin_connect(addr, attempt)
    }

    fn listen(&self, addr: &str) -> Result<TcpListener, NetError> {
        self.tcp.listen(addr)
    }

    fn poll(&self) -> Result<BreakingPoll, NetError> {
        let number = self.polls.fetch_add(1, Relaxed);
        Ok(BreakingPoll { poll: self.tcp.poll()?, number, victim: self.victim.clone() })
    }

    fn now(&self) -> Duration {
        self.tcp.now()
    }
}

impl Poll for BreakingPoll {
    type Stream = TcpStream;
    type Listener = TcpListener;
    type Waker = TcpWaker;

    fn add(&mut self, stream: &TcpStream, token: u64) -> Result<(), NetError> {
        self.poll.add(stream, token)
    }

    fn remove(&mut self, stream: &TcpStream) -> Result<(), NetError> {
        self.poll.remove(stream)
    }

    fn add_listener(&mut self, listener: &TcpListener, token: u64) -> Result<(), NetError> {
        self.poll.add_listener(listener, token)
    }

    fn waker(&self) -> TcpWaker {
        self.poll.waker()
    }

    fn wait(&mut self, timeout: Duration, events: &mut Vec<Event>) -> Result<(), NetError> {
        assert!(self.victim.load(Relaxed) != self.number, "broken by the test");
        self.poll.wait(timeout, events)
    }
}

/// Waits until `so` is true.
fn comes(what: &str, so: impl Fn() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < LIMIT, "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn config(addr: &str, folder: &Path) -> ServerConfig {
    let store = Store::open_dir(folder).unwrap();
    ServerConfig { threads: 2, store, ..ServerConfig::new(addr) }
}

/// How many of a table's images were not closed in order, and so cannot be opened after a restart of the machine.
fn torn(folder: &Path, model: &Model) -> usize {
    let store = Store::open_dir_as(folder, [7; 16], gannet_core::GrowthConfig::default()).unwrap();
    let opens = |shard: u32| Shards::open(&store, &model.schema, shard..shard + 1).is_ok();
    (0..SHARDS).filter(|&shard| !opens(shard)).count()
}

fn push(worker: &mut Worker<Tcp>, model: &mut Model, prng: &mut Prng, rounds: usize) {
    let table = worker.open_table(&model.schema).unwrap();
    for _ in 0..rounds {
        let cut = Arc::new(worker.cut(table, &unique_keys(prng, 2_000, 4_000)));
        let values = random_values(prng, cut.keys().len());
        model.push(cut.keys(), &values);
        let seq = worker.next_seq(table);
        worker.begin_push(table, cut, Write::Gradient, values, None, seq).unwrap();
    }
}

/// This death must leave the same images as a kill. The test checks that by opening a copy of the images as
/// after a restart of the machine.
fn a_death_of(victim: usize, name: &str) {
    let (folder, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let net = Breaking::new();
    let server = Server::start(net.clone(), config("127.0.0.1:0", folder.path())).unwrap();
    let addr = server.addr().to_owned();
    let worker_config = WorkerConfig { peer_timeout: LIMIT, ..WorkerConfig::new([addr.clone()], 9, 1) };
    let mut worker = Worker::connect(Tcp::new(), worker_config).unwrap();
    let mut model = Model::new(schema("t", 1, SHARDS));
    let mut prng = Prng::new(victim as u64);
    push(&mut worker, &mut model, &mut prng, 5);
    worker.drain().unwrap();
    // A connection that only listens and has no thread.
    let mut guest = std::net::TcpStream::connect(&addr).unwrap();
    guest.set_read_timeout(Some(LIMIT)).unwrap();
    assert!(server.is_running() && server.wait_for_death(Duration::ZERO).is_none());
    let (tell, reported) = std::sync::mpsc::channel();
    server.on_death(move |why| drop(tell.send(why.to_owned())));
    push(&mut worker, &mut model, &mut prng, 5);
    net.victim.store(victim, Relaxed);
    let died = server.wait_for_death(LIMIT).expect("the server's end");
    assert_eq!(reported.recv_timeout(LIMIT).as_ref(), Ok(&died));
    assert!(!server.is_running());
    assert_eq!(guest.read(&mut [0; 64]).unwrap_or(0), 0, "a connection was left open");
    comes("the end of its port", || std::net::TcpStream::connect(&addr).is_err());
    let why = server.stop().unwrap_err().to_string();
    assert!(why.contains(name) && why.contains("broken by the test"), "{why}");

    // Copies the images while no process has them open: each is as a kill leaves it.
    for entry in std::fs::read_dir(folder.path().join("t")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::create_dir_all(copy.path().join("t")).unwrap();
        std::fs::copy(&path, copy.path().join("t").join(path.file_name().unwrap())).unwrap();
    }
    assert_eq!(torn(copy.path(), &model), SHARDS as usize, "images were marked as closed in order");

    let server = Server::start(Tcp::new(), config(&addr, folder.path())).unwrap();
    push(&mut worker, &mut model, &mut prng, 5);
    worker.drain().unwrap();
    let keys: Vec<u64> = model.sorted().iter().map(|(key, _)| *key).collect();
    let table = worker.open_table(&model.schema).unwrap();
    let mut out = vec![0.0; keys.len()];
    worker.pull(table, &keys, Read::Weights, &mut out).unwrap();
    assert!(out == model.pull(&keys), "sums differ");
    // The links to all threads were lost, not only the link to the dead thread.
    assert!(worker.counters().links_lost >= 2, "{:?}", worker.counters());
    server.stop().unwrap();
    assert_eq!(torn(folder.path(), &model), 0, "closed in order");
}

#[test]
fn a_server_went_on_serving_when_a_shard_thread_had_panicked() {
    a_death_of(0, "gannet-shard-0");
    a_death_of(1, "gannet-shard-1");
}

#[test]
fn a_server_said_that_it_ran_when_its_acceptor_had_panicked() {
    a_death_of(2, "gannet-accept");
}

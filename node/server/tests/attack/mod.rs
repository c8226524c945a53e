//! Hostile peers beside an honest worker. Threads send scripts of valid and invalid frames to a live server and
//! break every rule of the protocol. Every answer to the honest worker is compared with a model. node's tests
//! and the tests of the binary share this code.
#![allow(dead_code, reason = "each test file uses what it needs")]

use gannet_core::{Read, Schema, Write};
use gannet_server::hostile::{Choices, KEY_BIT, schema, script};
use gannet_transport::Prng;
use gannet_transport::tcp::Tcp;
use gannet_worker::{TableId, Worker, WorkerConfig};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

/// The number of keys of the honest worker.
const KEYS: u64 = 20_000;

fn key(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15) & !KEY_BIT
}

/// How long an attack lasts: `HOSTILE_SECONDS`, or a few seconds.
pub fn seconds() -> Duration {
    let seconds = std::env::var("HOSTILE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(3))
}

/// What the hostile peers did.
#[derive(Debug, Default)]
pub struct Done {
    pub connections: AtomicU64,
    pub bytes: AtomicU64,
    pub answers: AtomicU64,
}

/// The honest worker, its table, and the expected rows.
pub struct Good {
    pub worker: Worker<Tcp>,
    table: TableId,
    rows: HashMap<u64, [f32; 3]>,
    prng: Prng,
    pub calls: u64,
}

impl Good {
    /// Opens its table first, so that table 0 of the scripts is this table and later tables are theirs.
    pub fn new(addr: &str, pusher: u64) -> Good {
        let config =
            WorkerConfig { peer_timeout: Duration::from_secs(30), ..WorkerConfig::new([addr], pusher, 1) };
        let mut worker = Worker::connect(Tcp::new(), config).unwrap();
        let own = Schema { name: "good".into(), ..schema(1) };
        let table = worker.open_table(&own).unwrap();
        (0..4).for_each(|number| {
            worker.open_table(&schema(number)).unwrap();
        });
        let mut good = Good { worker, table, rows: HashMap::new(), prng: Prng::new(pusher), calls: 0 };
        // Every shard must remember this pusher before the scripts' pushers take all free entries.
        good.push(5000);
        good
    }

    /// Random keys without the bit that the scripts' keys have.
    fn keys(&mut self, count: usize) -> Vec<u64> {
        (0..count).map(|_| key(1 + self.prng.below(KEYS))).collect()
    }

    fn push(&mut self, count: usize) {
        let keys = self.keys(count);
        let values: Vec<f32> = (0..count * 3).map(|_| self.prng.below(9) as f32 - 4.0).collect();
        self.worker.push(self.table, &keys, Write::Gradient, &values).unwrap();
        for (key, value) in keys.iter().zip(values.chunks_exact(3)) {
            let row = self.rows.entry(*key).or_default();
            row.iter_mut().zip(value).for_each(|(sum, value)| *sum += value);
        }
    }

    /// Makes one call and checks its result.
    pub fn step(&mut self) {
        let count = [1, 64, 64, 1000, 12_000][self.prng.below(5) as usize];
        if self.prng.below(3) == 0 {
            self.push(count);
        } else {
            let keys = self.keys(count);
            let mut out = vec![7.0; count * 3];
            self.worker.pull(self.table, &keys, Read::State, &mut out).unwrap();
            for (key, row) in keys.iter().zip(out.chunks_exact(3)) {
                let want = self.rows.get(key).copied().unwrap_or_default();
                assert!(
                    row.iter().zip(want).all(|(a, b)| a.to_bits() == b.to_bits()),
                    "key {key}: {row:?}, {want:?}"
                );
            }
        }
        self.calls += 1;
    }

    /// Checks all rows of its own keys. Other rows belong to the scripts: if a frame is cut short, the server
    /// reads the bytes of the next frame as its keys.
    pub fn check_all(&mut self) {
        let own: HashSet<u64> = (1..=KEYS).map(key).collect();
        let mut seen = HashMap::new();
        self.worker
            .scan(self.table, |keys, floats| {
                let rows = keys.iter().zip(floats.chunks_exact(3)).filter(|(key, _)| own.contains(key));
                seen.extend(rows.map(|(key, row)| (*key, [row[0], row[1], row[2]])));
            })
            .unwrap();
        let wrong = |key: &&u64| seen.get(key) != self.rows.get(key);
        let wrong: Vec<&u64> = seen.keys().chain(self.rows.keys()).filter(wrong).collect();
        assert!(wrong.is_empty(), "{} of {} rows are wrong: keys {wrong:?}", wrong.len(), self.rows.len());
    }
}

/// One hostile peer: makes connection after connection until `stop` is set.
fn attack(addr: &str, threads: u32, seed: u64, stop: &AtomicBool, done: &Done) {
    let mut prng = Prng::new(seed);
    // Connections that stay open unfinished: half greetings, half frames, unread answers.
    let mut left: VecDeque<TcpStream> = VecDeque::new();
    while !stop.load(Relaxed) {
        let choices: Vec<u8> = (0..20 + prng.below(1500)).map(|_| prng.next_u64() as u8).collect();
        let bytes = script(&mut Choices(&choices), threads);
        let Ok(mut stream) = TcpStream::connect(addr) else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        done.connections.fetch_add(1, Relaxed);
        stream.set_nonblocking(true).unwrap();
        send(&mut stream, &bytes, &mut prng, stop, done);
        match prng.below(8) {
            0 => left.push_back(stream),
            1 => drop(stream.shutdown(Shutdown::Write)),
            2 => {
                let from = Instant::now();
                while from.elapsed() < Duration::from_millis(20) {
                    take(&mut stream, done);
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            _ => {}
        }
        while left.len() > 12 {
            left.pop_front();
        }
    }
}

/// Sends in chunks of any size. Sometimes reads answers.
fn send(stream: &mut TcpStream, bytes: &[u8], prng: &mut Prng, stop: &AtomicBool, done: &Done) {
    let (takes, mut rest, started) = (prng.below(4) > 0, bytes, Instant::now());
    while !rest.is_empty() && !stop.load(Relaxed) && started.elapsed() < Duration::from_millis(200) {
        let chunk = [1, 7, 64, 1000, 60_000, usize::MAX][prng.below(6) as usize].min(rest.len());
        match stream.write(&rest[..chunk]) {
            Ok(sent) => {
                rest = &rest[sent..];
                done.bytes.fetch_add(sent as u64, Relaxed);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(_) => return,
        }
        if takes {
            take(stream, done);
        }
    }
}

fn take(stream: &mut TcpStream, done: &Done) {
    let mut answers = [0; 65_536];
    while let Ok(got @ 1..) = stream.read(&mut answers) {
        done.answers.fetch_add(got as u64, Relaxed);
    }
}

/// Runs `peers` hostile peers at once for a time, and calls `each` again and again meanwhile.
pub fn under_attack(
    addr: &str,
    threads: u32,
    peers: u64,
    time: Duration,
    mut each: impl FnMut(),
) -> Arc<Done> {
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::<Done>::default());
    let run = |seed: u64| {
        let (addr, stop, done) = (addr.to_owned(), stop.clone(), done.clone());
        std::thread::spawn(move || attack(&addr, threads, seed, &stop, &done))
    };
    let seed = std::env::var("HOSTILE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1u64);
    let handles: Vec<_> = (0..peers).map(|peer| run(seed * 1000 + peer)).collect();
    let from = Instant::now();
    while from.elapsed() < time {
        each();
    }
    stop.store(true, Relaxed);
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    done
}

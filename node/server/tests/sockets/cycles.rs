//! What servers hold and use of their process. 1,000 workers over each transport connect, push, and are killed: the
//! server must free everything that belonged to them, and must have every push that it acknowledged. And a server
//! without work must sleep.

use crate::model::schema;
use gannet_core::{Read, Write};
use gannet_server::{Server, ServerConfig};
use gannet_transport::multi::{Transport, Transports};
use gannet_transport::tcp::{Io, Tcp};
use gannet_worker::{Worker, WorkerConfig};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Runs a test as a process of its own, which holds nothing of the tests beside it.
fn alone(test: &str, work: fn()) {
    if std::env::var_os("GANNET_TEST_ALONE").is_some() {
        return work();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env("GANNET_TEST_ALONE", "1");
    let done = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && out.contains("1 passed"), "{out}\n{err}");
}

/// The longest time that a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(60);
/// Processes that are killed over each transport. All workers of a process end at the same moment.
const PROCESSES: u64 = 125;
const WORKERS: u64 = 8;
/// Processes that run at a time.
const AT_ONCE: usize = 5;
const THREADS: usize = 2;

fn net(name: &str) -> Transports {
    Transports::new().with_transport(if name == "shm" { Transport::Shm } else { Transport::Tcp })
}

#[test]
#[ignore = "started by another test, as a process of its own"]
fn plays_workers() {
    let Ok(part) = std::env::var("GANNET_TEST_PART") else { return };
    let mut words = part.split(' ');
    let (name, addr) = (words.next().unwrap(), words.next().unwrap());
    let process: u64 = words.next().unwrap().parse().unwrap();
    let _workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let key = process * WORKERS + worker;
            let config = WorkerConfig { peer_timeout: PATIENCE, ..WorkerConfig::new([addr], key + 10, 1) };
            let mut worker = Worker::connect(net(name), config).unwrap();
            assert_eq!(worker.transport(), name);
            let table = worker.open_table(&schema("t", 1, 8)).unwrap();
            worker.push(table, &[key], Write::Gradient, &[1.0]).unwrap();
            // And one push that may or may not be applied.
            let cut = std::sync::Arc::new(worker.cut(table, &[key, key + 1_000_000]));
            let seq = worker.next_seq(table);
            worker.begin_push(table, cut, Write::Gradient, vec![0.0; 2], None, seq).unwrap();
            worker
        })
        .collect();
    println!("\npushed");
    std::thread::sleep(PATIENCE);
}

fn play(name: &str, addr: &str, process: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "cycles::plays_workers", "--ignored", "--nocapture"]);
    command.env("GANNET_TEST_PART", format!("{name} {addr} {process}"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Resources of this process that a session might leave behind.
fn held(addr: &str) -> BTreeMap<&'static str, usize> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    let kib = |name: &str| -> usize {
        let status = read("/proc/self/status");
        let line = status.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    BTreeMap::from([
        ("descriptors", std::fs::read_dir("/proc/self/fd").unwrap().count()),
        ("rings mapped", read("/proc/self/maps").matches("gannet-rings").count()),
        ("sockets of this server", read("/proc/net/unix").matches(&format!("@gannet/{addr}\n")).count()),
        ("threads", std::fs::read_dir("/proc/self/task").unwrap().count()),
        // In units of 16 MiB: if one session of each cycle left its memory behind, the sum would be larger.
        ("memory", (kib("RssAnon") + kib("RssShmem")) >> 14),
    ])
}

fn kill_all(name: &str, addr: &str, processes: std::ops::Range<u64>) {
    let mut alive: Vec<Child> = Vec::new();
    let kill = |mut child: Child| {
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = out.find_map(|line| line.ok().filter(|line| line == "pushed"));
        // SIGKILL, while a push is in flight.
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(said.is_some(), "a worker failed");
    };
    for process in processes {
        alive.push(play(name, addr, process));
        if alive.len() == AT_ONCE {
            kill(alive.remove(0));
        }
    }
    alive.into_iter().for_each(kill);
}

fn settled(server: &Server, sessions: u64) {
    let started = Instant::now();
    loop {
        let served = server.served();
        if (served.sessions_begun, served.sessions_ended) == (sessions, sessions) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{served:?}, {sessions} sessions");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_thousand_workers_that_are_killed_leave_nothing_behind() {
    alone("cycles::a_thousand_workers_that_are_killed_leave_nothing_behind", kill_a_thousand_workers);
}

fn kill_a_thousand_workers() {
    for name in ["shm", "tcp"] {
        let config = ServerConfig { threads: THREADS, ..ServerConfig::new("127.0.0.1:0") };
        let server = Server::start(Transports::new(), config).unwrap();
        let addr = server.addr().to_owned();
        let sessions = |processes: u64| processes * WORKERS * THREADS as u64;
        // The first processes allocate what is allocated only once.
        let warm = AT_ONCE as u64 * 2;
        kill_all(name, &addr, 0..warm);
        settled(&server, sessions(warm));
        let before = held(&addr);
        kill_all(name, &addr, warm..PROCESSES);
        settled(&server, sessions(PROCESSES));
        let (before, after) = (before, held(&addr));
        // Sockets of accepted sessions have the server's name too. Only the listener's socket is left.
        assert_eq!((after["rings mapped"], after["sockets of this server"]), (0, 1), "{after:?}");
        for (what, &count) in &after {
            let spare = usize::from(*what == "memory");
            assert!(count <= before[what] + spare, "{name}: {what} grew: {before:?} {after:?}");
        }
        let config = WorkerConfig { peer_timeout: PATIENCE, ..WorkerConfig::new([&addr], 1, 1) };
        let mut worker = Worker::connect(net(name), config).unwrap();
        let table = worker.open_table(&schema("t", 1, 8)).unwrap();
        let keys: Vec<u64> = (0..PROCESSES * WORKERS).collect();
        let mut out = vec![0.0; keys.len()];
        worker.pull(table, &keys, Read::Weights, &mut out).unwrap();
        assert!(out.iter().all(|&sum| sum == 1.0), "{name}: an acknowledged push is lost or doubled");
    }
}

/// Clock ticks (10 ms) that the shard threads of this process have computed.
fn ticks() -> u64 {
    let stat = |task: std::path::PathBuf| std::fs::read_to_string(task.join("stat")).unwrap_or_default();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| stat(task.unwrap().path()));
    let spent = |stat: String| -> u64 {
        let fields: Vec<_> =
            stat.rsplit(')').next().unwrap_or("").split_whitespace().map(str::to_owned).collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    tasks.filter(|stat| stat.contains("(gannet-shard-")).map(spent).sum()
}

#[test]
fn an_idle_server_sleeps() {
    alone("cycles::an_idle_server_sleeps", count_ticks_of_idle_servers);
}

fn count_ticks_of_idle_servers() {
    for io in [Io::Epoll, Io::Uring] {
        for transport in [Transport::Tcp, Transport::Auto] {
            let net = || Transports::over(Tcp::new().with_io(io)).with_transport(transport);
            if io == Io::Uring && net().io() == "epoll" {
                eprintln!("io_uring is refused here: not tested");
                continue;
            }
            let config = ServerConfig { threads: THREADS, ..ServerConfig::new("127.0.0.1:0") };
            let server = Server::start(net(), config).unwrap();
            let mut worker = Worker::connect(net(), WorkerConfig::new([server.addr()], 1, 1)).unwrap();
            let table = worker.open_table(&schema("t", 1, 8)).unwrap();
            worker.push(table, &[1], Write::Gradient, &[1.0]).unwrap();
            // Something else may wake the threads once, so the quietest of several windows counts.
            let quietest = (0..12).map(|_| {
                let before = ticks();
                std::thread::sleep(Duration::from_millis(250));
                ticks().saturating_sub(before)
            });
            assert!(quietest.min().unwrap() <= 1, "{io:?}, {transport:?}");
        }
    }
}

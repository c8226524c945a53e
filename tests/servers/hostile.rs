//! The real server, tested from outside: under attack, with a thousand connections, beside peers that stop. Its memory,
//! descriptors and threads are read from /proc. `HOSTILE_SECONDS` makes the attack longer.

use crate::attack;
use crate::harness;

use attack::{Good, seconds, under_attack};
use gannet::worker::WorkerError;
use gannet::{Read, Schema, Worker, WorkerConfig, Write};
use gannet_server::hostile::{schema, script};
use gannet_transport::tcp::Tcp;
use harness::{Served, gannet, refusing};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The resources that a process holds.
#[derive(Debug, Clone, Copy)]
struct Held {
    kib: u64,
    /// Descriptors but those of images: an attack may open tables, which then keep theirs.
    descriptors: usize,
    threads: u64,
    ticks: u64,
}

fn held(pid: u32) -> Held {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let number = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let times = stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(2);
    Held {
        // Shared memory belongs to the tables.
        kib: number("RssAnon:"),
        descriptors: std::fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .filter_map(|file| std::fs::read_link(file.ok()?.path()).ok())
            .map(|target| target.to_string_lossy().into_owned())
            .filter(|target| !target.starts_with("/memfd:") || target.contains("gannet-rings"))
            .count(),
        threads: number("Threads:"),
        ticks: times.map(|ticks| ticks.parse::<u64>().unwrap()).sum(),
    }
}

fn server(flags: &str) -> (Served, std::path::PathBuf, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut command = gannet(&format!("server --listen 127.0.0.1:0 --threads 2 {flags}"));
    command.stderr(Stdio::from(std::fs::File::create(&log).unwrap()));
    (Served::start(command), log, folder)
}

/// Waits until `is` is true. The server has its own limit for what is waited for.
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let from = Instant::now();
    while !is() {
        assert!(from.elapsed() < harness::LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn after_an_attack_the_server_holds_what_it_held_before() {
    let (served, log, _folder) = server("");
    let mut good = Good::new(&served.addr, 500);
    // A warm-up, so that tables, buffers, stacks and the allocator's caches exist.
    under_attack(&served.addr, 2, 4, Duration::from_secs(2), || good.step());
    until("connections end", || held(served.id()).descriptors < 40);
    let before = held(served.id());
    let done = under_attack(&served.addr, 2, 4, seconds(), || good.step());
    let from = Instant::now();
    loop {
        let now = held(served.id());
        if now.descriptors <= before.descriptors {
            break;
        }
        assert!(from.elapsed() < harness::LIMIT, "connections end: before {before:?}, now {now:?}, {done:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Idle sessions free their buffers.
    std::thread::sleep(Duration::from_secs(4));
    let after = held(served.id());
    println!("{done:?}, {} calls beside\nbefore {before:?}\nafter  {after:?}", good.calls);
    assert_eq!(after.threads, before.threads);
    assert!(after.kib <= before.kib + 64 * 1024, "{} KiB before, {} KiB after", before.kib, after.kib);
    good.step();
    good.check_all();
    let counters = good.worker.counters();
    assert_eq!((counters.links_lost, counters.duplicate), (0, 0));
    drop(good);
    assert!(served.stop().contains("stopped after"));
    let log = std::fs::read_to_string(log).unwrap();
    assert!(!log.contains("panic"), "{log}");
    // Peers can cause these warnings as often as they like, so the server logs them only a few times.
    let lines = log.lines().filter(|line| line.contains("WARN")).count() as u64;
    assert!(lines <= 3 * 10 * (2 + (seconds().as_secs() + 30) / 10), "{lines} warnings");
}

/// A connection to thread 0 that has been greeted.
fn greeted(addr: &str, pusher: u64) -> TcpStream {
    // Twelve zero choices lead to a valid hello: thread 0, pusher 1 and so on.
    let mut choices = [0; 64];
    choices[2..4].copy_from_slice(&(pusher as u16 % 16).to_le_bytes());
    choices[8] = 20;
    let bytes = script(&mut gannet_server::hostile::Choices(&choices[..10]), 1);
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(harness::LIMIT)).unwrap();
    stream.write_all(&bytes).unwrap();
    let mut welcome = [0; 64];
    stream.read_exact(&mut welcome).unwrap();
    assert_eq!(&welcome[..6], b"GN\x02\x00\x02\x00", "a welcome");
    stream
}

#[test]
fn a_thousand_connections_cost_little_and_go_without_a_trace() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let (served, _, _folder) = server("");
    let mut good = Good::new(&served.addr, 500);
    (0..20).for_each(|_| good.step());
    std::thread::sleep(Duration::from_secs(4));
    let before = held(served.id());
    let mut sessions: Vec<_> = (0..1000).map(|pusher| greeted(&served.addr, pusher)).collect();
    std::thread::sleep(Duration::from_secs(4));
    let during = held(served.id());
    (0..20).for_each(|_| good.step());
    let idle = held(served.id());
    std::thread::sleep(Duration::from_secs(2));
    let ticks = held(served.id()).ticks - idle.ticks;
    println!("before {before:?}\nduring {during:?}; {ticks} ticks of 200 while idle");
    assert!(during.descriptors >= before.descriptors + 1000);
    // Each session is idle: it costs a few kilobytes, and no buffers.
    let each = during.kib.saturating_sub(before.kib) / 1000;
    assert!(each <= 16, "{each} KiB a connection");
    // They send again after the pause and get answers.
    for session in sessions.iter_mut().step_by(100) {
        let mut ping = [0; 64];
        gannet_transport::Head::new(21, 0, 99, [0; 4]).encode(&mut ping);
        session.write_all(&ping).unwrap();
        // After the payload of the welcome.
        let mut answers = [0; 24 + 64];
        session.read_exact(&mut answers).unwrap();
        assert_eq!(&answers[24..30], b"GN\x02\x00\x16\x00", "a pong");
    }
    drop(sessions);
    until("connections end", || held(served.id()).descriptors <= before.descriptors);
    good.check_all();
    drop(good);
    served.stop();
}

fn worker(addr: &str, pusher: u64) -> WorkerConfig {
    let (peer_timeout, stall_timeout) = (Duration::from_secs(3), Duration::from_secs(1));
    WorkerConfig { peer_timeout, stall_timeout, ..WorkerConfig::new([addr], pusher, 1) }
}

/// SIGSTOP: the system still answers for the process, as on a machine whose process hangs.
#[test]
fn a_server_that_is_stopped_is_named_and_one_that_goes_on_is_found_again() {
    let (served, _, _folder) = server("");
    let pid = Pid::from_raw(served.id() as i32).unwrap();
    let mut short = Worker::connect(Tcp::new(), worker(&served.addr, 1)).unwrap();
    let patient = WorkerConfig { peer_timeout: harness::LIMIT, ..worker(&served.addr, 2) };
    let mut patient = Worker::connect(Tcp::new(), patient).unwrap();
    let own = Schema { name: "t".into(), ..schema(0) };
    let tables = [short.open_table(&own).unwrap(), patient.open_table(&own).unwrap()];
    kill_process(pid, Signal::STOP).unwrap();
    let stopped = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.unwrap().path().join("status")).unwrap().contains("State:\tT")
    };
    let tasks = format!("/proc/{}/task", served.id());
    until("it stops", || std::fs::read_dir(&tasks).unwrap().all(stopped));
    let error = short.push(tables[0], &[1], Write::Gradient, &[1.0]).unwrap_err();
    assert!(
        matches!(&error, WorkerError::PeerLost { peer, .. } if peer.starts_with(&served.addr)),
        "{error}"
    );
    let waiting = std::thread::spawn(move || {
        patient.push(tables[1], &[2], Write::Gradient, &[1.0]).unwrap();
        patient.push(tables[1], &[2], Write::Gradient, &[1.0]).unwrap();
        patient
    });
    std::thread::sleep(Duration::from_secs(3));
    kill_process(pid, Signal::CONT).unwrap();
    let mut patient = waiting.join().unwrap();
    let mut out = [0.0];
    patient.pull(tables[1], &[2], Read::Weights, &mut out).unwrap();
    assert_eq!(out, [2.0], "each push once, whatever went again");
    assert!(patient.counters().links_lost > 0);
    served.stop();
}

#[test]
fn a_session_that_says_nothing_ends_and_its_worker_finds_its_way_back() {
    let (served, log, _folder) = server("--session-silence 2 --log gannet=info");
    let mut quiet = Worker::connect(Tcp::new(), worker(&served.addr, 1)).unwrap();
    let table = quiet.open_table(&Schema { name: "t".into(), ..schema(0) }).unwrap();
    quiet.push(table, &[1], Write::Gradient, &[1.0]).unwrap();
    let is_logged = || std::fs::read_to_string(&log).unwrap().contains("has said nothing for 2 s");
    until("a line in the log", is_logged);
    quiet.push(table, &[1], Write::Gradient, &[1.0]).unwrap();
    let mut out = [0.0];
    quiet.pull(table, &[1], Read::Weights, &mut out).unwrap();
    assert_eq!(out, [2.0]);
    assert!(quiet.counters().links_lost > 0);
    served.stop();
}

#[test]
fn flags_of_sessions_that_cannot_be_are_named() {
    for (flags, says) in [
        ("--sessions-max 0", "--sessions-max is 0; 1 to 4096 is allowed"),
        ("--session-memory 1MB --threads 1", "the memory for sessions' buffers is 1000000"),
        ("--session-silence 1", "--session-silence"),
        ("--credit-requests 0", "--credit-requests"),
    ] {
        let done = harness::run(&format!("server --listen 127.0.0.1:0 {flags}"));
        assert!(done.code == Some(2) && done.err.contains(says), "{flags}: {done:?}");
    }
}

/// epoll_pwait, on the architecture that the tests run on; EIO.
#[cfg(target_arch = "x86_64")]
const WAITS: (i64, u32) = (281, 5);

/// A server that dies when one of its threads waits for a time that is not a whole number of seconds. Threads
/// wait so only when sessions wait for memory.
#[cfg(target_arch = "x86_64")]
fn frail(addr: &str, folder: &std::path::Path) -> Served {
    use seccompiler::{SeccompCmpArgLen::Dword, SeccompCmpOp, SeccompCondition, SeccompRule};
    let milliseconds = |op, than| SeccompCondition::new(3, Dword, op, than).unwrap();
    let short = vec![milliseconds(SeccompCmpOp::Gt, 0), milliseconds(SeccompCmpOp::Lt, 1_000)];
    let rules = vec![SeccompRule::new(short).unwrap()];
    let mut command = gannet(&format!(
        "server --listen {addr} --threads 1 --transport tcp --io epoll --session-memory 2MiB --data-dir {}",
        folder.display()
    ));
    command.stderr(Stdio::piped());
    refusing(WAITS.0, rules, WAITS.1, || Served::start(command))
}

/// The system refuses a wait to a thread of a server. The process ends with exit code 1, its supervisor
/// restarts it, and nothing is lost.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_server_continued_after_one_of_its_threads_had_died() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = frail("127.0.0.1:0", folder.path());
    let addr = served.addr.clone();
    let schema = Schema { dim: 16, ..Schema::scalar("t", gannet::Rule::Add(gannet::optim::Add)) };
    let connect = |pusher| {
        let config = WorkerConfig { peer_timeout: harness::LIMIT, ..WorkerConfig::new([&*addr], pusher, 1) };
        Worker::connect(Tcp::new(), config).unwrap()
    };
    let mut workers = [1, 2].map(connect);
    let keys: Vec<u64> = (0..40_000).collect();
    let mut pushes = 0;
    // Two sessions, and memory for the buffers of one: soon one of them waits for it.
    let mut push = |workers: &mut [Worker<Tcp>; 2]| {
        for worker in workers.iter_mut() {
            let table = worker.open_table(&schema).unwrap();
            let cut = std::sync::Arc::new(worker.cut(table, &keys));
            let seq = worker.next_seq(table);
            worker.begin_push(table, cut, Write::Gradient, vec![1.0; keys.len() * 16], None, seq).unwrap();
            pushes += 1;
        }
    };
    // The supervisor.
    let supervise = || {
        let status = served.child.ended();
        let mut said = String::new();
        served.child.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(status.code(), Some(1), "{said}");
        let last = said.lines().last().unwrap_or_default();
        assert!(last.contains("gannet-shard-0") && last.contains("start the server again"), "{said}");
        let command = format!("server --listen {addr} --threads 1 --data-dir {}", folder.path().display());
        Served::start(gannet(&command))
    };
    let again = std::thread::scope(|scope| {
        let supervisor = scope.spawn(supervise);
        while !supervisor.is_finished() {
            push(&mut workers);
        }
        supervisor.join().unwrap()
    });
    push(&mut workers);
    workers.iter_mut().for_each(|worker| worker.drain().unwrap());
    let mut out = vec![0.0; keys.len() * 16];
    let table = workers[0].open_table(&schema).unwrap();
    workers[0].pull(table, &keys, Read::Weights, &mut out).unwrap();
    let wrong = out.iter().filter(|&&sum| sum != pushes as f32).count();
    assert_eq!(wrong, 0, "{pushes} pushes, one sum is {}", out[0]);
    again.stop();
}

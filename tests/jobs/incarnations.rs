//! A server hands out incarnations, from one counter for a run. Real processes, servers that are killed, and no clock.

use crate::harness;

use gannet::optim::Ftrl;
use gannet::runs::known_runs;
use gannet::table::{PusherStatus, TableStatus};
use gannet::transport::Tcp;
use gannet::{Rule, Schema, Worker, WorkerConfig};
use harness::*;
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

fn server(listen: &str, folder: &Path) -> Served {
    let mut command = gannet(&format!("server --listen {listen} --threads 2"));
    Served::start({
        command.arg("--data-dir").arg(folder);
        command
    })
}

fn worker(data: &Path, hosts: &str, workers: usize, index: usize) -> Process {
    let worker_hosts = (0..workers).map(|i| format!("127.0.0.1:{}", 9 + i)).collect::<Vec<_>>().join(",");
    Process::start(gannet(&format!(
        "train {} --ps-hosts {hosts} --worker-hosts {worker_hosts} --job-name worker --task-index {index} --json \
         --damping off --tasks off --continue --peer-timeout 30",
        data.display()
    )))
}

/// The servers' status of the table that `gannet train` makes, and of its workers.
fn status(addr: &str) -> TableStatus {
    let schema = Schema::scalar("default.lr", Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 }));
    let mut reader = Worker::connect(Tcp::new(), WorkerConfig::reader([addr])).unwrap();
    let table = reader.open_table(&schema).unwrap();
    reader.status(table).unwrap()
}

/// What the servers remember of a worker.
fn remembered(addr: &str, index: u64) -> Option<PusherStatus> {
    status(addr).pushers.into_iter().find(|pusher| pusher.pusher == index + 1)
}

/// The next incarnation of a worker gets the next number, whatever the time is. Once the number was the time of
/// the worker's start.
#[test]
fn a_life_was_named_by_the_clock_which_may_go_back() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 300, 1);
    let mut served = server("127.0.0.1:0", &folder.path().join("ps"));
    let addr = served.addr.clone();
    for incarnation in 1..=4 {
        let done = worker(&data, &addr, 1, 0).wait();
        assert_eq!(done.code, Some(0), "{done:?}");
        let known = remembered(&addr, 0).unwrap();
        assert_eq!((known.incarnation, known.closed), (incarnation, true), "{known:?}");
        if incarnation == 2 {
            served.kill();
            served = server(&addr, &folder.path().join("ps"));
        } else if incarnation == 3 {
            served.stop();
            served = server(&addr, &folder.path().join("ps"));
        }
    }
}

/// Processes that start at once have different incarnations, and no number is left out.
#[test]
fn processes_that_start_at_once_get_different_incarnations() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 2_000, 2);
    let served = server("127.0.0.1:0", &folder.path().join("ps"));
    let workers: Vec<Process> = (0..4).map(|index| worker(&data, &served.addr, 4, index)).collect();
    for process in workers {
        let done = process.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    let mut incarnations: Vec<u64> =
        (1..4).map(|index| remembered(&served.addr, index).unwrap().incarnation).collect();
    incarnations.sort_unstable();
    incarnations.dedup();
    assert!(
        incarnations.len() == 3 && incarnations.iter().all(|incarnation| (1..=4).contains(incarnation)),
        "{incarnations:?}"
    );
}

/// A server is killed with SIGKILL again and again while three other processes request numbers.
#[test]
fn no_incarnation_is_given_twice_when_the_server_is_killed_while_it_answers() {
    let folder = tempfile::tempdir().unwrap();
    let first = server("127.0.0.1:0", folder.path());
    let addr = first.addr.clone();
    let mut served = Some(first);
    let mut kill_and_start = || {
        drop(served.take());
        served = Some(server(&addr, folder.path()));
    };
    let (highest, granted, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let ask = || {
        let mut numbers = Vec::new();
        while !stop.load(SeqCst) {
            let before = highest.load(SeqCst);
            let number = Worker::allocate_incarnation(Tcp::new(), &WorkerConfig::reader([&addr])).unwrap();
            assert!(number > before, "{number}, after {before} was answered");
            highest.fetch_max(number, SeqCst);
            granted.fetch_add(1, SeqCst);
            numbers.push(number);
        }
        numbers
    };
    let numbers: Vec<u64> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..3).map(|_| scope.spawn(ask)).collect();
        for round in 1..=10 {
            wait_until("numbers were handed out", || granted.load(SeqCst) >= round * 15);
            kill_and_start();
        }
        stop.store(true, SeqCst);
        asking.into_iter().flat_map(|asking| asking.join().unwrap()).collect()
    });
    let different: HashSet<u64> = numbers.iter().copied().collect();
    assert!(numbers.len() >= 150 && different.len() == numbers.len(), "{numbers:?}");
    // The next server continues from what was on its medium when the previous one was killed.
    kill_and_start();
    let next = Worker::allocate_incarnation(Tcp::new(), &WorkerConfig::reader([&addr])).unwrap();
    assert!(next > highest.load(SeqCst), "{next}");
}

/// Once worker 1 of the previous run, which had started after its chief, was mistaken for worker 1 of the next
/// run. The chief then scored and saved a model without that worker's share.
#[test]
fn the_chief_did_not_wait_for_a_worker_when_another_run_had_just_ended() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    // The workers take batches in turn. Each has its own features, and so its own rows.
    let served = server("127.0.0.1:0", &file("ps"));
    let first = clicks(&file("first.svm"), 4_096 * 2, 3);
    let chief = worker(&first, &served.addr, 2, 0);
    // Opening a table makes it, so the run must come first.
    let reader = WorkerConfig::reader([&served.addr]);
    wait_until("the first run has begun", || !known_runs(Tcp::new(), &reader).unwrap().is_empty());
    wait_until("the chief of the first run is known", || remembered(&served.addr, 0).is_some());
    let done = worker(&first, &served.addr, 2, 1).wait();
    assert_eq!((done.code, chief.wait().code), (Some(0), Some(0)), "{done:?}");
    let rows = status(&served.addr).stats.rows;

    // The rows of worker 1's share in the second run are new.
    let mut text = std::fs::read_to_string(&first).unwrap();
    let lines: Vec<&str> = text.lines().take(2_048).collect();
    text = lines.join("\n") + "\n";
    (0..2_048).for_each(|i| text.push_str(&format!("1 {}:1\n", 1_000_000 + i)));
    let second = file("second.svm");
    std::fs::write(&second, text).unwrap();
    let before = remembered(&served.addr, 0).unwrap().incarnation;
    let mut chief = worker(&second, &served.addr, 2, 0);
    wait_until("the chief of the second run has learned", || {
        chief.child.0.try_wait().unwrap().is_some()
            || remembered(&served.addr, 0).is_some_and(|known| known.incarnation > before && known.seq >= 1)
    });
    let late = worker(&second, &served.addr, 2, 1);
    let (chief, late) = (chief.wait(), late.wait());
    assert_eq!((chief.code, late.code), (Some(0), Some(0)), "{chief:?} {late:?}");
    assert!(!chief.err.contains("without waiting"), "{chief:?}");
    assert_eq!(chief.json()["rows"].as_u64().unwrap(), rows + 2_048, "{chief:?}");
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < limit(), "not yet: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

//! Jobs of several processes, started from outside: the same result as one process, a server killed with SIGKILL in the
//! middle, a full disk, absent peers, garbage.

use crate::harness;

use harness::ports::free_addr;
use harness::*;
use rustix::process::Signal;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn servers(n: usize, folder: Option<&Path>) -> (Vec<Served>, String) {
    servers_of(n, folder, 2)
}

fn servers_of(n: usize, folder: Option<&Path>, threads: u32) -> (Vec<Served>, String) {
    let served: Vec<Served> = (0..n)
        .map(|i| {
            let mut command = gannet(&format!("server --listen 127.0.0.1:0 --threads {threads}"));
            if let Some(folder) = folder {
                command.arg("--data-dir").arg(folder.join(i.to_string()));
            }
            Served::start(command)
        })
        .collect();
    let hosts = served.iter().map(|s| s.addr.clone()).collect::<Vec<_>>().join(",");
    (served, hosts)
}

/// Values of `--transport`, and what a report then says.
const TRANSPORTS: [(&str, &str); 2] = [("tcp", "tcp"), ("auto", "shm")];

fn worker_line(data: &Path, test: &Path, hosts: &str, workers: usize, index: usize) -> String {
    let worker_hosts = (0..workers).map(|i| format!("127.0.0.1:{}", 9 + i)).collect::<Vec<_>>().join(",");
    format!(
        "train {} --test {} --ps-hosts {hosts} --worker-hosts {worker_hosts} --job-name worker --task-index {index} \
         --json --l1 0.1 --tasks off --peer-timeout 20",
        data.display(),
        test.display()
    )
}

#[test]
fn servers_and_workers_learn_what_one_process_learns() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 30_000, 1);
    let test = clicks(&folder.path().join("test.svm"), 10_000, 2);
    let alone = run(&format!("train {} --test {} --json --l1 0.1", data.display(), test.display())).json();
    let loss = |v: &serde_json::Value, name: &str| v[name].as_f64().unwrap_or_else(|| panic!("{name}: {v}"));

    for (transport, reported) in TRANSPORTS {
        let line = |hosts: &str, workers, index| {
            format!("{} --transport {transport}", worker_line(&data, &test, hosts, workers, index))
        };
        let (_served, hosts) = servers(1, None);
        let one = run(&line(&hosts, 1, 0)).json();
        // With one worker, replay is the online learner itself. Only the order of additions differs.
        assert!((loss(&one, "logloss") - loss(&alone, "logloss")).abs() < 1e-5, "{one} {alone}");
        assert!((loss(&one, "test_logloss") - loss(&alone, "test_logloss")).abs() < 1e-5);
        assert_eq!((&one["rows"], &one["transport"]), (&alone["rows"], &reported.into()));

        let (_served, hosts) = servers(2, None);
        let second = Process::start(gannet(&line(&hosts, 2, 1)));
        let first = run(&line(&hosts, 2, 0));
        let second = second.wait();
        let (first, second) = (first.json(), second.json());
        assert_eq!(first["examples"].as_u64().unwrap() + second["examples"].as_u64().unwrap(), 30_000);
        assert_eq!(first["rows"], alone["rows"]);
        let ratio = loss(&first, "test_logloss") / loss(&one, "test_logloss");
        assert!((ratio - 1.0).abs() < 0.005, "two and two: {ratio} of one and one");
        assert!(second["test_logloss"].is_null());
    }
}

/// Sends data to a worker through a pipe, so that the job continues for as long as the test wants.
#[test]
fn a_killed_server_comes_back_and_no_push_is_lost_or_doubled() {
    TRANSPORTS.iter().for_each(|(transport, _)| kill_servers_of_a_job_over(transport, [2; 4]));
}

/// Once workers ended with an error if a server came back with another number of threads. A restart may change
/// that number.
#[test]
fn nor_when_it_comes_back_with_another_number_of_threads() {
    kill_servers_of_a_job_over("tcp", [1, 4, 3, 1]);
    kill_servers_of_a_job_over("auto", [4, 1, 2, 4]);
}

/// `threads`: the numbers of threads of the first servers, and of each server that comes back.
fn kill_servers_of_a_job_over(transport: &str, threads: [u32; 4]) {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 20_000, 3);
    let test = clicks(&folder.path().join("test.svm"), 5_000, 4);
    let alone = run(&format!(
        "train {} --test {} --json --l1 0.1 --out {}",
        data.display(),
        test.display(),
        folder.path().join("alone").display()
    ))
    .json();

    let (mut served, hosts) = servers_of(2, Some(folder.path()), threads[0]);
    let line = format!("{} --transport {transport}", worker_line(Path::new("-"), &test, &hosts, 1, 0));
    let out = folder.path().join("model");
    let mut command = gannet(&format!("{line} --out {}", out.display()));
    command.stdin(std::process::Stdio::piped());
    let mut worker = Process::start(command);
    let mut pipe = worker.child.0.stdin.take().unwrap();
    let bytes = std::fs::read(&data).unwrap();
    let cuts = [0, bytes.len() / 4, bytes.len() / 2, bytes.len() * 3 / 4, bytes.len()];
    for (round, cut) in cuts.windows(2).enumerate() {
        pipe.write_all(&bytes[cut[0]..cut[1]]).unwrap();
        if round < 3 {
            // While the worker trains on the data that it has, one of the servers dies and comes back.
            std::thread::sleep(Duration::from_millis(30));
            let victim = served.remove(round % 2);
            let addr = victim.addr.clone();
            let index = if round % 2 == 0 { 0 } else { 1 };
            victim.kill();
            let mut command = gannet(&format!("server --listen {addr} --threads {}", threads[round + 1]));
            command.arg("--data-dir").arg(folder.path().join(index.to_string()));
            served.insert(round % 2, Served::start(command));
        }
    }
    drop(pipe);
    let done = worker.wait();
    assert_eq!(done.code, Some(0), "{done:?}");
    let trained = done.json();
    assert_eq!((&trained["examples"], &trained["rows"]), (&alone["examples"], &alone["rows"]));
    let difference = trained["test_logloss"].as_f64().unwrap() - alone["test_logloss"].as_f64().unwrap();
    assert!(difference.abs() < 1e-5, "{trained} {alone}");
    // The models agree weight by weight. A lost or duplicate push would show in the `n` of its rows.
    assert_eq!(rows(&out).len(), alone["rows"].as_u64().unwrap() as usize);
    for ((key, got), (other, want)) in rows(&out).into_iter().zip(rows(&folder.path().join("alone"))) {
        assert_eq!(key, other);
        for (g, w) in got.iter().zip(&want) {
            assert!((g - w).abs() <= 1e-3 * w.abs().max(0.1), "key {key}: {got:?}, undisturbed {want:?}");
        }
    }
}

/// Runs two workers of a deterministic job and returns the bytes of its model. The bits must not depend on the
/// servers' restarts.
fn same_bits(folder: &Path, data: &Path, test: &Path, name: &str, incarnations: &[u32]) -> Vec<Vec<u8>> {
    let images = folder.join(name);
    let (mut served, hosts) = servers_of(1, Some(&images), incarnations[0]);
    let out = folder.join(format!("{name}-model"));
    let line = |index: usize| {
        let line = worker_line(data, test, &hosts, 2, index);
        format!("{line} --deterministic --batch 32 --epochs 8 --out {}", out.display())
    };
    let mut workers = [0, 1].map(|index| Process::start(gannet(&line(index))));
    for threads in &incarnations[1..] {
        std::thread::sleep(Duration::from_millis(250));
        assert!(workers[0].child.0.try_wait().unwrap().is_none(), "the job is over before its server dies");
        let victim = served.remove(0);
        let addr = victim.addr.clone();
        victim.kill();
        let mut command = gannet(&format!("server --listen {addr} --threads {threads}"));
        command.arg("--data-dir").arg(images.join("0"));
        served.push(Served::start(command));
    }
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    let mut files: Vec<_> = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

#[test]
fn a_deterministic_model_has_the_same_bits_where_servers_come_back_with_other_threads() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 20_000, 3);
    let test = clicks(&folder.path().join("test.svm"), 1_000, 4);
    let alone = same_bits(folder.path(), &data, &test, "alone", &[2]);
    let killed = same_bits(folder.path(), &data, &test, "killed", &[1, 4, 1, 3]);
    assert!(!alone.is_empty() && alone == killed);
}

fn rows(folder: &Path) -> Vec<(u64, Vec<f32>)> {
    let mut all = Vec::new();
    let checkpoint = gannet::storage::Checkpoint::open(folder).unwrap();
    let floats = checkpoint.schema().floats();
    checkpoint.read(|k, r| all.extend(k.iter().copied().zip(r.chunks(floats).map(<[f32]>::to_vec)))).unwrap();
    all.sort_by_key(|(k, _)| *k);
    all
}

#[test]
fn a_server_that_stays_away_is_named_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 100, 1);
    let start = Instant::now();
    let line = worker_line(&data, &data, NOBODY, 1, 0).replace("--peer-timeout 20", "--peer-timeout 1");
    let done = run(&line);
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.err.contains(NOBODY) && done.err.contains("--peer-timeout"), "{done:?}");
    assert!(start.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_worker_may_be_started_first() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 1000, 1);
    let addr = free_addr();
    let worker = Process::start(gannet(&worker_line(&data, &data, &addr, 1, 0)));
    std::thread::sleep(Duration::from_millis(300));
    let ps = format!(
        "train nothing --ps-hosts {addr} --worker-hosts 127.0.0.1:9 --job-name ps --task-index 0 --threads 1 --alpha 7"
    );
    let served = Served::start(gannet(&ps));
    let done = worker.wait();
    assert_eq!((done.code, &done.json()["examples"]), (Some(0), &1000.into()));
    assert!(served.stop().contains("stopped after"));
}

#[test]
fn a_worker_that_never_comes_is_named_and_its_share_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 1000, 1);
    let (_served, hosts) = servers(1, None);
    let line = worker_line(&data, &data, &hosts, 2, 0).replace("--peer-timeout 20", "--peer-timeout 5");
    let done = run(&line);
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.err.contains("worker 1 (127.0.0.1:10) did not come (--peer-timeout)"), "{done:?}");
    assert!(done.json()["test_logloss"].is_number());
    assert_eq!(done.json()["missing_workers"], serde_json::json!([1]), "{done:?}");
}

#[test]
fn another_schema_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 500, 1);
    let (_served, hosts) = servers(1, None);
    let line = worker_line(&data, &data, &hosts, 1, 0);
    assert_eq!(run(&line).code, Some(0));
    let done = run(&line.replace("--l1 0.1", "--l1 0.2 --continue"));
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("--l1 0.1") && done.err.contains("0.2"), "{done:?}");
}

/// A full disk: files of the server may not grow beyond a limit. The push is refused, the worker says so, and
/// acknowledged rows are still there when there is space again.
#[test]
fn a_full_disk_refuses_the_push_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("0");
    let data = clicks(&folder.path().join("few.svm"), 300, 1);
    let many = folder.path().join("many.svm");
    let binary = env!("CARGO_BIN_EXE_gannet");
    let mut command = Command::new("bash");
    // 8 MiB a file (blocks of 1024 bytes): the first chunk of header, index, overflow and slab, and no more.
    let serve = format!(
        "trap '' XFSZ; ulimit -f 8192; exec {binary} server --listen 127.0.0.1:0 --threads 1 --data-dir {}",
        images.display()
    );
    command.args(["-c", &serve]);
    let served = Served::start(command);
    let few = run(&worker_line(&data, &data, &served.addr, 1, 0)).json();
    let before = few["rows"].as_u64().unwrap();
    let line = worker_line(&many, &data, &served.addr, 1, 0);
    let line = line.replace("--peer-timeout 20", "--continue --peer-timeout 3");
    // Two chunks of rows in the first of the table's shards.
    let one_shard: String = (0u64..)
        .filter(|&k| gannet::table::shard_of(gannet::table::hash(k), 64) == 5)
        .take(120_000)
        .collect::<Vec<_>>()
        .chunks(4)
        .map(|k| format!("1 {}:1 {}:1 {}:1 {}:1\n", k[0], k[1], k[2], k[3]))
        .collect();
    std::fs::write(&many, one_shard).unwrap();
    let done = run(&line);
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.err.contains("no space for new rows in shard 0"), "{done:?}");
    let addr = served.addr.clone();
    served.kill();
    // There is space again, and every acknowledged row is there.
    let served = Served::start(gannet(&format!(
        "server --listen 127.0.0.1:0 --threads 1 --data-dir {}",
        images.display()
    )));
    let again = run(&line.replace(&addr, &served.addr)).json();
    assert!(again["rows"].as_u64().unwrap() > before + 10_000, "{again}");
}

#[test]
fn garbage_ends_its_session_only() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 5000, 1);
    let (served, hosts) = servers(1, None);
    let mut bad: Vec<Vec<u8>> = vec![b"GET / HTTP/1.0\r\n\r\n".to_vec(), vec![0; 64], vec![0xff; 300_000]];
    let mut huge = vec![0u8; 64];
    huge[..2].copy_from_slice(b"GN");
    huge[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    bad.push(huge);
    for bytes in &bad {
        let mut stream = std::net::TcpStream::connect(&served[0].addr).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _ = stream.write_all(bytes);
        let mut rest = Vec::new();
        // Closed or reset: the connection is over either way, within the time limit.
        match stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "{e}"),
        }
    }
    let done = run(&worker_line(&data, &data, &hosts, 1, 0));
    assert_eq!(done.code, Some(0), "{done:?}");
}

#[test]
fn a_port_in_use_is_named() {
    let (served, _) = servers(1, None);
    let done = run(&format!("server --listen {}", served[0].addr));
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains(&served[0].addr), "{done:?}");
}

#[test]
fn a_data_folder_in_use_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (_served, _) = servers(1, Some(folder.path()));
    let images = folder.path().join("0");
    let done = run(&format!("server --listen 127.0.0.1:0 --data-dir {}", images.display()));
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.err.contains("another server uses this data folder") && done.err.contains("--data-dir"),
        "{done:?}"
    );
}

#[test]
fn a_stalled_server_is_named_and_a_woken_one_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 2000, 1);
    let (served, hosts) = servers(1, None);
    let pid = rustix::process::Pid::from_raw(served[0].id() as i32).unwrap();
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    let line = worker_line(&data, &data, &hosts, 1, 0);
    let done = run(&line.replace("--peer-timeout 20", "--peer-timeout 2"));
    rustix::process::kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.err.contains(&served[0].addr), "{done:?}");
    assert_eq!(run(&line).code, Some(0));
}

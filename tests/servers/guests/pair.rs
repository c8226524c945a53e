//! Two machines joined by a network (scripts/test_rdma.sh): a server on node 0 and workers on node 1, over each
//! transport. They train the same model as one process, also if the network is cut or the server is killed in the
//! middle.

use crate::harness::pair::Pair;
use crate::harness::*;
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The transports: the report's name, and the flags of server and worker. Without flags they use RDMA, and
/// continue over tcp while RDMA is broken.
const WAYS: &[(&str, &str)] = &[("tcp", "--transport tcp"), ("verbs", "")];

/// Few: over RDMA each row of a batch is a READ of its own, which takes an emulated device long.
const EXAMPLES: u64 = 500;
/// The flags of a training that both ways have in common.
const TRAIN: &str = "--json --l1 0.1 --batch 32";

fn server(pair: &Pair, port: &str, flags: &str) -> Served {
    Served::start(gannet(&format!("server --listen {}:{port} --threads 2 --insecure {flags}", pair.ip)))
}

fn worker(data: &Path, test: &Path, addr: &str, flags: &str) -> String {
    format!(
        "train {} --test {} {TRAIN} --ps-hosts {addr} --worker-hosts {addr} --job-name worker --insecure \
         --peer-timeout 90 --one-sided always --log info {flags}",
        data.display(),
        test.display()
    )
}

/// Training data and test data.
fn data(folder: &Path) -> (PathBuf, PathBuf) {
    (clicks(&folder.join("train.svm"), EXAMPLES, 3), clicks(&folder.join("test.svm"), EXAMPLES / 4, 4))
}

/// What one process reports for these data. It trains once for all tests.
fn alone(data: &Path, test: &Path) -> &'static Value {
    static REPORT: OnceLock<Value> = OnceLock::new();
    let line = format!("train {} --test {} {TRAIN}", data.display(), test.display());
    REPORT.get_or_init(|| run(&line).json())
}

/// As [`agrees`], for a job during which RDMA was broken: each link may have continued over any available transport.
fn agrees_over_any(done: &Done, alone: &Value, way: &str) {
    let got = done.json();
    let over = got["transport"].as_str().unwrap();
    assert!([way, "tcp", "verbs, tcp", "tcp, verbs"].contains(&over), "{done:?}");
    agrees(done, alone, over);
}

/// A lost or duplicate push would show in both numbers.
fn agrees(done: &Done, alone: &Value, way: &str) {
    assert_eq!(done.code, Some(0), "{done:?}");
    let got = done.json();
    assert_eq!((&got["examples"], &got["rows"]), (&alone["examples"], &alone["rows"]), "{got}");
    assert_eq!(got["transport"], way, "{done:?}");
    let loss = |report: &Value| report["test_logloss"].as_f64().unwrap();
    assert!((loss(&got) - loss(alone)).abs() < 1e-5, "{got} {alone}");
}

/// Trains with half of the data, runs `between`, and continues with the rest.
fn interrupted(line: &str, data: &Path, between: impl FnOnce()) -> Done {
    let mut command = gannet(&line.replacen(&data.display().to_string(), "-", 1));
    command.stdin(Stdio::piped());
    let mut worker = Process::start(command);
    let mut pipe = worker.child.0.stdin.take().unwrap();
    // So that the worker has read most of what was written.
    rustix::pipe::fcntl_setpipe_size(&pipe, 4096).unwrap();
    let bytes = std::fs::read(data).unwrap();
    let (front, back) = bytes.split_at(bytes.len() / 2);
    pipe.write_all(front).unwrap();
    between();
    pipe.write_all(back).unwrap();
    drop(pipe);
    worker.wait()
}

#[test]
fn a_job_on_two_machines_learns_what_one_process_learns() {
    let Some(pair) = Pair::of("parity") else { return };
    let folder = tempfile::tempdir().unwrap();
    for (way, flags) in WAYS {
        if pair.rank == 0 {
            let served = server(&pair, "0", flags);
            pair.send(&format!("{way}.addr"), &served.addr);
            pair.wait_for(&format!("{way}.done"));
            served.stop();
        } else {
            let (data, test) = data(folder.path());
            let alone = alone(&data, &test);
            let addr = pair.wait_for(&format!("{way}.addr"));
            agrees(&run(&worker(&data, &test, &addr, flags)), alone, way);
            pair.send(&format!("{way}.done"), "");
        }
    }
}

#[test]
fn a_wire_that_is_cut_in_the_middle_loses_and_doubles_nothing() {
    let Some(pair) = Pair::of("cut").filter(|pair| pair.guests) else { return };
    let folder = tempfile::tempdir().unwrap();
    let link = |state: &str| {
        assert!(Command::new("ip").args(["link", "set", "eth0", state]).status().unwrap().success());
    };
    for (way, flags) in WAYS {
        if pair.rank == 0 {
            let served = server(&pair, "0", flags);
            pair.send(&format!("{way}.addr"), &served.addr);
            pair.wait_for(&format!("{way}.done"));
            served.stop();
        } else {
            let (data, test) = data(folder.path());
            let alone = alone(&data, &test);
            let addr = pair.wait_for(&format!("{way}.addr"));
            let done = interrupted(&worker(&data, &test, &addr, flags), &data, || {
                link("down");
                std::thread::sleep(std::time::Duration::from_secs(3));
                link("up");
            });
            agrees_over_any(&done, alone, way);
            // The network works again over the same transport.
            let again = run(&worker(&data, &test, &addr, &format!("--transport {way} --run again")));
            assert_eq!((again.code, &again.json()["transport"]), (Some(0), &Value::from(*way)), "{again:?}");
            pair.send(&format!("{way}.done"), "");
        }
    }
}

#[test]
fn a_server_that_is_killed_in_the_middle_comes_back_and_nothing_is_lost_or_doubled() {
    let Some(pair) = Pair::of("killed") else { return };
    let folder = tempfile::tempdir().unwrap();
    for (way, flags) in WAYS {
        if pair.rank == 0 {
            let flags = format!("{flags} --data-dir {}", folder.path().join(way).display());
            let served = server(&pair, "0", &flags);
            let addr = served.addr.clone();
            pair.send(&format!("{way}.addr"), &addr);
            pair.wait_for(&format!("{way}.half"));
            served.kill();
            let served = server(&pair, addr.rsplit_once(':').unwrap().1, &flags);
            pair.send(&format!("{way}.back"), "");
            pair.wait_for(&format!("{way}.done"));
            served.stop();
        } else {
            let (data, test) = data(folder.path());
            let alone = alone(&data, &test);
            let addr = pair.wait_for(&format!("{way}.addr"));
            let done = interrupted(&worker(&data, &test, &addr, flags), &data, || {
                pair.send(&format!("{way}.half"), "");
                pair.wait_for(&format!("{way}.back"));
            });
            agrees_over_any(&done, alone, way);
            pair.send(&format!("{way}.done"), "");
        }
    }
}

#[test]
fn a_wrong_token_ends_its_own_session_only() {
    let Some(pair) = Pair::of("token") else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("0123456789abcdef-{name}\n")).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        format!("--token-file {}", path.display())
    };
    let (right, wrong) = (file("right"), file("wrong"));
    for (way, flags) in WAYS {
        if pair.rank == 0 {
            let served = server(&pair, "0", &format!("{flags} {right}"));
            pair.send(&format!("{way}.addr"), &served.addr);
            pair.wait_for(&format!("{way}.done"));
            served.stop();
        } else {
            let (data, test) = data(folder.path());
            let alone = alone(&data, &test);
            let addr = pair.wait_for(&format!("{way}.addr"));
            let done = interrupted(&worker(&data, &test, &addr, &format!("{flags} {right}")), &data, || {
                let refused = run(&worker(&data, &test, &addr, &format!("{flags} {wrong}")));
                assert_eq!(refused.code, Some(3), "{refused:?}");
                assert!(refused.err.contains("token"), "{refused:?}");
            });
            agrees_over_any(&done, alone, way);
            pair.send(&format!("{way}.done"), "");
        }
    }
}

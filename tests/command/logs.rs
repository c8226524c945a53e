//! Standard error, tested from outside: levels, and with --log-json one object a line.

use crate::harness;

use harness::*;
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Runs a server and a worker of a job. Returns the worker's output, the server's standard error, and the server's
/// address.
fn job(serve: &str, filter: &str, train: &str) -> (Done, String, String) {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = with_filter(&format!("server --listen 127.0.0.1:0 {serve}"), filter);
    command.stderr(log.reopen().unwrap());
    let served = Served::start(command);
    let addr = served.addr.clone();
    let worker =
        run(&format!("train {train} --ps-hosts {addr} --worker-hosts 127.0.0.1:9 --job-name worker --json"));
    assert_eq!(worker.code, Some(0), "{worker:?}");
    served.stop();
    (worker, std::fs::read_to_string(log.path()).unwrap(), addr)
}

/// Every line as an object, after checking the fields that each must have.
fn objects(err: &str) -> Vec<Value> {
    let parse = |line: &str| {
        let object: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line:?} in {err}"));
        for field in ["timestamp", "level", "target", "message"] {
            assert!(object[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {line}");
        }
        assert!(object["timestamp"].as_str().is_some_and(|t| t.len() > 20 && t.ends_with('Z')), "{line}");
        object
    };
    err.lines().map(parse).collect()
}

fn of<'a>(objects: &'a [Value], target: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["target"] == target).collect()
}

fn with_filter(line: &str, filter: &str) -> Command {
    let mut command = gannet(line);
    command.env("GANNET_LOG", filter);
    command
}

#[test]
fn failures_and_misused_flags_are_objects_too() {
    for (line, code, expected) in [
        ("train nowhere.svm --log-json", 2, "nowhere.svm"),
        ("--log-json --log off train nowhere.svm", 2, "nowhere.svm"),
        ("server --listen 127.0.0.1:0 --threads 0 --log-json", 2, "1..=256"),
        ("train --log-json", 2, "DATA is missing"),
        ("server --listen 0.0.0.0:0 --log-json", 2, "loopback"),
    ] {
        let done = run(line);
        assert_eq!(done.code, Some(code), "{line}: {done:?}");
        let objects = objects(&done.err);
        assert_eq!(objects.len(), 1, "{line}: {done:?}");
        let failure = &objects[0];
        assert_eq!((&failure["level"], &failure["code"]), (&"ERROR".into(), &code.into()), "{failure}");
        assert!(failure["message"].as_str().unwrap().contains(expected), "{failure}");
        assert!(done.out.is_empty(), "{done:?}");
    }
    // Help is no failure, and goes to standard output.
    let help = run("--log-json --help");
    assert!(help.code == Some(0) && help.err.is_empty() && help.out.contains("--log-json"), "{help:?}");
}

#[test]
fn progress_and_complaints_are_objects_and_results_stay_on_standard_output() {
    let mut command = gannet("train - --format libsvm --skip-bad-lines 5 --log-json --batch 64");
    command.stdin(Stdio::piped());
    let mut process = Process::start(command);
    let mut pipe = process.child.0.stdin.take().unwrap();
    for part in 0..8 {
        pipe.write_all("1 1:1 2:1\n0 3:1\n".repeat(500).as_bytes()).unwrap();
        if part == 4 {
            pipe.write_all(b"once upon\n").unwrap();
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(pipe);
    let done = process.wait();
    assert_eq!(done.code, Some(0), "{done:?}");
    let objects = objects(&done.err);
    let progress = of(&objects, "gannet::progress");
    assert!(!progress.is_empty(), "{done:?}");
    for object in progress {
        assert!(object["examples"].as_u64().unwrap() > 0 && object["log_loss"].is_number(), "{object}");
        assert_eq!((&object["epoch"], &object["level"]), (&1.into(), &"INFO".into()));
    }
    let notices = of(&objects, "gannet::notice");
    assert!(notices[0]["message"].as_str().unwrap().starts_with("1 bad line was skipped"), "{done:?}");
    assert!(done.out.contains("examples in") && done.out.contains("rows"), "{done:?}");
}

#[test]
fn a_job_tells_peers_and_tables_in_fields() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 2_000, 1);
    let threads = 2;
    let serve = format!("--threads {threads} --log debug --log-json");
    let (worker, log, addr) = job(&serve, "", &format!("{} --log-json --log info", data.display()));
    assert_eq!(worker.json()["examples"], 2_000);
    objects(&worker.err);
    let objects = objects(&log);
    let with = |message: &str| {
        let found: Vec<_> = objects.iter().filter(|object| object["message"] == message).collect();
        assert!(!found.is_empty(), "{message}: {log}");
        found
    };
    assert_eq!(with("serving")[0]["addr"], addr.as_str());
    let opened = with("table opened");
    for table in ["default.lr", "default.lr-norm"] {
        let of_it = opened.iter().filter(|object| object["table"] == table && object["thread"].is_u64());
        assert_eq!(of_it.count(), threads, "{opened:?}");
    }
    assert_eq!(opened.len(), 2 * threads);
    let ended = with("a session ended");
    // Shared memory: both processes are on one host.
    let of = |o: &serde_json::Value| o["peer"].as_str().unwrap().to_owned();
    assert!(ended.iter().all(|o| of(o).starts_with("process ") && of(o).ends_with(" (shm)")), "{ended:?}");
    assert!(ended.iter().all(|o| o["threadName"].as_str().unwrap().starts_with("gannet-shard-")));
}

#[test]
fn levels_come_from_the_flag_then_the_environment_then_warn() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 500, 1);
    let serve = |flags: &str, filter: &str| {
        job(&format!("--threads 1 {flags}"), filter, &data.display().to_string()).1
    };
    assert_eq!(serve("", ""), "", "warn is the default");
    assert!(serve("", "info").contains("table opened"));
    assert!(serve("--log info", "off").contains("table opened"), "the flag goes before the environment");
    assert_eq!(serve("--log error", "info"), "");
    let of_other = serve("--log warn,gannet_transport=trace", "");
    assert!(!of_other.contains("table opened"), "{of_other}");
    let human = serve("--log info,gannet_server=info", "");
    assert!(human.contains(" INFO ") && serde_json::from_str::<Value>(&human).is_err(), "{human}");
}

#[test]
fn a_level_that_is_none_is_refused() {
    for (line, filter, from) in [
        ("train nowhere.svm --log verbose", "", "--log \"verbose\""),
        ("train nowhere.svm --log info,gannet_server=loud", "", "--log"),
        ("train nowhere.svm --log gannet_server", "", "\"gannet_server\" is no level"),
        ("train nowhere.svm", "loud", "GANNET_LOG \"loud\""),
    ] {
        let done = Process::start(with_filter(line, filter)).wait();
        assert_eq!(done.code, Some(2), "{line}: {done:?}");
        assert!(done.err.contains(from) && done.err.contains("debug"), "{line}: {done:?}");
        assert_eq!(done.err.trim().lines().count(), 1, "{done:?}");
    }
}

//! Runs that nobody needs any more: `gannet status` lists them, and `gannet forget` deletes them.

use crate::harness;

use harness::*;
use rustix::process::Signal;
use std::process::Stdio;
use std::time::Instant;

#[test]
fn no_command_deleted_a_run_and_its_name_stayed_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 300, 1).display().to_string();
    let kept = folder.path().join("server");
    let serve = format!("server --listen 127.0.0.1:0 --threads 2 --data-dir {}", kept.display());
    let server = Served::start(gannet(&serve));
    let to = format!("--ps-hosts {}", server.addr);
    let train = format!("train {data} {to} --worker-hosts a:1 --job-name worker --tasks on --run monday");
    ok(&train);
    let status = ok(&format!("status {to}")).out;
    assert!(status.contains("run        monday  finished, generation 1"), "{status}");
    assert!(status.contains("table      monday.lr  ") && status.contains(" of 4096 pushers\n"), "{status}");
    let object = ok(&format!("status {to} --json")).json();
    assert_eq!(object["tables"][0]["name"], "monday.lr", "{object}");
    assert!(object["tables"][0]["pushers"].as_u64().is_some_and(|pushers| pushers > 0), "{object}");
    assert_eq!(object["tables"][0]["clients_gone"], 0, "{object}");
    refused(&train, &["run \"monday\" is finished"]);
    refused(&format!("forget {to} --run monday --clients"), &["--run", "--clients"]);
    let clients = ok(&format!("forget {to} --clients")).out;
    let forgotten =
        "0 clients that had no session for a minute: forgotten; the fullest shard still remembers ";
    assert!(clients.starts_with(forgotten), "{clients}");
    refused(&format!("forget {to} --run tuesday"), &["know of no such run; they know of monday"]);
    let forget = format!("forget {to} --run monday");
    assert_eq!(ok(&forget).out, "run monday is forgotten: 2 tables dropped\n");
    refused(&forget, &["the servers know of no run"]);
    assert!(!ok(&format!("status {to}")).out.contains("monday"));
    let files: Vec<String> = std::fs::read_dir(&kept)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("monday"))
        .collect();
    assert!(files.is_empty(), "{files:?}");
    // The name is free again, also at a server that was started again.
    ok(&train);
    server.stop();
    let server = Served::start(gannet(&serve));
    ok(&format!("forget --ps-hosts {} --run monday", server.addr));
}

#[test]
fn a_run_with_a_live_worker_is_not_forgotten() {
    let server = Served::start(gannet("server --listen 127.0.0.1:0 --threads 1"));
    let to = format!("--ps-hosts {}", server.addr);
    let train = format!(
        "train - --format libsvm {to} --worker-hosts a:1 --job-name worker --tasks off --damping off"
    );
    let mut command = gannet(&train);
    command.stdin(Stdio::piped());
    let worker = Process::start(command);
    let since = Instant::now();
    while !run(&format!("status {to}")).out.contains("worker 0   live") {
        assert!(since.elapsed() < limit(), "the worker does not come");
    }
    let forget = format!("forget {to} --run default");
    refused(&forget, &["worker 0 is in it and lives", "end its workers first"]);
    worker.signal(Signal::KILL);
    let _ = worker.wait();
    while run(&forget).code != Some(0) {
        assert!(since.elapsed() < limit(), "the run stays");
    }
}

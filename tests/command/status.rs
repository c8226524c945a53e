//! `gannet status`, tested from outside. Its output about runs, workers and servers must be true, and an
//! unknown value must not be shown as a number.

use crate::harness;

use harness::*;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

fn server() -> Served {
    Served::start(gannet("server --listen 127.0.0.1:0 --threads 1"))
}

fn data(folder: &Path) -> PathBuf {
    clicks(&folder.join("train.svm"), 500, 1)
}

/// The command line of a worker of two, or of one.
fn line(data: &str, server: &Served, workers: &str, more: &str) -> String {
    format!(
        "train {data} --ps-hosts {} --worker-hosts {workers} --job-name worker --peer-timeout 20 {more}",
        server.addr
    )
}

/// The output, as soon as it contains these words.
fn until(line: &str, words: &str) -> String {
    let since = Instant::now();
    loop {
        let done = run(line);
        if done.out.contains(words) {
            return done.out;
        }
        assert!(since.elapsed() < limit(), "{words}: {done:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Once it said `scheduler has had no job of run off` while the run was trained, and `running` when no worker
/// trained any more.
#[test]
fn a_run_of_fixed_shares_was_said_never_to_have_been() {
    let server = server();
    let mut command =
        gannet(&line("-", &server, "a:1,b:1", "--format libsvm --tasks off --run off --damping off"));
    command.stdin(Stdio::piped());
    let worker = Process::start(command);
    let status = format!("status --ps-hosts {} --run off", server.addr);
    let out = until(&status, "run off: fixed shares, no data is handed out");
    assert!(out.contains("run        off  running, generation 1, 1 worker live"), "{out}");
    assert!(out.contains("worker 0   live, 0 batches trained\n"), "{out}");
    // The only run need not be named. The worker may have opened its table meanwhile.
    let without_tables = |out: &str| -> Vec<String> {
        out.lines().filter(|line| !line.starts_with("table ")).map(str::to_owned).collect()
    };
    let unnamed = ok(&format!("status --ps-hosts {}", server.addr)).out;
    assert_eq!(without_tables(&unnamed), without_tables(&out));
    worker.signal(Signal::KILL);
    let _ = worker.wait();
    let out = until(&status, "run        off  not finished, no worker is alive, generation 1");
    assert!(out.contains("worker 0   gone, not done, 0 batches trained\n"), "{out}");
}

/// Once it said `clock 0 0 examples 0/s log loss 0.00000` for a worker that had reported nothing, in a run with `0
/// workers live`.
#[test]
fn values_that_a_worker_had_not_reported_were_shown_as_zeros() {
    let folder = tempfile::tempdir().unwrap();
    let (server, data) = (server(), data(folder.path()));
    let more = "--tasks on --start-together";
    let worker = Process::start(gannet(&line(&data.display().to_string(), &server, "a:1,b:1", more)));
    let status = format!("status --ps-hosts {}", server.addr);
    let out = until(&status, "waits at a barrier");
    let says = "worker 0   live, chief, waits at a barrier  clock -  - examples  -/s  log loss -  staleness -  tasks none";
    assert!(out.contains(says), "{out}");
    assert!(out.contains("running, generation 1, 1 worker live"), "{out}");
    assert!(out.contains("job of run default runs") && out.contains(" 0 records, -/s"), "{out}");
    let object = ok(&format!("{status} --json")).json();
    assert!(object["job"]["workers"][0]["logloss"].is_null(), "{object}");
    assert_eq!(object["runs"][0]["live_workers"], 1, "{object}");
    // For the scheduler a killed worker is alive until its timeout. Both lines must agree.
    worker.signal(Signal::KILL);
    let _ = worker.wait();
    let out = run(&status).out;
    assert_eq!(out.contains("worker 0   live"), out.contains("1 worker live"), "{out}");
}

/// Once it said `left, chief, tests or saves` long after the end, with a log loss of 0.00000 and no examples.
#[test]
fn a_worker_that_left_was_said_to_save() {
    let folder = tempfile::tempdir().unwrap();
    let (server, data) = (server(), data(folder.path()));
    for model in ["lr", "fm"] {
        let more = format!("--tasks on --run {model} --model {model}");
        ok(&line(&data.display().to_string(), &server, "a:1", &more));
        let out = ok(&format!("status --ps-hosts {} --run {model}", server.addr)).out;
        assert!(out.contains("worker 0   left  clock ") && !out.contains("chief"), "{out}");
        assert!(out.contains("  500 examples  ") && !out.contains("log loss 0.00000"), "{out}");
        assert!(!out.contains("log loss -"), "{out}");
        assert!(out.contains(&format!("job of run {model} is done")), "{out}");
        let object = ok(&format!("status --ps-hosts {} --run {model} --json", server.addr)).json();
        assert!(object["job"]["workers"][0]["at"].is_null(), "{object}");
    }
}

/// Once it said nothing about the other servers if the first was down. If the second was down, it printed the
/// same sentence three times.
#[test]
fn a_server_that_was_down_hid_the_others() {
    let server = server();
    // Addresses where no process listens (only root may). One sorts before every other address and one after.
    for nobody in [NOBODY, "127.0.0.1:9"] {
        for hosts in [format!("{},{nobody}", server.addr), format!("{nobody},{}", server.addr)] {
            let done = run(&format!("status --ps-hosts {hosts} --peer-timeout 1"));
            assert_eq!(done.code, Some(3), "{done:?}");
            assert_eq!(done.out.matches(&format!("server     {}  answers over", server.addr)).count(), 1);
            assert_eq!(done.out.matches(&format!("server     {nobody}  has not answered")).count(), 1);
            assert_eq!(done.out.matches("has not answered").count(), 1, "{done:?}");
            assert!(done.out.contains("runs       not known"), "{done:?}");
            let end = format!("gannet: server {nobody} does not answer");
            assert_eq!(done.err.lines().last(), Some(end.as_str()), "{done:?}");
        }
    }
    // A server that is named twice is shown once.
    let done = ok(&format!("status --ps-hosts {0},{0}", server.addr));
    assert_eq!(done.out.matches("answers over").count(), 1, "{done:?}");
}

/// Once `--run nosuch` ended with code 0.
#[test]
fn status_of_an_unknown_run_ended_with_exit_code_0() {
    let folder = tempfile::tempdir().unwrap();
    let (server, data) = (server(), data(folder.path()));
    let status = format!("status --ps-hosts {}", server.addr);
    assert!(ok(&status).out.contains("has had no job"));
    refused(&format!("{status} --run nosuch"), &["--run nosuch", "no run so far"]);
    for name in ["one", "two"] {
        ok(&line(&data.display().to_string(), &server, "a:1", &format!("--run {name}")));
    }
    for json in ["", " --json"] {
        refused(&format!("{status} --run nosuch{json}"), &["--run nosuch", "one, two"]);
    }
    refused(&format!("status --scheduler {} --run nosuch", server.addr), &["--run nosuch", "--ps-hosts"]);
    assert!(ok(&status).out.contains("name another: --run NAME"));
}

/// Peers that accept connections and never say anything. Each connection is told.
fn mute_peers(count: usize) -> (Vec<String>, Receiver<usize>) {
    let (say, said) = channel();
    let listen = |peer: usize| {
        let (listener, say) = (TcpListener::bind("127.0.0.1:0").unwrap(), say.clone());
        let addr = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            while let Ok((stream, _)) = listener.accept() {
                kept.push(stream);
                let _ = say.send(peer);
            }
        });
        addr
    };
    ((0..count).map(listen).collect(), said)
}

/// With three servers and the coordinator down, `--peer-timeout 2` once took 21.7 s. Here the time of a single peer is
/// longer than that of this test.
#[test]
fn a_silent_peer_delayed_the_questions_to_the_others() {
    let (peers, told) = mute_peers(4);
    let (hosts, coordinator) = (peers[..3].join(","), &peers[3]);
    let line =
        format!("status --ps-hosts {hosts} --coordinator {coordinator} --peer-timeout 600 --transport tcp");
    let mut status = Process::start(gannet(&line));
    let mut connected = BTreeSet::new();
    while connected.len() < peers.len() {
        let peer = told.recv_timeout(limit());
        connected.insert(peer.unwrap_or_else(|_| panic!("of 4 peers only {connected:?} were asked")));
    }
    assert!(status.is_alive());
    status.signal(Signal::KILL);
    let _ = status.wait();
}

/// Once the answers of servers were lost when the coordinator was silent, and silent servers were asked twice.
#[test]
fn a_silent_coordinator_hid_what_the_servers_know() {
    let folder = tempfile::tempdir().unwrap();
    let (server, data) = (server(), data(folder.path()));
    ok(&line(&data.display().to_string(), &server, "a:1", "--tasks on --run monday"));
    let (mute, told) = mute_peers(3);
    let hosts = format!("{},{},{}", mute[0], server.addr, mute[1]);
    let status = format!(
        "status --ps-hosts {hosts} --coordinator {} --run monday --peer-timeout 2 --transport tcp",
        mute[2]
    );
    let done = run(&status);
    assert_eq!(done.code, Some(3), "{done:?}");
    let mut silent = [mute[0].as_str(), mute[1].as_str()];
    silent.sort_unstable();
    let end = format!("gannet: the coordinator {} does not answer, nor does {}", mute[2], silent.join(", "));
    assert_eq!(done.err.lines().last(), Some(end.as_str()), "{done:?}");
    for mute in silent {
        assert!(done.out.contains(&format!("server     {mute}  has not answered for")), "{done:?}");
    }
    assert!(done.out.contains(&format!("server     {}  answers over tcp", server.addr)), "{done:?}");
    assert!(done.out.contains("places     not known: "), "{done:?}");
    assert!(done.out.contains("run        monday  finished, generation 1"), "{done:?}");
    assert!(done.out.contains("job of run monday is done"), "{done:?}");
    let asked: Vec<usize> = told.try_iter().collect();
    assert_eq!((0..2).map(|peer| asked.iter().filter(|at| **at == peer).count()).max(), Some(1), "{asked:?}");
    // Only the coordinator is silent.
    let status = format!("status --ps-hosts {} --coordinator {} --peer-timeout 2", server.addr, mute[2]);
    let done = run(&status);
    assert_eq!(done.code, Some(3), "{done:?}");
    let end = format!("gannet: the coordinator {} cannot be queried", mute[2]);
    assert!(done.err.lines().last().unwrap().starts_with(&end), "{done:?}");
}

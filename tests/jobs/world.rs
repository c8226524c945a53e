//! Data, servers and workers for the tests about runs.

use crate::harness;

use harness::{Done, Process, Served, clicks, gannet, limit, run};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A folder for the files of a test. Tests add their data.
pub struct Place {
    pub folder: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Place {
        Place { folder: tempfile::tempdir().unwrap() }
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Data, and servers that may be restarted on their folders.
pub struct World {
    pub folder: tempfile::TempDir,
    pub data: PathBuf,
}

impl World {
    pub fn new(examples: u64) -> World {
        let folder = tempfile::tempdir().unwrap();
        let data = clicks(&folder.path().join("train.svm"), examples, 7);
        World { folder, data }
    }

    pub fn server(&self, listen: &str, name: &str, threads: u32) -> Served {
        let mut command = gannet(&format!("server --listen {listen} --threads {threads}"));
        command.arg("--data-dir").arg(self.folder.path().join(name));
        Served::start(command)
    }

    pub fn line(&self, hosts: &str, workers: usize, index: usize, more: &str) -> String {
        line_of(&self.data.display().to_string(), hosts, workers, index, more)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

pub fn line_of(data: &str, hosts: &str, workers: usize, index: usize, more: &str) -> String {
    let worker_hosts = (0..workers).map(|i| format!("w{i}:9")).collect::<Vec<_>>().join(",");
    format!(
        "train {data} --ps-hosts {hosts} --worker-hosts {worker_hosts} --job-name worker --task-index {index} \
         --json --damping off --peer-timeout 20 {more}"
    )
}

pub fn start(line: &str) -> Process {
    Process::start(gannet(line))
}

/// A worker whose data comes through a pipe, so that it trains for as long as the test wants.
pub fn piped(hosts: &str, workers: usize, index: usize, more: &str) -> (Process, std::process::ChildStdin) {
    piped_for(20, hosts, workers, index, more)
}

/// As [`piped`], with another peer timeout.
pub fn piped_for(
    seconds: u32,
    hosts: &str,
    workers: usize,
    index: usize,
    more: &str,
) -> (Process, std::process::ChildStdin) {
    let line = line_of("-", hosts, workers, index, more);
    let mut command = gannet(&line.replace("--peer-timeout 20", &format!("--peer-timeout {seconds}")));
    command.stdin(Stdio::piped());
    let mut worker = Process::start(command);
    let pipe = worker.child.0.stdin.take().unwrap();
    (worker, pipe)
}

pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < limit(), "not yet: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn ok(done: &Done) -> serde_json::Value {
    assert_eq!(done.code, Some(0), "{done:?}");
    done.json()
}

#[track_caller]
pub fn refused(done: &Done, words: &[&str]) {
    assert_eq!(done.code, Some(2), "{done:?}");
    for word in words {
        assert!(done.err.contains(word), "{word}: {done:?}");
    }
}

/// The runs that `gannet status` lists.
pub fn runs(hosts: &str) -> Vec<serde_json::Value> {
    let done = run(&format!("status --ps-hosts {hosts} --json"));
    ok(&done)["runs"].as_array().cloned().unwrap_or_else(|| panic!("{done:?}"))
}

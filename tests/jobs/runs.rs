//! Runs on the same servers, from outside: whose rows they are, what a second start does, and workers that do not agree.

use crate::harness;

use harness::*;
use rustix::process::Signal;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Data, and servers that may come back on their folders.
struct World {
    folder: tempfile::TempDir,
    data: PathBuf,
}

impl World {
    fn new(examples: u64) -> World {
        let folder = tempfile::tempdir().unwrap();
        let data = clicks(&folder.path().join("train.svm"), examples, 7);
        World { folder, data }
    }

    fn server(&self, listen: &str, name: &str, threads: u32) -> Served {
        let mut command = gannet(&format!("server --listen {listen} --threads {threads}"));
        command.arg("--data-dir").arg(self.folder.path().join(name));
        Served::start(command)
    }

    fn line(&self, hosts: &str, workers: usize, index: usize, more: &str) -> String {
        line_of(&self.data.display().to_string(), hosts, workers, index, more)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn line_of(data: &str, hosts: &str, workers: usize, index: usize, more: &str) -> String {
    let worker_hosts = (0..workers).map(|i| format!("w{i}:9")).collect::<Vec<_>>().join(",");
    format!(
        "train {data} --ps-hosts {hosts} --worker-hosts {worker_hosts} --job-name worker --task-index {index} \
         --json --damping off --peer-timeout 20 {more}"
    )
}

fn start(line: &str) -> Process {
    Process::start(gannet(line))
}

/// A worker whose data comes through a pipe, so that it trains for as long as the test wants.
fn piped(hosts: &str, workers: usize, index: usize, more: &str) -> (Process, std::process::ChildStdin) {
    piped_for(20, hosts, workers, index, more)
}

/// The same with another peer timeout.
fn piped_for(
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

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < limit(), "not yet: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn ok(done: &Done) -> serde_json::Value {
    assert_eq!(done.code, Some(0), "{done:?}");
    done.json()
}

#[track_caller]
fn refused(done: &Done, words: &[&str]) {
    assert_eq!(done.code, Some(2), "{done:?}");
    for word in words {
        assert!(done.err.contains(word), "{word}: {done:?}");
    }
}

/// The runs that the servers know of, as `gannet status` tells.
fn runs(hosts: &str) -> Vec<serde_json::Value> {
    let done = run(&format!("status --ps-hosts {hosts} --json"));
    ok(&done)["runs"].as_array().cloned().unwrap_or_else(|| panic!("{done:?}"))
}

/// The second training went on in the rows of the first, and its progressive loss was of rows that it had seen.
#[test]
fn a_second_job_went_on_in_the_rows_of_the_first_and_nobody_said_so() {
    let world = World::new(4_000);
    let (a, b) = (world.server("127.0.0.1:0", "a", 1), world.server("127.0.0.1:0", "b", 2));
    let hosts = format!("{},{}", a.addr, b.addr);
    let first = ok(&run(&world.line(&hosts, 1, 0, "")));
    refused(&run(&world.line(&hosts, 1, 0, "")), &["\"default\"", "--continue", "--fresh", "--run", "rows"]);
    // Whoever names the hosts in another order, and whatever else was given, is told the same.
    let turned = format!("{},{}", b.addr, a.addr);
    refused(&run(&world.line(&turned, 1, 0, "--epochs 2")), &["--continue", "--fresh"]);
    let on = ok(&run(&world.line(&turned, 1, 0, "--continue")));
    assert_eq!((&on["rows"], &on["run"]["generation"]), (&first["rows"], &2.into()), "{on}");
    assert!(on["logloss"].as_f64() < first["logloss"].as_f64(), "{on} {first}");
    let fresh = ok(&run(&world.line(&hosts, 1, 0, "--fresh")));
    let (was, is) = (first["logloss"].as_f64().unwrap(), fresh["logloss"].as_f64().unwrap());
    assert!((was - is).abs() < 1e-6, "{fresh} {first}");
    // The rows of before are given back.
    for folder in ["a", "b"] {
        let tables: Vec<_> = std::fs::read_dir(world.file(folder)).unwrap().map(|e| e.unwrap()).collect();
        let tables = tables.iter().filter(|entry| entry.file_type().unwrap().is_dir()).count();
        assert_eq!(tables, 1, "{folder}");
    }
    let other = ok(&run(&world.line(&hosts, 1, 0, "--run other")));
    assert!((was - other["logloss"].as_f64().unwrap()).abs() < 1e-6, "{other}");
    let known = runs(&turned);
    let known: Vec<_> = known.iter().map(|run| (&run["name"], &run["state"], &run["generation"])).collect();
    let (default, other) = ("default".into(), "other".into());
    let done = "finished".into();
    assert_eq!(known, [(&default, &done, &3.into()), (&other, &done, &1.into())]);
    refused(&run(&world.line(&hosts, 1, 0, "--run no/name")), &["--run", "no/name"]);
    refused(&run(&world.line(&hosts, 1, 0, "--fresh --continue")), &["--continue"]);
}

/// A job of one worker took the name of a running job's worker 0, which was then refused at the servers.
#[test]
fn an_unrelated_job_fenced_a_running_one() {
    let world = World::new(6_000);
    let server = world.server("127.0.0.1:0", "a", 2);
    let (worker, mut pipe) = piped(&server.addr, 1, 0, "");
    let bytes = std::fs::read(&world.data).unwrap();
    pipe.write_all(&bytes[..bytes.len() / 2]).unwrap();
    until("the first job runs", || runs(&server.addr).iter().any(|run| run["state"] == "running"));
    refused(&run(&world.line(&server.addr, 1, 0, "")), &["DATA", "\"default\"", "--run"]);
    refused(&run(&world.line(&server.addr, 1, 0, "--fresh")), &["\"default\"", "worker 0", "--run"]);
    let same = run(&line_of("-", &server.addr, 1, 0, ""));
    refused(&same, &["worker 0", "--task-index"]);
    let other = ok(&run(&world.line(&server.addr, 1, 0, "--run second")));
    pipe.write_all(&bytes[bytes.len() / 2..]).unwrap();
    drop(pipe);
    let first = ok(&worker.wait());
    assert_eq!((&first["examples"], &first["rows"]), (&other["examples"], &other["rows"]), "{first} {other}");
}

/// Two jobs whose data is handed out, at the same time: the second took the place of the first, or was refused for good.
#[test]
fn two_runs_could_not_have_their_data_handed_out_by_one_scheduler() {
    let world = World::new(20_000);
    let server = world.server("127.0.0.1:0", "a", 2);
    let more = "--tasks on --task-bytes 65536 --epochs 3";
    let one = start(&world.line(&server.addr, 2, 0, &format!("{more} --start-together --run one")));
    until("the first run is there", || !runs(&server.addr).is_empty());
    let two = ok(&run(&world.line(&server.addr, 1, 0, &format!("{more} --run two"))));
    assert_eq!(two["examples"], 60_000);
    let other = start(&world.line(&server.addr, 2, 1, &format!("{more} --start-together --run one")));
    let (one, other) = (ok(&one.wait()), ok(&other.wait()));
    assert_eq!(one["examples"].as_u64().unwrap() + other["examples"].as_u64().unwrap(), 60_000);
    assert_eq!(one["rows"], two["rows"], "{one} {two}");
    let status = ok(&run(&format!("status --ps-hosts {} --run two --json", server.addr)));
    assert_eq!(status["job"]["examples"], 60_000, "{status}");
}

/// Worker 1 trained along with other flags or data, and ended with exit code 0.
#[test]
fn workers_that_were_given_other_flags_trained_along() {
    let world = World::new(600);
    let server = world.server("127.0.0.1:0", "a", 1);
    let other = clicks(&world.file("other.svm"), 700, 8);
    let chief = start(&world.line(&server.addr, 2, 0, "--tasks off --epochs 3 --batch 64"));
    until("the run is there", || !runs(&server.addr).is_empty());
    let say = |data: &Path, more: &str| {
        let line = line_of(&data.display().to_string(), &server.addr, 2, 1, more);
        run(&if more.contains("--model") { line.replace("--damping off ", "") } else { line })
    };
    let cases = [
        ("--tasks off --epochs 4 --batch 64", "--epochs: worker 0 has 3, this worker (1) was given 4"),
        ("--tasks off --epochs 3 --batch 32", "--batch: worker 0 has 64, this worker (1) was given 32"),
        ("--tasks off --epochs 3 --batch 64 --no-intercept", "--no-intercept: worker 0 has no"),
        ("--tasks off --epochs 3 --batch 64 --model linear", "--model: worker 0 has lr"),
        ("--tasks off --epochs 3 --batch 64 --alpha 0.5", "--alpha: worker 0 has 0.1"),
        ("--tasks off --epochs 3 --batch 64 --numeric x", "--numeric: worker 0 has none"),
        ("--tasks on --epochs 3 --batch 64", "--tasks: worker 0 has off"),
        ("--tasks off --epochs 3 --batch 64 --sync ssp:3", "--sync: worker 0 has asp"),
    ];
    for (more, words) in cases {
        refused(&say(&world.data, more), &[words, "every worker of a run the same", "--run"]);
    }
    let more = "--tasks off --epochs 3 --batch 64";
    refused(&say(&other, more), &["DATA file 1: worker 0 has", "train.svm", "other.svm", "bytes)"]);
    let late = ok(&say(&world.data, more));
    let chief = ok(&chief.wait());
    assert_eq!(chief["examples"].as_u64().unwrap() + late["examples"].as_u64().unwrap(), 1_800);
    assert_eq!((&chief["missing_workers"], &chief["untrained_batches"]), (&serde_json::json!([]), &0.into()));
}

/// The half of a worker that never came was not trained, and the job ended with exit code 0.
#[test]
fn a_worker_that_never_came_lost_its_share_with_exit_code_0() {
    let world = World::new(1_000);
    let server = world.server("127.0.0.1:0", "a", 2);
    let out = world.file("model");
    let more = format!("--tasks off --epochs 2 --batch 64 --peer-timeout 1 --out {}", out.display());
    let line = |more: &str| world.line(&server.addr, 2, 0, more).replace("--peer-timeout 20 ", "");
    let done = run(&line(&more));
    assert_eq!(done.code, Some(3), "{done:?}");
    for words in ["waits for worker 1 (w1:9)", "16 batches", "--allow-missing-workers", "saved"] {
        assert!(done.err.contains(words), "{words}: {done:?}");
    }
    let told = done.json();
    assert_eq!((&told["missing_workers"], &told["untrained_batches"]), (&serde_json::json!([1]), &16.into()));
    assert!(out.join("MANIFEST").is_file());
    // The run is not over: who was missed may come, and the same worker goes on.
    assert_eq!(runs(&server.addr)[0]["state"], "running");
    let done = run(&line(&format!("{more} --allow-missing-workers")));
    let told = ok(&done);
    assert_eq!((&told["missing_workers"], &told["untrained_batches"]), (&serde_json::json!([1]), &16.into()));
    assert!(done.err.contains("16 batches"), "{done:?}");
    assert_eq!(runs(&server.addr)[0]["state"], "finished");
}

/// The same of one that was killed in the middle of its share; and worker 0 may be the one that is missed.
#[test]
fn a_killed_worker_lost_its_share_with_exit_code_0() {
    let world = World::new(1_000);
    let server = world.server("127.0.0.1:0", "a", 2);
    let bytes = std::fs::read(&world.data).unwrap();
    let (chief, mut one) = piped_for(3, &server.addr, 2, 0, "--batch 64");
    let (killed, mut two) = piped_for(3, &server.addr, 2, 1, "--batch 64");
    for pipe in [&mut one, &mut two] {
        pipe.write_all(&bytes).unwrap();
    }
    drop(one);
    until("both are there", || runs(&server.addr)[0]["workers"].as_array().is_some_and(|all| all.len() == 2));
    killed.signal(Signal::KILL);
    let _ = killed.wait();
    drop(two);
    // Nobody comes in its place for the peer timeout.
    let done = chief.wait();
    assert_eq!(done.code, Some(3), "{done:?}");
    let told = done.json();
    assert_eq!(told["missing_workers"], serde_json::json!([1]), "{told}");
    assert!(told["untrained_batches"].as_u64().is_some_and(|n| n <= 8), "{told}");
}

/// What was handed out was opt-in: a job without `--tasks on` lost the share of who never came.
#[test]
fn data_was_not_handed_out_unless_it_was_asked_for() {
    let world = World::new(3_000);
    let server = world.server("127.0.0.1:0", "a", 2);
    let done = run(&world.line(&server.addr, 2, 0, "--log info"));
    let told = ok(&done);
    assert_eq!(told["examples"], 3_000, "{done:?}");
    assert!(done.err.contains("handed out in pieces (--tasks auto)"), "{done:?}");
    // Its twin comes late to what is over, and does not begin it again.
    let late = run(&world.line(&server.addr, 2, 1, ""));
    assert_eq!(ok(&late)["examples"], 0, "{late:?}");
    assert!(late.err.contains("is over"), "{late:?}");
    refused(&run(&world.line(&server.addr, 2, 1, "")), &["--continue", "--fresh"]);
    for (more, why) in [
        ("--run d --deterministic --allow-missing-workers", "--deterministic"),
        ("--run l --model lda --topics 3 --allow-missing-workers", "--model lda"),
    ] {
        let line = world.line(&server.addr, 1, 0, more).replace("--damping off ", "");
        let done = run(&line);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(done.err.contains("fixed share") && done.err.contains(why), "{done:?}");
    }
}

/// `the model is saved, and the scheduler does not know that ... see that no other worker has written it too`: nobody else had.
#[test]
fn workers_that_were_all_stopped_raised_a_false_alarm() {
    let world = World::new(20_000);
    let server = world.server("127.0.0.1:0", "a", 1);
    let out = world.file("model");
    let more = format!("--tasks on --epochs 10000 --task-bytes 64KiB --out {}", out.display());
    let workers = [0, 1].map(|index| start(&world.line(&server.addr, 2, index, &more)));
    let status = || run(&format!("status --ps-hosts {}", server.addr));
    let both = || {
        let job = ok(&run(&format!("status --ps-hosts {} --json", server.addr)))["job"].clone();
        let learned = |worker: &serde_json::Value| worker["logloss"].is_number();
        job["workers"].as_array().is_some_and(|all| all.len() == 2 && all.iter().all(learned))
    };
    until("both learn", both);
    workers.iter().for_each(|worker| worker.signal(Signal::INT));
    for done in workers.map(Process::wait) {
        assert_eq!(done.code, Some(130), "{done:?}");
        assert!(!done.err.contains("WARN") && !done.err.contains("does not know"), "{done:?}");
    }
    assert!(out.join("MANIFEST").is_file());
    // They left; what they said last stands, and nobody has said that the job is done.
    let told = status();
    for words in [
        "worker 0   left  clock ",
        "worker 1   left  clock ",
        "was left by all its workers",
        "not finished, nobody of it lives",
    ] {
        assert!(told.out.contains(words), "{words}: {told:?}");
    }
    assert!(!told.out.contains("log loss 0.00000") && !told.out.contains("log loss -"), "{told:?}");
}

/// `ERROR this worker is no longer in the job error=X`, then `gannet: X`.
#[test]
fn a_scheduler_that_was_lost_was_told_of_twice() {
    let world = World::new(20_000);
    let server = world.server("127.0.0.1:0", "a", 1);
    let scheduler = Served::start(gannet("scheduler --listen 127.0.0.1:0"));
    let more = format!("--tasks on --epochs 10000 --scheduler {}", scheduler.addr);
    let line = world.line(&server.addr, 1, 0, &more).replace("--peer-timeout 20", "--peer-timeout 2");
    let worker = start(&line);
    let asked = format!("status --scheduler {} --json", scheduler.addr);
    until("the worker learns", || run(&asked).json()["job"]["tasks_done"].as_u64().is_some_and(|n| n > 0));
    scheduler.kill();
    let done = worker.wait();
    assert_eq!(done.code, Some(3), "{done:?}");
    assert_eq!(done.err.matches("has not answered for").count(), 1, "{done:?}");
}

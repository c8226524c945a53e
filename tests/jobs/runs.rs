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
    refused(&say(&other, more), &["DATA file 1: worker 0 has", "train.svm", "other.svm", "bytes"]);
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

/// Only worker 0 was given `--out`: it was killed, another worker became the chief, and nobody saved, with exit code 0.
#[test]
fn a_model_was_saved_by_nobody_where_one_worker_had_out() {
    let world = World::new(3_000);
    let server = world.server("127.0.0.1:0", "a", 1);
    let out = format!("--out {} --start-together", world.file("model").display());
    let first = start(&world.line(&server.addr, 2, 0, &out));
    until("the first worker is there", || !runs(&server.addr).is_empty());
    let without = run(&world.line(&server.addr, 2, 1, "--start-together"));
    refused(&without, &["--out: worker 0 has a folder, this worker (1) was given none"]);
    let other = start(&world.line(&server.addr, 2, 1, &out));
    let (first, other) = (ok(&first.wait()), ok(&other.wait()));
    assert_eq!(first["examples"].as_u64().unwrap() + other["examples"].as_u64().unwrap(), 3_000);
    assert!(world.file("model").join("MANIFEST").is_file());
}

/// The registry was looked for where the first address is: servers that came back with other addresses knew of no run.
#[test]
fn servers_with_other_addresses_forgot_their_runs() {
    let world = World::new(2_000);
    let (a, b) = (world.server("127.0.0.1:0", "a", 1), world.server("127.0.0.1:0", "b", 1));
    let (at_a, at_b) = (a.addr.clone(), b.addr.clone());
    let hosts = format!("{at_a},{at_b}");
    let first = ok(&run(&world.line(&hosts, 1, 0, "")));
    for server in [a, b] {
        server.stop();
    }
    let (a, b) = (world.server(&at_b, "a", 2), world.server(&at_a, "b", 1));
    refused(&run(&world.line(&hosts, 1, 0, "")), &["is finished", "--continue", "--fresh"]);
    assert_eq!(runs(&hosts).len(), 1);
    let on = ok(&run(&world.line(&hosts, 1, 0, "--continue")));
    assert_eq!((&on["rows"], &on["run"]["generation"]), (&first["rows"], &2.into()), "{on}");
    // Without the file that names the run its rows are of nobody.
    for server in [a, b] {
        server.stop();
    }
    for folder in ["a", "b"] {
        let _ = std::fs::remove_file(world.file(folder).join("RUNS"));
    }
    let (_a, _b) = (world.server(&at_a, "a", 1), world.server(&at_b, "b", 1));
    refused(&run(&world.line(&hosts, 1, 0, "")), &["its rows are here", "default.lr", "RUNS", "--fresh"]);
    let fresh = ok(&run(&world.line(&hosts, 1, 0, "--fresh")));
    let (was, is) = (first["logloss"].as_f64().unwrap(), fresh["logloss"].as_f64().unwrap());
    assert!((was - is).abs() < 1e-6, "{fresh} {first}");
}

/// Each of two workers that wrote a server's address in two ways had a registry of its own: all was trained twice.
#[test]
fn workers_that_wrote_a_server_in_two_ways_had_two_registries() {
    let world = World::new(1_000);
    let (a, b) = (world.server("127.0.0.1:0", "a", 1), world.server("127.0.0.1:0", "b", 1));
    let named = |addr: &str| addr.replace("127.0.0.1", "localhost");
    let mut addrs = [a.addr.clone(), b.addr.clone()];
    addrs.sort();
    let (one, other) = (addrs.join(","), format!("{},{}", named(&addrs[0]), addrs[1]));
    for (name, more) in [("off", "--tasks off"), ("on", "--tasks on --start-together")] {
        let more = format!("{more} --run {name}");
        let first = start(&world.line(&one, 2, 0, &more));
        until("the run is there", || runs(&one).iter().any(|run| run["name"] == name));
        let second = run(&world.line(&other, 2, 1, &more));
        match name {
            "off" => {
                let examples = ok(&second)["examples"].as_u64().unwrap();
                assert_eq!(examples + ok(&first.wait())["examples"].as_u64().unwrap(), 1_000);
            }
            _ => refused(&second, &["--scheduler", &addrs[0]]),
        }
    }
}

/// `--continue` measured the numbers anew, or took labels and columns in another sense, in silence.
#[test]
fn a_continued_run_took_other_scales_labels_and_columns() {
    let world = World::new(10);
    let csv = |name: &str, factor: u32| {
        let line = |i: u32| {
            let (age, label) = (20 + i * 7 % 50, if i * 7 % 50 > 25 { "yes" } else { "no" });
            format!("{label},{},{}\n", age * factor, ["a", "b", "c"][i as usize % 3])
        };
        let text = "churned,age,city\n".to_owned() + &(0..600).map(line).collect::<String>();
        std::fs::write(world.file(name), text).unwrap();
        world.file(name).display().to_string()
    };
    let (day1, day2) = (csv("day1.csv", 1), csv("day2.csv", 1000));
    let flags = "--label churned --positive yes --numeric age --scale standard --optimizer sgd --json";
    let rows = world.file("rows");
    let line = |data: &str, flags: &str| format!("train {data} {flags} --data-dir {}", rows.display());
    ok(&run(&line(&day1, &format!("{flags} --epochs 3"))));
    for (other, words) in [
        (flags.replace("--positive yes", "--positive no"), "--positive yes"),
        (flags.replace("--scale standard", ""), "--scale standard"),
        (flags.replace("--numeric age", "--numeric age --categorical city"), "--categorical none"),
        (flags.replace("--optimizer sgd", "--optimizer adam"), "--optimizer sgd"),
        (format!("{} --model fm", flags.replace("--optimizer sgd", "")), "--model lr"),
    ] {
        refused(&run(&line(&day1, &format!("{other} --continue"))), &[words, "is given now", "--fresh"]);
    }
    // What was refused has changed nothing; numbers a thousand times as large are scaled as the others were.
    let on = run(&line(&day2, &format!("{flags} --continue")));
    assert!(on.err.contains("scaled as when its rows were begun"), "{on:?}");
    assert!(ok(&on)["logloss"].as_f64().unwrap() > 2.0, "{on:?}");
    assert_eq!(on.json()["run"]["generation"], 2);
}

/// The model of a job without one worker's share passed for a whole one.
#[test]
fn the_model_of_a_job_with_a_missing_worker_was_not_marked() {
    let world = World::new(1_000);
    let server = world.server("127.0.0.1:0", "a", 1);
    let out = world.file("model");
    let more = format!("--tasks off --batch 64 --allow-missing-workers --out {}", out.display());
    let line = world.line(&server.addr, 2, 0, &more).replace("--peer-timeout 20", "--peer-timeout 1");
    ok(&run(&line));
    let scored = run(&format!("predict --model {} {} --json", out.display(), world.data.display()));
    assert_eq!(ok(&scored)["model_complete"], false, "{scored:?}");
    assert!(scored.err.contains("worker 1"), "{scored:?}");
    // Who was left out is not told that nothing was left to do; and without worker 0 nothing is saved.
    let late = run(&world.line(&server.addr, 2, 1, "--tasks off --batch 64"));
    refused(&late, &["without the share of worker 1"]);
    let line = world.line(&server.addr, 2, 1, "--tasks off --batch 64 --allow-missing-workers --run other");
    let alone = run(&line.replace("--peer-timeout 20", "--peer-timeout 1"));
    assert!(alone.code == Some(3) && alone.err.contains("nothing is saved"), "{alone:?}");
}

/// Batches of workers that keep step were counted under the step's name, so that none of a worker's were ever trained.
#[test]
fn a_worker_that_was_killed_in_step_had_trained_nothing() {
    let world = World::new(4_000);
    let server = world.server("127.0.0.1:0", "a", 1);
    let bytes = std::fs::read(&world.data).unwrap();
    let more = "--tasks off --batch 16 --sync bsp --worker-timeout 5";
    let (chief, mut one) = piped_for(5, &server.addr, 2, 0, more);
    let (killed, mut two) = piped_for(5, &server.addr, 2, 1, more);
    // At once: each waits for the other in every step.
    let half = &bytes[..bytes.len() / 2];
    std::thread::scope(|scope| {
        for pipe in [&mut one, &mut two] {
            scope.spawn(|| pipe.write_all(half).unwrap());
        }
    });
    let batches = || {
        let all = runs(&server.addr)[0]["workers"].as_array().cloned().unwrap_or_default();
        all.iter().find(|worker| worker["worker"] == 1).and_then(|worker| worker["batches"].as_u64())
    };
    until("worker 1 has told of its batches", || batches().is_some_and(|batches| batches > 20));
    killed.signal(Signal::KILL);
    let _ = killed.wait();
    // Worker 0 may have ended before it has read all.
    let _ = one.write_all(&bytes[bytes.len() / 2..]);
    drop((one, two));
    let done = chief.wait();
    assert_eq!(done.code, Some(3), "{done:?}");
    let told = done.json();
    assert_eq!(told["missing_workers"], serde_json::json!([1]), "{told}");
    assert!(told["untrained_batches"].as_u64().is_some_and(|left| left > 0 && left < 105), "{told}");
}

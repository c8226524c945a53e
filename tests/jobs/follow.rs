//! Trainings of a folder that grows (`--follow`), with real processes that are killed.

use crate::harness;

use harness::*;
use rustix::process::Signal;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Lines of a file. Each line has a feature of its own.
const LINES: u64 = 400;

/// Adds a file as programs do that others read from: under another name, which they change when it is whole.
fn add(folder: &Path, at: u64) {
    let lines = (at * LINES..(at + 1) * LINES).fold(String::new(), |mut lines, id| {
        writeln!(lines, "1 {id}:1").unwrap();
        lines
    });
    let part = folder.join(format!("{at:04}.svm.part"));
    fs::write(&part, lines).unwrap();
    fs::rename(&part, folder.join(format!("{at:04}.svm"))).unwrap();
}

/// Checks that each line of so many files was trained exactly once. All features begin at the same weight and were
/// learned alone, so their scores are equal: a line that was trained twice has a higher one, and one that was not
/// trained has 0.5.
pub fn check_once(model: &Path, lines: u64, folder: &Path) {
    let all = (0..lines).fold(String::new(), |mut all, id| {
        writeln!(all, "1 {id}:1").unwrap();
        all
    });
    let data = write(folder, "all.svm", all);
    let scores = ok(&format!("predict {data} --model {}", model.display())).out;
    let scores: Vec<f64> = scores.lines().map(|line| line.trim().parse().unwrap()).collect();
    assert_eq!(scores.len() as u64, lines);
    let wrong: Vec<usize> = (0..scores.len()).filter(|&at| scores[at] != scores[0]).collect();
    assert!(
        wrong.is_empty() && scores[0] > 0.5,
        "{} lines, such as {:?}: {:?}",
        wrong.len(),
        wrong.first(),
        scores[0]
    );
}

struct Grown {
    folder: tempfile::TempDir,
    data: PathBuf,
    store: PathBuf,
}

impl Grown {
    fn new() -> Grown {
        let folder = tempfile::tempdir().unwrap();
        let (data, store) = (folder.path().join("in"), folder.path().join("ps"));
        fs::create_dir(&data).unwrap();
        Grown { folder, data, store }
    }

    fn model(&self) -> PathBuf {
        self.folder.path().join("model")
    }

    fn server(&self, listen: &str, more: &str) -> Served {
        let line = format!("server --listen {listen} --threads 2 --data-dir {} {more}", self.store.display());
        Served::start(gannet(&line))
    }

    fn worker(&self, addr: &str, index: u32, more: &str) -> Process {
        Process::start(gannet(&format!(
            "train --follow {} --ps-hosts {addr} --worker-hosts a:1,b:1,c:1 --job-name worker --task-index {index} --json \
             --batch 64 --task-bytes 1KiB --worker-timeout 2 --peer-timeout 20 --no-intercept --l1 0 --out {} {more}",
            self.data.display(),
            self.model().display()
        )))
    }
}

fn done(addr: &str) -> u64 {
    run(&format!("status --ps-hosts {addr} --json")).json()["job"]["examples"].as_u64().unwrap_or(0)
}

fn until_examples(addr: &str, examples: u64) {
    let start = Instant::now();
    while done(addr) < examples {
        assert!(start.elapsed() < limit(), "{} of {examples}", done(addr));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The seconds since 1970 of a moment that is so many seconds away.
fn in_seconds(seconds: u64) -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() + seconds
}

#[test]
fn one_process_trains_each_file_once_until_a_time() {
    let grown = Grown::new();
    let (data, model) = (grown.data.display().to_string(), grown.model());
    let until = in_seconds(6);
    let line = format!(
        "train --follow {data} --until {until} --no-intercept --l1 0 --json --out {}",
        model.display()
    );
    let process = Process::start(gannet(&line));
    std::thread::sleep(Duration::from_millis(500));
    add(&grown.data, 1);
    std::thread::sleep(Duration::from_secs(1));
    // The earlier name came later, and a file that is not whole stays unread.
    add(&grown.data, 0);
    fs::write(grown.data.join("0002.svm.tmp"), "1 99999999:1\n").unwrap();
    std::thread::sleep(Duration::from_secs(1));
    add(&grown.data, 2);
    let done = process.wait();
    assert_eq!((done.code, done.json()["examples"].as_u64()), (Some(0), Some(3 * LINES)), "{done:?}");
    check_once(&model, 3 * LINES, grown.folder.path());
}

#[test]
fn a_signal_ends_a_wait_for_files_and_the_model_is_saved() {
    let grown = Grown::new();
    let line =
        format!("train --follow {} --l1 0 --json --out {}", grown.data.display(), grown.model().display());
    let waits = Process::start(gannet(&line));
    std::thread::sleep(Duration::from_secs(2));
    waits.signal(Signal::TERM);
    let done = waits.wait();
    assert!(done.code == Some(130) && done.err.contains("waiting for something to train"), "{done:?}");
    add(&grown.data, 0);
    let trains = Process::start(gannet(&line));
    std::thread::sleep(Duration::from_secs(2));
    trains.signal(Signal::TERM);
    let done = trains.wait();
    assert!(done.code == Some(130) && done.err.contains("stopped early"), "{done:?}");
}

#[test]
fn until_end_trains_what_is_there_and_ends() {
    let grown = Grown::new();
    let (data, model) = (grown.data.display().to_string(), grown.model());
    let line =
        format!("train --follow {data} --until-end --no-intercept --l1 0 --json --out {}", model.display());
    refused(&line, &["nothing to train until the end"]);
    (0..3).for_each(|at| add(&grown.data, at));
    let soon = format!("--until {}", in_seconds(3));
    for until in ["--until-end", "--until-end --follow-order time", &soon] {
        let done = run(&line.replace("--until-end", until));
        assert_eq!((done.code, done.json()["examples"].as_u64()), (Some(0), Some(3 * LINES)), "{done:?}");
        check_once(&model, 3 * LINES, grown.folder.path());
    }
    refused(&line.replace("--until-end", "--until 1"), &["nothing to train until the end"]);
}

#[test]
fn flags_that_do_not_go_with_a_growing_folder_are_refused_by_name() {
    let grown = Grown::new();
    add(&grown.data, 0);
    let follow = format!("train --follow {}", grown.data.display());
    let file = grown.data.join("0000.svm");
    let both = format!("{follow} {}", file.display());
    refused(&both, &["DATA", "--follow"]);
    refused(&format!("{follow} --epochs 2"), &["--epochs"]);
    refused(&format!("{follow} --model lda"), &["--model lda"]);
    refused(&format!("{follow} --optimizer lbfgs"), &["lbfgs"]);
    refused(&format!("{follow} --data-dir {}", grown.store.display()), &["--data-dir", "gannet launch"]);
    refused(&format!("{follow} --scale standard"), &["--scale"]);
    refused(&format!("train {} --until-end", file.display()), &["--follow"]);
    let job = "--ps-hosts h:1 --worker-hosts a:1 --job-name worker --task-index 0";
    refused(&format!("{follow} {job} --tasks off"), &["--tasks off"]);
    refused(&format!("{follow} {job} --deterministic --sync bsp"), &["--follow", "--deterministic"]);
}

#[test]
fn topics_of_kafka_that_cannot_be_trained_are_refused_by_name() {
    let topic = "train kafka://127.0.0.1:1/clicks";
    refused(topic, &["--format", "json"]);
    refused(&format!("{topic} --format csv"), &["--no-header --columns"]);
    refused(&format!("{topic} --format parquet"), &["lines"]);
    refused(&format!("{topic} b.svm --format libsvm"), &["one topic"]);
    refused(&format!("{topic} --format libsvm --epochs 2"), &["--epochs"]);
    match cfg!(feature = "kafka") {
        true => refused("train kafka://127.0.0.1:1 --format libsvm", &["the topic is missing"]),
        false => refused(&format!("{topic} --format libsvm"), &["--features kafka"]),
    }
}

#[test]
fn files_are_trained_once_through_kills_of_workers_and_of_the_server_that_schedules() {
    let grown = Grown::new();
    add(&grown.data, 0);
    let served = grown.server("127.0.0.1:0", "");
    let addr = served.addr.clone();
    let killed = grown.worker(&addr, 0, "");
    let stays = grown.worker(&addr, 1, "");
    until_examples(&addr, LINES);
    (1..4).for_each(|at| add(&grown.data, at));
    killed.signal(Signal::KILL);
    let third = grown.worker(&addr, 2, "");
    until_examples(&addr, 2 * LINES);
    served.kill();
    (4..6).for_each(|at| add(&grown.data, at));
    let served = grown.server(&addr, "");
    until_examples(&addr, 6 * LINES);
    // All workers end, and the job goes on where it stopped, up to the end.
    for worker in [stays, third] {
        worker.signal(Signal::TERM);
        let done = worker.wait();
        assert_eq!(done.code, Some(130), "{done:?}");
    }
    (6..8).for_each(|at| add(&grown.data, at));
    fs::write(grown.data.join("0001.svm"), "1 1:1\n").unwrap();
    let last = grown.worker(&addr, 1, "--until-end").wait();
    assert_eq!(last.code, Some(0), "{last:?}");
    assert!(last.err.contains("0001.svm") && last.err.contains("has changed since it was found"), "{last:?}");
    assert_eq!(done(&addr), 8 * LINES);
    check_once(&grown.model(), 8 * LINES, grown.folder.path());
    drop(served);
}

/// A later file gave its own first column as the label, or foreign keys, and nobody was told.
#[test]
fn files_of_other_columns_or_formats_were_trained_with_the_first() {
    for (name, text, says) in [
        ("b.csv", "id,x\n1,q\n0,r\n", "\"label\""),
        ("c.csv", "x,label\nq,1\n", ""),
        ("d.svm", "1 3:4\n0 3:5\n", "d.svm"),
        ("e.jsonl", "{\"label\":1,\"x\":\"b1\"}\n", "e.jsonl"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.csv"), "label,x\n1,a\n0,b\n").unwrap();
        std::fs::write(folder.path().join(name), text).unwrap();
        let line = format!("train --follow {} --until-end --json", folder.path().display());
        let done = run(&line);
        match says {
            "" => assert_eq!(done.json()["examples"], 3, "{done:?}"),
            _ => {
                assert_eq!(done.code, Some(2), "{name}: {done:?}");
                assert!(done.err.contains(name) && done.err.contains(says), "{name}: {done:?}");
            }
        }
    }
}

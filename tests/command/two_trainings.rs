//! Two trainings with the same `--out` at once: the second is told so before it trains.

use crate::harness;

use super::saving::scratch;
use harness::*;
use rustix::process::Signal;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A training that gets examples on its standard input until it ends, and has saved a model.
fn training(out: &Path, flags: &str) -> Process {
    let mut command = gannet(&format!("train - --save-secs 1 {flags} --out {}", out.display()));
    command.stdin(Stdio::piped());
    let mut process = Process::start(command);
    let mut input = process.child.0.stdin.take().unwrap();
    std::thread::spawn(move || {
        let text: String =
            (0..2_000).map(|i| format!("{} {}:1 {}:1\n", i % 2, i % 7 + 1, i % 11 + 9)).collect();
        while input.write_all(text.as_bytes()).is_ok() {
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    let start = Instant::now();
    while !out.join("MANIFEST").exists() {
        assert!(process.is_alive() && start.elapsed() < limit(), "it saves nothing");
        std::thread::sleep(Duration::from_millis(5));
    }
    process
}

#[test]
fn the_second_of_two_trainings_trained_and_then_lost_a_model() {
    let folder = scratch();
    let data = clicks(&folder.path().join("train.svm"), 500, 1).display().to_string();
    for (number, flags) in ["", "--model deepfm --factors 2 --hidden 2"].into_iter().enumerate() {
        let out = folder.path().join(format!("model{number}"));
        let name = out.display().to_string();
        let mut first = training(&out, flags);
        for other in [
            flags,
            "--model fm",
            "--model linear",
            "--model lda --topics 2",
            "--optimizer lbfgs --l2 1",
            &format!("{flags} --warm-start {name}"),
            "--ps-hosts 127.0.0.1:1 --worker-hosts 127.0.0.1:9 --job-name worker",
            "--model fm --ps-hosts 127.0.0.1:1 --worker-hosts 127.0.0.1:9 --job-name worker",
        ] {
            let begin = format!("--out {name}: another training");
            let line = format!("train {data} {other} --out {name}");
            refused(&line, &[&begin, "wait until it has ended", "another folder"]);
        }
        assert!(first.is_alive());
        let manifest = || std::fs::read(out.join("MANIFEST")).unwrap();
        let (before, start) = (manifest(), Instant::now());
        while manifest() == before {
            assert!(first.is_alive() && start.elapsed() < limit(), "it saves no more");
            std::thread::sleep(Duration::from_millis(5));
        }
        // Nothing of a lock is left after a kill.
        first.signal(Signal::KILL);
        assert_eq!(first.wait().code, None);
        ok(&format!("train {data} {flags} --out {name}"));
        ok(&format!("predict --model {name} {data}"));
    }
}

/// Both workers are given the same flags. Whichever saves the model, the other one has no lock that it needs.
#[test]
fn the_workers_of_one_job_may_name_the_same_folder() {
    let folder = scratch();
    let data = clicks(&folder.path().join("train.svm"), 2_000, 1).display().to_string();
    for flags in ["--tasks on", "--tasks off", "--model fm", "--optimizer lbfgs --l2 1"] {
        let out = folder.path().join(flags.replace(' ', ""));
        let server = Served::start(gannet("server --listen 127.0.0.1:0 --threads 1"));
        let job = format!("--ps-hosts {} --worker-hosts 127.0.0.1:8,127.0.0.1:9", server.addr);
        let line =
            format!("train {data} {job} --job-name worker --out {} {flags} --task-index", out.display());
        let workers = [0, 1].map(|index| Process::start(gannet(&format!("{line} {index}"))));
        let codes = workers.map(|worker| worker.wait()).map(|done| (done.code, done));
        assert!(codes.iter().all(|(code, _)| *code == Some(0)), "{flags}: {codes:?}");
        ok(&format!("predict --model {} {data}", out.display()));
    }
}

/// A file system that cannot be written was told to the user after the training.
#[test]
fn a_folder_that_cannot_be_written_is_refused_before_the_training() {
    let folder = scratch();
    let (data, out) = (clicks(&folder.path().join("d.svm"), 300, 1), folder.path().join("out"));
    std::fs::create_dir(&out).unwrap();
    let train = gannet(&format!("train {} --out {}", data.display(), out.display()));
    let args: Vec<&str> = train.get_args().map(|arg| arg.to_str().unwrap()).collect();
    let out = out.display().to_string();
    // In a mount namespace of its own, so that root, too, finds the folder read-only.
    let mount = format!("mount --bind {out} {out} && mount -o remount,ro,bind {out} && exec \"$@\"");
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount, "sh"]);
    let done = command.arg(train.get_program()).args(args).output().unwrap();
    let error = String::from_utf8_lossy(&done.stderr);
    if error.contains("unshare failed") {
        return println!("SKIPPED: this system gives no namespaces");
    }
    assert_eq!(done.status.code(), Some(1), "{error}");
    assert!(error.contains("Read-only file system") && error.contains("name a folder"), "{error}");
    assert!(!error.contains("examples learned"), "it trained first: {error}");
}

//! `gannet launch --hosts`: jobs on several hosts, which are addresses of loopback with a server of ssh.

use crate::harness;

use harness::sshd::Sshd;
use harness::*;
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const LINES: u64 = 30_000;

/// The processes of a run, by what `ps` would show: role and index, and the process id.
fn processes(run: &str) -> Vec<(String, i32)> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_string_lossy().parse::<i32>().ok());
    let named = |pid: i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words: Vec<String> =
            line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        // ssh has the whole command in one word, and so has the shell there.
        let is_of_run = words.first()?.ends_with("/gannet") && words.iter().any(|word| word == run);
        let value = |flag: &str| words.iter().find_map(|word| word.strip_prefix(flag)).map(str::to_owned);
        let (role, index) = (value("--job-name=")?, value("--task-index=")?);
        is_of_run.then(|| (format!("{role} {index}"), pid))
    };
    pids.filter_map(named).collect()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LIMIT, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn hosts(folder: &Path) -> std::path::PathBuf {
    let file = folder.join("hosts");
    std::fs::write(&file, "# two machines\n127.0.0.1 slots=1\n127.0.0.2\n").unwrap();
    file
}

/// A launcher of a job on two hosts. Flags of the launcher, and behind them those of the job.
fn launch(sshd: &Sshd, folder: &Path, (flags, words): (&str, &str)) -> Command {
    let mut command = gannet("launch");
    command.arg("--hosts").arg(hosts(folder)).arg("--ssh").arg(sshd.command());
    command.args(flags.split_whitespace()).arg("--").args(words.split_whitespace());
    command
}

#[test]
fn a_job_runs_on_two_hosts_and_a_process_that_dies_there_is_started_again() {
    let (folder, sshd) = (tempfile::tempdir().unwrap(), Sshd::start());
    let data = clicks(&folder.path().join("train.svm"), LINES, 1);
    let kept = folder.path().join("kept of job");
    let words =
        format!("train {} --run hosts1 --insecure --epochs 60 --worker-timeout 2 --json", data.display());
    let mut command = launch(&sshd, folder.path(), ("--servers 2 --workers 2 --restarts 5", &words));
    // Before the --, with a blank in its name.
    let all: Vec<std::ffi::OsString> = command.get_args().map(Into::into).collect();
    command = gannet("launch");
    command.arg("--data-dir").arg(&kept).args(&all[1..]);
    let launcher = Process::start(command);
    until("all processes are there", || processes("hosts1").len() == 4);
    for name in ["worker 1", "ps 0"] {
        std::thread::sleep(Duration::from_millis(700));
        let find = || processes("hosts1").into_iter().find(|(of, _)| of == name);
        let before = find().expect(name).1;
        kill_process(Pid::from_raw(before).unwrap(), Signal::KILL).unwrap();
        until("another start", || find().is_some_and(|(_, pid)| pid != before));
    }
    let done = launcher.wait();
    assert_eq!(done.code, Some(0), "{done:?}");
    let report = done.json();
    assert_eq!(report["records"], 60 * LINES, "{report}");
    assert_eq!(
        (&report["restarts"]["worker 1"], &report["restarts"]["ps 0"]),
        (&1.into(), &1.into()),
        "{report}"
    );
    assert!(kept.join("ps-0").is_dir() && kept.join("ps-1").is_dir());
    for host in
        ["[ps 0] gannet server listening on 127.0.0.1:", "[ps 1] gannet server listening on 127.0.0.2:"]
    {
        assert!(done.err.contains(host), "{host}: {done:?}");
    }
    assert!(processes("hosts1").is_empty());
}

#[test]
fn no_process_on_another_host_outlives_the_launcher() {
    let (folder, sshd) = (tempfile::tempdir().unwrap(), Sshd::start());
    let data = clicks(&folder.path().join("train.svm"), LINES, 1);
    for (run, signal) in [("hosts2", Signal::KILL), ("hosts3", Signal::INT)] {
        let words = format!("train {} --run {run} --insecure --epochs 10000", data.display());
        let launcher = Process::start(launch(&sshd, folder.path(), ("--servers 1 --workers 2", &words)));
        until("all processes are there", || processes(run).len() == 3);
        std::thread::sleep(Duration::from_secs(1));
        launcher.child.signal(signal);
        let done = launcher.wait();
        assert!(signal == Signal::KILL || done.code == Some(130), "{done:?}");
        until("all processes have gone", || processes(run).is_empty());
    }
}

#[test]
fn a_host_that_cannot_run_the_job_is_named() {
    let (folder, sshd) = (tempfile::tempdir().unwrap(), Sshd::start());
    let data = clicks(&folder.path().join("train.svm"), 100, 1);
    let words = format!("train {} --insecure", data.display());
    let fails = |flags: &str, code: i32, parts: &[&str]| {
        let done = Process::start(launch(&sshd, folder.path(), (flags, &words))).wait();
        assert_eq!(done.code, Some(code), "{flags}: {done:?}");
        parts.iter().for_each(|part| assert!(done.err.contains(part), "{flags}: {part}: {done:?}"));
    };
    fails("--remote-program /not/there", 3, &["127.0.0.1 cannot run /not/there", "--remote-program"]);
    fails("--remote-dir /not/there", 3, &["127.0.0.1 has no folder /not/there", "--remote-dir"]);
    fails("--remote-program /bin/echo", 3, &["127.0.0.1: gannet there has printed"]);
    let closed = ports::free_addr();
    let port = closed.rsplit(':').next().unwrap();
    let mut nobody = gannet("launch");
    nobody.arg("--hosts").arg(hosts(folder.path())).arg("--ssh").arg(format!("ssh -F none -p {port}"));
    nobody.arg("--").args(words.split_whitespace());
    let done = Process::start(nobody).wait();
    assert!(done.code == Some(3) && done.err.contains("ssh cannot reach 127.0.0.1"), "{done:?}");
    refused("launch --ssh ssh -- train x", &["--hosts"]);
}

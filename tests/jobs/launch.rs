//! `gannet launch`: whole jobs from one command, whose processes are killed, stopped and left alone.

use crate::harness;

use harness::*;
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const LINES: u64 = 30_000;

/// A process of a job.
#[derive(Debug, Clone)]
struct Child {
    pid: i32,
    /// `worker 1`, `ps 0`, `coordinator`.
    name: String,
}

/// The state of a process (S, Z and so on), and its parent.
fn stat(pid: i32) -> Option<(char, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// The processes that a launcher has started and that run.
fn children(launcher: i32) -> Vec<Child> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_string_lossy().parse::<i32>().ok());
    let of = pids.filter(|pid| stat(*pid).is_some_and(|(state, parent)| parent == launcher && state != 'Z'));
    let child = |pid| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?.replace('\0', " ");
        let value = |flag: &str| {
            let of = line.split(' ').find_map(|word| word.strip_prefix(flag)?.strip_prefix('='));
            of.map(str::to_owned)
        };
        let name = match (value("--job-name"), value("--task-index")) {
            (Some(role), Some(index)) => format!("{role} {index}"),
            _ => "coordinator".into(),
        };
        Some(Child { pid, name })
    };
    of.filter_map(child).collect()
}

/// Whether a process has a thread of this name.
fn has_thread(pid: i32, name: &str) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let comm = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    tasks.filter_map(|task| comm(task).ok()).any(|comm| comm.trim() == name)
}

fn is_gone(pid: i32) -> bool {
    stat(pid).is_none_or(|(state, _)| state == 'Z')
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LIMIT, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// A launcher, whose job goes on.
struct Launched {
    process: Process,
    pid: i32,
}

impl Launched {
    fn start(command: Command, count: usize) -> Launched {
        let process = Process::start(command);
        let pid = process.child.0.id() as i32;
        let launched = Launched { process, pid };
        until("all processes are there", || children(pid).len() == count);
        launched
    }

    /// The process of this name. It may just be started again.
    fn child(&self, name: &str) -> Child {
        let mut found = None;
        until(name, || {
            found = children(self.pid).into_iter().find(|child| child.name == name);
            found.is_some()
        });
        found.unwrap()
    }

    /// Kills the process of this name, and waits until it was started again.
    fn kill(&self, name: &str) {
        let before = self.child(name);
        signal(before.pid, Signal::KILL);
        until("another start", || {
            children(self.pid).iter().any(|now| now.name == name && now.pid != before.pid)
        });
    }
}

fn launch(flags: &str, data: &Path, train: &str) -> Command {
    gannet(&format!("launch {flags} -- train {} {train}", data.display()))
}

#[test]
fn one_command_runs_a_job_and_prints_one_report() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), LINES, 1);
    let out = folder.path().join("model");
    let words = format!("--epochs 2 --out {}", out.display());
    let done = Process::start(launch("--servers 2 --workers 2", &data, &format!("{words} --json"))).wait();
    assert_eq!(done.code, Some(0), "{done:?}");
    let report = done.json();
    assert_eq!(report["records"], 2 * LINES, "{report}");
    assert_eq!(report["reports"].as_array().unwrap().len(), 2);
    assert!(out.join("MANIFEST").exists() || std::fs::read_dir(&out).unwrap().count() > 0);
    // Files for what each process prints.
    let logs = folder.path().join("logs");
    let flags = format!("--logs {}", logs.display());
    let done = Process::start(launch(&flags, &data, &format!("--run second --out {}", out.display()))).wait();
    assert_eq!(done.code, Some(0), "{done:?}");
    let log = std::fs::read_to_string(logs.join("ps-0.log")).unwrap();
    assert!(
        log.starts_with("gannet server listening on") && !done.err.contains("listening"),
        "{log} {done:?}"
    );
    assert!(logs.join("worker-0.log").exists());
    // The report in words has the same numbers, and each line of a process has its name.
    let done = Process::start(launch("--servers 2 --workers 2", &data, &words)).wait();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.starts_with(&format!("{} examples in ", 2 * LINES)), "{done:?}");
    assert!(done.out.contains("(2 servers and 2 workers)"), "{done:?}");
    assert!(
        done.err.lines().any(|line| line.starts_with("[ps 1] gannet server listening on 127.0.0.1:")),
        "{done:?}"
    );
}

#[test]
fn processes_that_die_are_started_again_and_each_record_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), LINES, 1);
    let kept = folder.path().join("kept");
    let flags = format!("--servers 2 --workers 2 --restarts 5 --data-dir {}", kept.display());
    let launched = Launched::start(launch(&flags, &data, "--epochs 100 --worker-timeout 2 --json"), 4);
    for name in ["worker 1", "ps 0", "worker 0", "ps 1"] {
        std::thread::sleep(Duration::from_millis(300));
        launched.kill(name);
    }
    let done = launched.process.wait();
    assert_eq!(done.code, Some(0), "{done:?}");
    let report = done.json();
    assert_eq!(report["records"], 100 * LINES, "{report}");
    for name in ["worker 1", "ps 0", "worker 0", "ps 1"] {
        assert_eq!(report["restarts"][name], 1, "{report}");
    }
}

#[test]
fn a_job_with_backups_has_a_coordinator_and_goes_on_without_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), LINES, 1);
    let flags = "--servers 3 --workers 2";
    let launched = Launched::start(launch(flags, &data, "--epochs 60 --backups 1 --json"), 6);
    // The servers are backups of each other after a moment.
    std::thread::sleep(Duration::from_secs(4));
    launched.kill("ps 1");
    let done = launched.process.wait();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.json()["records"], 60 * LINES, "{done:?}");
}

/// As TensorFlow's launchers start processes.
#[test]
fn processes_find_their_job_in_tf_config() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), LINES, 1);
    let addr = ports::free_addr();
    let task = |kind: &str, index: u32, words: &str| {
        let mut command = gannet(&format!("train {} {words}", data.display()));
        let cluster = format!(r#"{{"chief": ["w:1"], "worker": ["w:2"], "ps": ["{addr}"]}}"#);
        let task = format!(r#"{{"type": "{kind}", "index": {index}}}"#);
        command.env("TF_CONFIG", format!(r#"{{"cluster": {cluster}, "task": {task}}}"#));
        command
    };
    let served = Served::start(task("ps", 0, ""));
    assert_eq!(served.addr, addr);
    let second = Process::start(task("worker", 0, "--json --tasks off"));
    let first = Process::start(task("chief", 0, "--json --tasks off")).wait();
    let second = second.wait();
    let examples = |done: &Done| done.json()["examples"].as_u64().unwrap();
    assert_eq!(examples(&first) + examples(&second), LINES, "{first:?} {second:?}");
    let mut wrong = gannet(&format!("train {}", data.display()));
    wrong.env("TF_CONFIG", r#"{"cluster": {}}"#);
    let wrong = Process::start(wrong).wait();
    assert!(wrong.code == Some(2) && wrong.err.contains("TF_CONFIG: the cluster has no ps"), "{wrong:?}");
}

/// As in a container, whose own address is not the one that others know.
#[test]
fn a_server_listens_at_another_address_than_workers_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 2_000, 1);
    let addr = ports::free_addr();
    let port = addr.rsplit(':').next().unwrap();
    let hosts = format!("--ps-hosts 127.0.0.3:{port} --worker-hosts w:0 --task-index 0");
    let served =
        Served::start(gannet(&format!("train --job-name ps {hosts} --listen 0.0.0.0:{port} --insecure")));
    assert_eq!(served.addr, format!("0.0.0.0:{port}"));
    let line = format!("train {} --job-name worker {hosts} --json", data.display());
    assert_eq!(ok(&line).json()["examples"], 2_000);
    refused(&format!("{line} --listen 0.0.0.0:1"), &["--listen", "works only in a ps"]);
}

/// The servers of a job end with it. The arguments are more flags of the servers and of the worker.
fn servers_end(servers: &str, workers: &str) {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 2_000, 1);
    let addrs = [ports::free_addr(), ports::free_addr()];
    let hosts = format!("--ps-hosts {} --worker-hosts w:0 --run named", addrs.join(","));
    let server = |index: u32| {
        gannet(&format!("train --job-name ps --task-index {index} {hosts} --exit-with-job {servers}"))
    };
    let started = [0, 1].map(|index| Process::start(server(index)));
    ok(&format!("train {} --job-name worker {hosts} {workers}", data.display()));
    for server in started {
        let done = server.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(done.err.contains("run \"named\" is finished: this server ends"), "{done:?}");
    }
}

#[test]
fn servers_end_with_their_job() {
    servers_end("", "");
}

#[test]
fn so_do_servers_that_speak_tls() {
    let folder = tempfile::tempdir().unwrap();
    let authority = authority::Authority::new("one");
    let shown = authority.shows("server", "127.0.0.1", 2999);
    let token = folder.path().join("token");
    std::fs::write(&token, "5ecre7-0f-th1s-j0b-4nd-n0-0ther-w0rld").unwrap();
    std::fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let worker = format!("--token-file {} --transport tcp {}", token.display(), authority.believed());
    servers_end(&format!("{worker} {shown}"), &worker);
}

#[test]
fn no_process_outlives_its_launcher() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), LINES, 1);
    let mut launched = Launched::start(launch("--servers 2 --workers 2", &data, "--epochs 10000"), 4);
    let all = children(launched.pid);
    // One of them cannot run. It has begun to watch its launcher before.
    let stopped = launched.child("worker 1").pid;
    until("the process watches", || has_thread(stopped, "gannet-launched"));
    signal(stopped, Signal::STOP);
    launched.process.child.signal(Signal::KILL);
    launched.process.child.ended();
    until("all processes have gone", || all.iter().all(|child| is_gone(child.pid)));
}

#[test]
fn ctrl_c_ends_all_processes() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), LINES, 1);
    let out = folder.path().join("model");
    let words = format!("--epochs 10000 --out {}", out.display());
    let launched = Launched::start(launch("--servers 1 --workers 2", &data, &words), 3);
    std::thread::sleep(Duration::from_secs(2));
    let all = children(launched.pid);
    signal(launched.pid, Signal::INT);
    let done = launched.process.wait();
    assert_eq!(done.code, Some(130), "{done:?}");
    assert!(all.iter().all(|child| is_gone(child.pid)));
}

#[test]
fn a_job_ends_when_a_process_cannot_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), LINES, 1);
    let missing = Process::start(launch("--workers 2", Path::new("not-there.svm"), "")).wait();
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert!(missing.err.contains("not-there.svm") && !missing.err.contains("started again"), "{missing:?}");
    // A server without a folder has lost its rows.
    let launched = Launched::start(launch("--workers 1", &data, "--epochs 10000"), 2);
    let all = children(launched.pid);
    signal(launched.child("ps 0").pid, Signal::KILL);
    let done = launched.process.wait();
    assert_eq!(done.code, Some(1), "{done:?}");
    let why =
        "ps 0 was ended by signal 9, and the job ends: its rows have gone with it; --data-dir DIR keeps them";
    assert!(done.err.contains(why), "{done:?}");
    assert!(all.iter().all(|child| is_gone(child.pid)));
    // A coordinator without a folder has forgotten who owns what.
    let flags = "--servers 2 --workers 1";
    let launched = Launched::start(launch(flags, &data, "--epochs 10000 --backups 1"), 4);
    signal(launched.child("coordinator").pid, Signal::KILL);
    let done = launched.process.wait();
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.err.contains("it has forgotten which server owns what; --data-dir DIR keeps that"),
        "{done:?}"
    );
    // A process that dies each time.
    let launched = Launched::start(launch("--workers 1 --restarts 1", &data, "--epochs 10000"), 2);
    launched.kill("worker 0");
    signal(launched.child("worker 0").pid, Signal::KILL);
    let done = launched.process.wait();
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("it has been started again 1 times (--restarts)"), "{done:?}");
}

/// Once a worker that took the place of a chief knew of no best model, and saved a worse one over it.
#[test]
fn the_best_model_outlives_the_chief_that_saved_it() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    // Nearly each row has a user of its own, so passes over the data learn it by heart.
    let rows = |name: &str, n: u32, seed: u32| {
        let drawn = |i: u32| {
            (i.wrapping_add(seed).wrapping_mul(2_654_435_761) ^ i >> 7).wrapping_mul(0x85EB_CA6B) >> 8
        };
        let line = |i: u32| {
            format!("{},s{},u{}\n", drawn(3 * i) % 2, drawn(3 * i + 1) % 8, drawn(3 * i + 2) % 4_000)
        };
        write(f, name, "label,site,user\n".to_owned() + &(0..n).map(line).collect::<String>())
    };
    let (train, held) = (rows("train.csv", 8_000, 1), rows("held.csv", 3_000, 900_001));
    let out = f.join("model");
    let words = format!(
        "--model fm --alpha 0.2 --epochs 60 --tasks on --task-bytes 16kB --worker-timeout 2 --validate {held} \
         --validate-every 10 --patience 100000 --out {} --json",
        out.display()
    );
    let launched = Launched::start(launch("--workers 2 --restarts 5", Path::new(&train), &words), 3);
    let noted = || {
        let saved = gannet::storage::Checkpoint::open_to_read(&out).ok()?;
        saved.note("best-validation")?.rsplit(' ').next()?.parse::<f64>().ok()
    };
    until("a best model", || noted().is_some());
    launched.kill("worker 0");
    let best = noted();
    let done = launched.process.wait();
    assert_eq!(done.code, Some(0), "{done:?}");
    let scored = ok(&format!("predict --model {} {held} --json", out.display())).json();
    let (loss, best) = (scored["logloss"].as_f64().unwrap(), best.unwrap());
    // What other workers learned between the validation and the save.
    assert!(loss < best + 0.02, "{loss}, and {best} was the best: {done:?}");
    assert!(loss < 0.75, "the last model is far worse: {loss}");
}

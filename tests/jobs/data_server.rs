//! In-graph training with real processes: a client that has the data, workers without data in folders of their own, and
//! servers. Workers and the client are killed with SIGKILL. The model equals that of workers that read the same splits
//! themselves.

use crate::harness;

use harness::*;
use rustix::process::Signal;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Stdio};
use std::time::{Duration, Instant};

const LINES: u64 = 40_000;
/// Flags for every process.
const MODEL: &str = "--batch 64 --worker-timeout 2";

struct Job {
    folder: tempfile::TempDir,
    data: PathBuf,
    hosts: &'static str,
    epochs: u64,
}

/// A client that has printed its address. Its output is collected.
struct Client {
    child: Owned,
    err: BufReader<ChildStderr>,
    addr: String,
}

impl Client {
    fn kill(self) {
        drop(self);
    }

    fn wait(mut self) -> Done {
        let mut out = self.child.0.stdout.take().unwrap();
        let said = std::thread::spawn(move || {
            let mut text = String::new();
            out.read_to_string(&mut text).unwrap();
            text
        });
        let mut err = String::new();
        self.err.read_to_string(&mut err).unwrap();
        let status = self.child.ended();
        Done { code: status.code(), out: said.join().unwrap(), err }
    }
}

impl Job {
    fn new(hosts: &'static str, epochs: u64) -> Job {
        let folder = tempfile::tempdir().unwrap();
        let data = clicks(&folder.path().join("train.svm"), LINES, 1);
        Job { folder, data, hosts, epochs }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn server(&self) -> Served {
        Served::start(gannet("server --listen 127.0.0.1:0 --threads 2"))
    }

    fn line(&self, ps: &str, role: &str, feed: &str) -> String {
        let Job { hosts, epochs, .. } = self;
        format!(
            "--ps-hosts {ps} --worker-hosts {hosts} --job-name {role} --feed {feed} --json --peer-timeout 20 {MODEL} --epochs {epochs}"
        )
    }

    fn client(&self, ps: &str, listen: &str, more: &str) -> Client {
        let line = self.line(ps, "client", listen);
        let mut command = gannet(&format!("train {} {line} --task-bytes 64KiB {more}", self.data.display()));
        let mut child = Owned(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let (line, err) = first_line(child.0.stderr.take().unwrap());
        let addr = line.split_whitespace().nth(4).unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Client { child, err, addr }
    }

    /// A worker in an empty folder.
    fn worker(&self, ps: &str, feed: &str, index: u32, more: &str) -> Process {
        let line = self.line(ps, "worker", feed);
        let mut command = gannet(&format!("train {line} --task-index {index} {more}"));
        let own = self.path(&format!("worker-{index}"));
        std::fs::create_dir_all(&own).unwrap();
        command.current_dir(own);
        Process::start(command)
    }
}

fn status(feed: &str) -> serde_json::Value {
    run(&format!("status --scheduler {feed} --json")).json()["job"].clone()
}

/// Waits until this many tasks are done.
fn until_done(feed: &str, tasks: u64) {
    let start = Instant::now();
    while status(feed)["tasks_done"].as_u64().is_none_or(|done| done < tasks) {
        assert!(start.elapsed() < limit());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The bytes of every file of a model, by name.
fn model(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(path).unwrap()))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

#[test]
fn one_worker_with_remote_data_makes_the_same_model_as_with_files() {
    let job = Job::new("a:1", 2);
    // A CSV whose columns only the client knows, a packed file, and a file with lines longer than a split.
    let csv = job.path("part-1.csv");
    let row = |i: u64| format!("{},{},{}\n", i * 7 % 13 % 2, i % 50, "y".repeat(1 + (i % 90) as usize));
    let rows: String = (0..6000).map(row).collect();
    std::fs::write(&csv, format!("clicked,a,b\n{rows}")).unwrap();
    let packed = job.path("part-2.csv.gz");
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gz, format!("clicked,a,b\n{rows}").as_bytes()).unwrap();
    std::fs::write(&packed, gz.finish().unwrap()).unwrap();
    let long = job.path("part-3.csv");
    let rows: String =
        (0..40).map(|i| format!("{},{},{}\n", i % 2, i, "z".repeat(4500 * i % 90_000))).collect();
    std::fs::write(&long, format!("clicked,a,b\n{rows}")).unwrap();
    let columns = "--label clicked --categorical b --numeric a";
    for (name, data, how) in [
        ("svm", job.data.display().to_string(), ""),
        ("csv", format!("{} {} {}", csv.display(), packed.display(), long.display()), columns),
    ] {
        let (remote, read) = (job.path(&format!("remote-{name}")), job.path(&format!("read-{name}")));
        let served = job.server();
        let more = format!("{how} --out {}", remote.display());
        let client = Job { data: PathBuf::from(&data), folder: tempfile::tempdir().unwrap(), ..job }.client(
            &served.addr,
            "127.0.0.1:0",
            &more,
        );
        let worker = job.worker(&served.addr, &client.addr, 0, "").wait();
        assert_eq!(worker.code, Some(0), "{worker:?}");
        let client = client.wait();
        assert_eq!(client.code, Some(0), "{client:?}");
        let served = job.server();
        let own = run(&format!(
            "train {data} --ps-hosts {} --worker-hosts a:1 --job-name worker --json --tasks on --task-bytes 64KiB {MODEL} --epochs 2 {how} \
             --out {}",
            served.addr,
            read.display()
        ));
        assert_eq!(own.code, Some(0), "{own:?}");
        assert!(model(&remote) == model(&read), "{name}: the models differ");
        for measure in ["examples", "logloss", "auc", "format"] {
            assert_eq!(worker.json()[measure], own.json()[measure], "{name} {measure}");
        }
        assert_eq!(client.json()["examples"], own.json()["examples"], "{name}");
        let bytes = data.split_whitespace().map(|file| std::fs::metadata(file).unwrap().len()).sum::<u64>();
        let sent = client.json()["fed"]["bytes"].as_u64().unwrap();
        assert!(sent >= 2 * bytes && sent < 3 * bytes, "{name}: {sent} bytes sent, {bytes} in the files");
    }
}

#[test]
fn a_killed_worker_loses_and_doubles_nothing_and_the_client_sums_up() {
    let job = Job::new("a:1,b:1", 6);
    let (served, out) = (job.server(), job.path("model"));
    let more = format!("--test {0} --out {1} --validate-every 200", job.data.display(), out.display());
    let client = job.client(&served.addr, "127.0.0.1:0", &more);
    let addr = client.addr.clone();
    let ssp = "--sync ssp:4";
    let killed = job.worker(&served.addr, &addr, 0, ssp);
    let other = job.worker(&served.addr, &addr, 1, ssp);
    until_done(&addr, 6);
    killed.signal(Signal::KILL);
    drop(killed);
    let again = job.worker(&served.addr, &addr, 0, ssp).wait();
    let other = other.wait();
    assert_eq!((again.code, other.code), (Some(0), Some(0)), "{again:?} {other:?}");
    let done = client.wait();
    assert_eq!(done.code, Some(0), "{done:?}");
    let report = done.json();
    assert_eq!(
        (&report["examples"], &report["tasks_done"]),
        (&(job.epochs * LINES).into(), &report["tasks"]),
        "{report}"
    );
    assert!(!report["validations"].as_array().unwrap().is_empty(), "{report}");
    assert!(report["logloss"].as_f64().unwrap() < 0.65, "{report}");
    // The model is as good as that of workers that read the data themselves.
    let served = job.server();
    let own = run(&format!(
        "train {0} --test {0} --ps-hosts {1} --worker-hosts a:1 --job-name worker --json --tasks on {MODEL} --epochs {2}",
        job.data.display(),
        served.addr,
        job.epochs
    ));
    let (remote, own) =
        (report["test_logloss"].as_f64().unwrap(), own.json()["test_logloss"].as_f64().unwrap());
    assert!((remote - own).abs() < 0.02 * own, "{remote} beside {own}");
    let predicted = run(&format!("predict --model {} {} --json", out.display(), job.data.display()));
    assert_eq!(predicted.code, Some(0), "{predicted:?}");
    let predicted = predicted.json()["logloss"].as_f64().unwrap();
    assert!((predicted - remote).abs() < 1e-6, "{predicted} beside {remote}");
}

#[test]
fn a_client_that_is_killed_goes_on_where_it_stood() {
    let job = Job::new("a:1,b:1", 10);
    let served = job.server();
    let more = format!("--data-dir {}", job.path("book").display());
    let client = job.client(&served.addr, "127.0.0.1:0", &more);
    let addr = client.addr.clone();
    let workers = [job.worker(&served.addr, &addr, 0, ""), job.worker(&served.addr, &addr, 1, "")];
    until_done(&addr, 4);
    client.kill();
    // With another setting it is another job.
    let line = job.line(&served.addr, "client", &addr);
    let other = run(&format!("train {} {line} --task-bytes 64KiB {more} --alpha 0.5", job.data.display()));
    assert!(
        other.code == Some(2) && other.err.contains("--alpha: the client has 0.1, the client was given 0.5"),
        "{other:?}"
    );
    let client = job.client(&served.addr, &addr, &more);
    until_done(&addr, 10);
    client.kill();
    let client = job.client(&served.addr, &addr, &more);
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    let done = client.wait();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.json()["examples"], job.epochs * LINES);
    // The job is done, so the next job on this folder begins from the start.
    assert!(!job.path("book").join("scheduler.book").exists());
}

#[test]
fn a_failure_of_the_data_is_one_message_for_all_workers() {
    let job = Job::new("a:1,b:1", 200);
    let served = job.server();
    // The data changes during the job.
    let one = "--run one";
    let client = job.client(&served.addr, "127.0.0.1:0", one);
    let workers =
        [job.worker(&served.addr, &client.addr, 0, one), job.worker(&served.addr, &client.addr, 1, one)];
    until_done(&client.addr, 2);
    let text = std::fs::read_to_string(&job.data).unwrap();
    std::fs::write(&job.data, format!("{text}1 1:1\n")).unwrap();
    let changed = "has changed since the training began";
    for worker in workers {
        let done = worker.wait();
        assert!(done.code == Some(3) && done.err.contains(changed), "{done:?}");
    }
    let done = client.wait();
    assert!(done.code == Some(2) && done.err.contains(changed), "{done:?}");
    assert_eq!(done.err.matches("gannet: ").count(), 1, "{done:?}");
    // A bad line, which a worker finds.
    let at = text.match_indices('\n').nth(30_000).unwrap().0 + 1;
    std::fs::write(&job.data, format!("{}7 1:1\n{}", &text[..at], &text[at..])).unwrap();
    let client = job.client(&served.addr, "127.0.0.1:0", "--run two");
    let worker = job.worker(&served.addr, &client.addr, 0, "--run two").wait();
    assert!(worker.code == Some(2) && worker.err.contains("train.svm from byte "), "{worker:?}");
    let done = client.wait();
    assert!(done.code == Some(2) && done.err.contains("train.svm from byte "), "{done:?}");
    std::fs::write(&job.data, text).unwrap();
    // The client must stop while one worker waits for another, as `--start-together` requires.
    let client = job.client(&served.addr, "127.0.0.1:0", "--run three --start-together");
    let worker = job.worker(&served.addr, &client.addr, 0, "--run three");
    let start = Instant::now();
    while status(&client.addr)["workers"].as_array().is_none_or(Vec::is_empty) {
        assert!(start.elapsed() < limit());
    }
    client.child.signal(Signal::TERM);
    let (worker, done) = (worker.wait(), client.wait());
    assert_eq!(done.code, Some(130), "{done:?}");
    assert!(worker.code == Some(3) && worker.err.contains("stopped by a signal"), "{worker:?}");
    // No worker connects.
    let line = job
        .line(&served.addr, "client", "127.0.0.1:0")
        .replace("--peer-timeout 20", "--run four --peer-timeout 5");
    let alone = run(&format!("train {} {line}", job.data.display()));
    assert!(alone.code == Some(3) && alone.err.contains("no worker has been in the job"), "{alone:?}");
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let job = Job::new("a:1,b:1", 1);
    let served = job.server();
    let client = job.client(&served.addr, "127.0.0.1:0", "");
    let feed = client.addr.clone();
    let data = job.data.display().to_string();
    let worker = |more: &str| run(&format!("train {} {more}", job.line(&served.addr, "worker", &feed)));
    let cases = [
        ("--alpha 0.7", "every worker of a run the same"),
        ("--batch 32", "--batch"),
        ("--format libsvm", "the client decides how the data is read"),
        ("--no-intercept", "the client decides how the data is read"),
        ("--task-bytes 1MiB", "the client makes the splits"),
        ("--run other", "--run default"),
        ("--out model", "the client tests and saves"),
        ("--data-dir here", "works only in the client"),
        ("--scheduler 127.0.0.1:1", "the client (--feed) is the job's scheduler"),
        ("--model fm", "only with --model lr"),
        ("--optimizer lbfgs", "only with --model lr"),
        ("--task-index 5", "--task-index 5"),
        (&data, "with --feed only the client reads the data"),
    ];
    for (more, expected) in cases {
        let more = if more.contains("--batch") { "--batch 32" } else { more };
        let line = format!("train {} {more}", job.line(&served.addr, "worker", &feed));
        let line = if more.starts_with("--batch") { line.replacen("--batch 64 ", "", 1) } else { line };
        let done = run(&line);
        assert!(done.code == Some(2) && done.err.contains(expected), "{more}: {done:?}");
        assert_eq!(done.err.matches("gannet: ").count(), 1, "{more}: {done:?}");
    }
    let fits = worker("");
    assert_eq!(fits.code, Some(0), "{fits:?}");
    assert_eq!(client.wait().code, Some(0));
    // A server and a scheduler have no data.
    let none = run(&format!("train {}", job.line(&served.addr, "worker", &served.addr)));
    assert!(none.code == Some(3) && none.err.contains("no data here to feed workers with"), "{none:?}");
    let line = format!("{} --run next", job.line(&served.addr, "client", "127.0.0.1:0"));
    let clients = [
        (format!("train {line}"), "DATA is missing"),
        (format!("train - {line}"), "can be read only once"),
        (format!("train {data} {line} --task-index 1"), "a job has one client"),
        (format!("train {data} {}", line.replace("--feed 127.0.0.1:0", "")), "--feed HOST:PORT is missing"),
        (format!("train {data} {}", line.replace("127.0.0.1:0", "0.0.0.0:0")), "a token and TLS are needed"),
        (format!("train {data} --feed 127.0.0.1:1"), "--job-name"),
        (format!("train {data} {line} --cache-bytes 1MiB"), "--cache-bytes"),
    ];
    for (line, expected) in clients {
        let done = run(&line);
        assert!(done.code == Some(2) && done.err.contains(expected), "{line}: {done:?}");
    }
    let pair = format!(
        "train {data} --ps-hosts {} --worker-hosts a:1 --job-name worker --feed 10.9.9.9:1",
        served.addr
    );
    let far = run(&pair.replace(&format!("{data} "), ""));
    assert!(far.code == Some(2) && far.err.contains("10.9.9.9:1"), "{far:?}");
}

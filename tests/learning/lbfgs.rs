//! `--optimizer lbfgs` with the real binary. A job whose server and worker are killed with SIGKILL in the middle finds
//! the same optimum as one process. Models are saved, used for a warm start, and scored. Flags that make no sense are
//! refused with a message.

use crate::harness;

use harness::*;
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

const LINE: &str = "--optimizer lbfgs --l2 0.1 --history 5 --tolerance 1e-8 --max-iter 10000";

fn number(v: &serde_json::Value, name: &str) -> f64 {
    v[name].as_f64().unwrap_or_else(|| panic!("{name}: {v}"))
}

fn server(addr: &str, folder: &Path) -> Served {
    let mut command = gannet(&format!("server --listen {addr} --threads 1"));
    command.arg("--data-dir").arg(folder);
    Served::start(command)
}

/// A process whose standard error is read as it comes.
struct LoggedProcess {
    child: Owned,
    lines: Receiver<String>,
}

impl LoggedProcess {
    fn start(mut command: Command) -> LoggedProcess {
        let mut child = Owned(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
        let (tell, lines) = channel();
        let from = BufReader::new(child.0.stderr.take().unwrap());
        std::thread::spawn(move || from.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        LoggedProcess { child, lines }
    }

    /// Waits until the process has reported an iteration, `number` or later.
    fn wait_for_iteration(&self, number: u64) {
        let mut last = String::new();
        loop {
            let line = self.lines.recv_timeout(limit());
            let line = line.unwrap_or_else(|e| panic!("iteration {number}: {e}, after {last}"));
            last.push_str(&format!("{line}\n"));
            let iteration = line.strip_prefix("iteration ").and_then(|rest| rest.split(' ').next());
            if iteration.is_some_and(|iteration| iteration.parse::<u64>().unwrap() >= number) {
                return;
            }
        }
    }
}

#[test]
fn a_job_survives_its_server_and_its_workers() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 8_000, 1);
    let alone = run(&format!("train {} {LINE} --json", data.display())).json();
    assert!(number(&alone, "iterations") > 100.0, "kills come in the middle: {alone}");
    let images = [folder.path().join("0"), folder.path().join("1")];
    let mut served: Vec<Served> = images.iter().map(|images| server("127.0.0.1:0", images)).collect();
    let hosts = format!("{},{}", served[0].addr, served[1].addr);
    let worker = |index: u32, more: &str| {
        gannet(&format!(
            "train {} {LINE} --ps-hosts {hosts} --worker-hosts 127.0.0.1:9,127.0.0.1:10 --job-name worker \
             --task-index {index} --peer-timeout 30 --pass-timeout 40 {more}",
            data.display()
        ))
    };
    let (chief, mut other) = (LoggedProcess::start(worker(0, "")), Process::start(worker(1, "")));
    chief.wait_for_iteration(3);
    other.signal(Signal::KILL);
    assert_eq!(other.wait().code, None);
    other = Process::start(worker(1, ""));
    chief.wait_for_iteration(8);
    for (place, images) in images.iter().enumerate() {
        let victim = served.remove(place);
        let addr = victim.addr.clone();
        victim.kill();
        served.insert(place, server(&addr, images));
        chief.wait_for_iteration(20 + 20 * place as u64);
    }
    // The chief is killed too. Another worker takes over, from the weights and pairs that the servers have.
    chief.child.signal(Signal::KILL);
    drop(chief);
    let out = folder.path().join("model");
    let chief = Process::start(worker(0, &format!("--json --out {}", out.display()))).wait();
    assert_eq!(chief.code, Some(0), "{chief:?}");
    let other = other.wait();
    assert_eq!(other.code, Some(0), "{other:?}");
    let trained = chief.json();
    assert!(number(&trained, "resumed_at") >= 40.0, "{trained}");
    let (got, want) = (number(&trained, "objective"), number(&alone, "objective"));
    assert!((got - want).abs() < 1e-7 * want, "{trained} {alone}");
    assert_eq!((&trained["rows"], &trained["examples"]), (&alone["rows"], &alone["examples"]));
    // After a warm start from the model there is almost nothing left to do.
    let line = format!("train {} {LINE} --json --warm-start {}", data.display(), out.display());
    let warm = run(&line).json();
    assert!(number(&warm, "iterations") < number(&alone, "iterations"), "{warm} {alone}");
    assert!((number(&warm, "objective") - want).abs() < 1e-7 * want, "{warm} {alone}");
    let scored = run(&format!("predict {} --model {} --json", data.display(), out.display())).json();
    assert!((number(&scored, "logloss") - number(&alone, "logloss")).abs() < 1e-6, "{scored} {alone}");
}

#[test]
fn l1_begins_from_a_model_of_ftrl_and_leaves_few_weights() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 10_000, 1);
    let model = folder.path().join("ftrl");
    assert_eq!(run(&format!("train {} --l1 2 --out {}", data.display(), model.display())).code, Some(0));
    let line = format!("train {} --optimizer lbfgs --l1 4 --json", data.display());
    let (cold, warm) = (run(&line).json(), run(&format!("{line} --warm-start {}", model.display())).json());
    let (a, b) = (number(&cold, "objective"), number(&warm, "objective"));
    assert!((a - b).abs() < 1e-6 * a, "{cold} {warm}");
    assert!(number(&cold, "nonzero") < number(&cold, "rows") / 2.0, "{cold}");
}

/// 20,000 rows. The first column goes up to 9,000, the others have size 1. Once this took several pages of progress and
/// up to 8,915 iterations.
#[test]
fn one_unscaled_column_took_thousands_of_iterations() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::new();
    let unit = |i: u64| (gannet::table::mix(i) >> 11) as f64 / (1u64 << 53) as f64;
    for i in 0..20_000u64 {
        let x: Vec<f64> = (0..8).map(|j| unit(8 * i + j)).collect();
        let margin = 3.0 * x[0] - 2.0 * x[1] + x[2] - 1.5;
        let label = u8::from(x[7] < 1.0 / (1.0 + (-margin).exp()));
        let others: Vec<String> = (1..7).map(|j| format!("{}:{:.4}", j + 1, x[j] - 0.5)).collect();
        text.push_str(&format!("{label} 1:{:.2} {}\n", 9000.0 * x[0], others.join(" ")));
    }
    let data = folder.path().join("train.svm");
    std::fs::write(&data, text).unwrap();
    let line = format!("train {} --optimizer lbfgs --l2 1", data.display());
    let exact = run(&format!("{line} --tolerance 0 --max-iter 5000 --json")).json();
    let done = run(&line);
    assert!(done.code == Some(0) && done.out.contains("converged"), "{done:?}");
    assert!(done.err.lines().count() <= 24, "more than a screen: {done:?}");
    let usual = run(&format!("{line} --json")).json();
    assert!(usual["converged"].as_bool().unwrap() && number(&usual, "iterations") <= 40.0, "{usual}");
    assert!(number(&usual, "mean_gradient") <= 1e-4, "{usual}");
    let (got, least) = (number(&usual, "objective"), number(&exact, "objective"));
    assert!(got - least < 1e-6 * least, "{usual} {exact}");
    let short = run(&format!("{line} --max-iter 2"));
    assert!(
        short.out.contains("stopped at --max-iter 2") && short.out.contains("not converged"),
        "{short:?}"
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 50, 1);
    for (flags, says) in [
        ("--history 5", "--history: works only with --optimizer lbfgs"),
        ("--optimizer lbfgs --alpha 0.1", "--alpha: no setting of --optimizer lbfgs, which has --l1, --l2"),
        ("--optimizer lbfgs --epochs 3", "--max-iter"),
        ("--optimizer lbfgs --model linear", "--optimizer lbfgs: works only with --model lr"),
        ("--model fm --history 5", "--history: works only with --optimizer lbfgs"),
        ("--optimizer lbfgs --l2 -1", "--l2 -1: a number, at least 0, is needed"),
        ("--optimizer lbfgs --push gradient", "--push: no setting"),
        ("--optimizer lbfgs --batch 5", "--batch: L-BFGS looks at the whole data"),
        ("--optimizer lbfgs --tolerance 2", "--tolerance 2"),
        ("--optimizer lbfgs --data-memory 100", "--data-memory"),
        ("--optimizer lbfgs --warm-start /nowhere", "/nowhere"),
    ] {
        let done = run(&format!("train {} {flags}", data.display()));
        assert_eq!(
            done.code,
            Some(if flags.contains("/nowhere") { done.code.unwrap() } else { 2 }),
            "{done:?}"
        );
        assert!(done.code != Some(0) && done.err.contains(says), "{flags}: {done:?}");
    }
    for (flags, says) in [
        ("--sync bsp", "--sync: the workers of L-BFGS make each pass together"),
        ("--sync ssp:3", "--sync: the workers of L-BFGS make each pass together"),
        ("--issync 1", "--issync 1: the workers of L-BFGS make each pass together"),
        ("--sync bsp --replicas-to-aggregate 1", "--sync:"),
        ("--replicas-to-aggregate 1", "--replicas-to-aggregate: L-BFGS needs the gradients of all workers"),
        ("--worker-timeout 5", "--worker-timeout: L-BFGS waits for its workers for --pass-timeout"),
        ("--damping on", "--damping: L-BFGS pushes no changes of state"),
        ("--deterministic", "--deterministic: L-BFGS adds sums over rows"),
        ("--tasks on", "--tasks on: does not work with L-BFGS"),
        ("--tasks on --sync bsp", "--sync:"),
        ("--task-bytes 1MiB", "--task-bytes: does not work with L-BFGS"),
        ("--scheduler 127.0.0.1:9", "--scheduler: does not work with L-BFGS"),
    ] {
        let job = "--job-name worker --ps-hosts 127.0.0.1:9 --worker-hosts 127.0.0.1:10,127.0.0.1:11";
        let done = run(&format!("train {} --optimizer lbfgs {job} {flags}", data.display()));
        assert!(done.code == Some(2) && done.err.contains(says), "{flags}: {done:?}");
    }
}

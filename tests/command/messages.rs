//! What is said to a user, from outside: messages are short, in words and right where they are printed; progress says of what
//! it is a share; reports leave out what means nothing.

use crate::harness;

use gannet::{Add, Read, Rule, Schema, Server, ServerConfig, Wires, Worker, WorkerConfig, Write};
use harness::*;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A file with bare CRs was one line: it was learned as one example, or printed whole.
#[test]
fn a_file_with_bare_crs_was_learned_as_one_line_or_printed_whole() {
    let folder = tempfile::tempdir().unwrap();
    let lines = |line: &dyn Fn(usize) -> String| (0..3000).map(line).collect::<String>();
    for (name, text) in [
        ("a.svm", lines(&|i| format!("{} {}:1\r", i % 2, i % 7 + 1))),
        ("a.csv", "label,a\r".to_owned() + &lines(&|i| format!("{},x{}\r", i % 2, i % 7))),
        ("a.vw", lines(&|i| format!("{} |a x{}\r", if i % 2 == 0 { "-1" } else { "1" }, i % 7))),
        ("a.txt", lines(&|i| format!("{} {}:1\r", i % 2, i % 7 + 1))),
    ] {
        let data = write(folder.path(), name, &text);
        let done = run(&format!("train {data}"));
        assert_eq!(done.code, Some(2), "{name}: {:.300}", done.err);
        assert!(done.err.contains("CR alone") && done.err.contains("tr '\\r' '\\n'"), "{:.300}", done.err);
        assert!(done.err.len() < 400 && done.err.lines().count() == 1, "{name}: {:.300}", done.err);
    }
    // CR LF is what it was.
    let data = write(folder.path(), "b.csv", "label,a\r\n1,x\r\n0,y\r\n");
    assert_eq!(run(&format!("train {data}")).code, Some(0));
}

/// All of 3,000 columns were named.
#[test]
fn a_message_about_a_column_named_thousands() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..3000).map(|i| format!("column{i}")).collect();
    let data = write(folder.path(), "a.csv", format!("label,{}\n1{}\n", names.join(","), ",1".repeat(3000)));
    let done = run(&format!("train {data} --numeric age"));
    assert!(done.code == Some(2) && done.err.contains("and 29"), "{:.300}", done.err);
    assert!(done.err.len() < 700, "{}", done.err.len());
}

/// Another schema was told as `Ftrl(Ftrl { alpha: 0.1, .. })`, with the advice of another --data-dir where there was none.
#[test]
fn another_schema_was_told_in_rust_with_advice_that_did_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 200, 1);
    for (images, advice) in [("", "start the servers again"), (" --data-dir", "another --data-dir")] {
        let mut command = gannet(&format!("server --listen 127.0.0.1:0 --threads 1{images}"));
        if !images.is_empty() {
            command.arg(folder.path().join("images"));
        }
        let server = Served::start(command);
        let line = format!(
            "train {} --ps-hosts {} --worker-hosts 127.0.0.1:9 --job-name worker --peer-timeout 20",
            data.display(),
            server.addr
        );
        assert_eq!(run(&line).code, Some(0));
        let other = run(&format!("{line} --l1 0.5 --continue"));
        assert!(other.code == Some(3) && other.err.contains(advice), "{other:?}");
        for part in ["its rule is ftrl (alpha 0.1, beta 1", "l1 0.5"] {
            assert!(other.err.contains(part), "{part}: {other:?}");
        }
        assert!(!other.err.contains('{') && !other.err.contains("Ftrl"), "{other:?}");
        assert!(images.is_empty() != other.err.contains("--data-dir"), "{other:?}");
    }
}

/// Waits until a worker is in a run of this server.
fn until_in_a_run(server: &str) {
    let since = Instant::now();
    while !run(&format!("status --ps-hosts {server}")).out.contains("run        default") {
        assert!(since.elapsed() < Duration::from_secs(60), "no worker came");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `Bsp(Together { aggregate: 2, merge: Sum })`.
#[test]
fn another_way_to_keep_step_was_told_in_rust() {
    let server = Served::start(gannet("server --listen 127.0.0.1:0 --threads 1"));
    let worker = |index: u32, sync: &str| {
        let mut command = gannet(&format!(
            "train - --format libsvm --ps-hosts {} --worker-hosts 127.0.0.1:9,127.0.0.1:10 --job-name worker \
             --task-index {index} --peer-timeout 20 --worker-timeout 2 --push gradient --sync {sync}",
            server.addr
        ));
        command.stdin(Stdio::piped());
        Process::start(command)
    };
    // It waits for its data, and is in the run.
    let mut first = worker(0, "bsp");
    until_in_a_run(&server.addr);
    let second = worker(1, "ssp:3").wait();
    let says = "--sync: worker 0 has bsp, this worker (1) was given ssp:3";
    assert!(second.code == Some(2) && second.err.contains(says), "{second:?}");
    assert!(!second.err.contains('{') && !second.err.contains("Together"), "{second:?}");
    drop(first.child.0.stdin.take());
}

/// The one of two workers with the same index that was replaced was only told to start again, to replace the other. Now the
/// second is refused while the first lives.
#[test]
fn one_of_two_workers_of_one_index_was_told_to_start_again() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 3_000, 1);
    let server = Served::start(gannet("server --listen 127.0.0.1:0 --threads 1"));
    let worker = || {
        let mut command = gannet(&format!(
            "train - --format libsvm --ps-hosts {} --worker-hosts 127.0.0.1:9 --job-name worker --peer-timeout 20 --batch 64",
            server.addr
        ));
        command.stdin(Stdio::piped());
        Process::start(command)
    };
    let mut first = worker();
    let text = std::fs::read_to_string(&data).unwrap();
    let mut stdin = first.child.0.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    stdin.flush().unwrap();
    until_in_a_run(&server.addr);
    let second = worker().wait();
    let says = "two workers have the same --task-index";
    assert!(second.code == Some(2) && second.err.contains(says), "{second:?}");
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    let first = first.wait();
    assert_eq!(first.code, Some(0), "{first:?}");
}

/// Progress was a share of nobody knew what; only other models had the loss of the last pass.
#[test]
fn progress_did_not_say_of_which_pass_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 40_000, 1);
    for model in ["lr", "fm"] {
        let done = run(&format!("train {} --epochs 6 --model {model}", data.display()));
        assert_eq!(done.code, Some(0), "{done:?}");
        for line in done.err.lines() {
            assert!(line.contains("% of pass ") && line.contains(" of 6  "), "{line}");
            assert!(line.contains("log loss of pass "), "{line}");
        }
        assert!(done.out.contains("last pass    log loss"), "{done:?}");
        let json = run(&format!("train {} --epochs 6 --json --model {model}", data.display())).json();
        let loss = |name: &str| json[name].as_f64().unwrap();
        assert!(loss("last_pass_logloss") < loss("logloss"), "{json}");
    }
}

/// The measures of labelled examples were in `--json` only.
#[test]
fn predictions_of_labelled_data_kept_their_measures_to_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 500, 1);
    for model in ["lr", "fm"] {
        let out = folder.path().join(model);
        let trained = run(&format!("train {} --model {model} --out {}", data.display(), out.display()));
        assert_eq!(trained.code, Some(0));
        // A few rows: bytes a row would be those of an empty table.
        assert!(trained.out.contains(" rows") && !trained.out.contains("bytes a row"), "{trained:?}");
        let done = run(&format!("predict --model {} {}", out.display(), data.display()));
        assert!(done.err.contains("500 examples  log loss") && done.err.contains("AUC"), "{done:?}");
        assert!(done.out.lines().count() == 500 && done.out.lines().all(|line| line.parse::<f64>().is_ok()));
        let bare: String =
            std::fs::read_to_string(&data).unwrap().lines().fold(String::new(), |mut text, line| {
                writeln!(text, "{}", line.split_once(' ').unwrap().1).unwrap();
                text
            });
        let bare = write(folder.path(), "bare.svm", &bare);
        let done = run(&format!("predict --model {} {bare} --format libsvm", out.display()));
        assert!(done.code != Some(0) || !done.err.contains("log loss"), "{done:?}");
    }
}

/// A job that nobody works on any more made `-0/s`.
#[test]
fn a_rate_of_nothing_was_negative() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 500, 1);
    let server = Served::start(gannet("server --listen 127.0.0.1:0 --threads 1"));
    let done = run(&format!(
        "train {} --ps-hosts {} --worker-hosts 127.0.0.1:9 --job-name worker --tasks on --peer-timeout 20",
        data.display(),
        server.addr
    ));
    assert_eq!(done.code, Some(0), "{done:?}");
    let status = run(&format!("status --ps-hosts {}", server.addr));
    assert!(status.out.contains(" records, 0/s") && !status.out.contains("-0/s"), "{status:?}");
    assert!(status.out.contains("tasks none"), "{status:?}");
    assert!(!run(&format!("status --ps-hosts {} --json", server.addr)).out.contains("-0.0"));
}

/// With the life of a worker written down as 1, what it pushed after it was started again was dropped as said before.
#[test]
fn a_worker_started_again_lost_its_pushes() {
    let server = Server::start(Wires::new(), ServerConfig::new("127.0.0.1:0")).unwrap();
    let schema = Schema::scalar("sums", Rule::Add(Add));
    let mut sum = [0.0];
    for life in 1..=3 {
        let config = WorkerConfig::builder([server.addr()]).worker(4).build();
        let mut worker = Worker::connect(Wires::new(), config).unwrap();
        let table = worker.open_table(&schema).unwrap();
        worker.push(table, &[7], Write::Gradient, &[1.0]).unwrap();
        worker.pull(table, &[7], Read::Weights, &mut sum).unwrap();
        assert_eq!(sum, [life as f32]);
    }
    // Two at once that take each other's place: the one that is there is told, and nothing of it counts twice.
    let connect =
        |index| Worker::connect(Wires::new(), WorkerConfig::builder([server.addr()]).worker(index).build());
    let (mut one, mut other) = (connect(4).unwrap(), connect(5).unwrap());
    let tables = [one.open_table(&schema).unwrap(), other.open_table(&schema).unwrap()];
    one.push(tables[0], &[7], Write::Gradient, &[1.0]).unwrap();
    other.push(tables[1], &[7], Write::Gradient, &[1.0]).unwrap();
    let mut twin = connect(4).unwrap();
    let table = twin.open_table(&schema).unwrap();
    twin.push(table, &[7], Write::Gradient, &[1.0]).unwrap();
    let refused = one.push(tables[0], &[7], Write::Gradient, &[1.0]).unwrap_err().to_string();
    assert!(refused.contains("--task-index"), "{refused}");
    twin.pull(table, &[7], Read::Weights, &mut sum).unwrap();
    assert_eq!(sum, [6.0]);
    server.stop().unwrap();
}

/// A server of four threads that was killed was told of eight times.
#[test]
fn each_thread_of_a_lost_server_was_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 5_000, 1);
    let server = Served::start(gannet("server --listen 127.0.0.1:0 --threads 4"));
    let mut command = gannet(&format!(
        "train - --format libsvm --ps-hosts {} --worker-hosts 127.0.0.1:9 --job-name worker --peer-timeout 4 --batch 64",
        server.addr
    ));
    command.stdin(Stdio::piped());
    let mut worker = Process::start(command);
    let text = std::fs::read_to_string(&data).unwrap();
    let mut stdin = worker.child.0.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    server.kill();
    let _ = (0..20).try_for_each(|_| stdin.write_all(text.as_bytes()));
    drop(stdin);
    let done = worker.wait();
    assert!(done.code == Some(3) && done.err.contains("has not answered for"), "{done:?}");
    for told in ["a link was lost", "waiting for a peer"] {
        assert!(done.err.matches(told).count() <= 1, "{told}: {done:?}");
    }
    assert!(done.err.contains("a link was lost"), "{done:?}");
}

//! Messages that users read, tested from outside. They are short, in words and correct. Progress names the
//! whole of which it shows a share. Reports leave out values that mean nothing.

use crate::harness;

use gannet::optim::{Add, Ftrl};
use gannet::{Read, Rule, Schema, Server, ServerConfig, Transports, Worker, WorkerConfig, Write};
use harness::ports::free_addr;
use harness::*;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Once a file with bare CRs was one line: it was learned as one example, or printed whole.
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
    // CR LF works as before.
    let data = write(folder.path(), "b.csv", "label,a\r\n1,x\r\n0,y\r\n");
    assert_eq!(run(&format!("train {data}")).code, Some(0));
}

/// Once the message named all of 3,000 columns.
#[test]
fn a_message_about_a_column_named_thousands() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..3000).map(|i| format!("column{i}")).collect();
    let data = write(folder.path(), "a.csv", format!("label,{}\n1{}\n", names.join(","), ",1".repeat(3000)));
    let done = run(&format!("train {data} --numeric age"));
    assert!(done.code == Some(2) && done.err.contains("and 29"), "{:.300}", done.err);
    assert!(done.err.len() < 700, "{}", done.err.len());
}

/// Once another schema was shown as `Ftrl(Ftrl { alpha: 0.1, .. })`, with the advice to use another --data-dir although
/// there was none.
#[test]
fn another_schema_was_shown_in_rust_syntax_with_wrong_advice() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 200, 1);
    for images in ["", " --data-dir"] {
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
        assert_eq!(other.code, Some(2), "{other:?}");
        for part in ["trained with --l1 0,", "--l1 0.5 is given now", "--fresh"] {
            assert!(other.err.contains(part), "{part}: {other:?}");
        }
        assert!(!other.err.contains('{') && !other.err.contains("Ftrl"), "{other:?}");
        // A program that opens the table itself learns which schema the table has, and what to do if it is in a folder.
        let mut worker = Worker::connect(Transports::new(), WorkerConfig::reader([&server.addr])).unwrap();
        let rule = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.5, l2: 0.0 });
        let refused = worker.open_table(&Schema::scalar("default.lr", rule)).unwrap_err().to_string();
        let advice = if images.is_empty() { "start the servers again" } else { "another --data-dir" };
        for part in ["its rule is ftrl (alpha 0.1, beta 1", "l1 0.5", advice] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        assert!(!refused.contains('{') && images.is_empty() != refused.contains("--data-dir"), "{refused}");
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

/// Once a message said `Bsp(Together { aggregate: 2, merge: Sum })`.
#[test]
fn another_sync_mode_was_shown_in_rust_syntax() {
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
    // The worker waits for its data and has joined the run.
    let mut first = worker(0, "bsp");
    until_in_a_run(&server.addr);
    let second = worker(1, "ssp:3").wait();
    let says = "--sync: worker 0 has bsp, this worker (1) was given ssp:3";
    assert!(second.code == Some(2) && second.err.contains(says), "{second:?}");
    assert!(!second.err.contains('{') && !second.err.contains("Together"), "{second:?}");
    drop(first.child.0.stdin.take());
}

/// Once the older of two workers with the same index only got the advice to start again, which replaced the
/// other one. Now the second worker is refused while the first runs.
#[test]
fn one_of_two_workers_with_one_index_got_the_advice_to_restart() {
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

/// Once progress did not name the pass, and only the other models showed the loss of the last pass.
#[test]
fn progress_did_not_say_of_which_pass_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 40_000, 1);
    for model in ["lr", "fm"] {
        let done = run(&format!("train {} --epochs 6 --model {model}", data.display()));
        assert_eq!(done.code, Some(0), "{done:?}");
        for line in done.err.lines().filter(|line| !line.starts_with("gannet: the last pass fits")) {
            assert!(line.starts_with("read ") && line.contains("% of pass "), "{line}");
            assert!(line.contains(" of 6  ") && line.contains(" examples learned  "), "{line}");
            assert!(line.contains("log loss of pass "), "{line}");
        }
        assert!(done.out.contains("last pass    log loss"), "{done:?}");
        let json = run(&format!("train {} --epochs 6 --json --model {model}", data.display())).json();
        let loss = |name: &str| json[name].as_f64().unwrap();
        assert!(loss("last_pass_logloss") < loss("logloss"), "{json}");
    }
}

/// Once the measures of labelled examples were in `--json` only.
#[test]
fn predictions_of_labelled_data_did_not_print_their_measures() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 500, 1);
    for model in ["lr", "fm"] {
        let out = folder.path().join(model);
        let trained = run(&format!("train {} --model {model} --out {}", data.display(), out.display()));
        assert_eq!(trained.code, Some(0));
        // With few rows, bytes a row would be those of an empty table.
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

/// Once a job without workers showed `-0/s`.
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

/// Once the incarnation of a worker was always 1, and its pushes after a restart were dropped as duplicates.
#[test]
fn a_worker_started_again_lost_its_pushes() {
    let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0")).unwrap();
    let schema = Schema::scalar("sums", Rule::Add(Add));
    let mut sum = [0.0];
    for incarnation in 1..=3 {
        let config = WorkerConfig::builder([server.addr()]).worker(4).build();
        let mut worker = Worker::connect(Transports::new(), config).unwrap();
        let table = worker.open_table(&schema).unwrap();
        worker.push(table, &[7], Write::Gradient, &[1.0]).unwrap();
        worker.pull(table, &[7], Read::Weights, &mut sum).unwrap();
        assert_eq!(sum, [incarnation as f32]);
    }
    // Two workers with the same index at a time: the older one gets a message, and none of its pushes counts twice.
    let connect = |index| {
        Worker::connect(Transports::new(), WorkerConfig::builder([server.addr()]).worker(index).build())
    };
    let (mut one, mut other) = (connect(4).unwrap(), connect(5).unwrap());
    let tables = [one.open_table(&schema).unwrap(), other.open_table(&schema).unwrap()];
    one.push(tables[0], &[7], Write::Gradient, &[1.0]).unwrap();
    other.push(tables[1], &[7], Write::Gradient, &[1.0]).unwrap();
    let mut twin = connect(4).unwrap();
    let table = twin.open_table(&schema).unwrap();
    twin.push(table, &[7], Write::Gradient, &[1.0]).unwrap();
    let refused = one.push(tables[0], &[7], Write::Gradient, &[1.0]).unwrap_err().to_string();
    assert!(refused.contains("--task-index"), "{refused}");
    assert!(!refused.contains("0x") && !refused.contains("incarnation"), "{refused}");
    twin.pull(table, &[7], Read::Weights, &mut sum).unwrap();
    assert_eq!(sum, [6.0]);
    server.stop().unwrap();
}

/// Once the message about a killed server of four threads came eight times.
#[test]
fn each_thread_of_a_lost_server_caused_a_message() {
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
    // More than the first examples, which say how large values are.
    (0..3).for_each(|_| stdin.write_all(text.as_bytes()).unwrap());
    std::thread::sleep(Duration::from_millis(500));
    server.kill();
    let _ = (0..20).try_for_each(|_| stdin.write_all(text.as_bytes()));
    drop(stdin);
    let done = worker.wait();
    assert!(done.code == Some(3) && done.err.contains("has not answered for"), "{done:?}");
    for message in ["a link was lost", "waiting for a peer"] {
        assert!(done.err.matches(message).count() <= 1, "{message}: {done:?}");
    }
    assert!(done.err.contains("a link was lost"), "{done:?}");
}

/// Once a message said `its further segments are none, segment (dim 8, rule adagrad (lr 0.05, ...`.
#[test]
fn a_message_about_another_model_listed_field_by_field() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 500, 1);
    let out = folder.path().join("m").display().to_string();
    let line = format!("train {} --out {out}", data.display());
    assert_eq!(run(&line).code, Some(0));
    let other = run(&format!("{line} --model fm"));
    let says = format!("gannet: --out {out} holds a model of lr; this training is fm");
    assert!(other.code == Some(2) && other.err.starts_with(&says), "{other:?}");
    assert!(!other.err.contains("segment") && !other.err.contains("rule"), "{other:?}");
    let fm = format!("{line}-fm --model fm");
    assert_eq!(run(&fm).code, Some(0));
    let other = run(&format!("{fm} --factors 3"));
    let says = "holds a model of fm with 9 weights a row; this training has 4 (--factors";
    assert!(other.code == Some(2) && other.err.contains(says), "{other:?}");
}

/// Once a message to a single process mentioned the workers of a job.
#[test]
fn a_message_to_one_process_mentioned_a_job() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 500, 1);
    let mut text = std::fs::read_to_string(&data).unwrap();
    text.push_str("1 this is no line\n");
    std::fs::write(&data, &text).unwrap();
    let images = folder.path().join("ps").display().to_string();
    let line = format!("train {} --data-dir {images}", data.display());
    // It ends at the bad last line, so the run is not finished.
    assert_eq!(run(&format!("{line} --epochs 3")).code, Some(2));
    for (more, was, now) in [
        ("--epochs 2", "with --epochs 3", "was given 2: --continue"),
        ("--epochs 3 --no-intercept", "without --no-intercept", "was given it: --fresh"),
    ] {
        let done = run(&format!("{line} {more}"));
        let says = format!("run \"default\" in {images} was begun {was}, and this training {now}");
        assert!(done.code == Some(2) && done.err.contains(&says), "{says}: {done:?}");
        assert!(["--fresh", "--run NAME"].iter().all(|flag| done.err.contains(flag)), "{done:?}");
        assert!(!done.err.contains("worker") && !done.err.contains("job"), "{done:?}");
    }
    // For data of another length the message leaves out the hash. For data of the same length only the hash shows the
    // difference.
    text.push_str("1 1:1\n");
    std::fs::write(&data, &text).unwrap();
    let longer = run(&format!("{line} --epochs 3"));
    assert!(longer.code == Some(2) && longer.err.contains(" bytes)"), "{longer:?}");
    assert!(!longer.err.contains("hash") && !longer.err.contains("content"), "{longer:?}");
    std::fs::write(&data, text.replace("1 this is no line\n1 1:1\n", "1 that is no line\n")).unwrap();
    let other = run(&format!("{line} --epochs 3"));
    assert!(other.code == Some(2) && other.err.contains("bytes), hash of both ends "), "{other:?}");
}

/// Once the message said that a larger --max-iter continues, although nothing had been saved. It did not
/// mention the model that existed before.
#[test]
fn lbfgs_promised_to_go_on_with_what_was_gone() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 2_000, 1);
    let out = folder.path().join("mx").display().to_string();
    let line = format!("train {} --optimizer lbfgs --l2 0.1 --max-iter 2 --out {out}", data.display());
    let first = run(&line);
    assert!(first.code == Some(0) && first.out.contains("starts again"), "{first:?}");
    assert!(!first.out.contains("goes on") && !first.out.contains("previous"), "{first:?}");
    assert!(
        first.out.contains("  training log loss ") && first.out.contains("  length of the mean gradient ")
    );
    assert!(first.err.contains("  length of the mean gradient "), "{first:?}");
    let again = run(&line);
    assert!(again.out.contains(&format!("in {out} (the one before it is in {out}/previous)")), "{again:?}");
    let in_folder = format!("{line} --data-dir {}", folder.path().join("ps").display());
    let done = run(&in_folder);
    assert!(done.out.contains("--continue with a larger --max-iter goes on"), "{done:?}");
    let on = run(&format!("{in_folder} --max-iter 4 --continue").replacen("--max-iter 2 ", "", 1));
    assert!(on.code == Some(0) && on.out.contains(" 4 iterations"), "{on:?}");
}

/// Once messages said `pulls by steps that the worker furthest behind was behind`, `examples in all` for one worker of
/// two, and `1 workers`.
#[test]
fn reports_of_a_job_were_in_words_of_its_programmers() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 4_000, 1);
    let server = Served::start(gannet("server --listen 127.0.0.1:0 --threads 1"));
    let workers = [0, 1].map(|index| {
        Process::start(gannet(&format!(
            "train {} --ps-hosts {} --worker-hosts a:1,b:1 --job-name worker --task-index {index} --batch 64 --epochs 2 \
             --peer-timeout 20 --tasks off --sync ssp:2 --damping off",
            data.display(),
            server.addr
        )))
    });
    for done in workers.map(Process::wait) {
        assert_eq!(done.code, Some(0), "{done:?}");
        let says = "staleness    batches that the slowest worker was behind, at each pull: ";
        let line = done.out.lines().find(|line| line.starts_with("staleness")).unwrap();
        assert!(line.starts_with(says) && line.contains(" behind ") && line.contains(" time"), "{line}");
        assert!(done.err.lines().filter(|l| l.contains("of pass")).all(|l| l.contains(" by this worker  ")));
        assert!(!done.err.contains("examples in all"), "{done:?}");
    }
    let mut command = gannet("server --listen 127.0.0.1:0 --threads 1");
    command.stdout(Stdio::piped());
    let mut child = Owned(command.spawn().unwrap());
    let (first, _) = first_line(child.0.stdout.take().unwrap());
    assert!(first.contains("(1 thread, "), "{first}");
    let more = run(&format!(
        "train {} --ps-hosts {NOBODY} --worker-hosts a:1 --job-name worker --sync bsp --replicas-to-aggregate 2",
        data.display()
    ));
    assert!(more.code == Some(2) && more.err.contains("names 1 worker\n"), "{more:?}");
}

/// Once a user's typing error was a long warning of the server, with `kept_back=0`.
#[test]
fn a_flag_that_did_not_fit_was_a_warning_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 500, 1);
    for (level, is_told) in [("warn", false), ("info", true)] {
        let addr = free_addr();
        let server = Process::start(gannet(&format!("server --listen {addr} --threads 1 --log {level}")));
        let line = format!(
            "train {} --ps-hosts {addr} --worker-hosts a:1 --job-name worker --peer-timeout 20",
            data.display()
        );
        assert_eq!(run(&line).code, Some(0));
        let refused = run(&line);
        assert!(refused.code == Some(2) && refused.err.contains("is finished"), "{refused:?}");
        server.signal(rustix::process::Signal::TERM);
        let done = server.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_eq!(done.err.contains("a request was refused"), is_told, "{done:?}");
        assert!(!done.err.contains("kept_back") && !done.err.contains("WARN"), "{done:?}");
    }
}

//! Bad input, tested from outside: each gives one clear message and the documented exit code.

use crate::harness;

use harness::*;
use rustix::process::Signal;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

#[test]
fn bad_data_gets_exit_2_and_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let gz = {
        let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        e.write_all("1 1:1 2:1\n0 3:1\n".repeat(1000).as_bytes()).unwrap();
        e.finish().unwrap()
    };
    let folder_of = |name: &str, folders: &[&str]| {
        std::fs::create_dir(f.join(name)).unwrap();
        folders.iter().for_each(|inner| std::fs::create_dir(f.join(name).join(inner)).unwrap());
        f.join(name).display().to_string()
    };
    let cases: Vec<(String, &[&str])> = vec![
        (f.join("nowhere").display().to_string(), &["nowhere"]),
        (folder_of("none", &[]), &["none", "without data files"]),
        (folder_of("deep", &["more"]), &["deep", "deep/more", "only its files are read"]),
        (format!("{}/part-*.gz", f.display()), &["part-*.gz", "no file has a name like this"]),
        (write(f, "empty.svm", b""), &["empty.svm"]),
        (write(f, "text.txt", b"once upon a time\n"), &["text.txt"]),
        (write(f, "bad.svm", b"1 1:1\n0 2:x\n"), &["bad.svm:2", "2:x"]),
        (write(f, "label.svm", b"1 1:1\n7 2:1\n"), &["label.svm:2", "7"]),
        (write(f, "index.svm", b"1 99999999999999999999999:1\n"), &["index.svm:1"]),
        (write(f, "inf.svm", b"1 4:1e99\n"), &["inf.svm:1", "1e99"]),
        (write(f, "cut.svm.gz", &gz[..gz.len() / 2]), &["cut.svm.gz", "truncated"]),
        (write(f, "not.svm.gz", b"1 1:1\n"), &["not.svm.gz", "gzip"]),
        (write(f, "row.csv", b"label,a\n1,x\n0\n"), &["row.csv:3"]),
    ];
    for (path, expected) in cases {
        let done = run(&format!("train {path}"));
        assert_eq!(done.code, Some(2), "{path}: {done:?}");
        assert_eq!(done.err.trim().lines().count(), 1, "{path}: one message: {done:?}");
        assert!(expected.iter().all(|e| done.err.contains(e)), "{path}: {expected:?} in {done:?}");
    }
}

/// Runs each line, and expects exit code 2 and this text in its message.
fn assert_refused(lines: &[(String, &str)]) {
    for (line, expected) in lines {
        let done = run(line);
        let system = line.contains("--out"); // the disk's word, not the flag's
        assert_eq!(done.code, Some(if system { 1 } else { 2 }), "{line}: {done:?}");
        assert!(done.err.contains(expected), "{line}: {expected} in {done:?}");
    }
}

#[test]
fn bad_flags_get_exit_2_and_say_what_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let data = write(folder.path(), "a.csv", b"label,a\n1,x\n0,y\n");
    let svm = write(folder.path(), "a.svm", b"1 3:1\n");
    assert_refused(&[
        (format!("train {data} --optimizer lion"), "ftrl"),
        (format!("train {data} --alpha -1"), "alpha"),
        (format!("train {data} --optimizer sgd --l1 1"), "--l1: no setting of --optimizer sgd"),
        (format!("train {data} --batch 0"), "1..=65536"),
        (format!("train {data} --threads 0"), "1..=256"),
        (format!("train {data} --threads 257"), "1..=256"),
        (
            format!("train {data} --shards 8"),
            "--shards: works only in a worker of a job with --model lr, and not with",
        ),
        (format!("train {data} --categorical b"), "a.csv"),
        (format!("train {data} --sync bsp"), "--sync"),
        (format!("predict --model {} {data}", folder.path().display()), "MANIFEST"),
        ("server --listen 0.0.0.0:0".into(), "--insecure"),
        ("server --threads 0".into(), "1..=256"),
        ("server --listen 127.0.0.1:99999".into(), "65535"),
        (format!("train {data} --issync 1"), "--issync 1: works only in a process of a job"),
        (format!("train {data} --test {data}.not"), "a.csv.not"),
        (format!("train {data} --out {data}/x"), "a.csv"),
        (format!("train {svm} --label a"), "libsvm"),
        ("bench --dims 0".into(), "--dims 0"),
    ]);
}

#[test]
fn bad_flags_of_a_job_get_exit_2_and_say_what_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let data = write(folder.path(), "a.csv", b"label,a\n1,x\n0,y\n");
    let job = "--ps-hosts 127.0.0.1:1 --worker-hosts 127.0.0.1:2";
    assert_refused(&[
        (format!("train {data} {job} --job-name worker --shards 3"), "a power of two from 1 to 4096"),
        (
            format!("train {data} --ps-hosts a:1,b:1,a:1 --worker-hosts a:2 --job-name worker"),
            "--ps-hosts names a:1 twice",
        ),
        (format!("train {data} {job} --job-name worker --issync 2"), "issync"),
        (format!("train {data} {job} --job-name worker --sync ssp"), "ssp:N"),
        (format!("train {data} {job} --job-name worker --sync bulk"), "ssp:N"),
        (format!("train {data} {job} --job-name worker --sync bsp --issync 0"), "contradict"),
        (
            format!("train {data} {job} --job-name worker --deterministic --sync asp"),
            "--deterministic cannot be combined with --sync",
        ),
        (
            format!("train {data} {job} --job-name worker --deterministic --issync 0"),
            "--deterministic cannot be combined with --issync",
        ),
        (
            format!(
                "train {data} {job},127.0.0.1:3 --job-name worker --deterministic --replicas-to-aggregate 1"
            ),
            "--deterministic cannot be combined with --replicas-to-aggregate",
        ),
        (format!("train {data} {job} --job-name worker --replicas-to-aggregate 1"), "--sync bsp"),
        (
            format!("train {data} {job} --job-name worker --sync bsp --replicas-to-aggregate 2"),
            "names 1 worker",
        ),
        (
            format!("train {data} {job} --job-name worker --tasks on --deterministic"),
            "--deterministic cannot be combined with --tasks on",
        ),
        (
            format!(
                "train {data} {job},127.0.0.1:3 --job-name worker --tasks on --sync bsp --replicas-to-aggregate 1"
            ),
            "--tasks on cannot be combined with --replicas-to-aggregate",
        ),
        (format!("train {data} {job} --job-name worker --sync bsp --worker-timeout 0"), "at most a day"),
        (format!("train {data} {job} --job-name worker --task-index 1"), "--worker-hosts names 1"),
        (format!("train {data} {job} --job-name chief"), "worker"),
        (format!("train {data} --ps-hosts here --worker-hosts there:1 --job-name ps"), "HOST:PORT"),
    ]);
}

#[test]
fn bad_lines_are_skipped_up_to_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let data = write(folder.path(), "some.svm", "1 1:1\n0 x\n0 2:1\n1 3:y\n".repeat(5).as_bytes());
    let done = run(&format!("train {data} --skip-bad-lines 10 --json"));
    assert_eq!(
        (done.code, &done.json()["bad_lines"], &done.json()["examples"]),
        (Some(0), &10.into(), &10.into())
    );
    assert!(done.err.contains("10 bad lines") && done.err.contains("some.svm:2"), "{done:?}");
    assert_eq!(run(&format!("train {data} --skip-bad-lines 9")).code, Some(2));
}

#[test]
fn one_thread_learns_what_several_learn() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 5000, 1);
    let line = format!("train {} --epochs 2 --json --threads", data.display());
    for model in ["lr", "deepfm"] {
        let learned = |threads: u32| run(&format!("{line} {threads} --model {model}")).json();
        let one = learned(1);
        for threads in [2, 5] {
            let several = learned(threads);
            for name in ["logloss", "auc", "rows", "examples"] {
                assert_eq!(one[name], several[name], "{model}, {threads} threads, {name}");
            }
        }
    }
}

#[test]
fn a_model_predicts_what_the_test_measured() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 4000, 1);
    let test = clicks(&folder.path().join("test.svm"), 1000, 2);
    let model = folder.path().join("model");
    let disk = format!("--data-dir {}", folder.path().join("images").display());
    for extra in ["", &disk, "--no-intercept", "--optimizer sgd --alpha 0.05", "--optimizer adagrad"] {
        let line = format!(
            "train {} --test {} --out {} --json {extra}",
            data.display(),
            test.display(),
            model.display()
        );
        let trained = run(&line).json();
        let done = run(&format!("predict --model {} {} --json", model.display(), test.display())).json();
        for name in ["logloss", "auc"] {
            let (got, want) =
                (done[name].as_f64().unwrap(), trained[&format!("test_{name}")].as_f64().unwrap());
            assert!((got - want).abs() < 1e-6, "{extra}: {name} {got}, at training {want}");
        }
        let scores = run(&format!("predict --model {} {}", model.display(), test.display())).out;
        assert_eq!(scores.lines().filter(|l| (0.0..=1.0).contains(&l.parse::<f64>().unwrap())).count(), 1000);
    }
    // Keys have a meaning in the model's own format only.
    let csv = write(folder.path(), "other.csv", b"label,a\n1,3\n0,4\n");
    assert_eq!(run(&format!("predict --model {} {csv}", model.display())).code, Some(2));
    let manifest = model.join("MANIFEST");
    let mut bytes = std::fs::read(&manifest).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(&manifest, bytes).unwrap();
    let done = run(&format!("predict --model {} {}", model.display(), test.display()));
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("MANIFEST") && done.err.contains("checksum"), "{done:?}");
}

#[test]
fn ctrl_c_stops_cleanly_and_says_what_was_saved() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 5000, 1);
    let model = folder.path().join("model");
    let mut command = gannet(&format!("train - --out {} --json", model.display()));
    command.stdin(std::process::Stdio::piped());
    let mut process = Process::start(command);
    let mut pipe = process.child.0.stdin.take().unwrap();
    pipe.write_all(&std::fs::read(&data).unwrap()).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    process.signal(Signal::INT);
    // The process waits for more data, which never comes.
    let done = process.wait();
    drop(pipe);
    assert_eq!(done.code, Some(130), "{done:?}");
    assert!(done.err.contains("rows saved in") && done.err.contains("stopped by a signal"), "{done:?}");
    assert_eq!(
        run(&format!("predict --model {} {}", model.display(), data.display())).out.lines().count(),
        5000
    );
}

/// A test set whose lines never come. Ctrl-C must end the wait for them, in one process and in a job, and keep
/// the model.
#[test]
fn ctrl_c_while_the_test_set_is_waited_for_keeps_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 1000, 1);
    let never = folder.path().join("never");
    rustix::fs::mkfifoat(rustix::fs::CWD, &never, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let served = Served::start(gannet("server --listen 127.0.0.1:0 --threads 1"));
    let job = format!("--ps-hosts {} --worker-hosts 127.0.0.1:9 --job-name worker --tasks off", served.addr);
    for (name, job) in [("alone", ""), ("job", &job)] {
        let model = folder.path().join(name);
        let (data, out) = (data.display(), model.display());
        let line =
            format!("train {data} --format libsvm --test {} --out {out} --json {job}", never.display());
        let process = Process::start(gannet(&line));
        // A FIFO can be opened like this only if a process reads it. So the training has ended.
        let mut to_it = std::fs::OpenOptions::new();
        to_it.write(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
        let start = Instant::now();
        let nothing = loop {
            match to_it.open(&never) {
                Ok(pipe) => break pipe,
                Err(error) => assert!(start.elapsed() < LIMIT, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        process.signal(Signal::INT);
        let done = process.wait();
        drop(nothing);
        assert_eq!(done.code, Some(130), "{name}: {done:?}");
        assert!(done.err.contains("stopped by a signal after 1000 examples"), "{name}: {done:?}");
        let scores = run(&format!("predict --model {out} {data}"));
        assert_eq!(scores.out.lines().count(), 1000, "{name}: {scores:?}");
    }
}

/// A folder with a model, or with images, of another schema: a message says so, and nothing in the folder changes.
#[test]
fn existing_rows_of_another_schema_are_named_and_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let data = write(folder.path(), "a.svm", "1 1:1 2:1\n0 2:1 3:1\n".repeat(50).as_bytes());
    let (out, images) = (folder.path().join("m"), folder.path().join("ps"));
    let (out, images) = (out.display(), images.display());
    assert_eq!(run(&format!("train {data} --out {out} --data-dir {images}")).code, Some(0));
    let before = run(&format!("predict --model {out} {data}")).out;
    let other = run(&format!("train {data} --out {out} --model fm"));
    assert_eq!(other.code, Some(2), "{other:?}");
    for part in ["holds a model of lr; this training is fm", "name another folder"] {
        assert!(other.err.contains(part), "{part}: {}", other.err);
    }
    assert_eq!(run(&format!("predict --model {out} {data}")).out, before);
    let other = run(&format!("train {data} --data-dir {images} --l1 0.5 --continue"));
    assert_eq!(other.code, Some(2), "{other:?}");
    for part in ["trained with --l1 0,", "--l1 0.5 is given now", "--fresh", "--run NAME"] {
        assert!(other.err.contains(part), "{part}: {}", other.err);
    }
    // The same command with another folder setting trains again from the start.
    assert_eq!(run(&format!("train {data} --out {out} --l1 0.5")).code, Some(0));
}

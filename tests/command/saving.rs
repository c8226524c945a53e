//! What `--out` does to an existing model, and how `--warm-start` continues from one.

use crate::harness;

use gannet::storage::Checkpoint;
use harness::*;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A folder in memory, if there is such a file system: a save syncs one file a shard, and there are many saves here.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn scores(model: &str, data: &str) -> String {
    ok(&format!("predict --model {model} {data}")).out
}

/// All rows of a saved table, bit by bit.
pub fn rows(folder: &Path) -> BTreeMap<u64, Vec<u32>> {
    let checkpoint = Checkpoint::open(folder).unwrap();
    let (mut all, floats) = (BTreeMap::new(), checkpoint.schema().floats());
    let put = |keys: &[u64], rows: &[f32]| {
        for (&key, row) in keys.iter().zip(rows.chunks_exact(floats)) {
            all.insert(key, row.iter().map(|v| v.to_bits()).collect());
        }
    };
    checkpoint.read(put).unwrap();
    all
}

/// The folder of a table of a model other than its first.
fn layer(folder: &Path) -> Option<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|e| e.path()).find(|p| p.is_dir() && !p.ends_with("previous"))
}

/// A training whose standard input is a pipe that stays open.
struct Piped {
    child: Owned,
}

impl Piped {
    fn start(line: &str, text: &str) -> Piped {
        let mut command: Command = gannet(line);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child: Child = command.spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
        Piped { child: Owned(child) }
    }

    /// Interrupts it after it has had time to read its input.
    fn interrupt(mut self) -> Option<i32> {
        std::thread::sleep(Duration::from_millis(700));
        self.child.signal(Signal::INT);
        self.child.ended().code()
    }
}

#[test]
fn bad_lines_alone_replaced_a_good_model_with_nothing() {
    let folder = scratch();
    let f = folder.path();
    let (data, out) = (clicks(&f.join("good.svm"), 2_000, 1), f.join("model").display().to_string());
    let data = data.display().to_string();
    let bad = write(f, "bad.svm", "1 1:x\n".repeat(50));
    for model in ["", "--model fm", "--optimizer lbfgs --l2 1"] {
        ok(&format!("train {data} {model} --out {out}"));
        let before = scores(&out, &data);
        refused(
            &format!("train {bad} --format libsvm --skip-bad-lines 100 {model} --out {out}"),
            &["bad.svm: none of its 50 lines is an example", "skipped as bad lines, the first", "bad.svm:1"],
        );
        assert_eq!(scores(&out, &data), before, "{model}: the model is as it was");
        std::fs::remove_dir_all(&out).unwrap();
    }
}

#[test]
fn an_interrupt_before_the_first_example_replaced_a_good_model_with_nothing() {
    let folder = scratch();
    let f = folder.path();
    let data = clicks(&f.join("good.svm"), 2_000, 1).display().to_string();
    let out = f.join("model").display().to_string();
    for model in ["", "--model fm"] {
        ok(&format!("train {data} {model} --out {out}"));
        let before = scores(&out, &data);
        let line = format!("train - --format libsvm --skip-bad-lines 9 {model} --out {out}");
        assert_eq!(Piped::start(&line, "1 1:x\n").interrupt(), Some(130));
        assert_eq!(scores(&out, &data), before, "{model}: the model is as it was");
        std::fs::remove_dir_all(&out).unwrap();
    }
}

#[test]
fn a_limit_on_the_size_of_files_ended_the_command_by_a_signal() {
    let folder = scratch();
    let f = folder.path();
    let data = clicks(&f.join("good.svm"), 2_000, 1).display().to_string();
    let out = f.join("model").display().to_string();
    ok(&format!("train {data} --out {out}"));
    let before = scores(&out, &data);
    for line in
        [format!("train {data} --out {out}"), format!("train {data} --data-dir {}", f.join("d").display())]
    {
        // In blocks of 512 bytes.
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -f 1; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_gannet")]);
        limited.args(line.split(' '));
        let done = Process::start(limited).wait();
        assert!(matches!(done.code, Some(1 | 2)), "it was no error: {line}: {done:?}");
        assert!(done.err.contains("File too large"), "{line}: {done:?}");
    }
    assert_eq!(scores(&out, &data), before, "the model is as it was");
}

#[test]
fn the_model_before_was_gone_once_another_was_saved() {
    let folder = scratch();
    let f = folder.path();
    let data: Vec<String> =
        (1..=3).map(|n| clicks(&f.join(format!("{n}.svm")), 1_000, n).display().to_string()).collect();
    let held_out = &data[0];
    for model in ["lr", "deepfm"] {
        let out = f.join(model).display().to_string();
        let mut before = None;
        for data in &data {
            ok(&format!("train {data} --model {model} --out {out}"));
            if let Some(before) = before {
                assert_eq!(scores(&format!("{out}/previous"), held_out), before, "{model}: the one before");
            }
            before = Some(scores(&out, held_out));
        }
        assert!(!Path::new(&out).join("previous/previous").exists(), "one former generation is kept");
    }
}

/// Waits until `--save-secs` has written a model.
fn saved(out: &Path) {
    let start = Instant::now();
    while Checkpoint::open(out).is_err() {
        assert!(start.elapsed() < limit(), "no model is saved");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_model_of_a_stopped_training_passed_for_a_whole_one() {
    let folder = scratch();
    let f = folder.path();
    let data = clicks(&f.join("good.svm"), 4_000, 1);
    let (text, data) = (std::fs::read_to_string(&data).unwrap(), data.display().to_string());
    for model in ["", "--model fm"] {
        let out = f.join("model").display().to_string();
        ok(&format!("train {data} {model} --out {out}"));
        let whole = scores(&out, &data);
        assert!(!ok(&format!("predict --model {out} {data}")).err.contains("ended early"));
        let json = ok(&format!("predict --model {out} {data} --json")).json();
        assert_eq!(json["model_complete"], true, "{json}");

        let piped = Piped::start(&format!("train - --format libsvm {model} --out {out}"), &text);
        assert_eq!(piped.interrupt(), Some(130));
        let done = ok(&format!("predict --model {out} {data}"));
        assert!(done.err.contains("ended early") && done.err.contains("signal"), "{done:?}");
        let json = ok(&format!("predict --model {out} {data} --json")).json();
        assert_eq!(json["model_complete"], false, "{json}");
        assert_eq!(scores(&format!("{out}/previous"), &data), whole, "the whole one is kept");

        // A second training that is stopped does not replace the last complete model.
        let piped = Piped::start(&format!("train - --format libsvm {model} --out {out}"), &text);
        assert_eq!(piped.interrupt(), Some(130));
        assert_eq!(scores(&format!("{out}/previous"), &data), whole, "the whole one is kept");
        std::fs::remove_dir_all(&out).unwrap();
    }
}

/// Between two renames, the earlier model has another name for a moment.
#[test]
fn the_model_before_is_found_where_a_kill_left_it() {
    let folder = scratch();
    let f = folder.path();
    let data = clicks(&f.join("good.svm"), 4_000, 1);
    let (text, data) = (std::fs::read_to_string(&data).unwrap(), data.display().to_string());
    let out = f.join("model");
    let line = format!("train {data} --out {}", out.display());
    ok(&line);
    ok(&format!("{line} --epochs 2"));
    let before = scores(&format!("{}/previous", out.display()), &data);
    std::fs::rename(out.join("previous"), out.join("previous.old")).unwrap();
    // The new model in its place ended early, so the earlier model stays.
    let piped = Piped::start(&format!("train - --format libsvm --out {}", out.display()), &text);
    assert_eq!(piped.interrupt(), Some(130));
    let piped = Piped::start(&format!("train - --format libsvm --out {}", out.display()), &text);
    assert_eq!(piped.interrupt(), Some(130));
    std::fs::rename(out.join("previous"), out.join("previous.old")).unwrap();
    let piped = Piped::start(&format!("train - --format libsvm --out {}", out.display()), &text);
    assert_eq!(piped.interrupt(), Some(130));
    let previous = format!("{}/previous", out.display());
    assert_ne!(scores(&previous, &data), before, "the model of two passes came after it");
    assert!(!ok(&format!("predict --model {previous} {data}")).err.contains("ended early"));
}

#[test]
fn saves_of_one_run_pushed_the_model_before_it_out() {
    let folder = scratch();
    let f = folder.path();
    let data = clicks(&f.join("good.svm"), 4_000, 1).display().to_string();
    let out = f.join("model");
    ok(&format!("train {data} --out {}", out.display()));
    let before = scores(&out.display().to_string(), &data);
    let line = format!("train {data} --epochs 10000 --batch 64 --save-secs 1 --out {}", out.display());
    let process = Process::start(gannet(&line));
    std::thread::sleep(Duration::from_millis(2_600));
    process.signal(Signal::INT);
    let done = process.wait();
    assert_eq!(done.code, Some(130), "{done:?}");
    saved(&out);
    assert_eq!(scores(&out.join("previous").display().to_string(), &data), before);
}

/// Users and items with ratings in steps of one half, for `mf` and `linear`.
fn ratings(path: &Path, n: u64, seed: u64) -> String {
    let mut text = String::new();
    for i in 0..n {
        let (user, item) = ((i * 7 + seed) % 40, 100 + (i * 13 + seed * 5) % 60);
        writeln!(text, "{}.5 {user}:1 {item}:1", (user + item) % 5).unwrap();
    }
    std::fs::write(path, text).unwrap();
    path.display().to_string()
}

#[test]
fn training_could_not_go_on_from_a_saved_model() {
    let folder = scratch();
    let f = folder.path();
    // Whole batches, so that one run and two runs divide the examples in the same way.
    let a = clicks(&f.join("a.svm"), 1_024, 1).display().to_string();
    let b = clicks(&f.join("b.svm"), 1_024, 2).display().to_string();
    let (ra, rb) = (ratings(&f.join("ra.svm"), 1_024, 1), ratings(&f.join("rb.svm"), 1_024, 2));
    let adam = "--optimizer adam --alpha 0.01";
    let stored = format!("--data-dir {}", f.join("images").display());
    for (flags, a, b, more) in [
        ("--optimizer ftrl --l1 0.1", &a, &b, ""),
        ("--optimizer group-ftrl", &a, &b, ""),
        ("--optimizer sgd", &a, &b, ""),
        ("--optimizer adagrad", &a, &b, ""),
        ("--optimizer adagrad --push gradient", &a, &b, ""),
        ("--optimizer row-adagrad", &a, &b, ""),
        (adam, &a, &b, ""),
        ("--optimizer amsgrad", &a, &b, ""),
        ("--optimizer rmsprop", &a, &b, ""),
        ("--optimizer nesterov", &a, &b, ""),
        ("--optimizer adagrad --push gradient", &a, &b, stored.as_str()),
        ("--optimizer adam", &a, &b, stored.as_str()),
        ("--model fm --factors 4", &a, &b, ""),
        ("--model fm --factors 4 --optimizer adam", &a, &b, ""),
        ("--model deepfm --factors 4 --hidden 8", &a, &b, ""),
        ("--model linear", &ra, &rb, ""),
        ("--model mf --factors 4", &ra, &rb, ""),
        ("--model softmax --classes 2", &a, &b, ""),
    ] {
        let [first, on, one] = ["first", "on", "one"].map(|name| f.join(name));
        // Otherwise the first examples of one run and of two are others.
        let flags = &format!("{flags} --intercept-start zero");
        ok(&format!("train {a} {flags} --out {}", first.display()));
        let line = format!("train {b} {flags} {more} --warm-start {}", first.display());
        ok(&format!("{line} --out {}", on.display()));
        ok(&format!("train {a} {b} {flags} --out {}", one.display()));
        assert_eq!(rows(&on), rows(&one), "{flags} {more}: rows of one run");
        assert_eq!(layer(&on).map(|l| rows(&l)), layer(&one).map(|l| rows(&l)), "{flags}: the network");
        if more.is_empty() {
            // A folder may be its own warm start.
            let own = format!("--warm-start {0} --out {0}", first.display());
            ok(&format!("train {b} {flags} {own}"));
            assert_eq!(rows(&first), rows(&one), "{flags}: rows of one run, in their folder");
        } else {
            // The folder now has the rows with later training in them, so they must not be replaced.
            refused(&format!("{line} --continue"), &["--warm-start", "--data-dir", "has rows"]);
        }
        for folder in [first, on, one, f.join("images")] {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

#[test]
fn weights_of_another_optimizer_could_not_be_begun_from() {
    let folder = scratch();
    let f = folder.path();
    let a = clicks(&f.join("a.svm"), 2_000, 1).display().to_string();
    let (first, on) = (f.join("first").display().to_string(), f.join("on").display().to_string());
    for flags in ["", "--optimizer lbfgs --l2 1", "--optimizer adam"] {
        ok(&format!("train {a} {flags} --out {first}"));
        let done = ok(&format!("train {a} --optimizer sgd --alpha 1e-30 --warm-start {first} --out {on}"));
        assert!(done.err.contains("starts from zero") && done.err.contains("sgd"), "{flags}: {done:?}");
        close(&on, &first, &a);
    }
    // FTRL's weights depend on its rate. With another rate they would change at once.
    ok(&format!("train {a} --out {first}"));
    let done = ok(&format!("train {a} --alpha 1e-30 --warm-start {first} --out {on}"));
    assert!(done.err.contains("starts from zero"), "{done:?}");
    close(&on, &first, &a);
    // Saved rows are loaded whatever the admission of new rows is.
    ok(&format!("train {a} --admit-count 100 --warm-start {first} --out {on}"));
    assert_eq!(rows(Path::new(&on)).len(), rows(Path::new(&first)).len());
}

/// Checks that two models give the same scores, up to a last digit.
pub fn close(a: &str, b: &str, data: &str) {
    let numbers = |model| scores(model, data).lines().map(|l| l.parse().unwrap()).collect::<Vec<f64>>();
    let (a, b) = (numbers(a), numbers(b));
    assert!(a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 3e-6), "{a:?} {b:?}");
}

#[test]
fn a_warm_start_says_what_differs() {
    let folder = scratch();
    let f = folder.path();
    let svm = clicks(&f.join("a.svm"), 300, 1).display().to_string();
    let csv = write(f, "a.csv", format!("label,a,b\n{}", "1,x,2\n0,y,3\n".repeat(100)));
    let other = write(f, "b.csv", format!("label,a,c\n{}", "1,x,2\n0,y,3\n".repeat(100)));
    let m = f.join("model").display().to_string();
    let warm = format!("--warm-start {m}");
    for (flags, data, then, expected) in [
        ("", &svm, format!("{svm} --model fm"), &["lr", "fm"][..]),
        ("--model fm --factors 4", &svm, format!("{svm} --model fm --factors 8"), &["factors", "4", "8"]),
        (
            "--model deepfm --hidden 8",
            &svm,
            format!("{svm} --model deepfm --hidden 8,4"),
            &["hidden", "8", "8,4"],
        ),
        (
            "--model softmax --classes 2",
            &svm,
            format!("{svm} --model softmax --classes 3"),
            &["classes", "2", "3"],
        ),
        ("", &svm, format!("{svm} --no-intercept"), &["intercept"]),
        ("", &svm, csv.clone(), &["a.csv", "csv", "libsvm"]),
        ("", &csv, other, &["b.csv", "label", "a,b", "a,c"]),
        ("", &csv, format!("{csv} --numeric b"), &["numeric b"]),
        ("--model lda", &svm, format!("{svm} --model lda"), &["lda"]),
        (
            "",
            &svm,
            format!("{svm} --job-name ps --ps-hosts {NOBODY} --worker-hosts 127.0.0.1:2"),
            &["--warm-start", "works only in a worker"],
        ),
        (
            "",
            &svm,
            format!("{svm} --model fm --job-name worker --ps-hosts {NOBODY} --worker-hosts 127.0.0.1:2"),
            &["--model", "lr", "fm"],
        ),
    ] {
        ok(&format!("train {data} {flags} --out {m}"));
        let mut expected = expected.to_vec();
        expected.push("--warm-start");
        refused(&format!("train {then} {warm}"), &expected);
        std::fs::remove_dir_all(&m).unwrap();
    }
    refused(&format!("train {svm} --warm-start {m}"), &[&m]);
}

#[test]
fn a_saved_model_was_taken_for_a_folder_of_shards() {
    let folder = scratch();
    let f = folder.path();
    let data = clicks(&f.join("a.svm"), 300, 1).display().to_string();
    let out = f.join("model").display().to_string();
    ok(&format!("train {data} --out {out}"));
    refused(&format!("train {data} --data-dir {out}"), &["--data-dir", &out, "--warm-start"]);
    refused(&format!("train {data} --model fm --data-dir {out}"), &["--data-dir", &out, "saved model"]);
    refused(&format!("server --listen 127.0.0.1:0 --data-dir {out}"), &["--data-dir", &out, "saved model"]);
    let fresh = f.join("fresh").display().to_string();
    refused(&format!("train {data} --data-dir {fresh} --out {fresh}"), &["--out", "--data-dir", &fresh]);
}

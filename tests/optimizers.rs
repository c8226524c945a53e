//! Every `--optimizer` from outside: the shipped flights are learned, by replay and by gradients, in one process, on shards
//! and over servers; the model predicts what the training measured; settings that do not belong are refused by name.

mod harness;

use harness::*;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Each way to learn: optimizer, and the flag that makes it push gradients if it would not.
const WAYS: [&str; 5] = [
    "--optimizer ftrl",
    "--optimizer ftrl --push gradient",
    "--optimizer adagrad --push gradient",
    "--optimizer sgd --alpha 0.02",
    "--optimizer sgd --alpha 0.002 --push gradient",
];

/// The first flights, every fifth held out, as two files; the log loss of predicting the held-out rate for every one.
fn flights(folder: &Path) -> (String, String, f64) {
    let file = std::fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/data/flights.csv.gz")).unwrap();
    let mut lines = BufReader::new(flate2::read::MultiGzDecoder::new(file)).lines();
    let header = lines.next().unwrap().unwrap();
    let (mut train, mut test) = (format!("{header}\n"), format!("{header}\n"));
    let (mut late, mut held) = (0.0, 0.0f64);
    for (i, line) in lines.take(50_000).enumerate() {
        let line = line.unwrap();
        if i % 5 == 0 {
            held += 1.0;
            late += f64::from(u8::from(line.starts_with('1')));
        }
        let to = if i % 5 == 0 { &mut test } else { &mut train };
        to.push_str(&line);
        to.push('\n');
    }
    let rate: f64 = late / held;
    let constant = -(rate * rate.ln() + (1.0 - rate) * (1.0 - rate).ln());
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    (write("train.csv", train), write("test.csv", test), constant)
}

fn number(value: &serde_json::Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("{name} in {value}"))
}

#[test]
fn flights_are_learned_by_each() {
    let folder = tempfile::tempdir().unwrap();
    let (train, test, constant) = flights(folder.path());
    let model = folder.path().join("model").display().to_string();
    for way in WAYS {
        let done = run(&format!("train {train} --test {test} {way} --out {model} --json"));
        assert_eq!(done.code, Some(0), "{way}: {done:?}");
        let trained = done.json();
        let (loss, auc) = (number(&trained, "test_logloss"), number(&trained, "test_auc"));
        println!("{way}: progressive {}, held out {loss}, AUC {auc}", number(&trained, "logloss"));
        assert!(loss < constant - 0.01 && auc > 0.65, "{way}: {loss} {auc}, the constant has {constant}");
        assert_eq!(
            (&trained["not_finite"], trained["rows"].as_u64() > Some(3000)),
            (&0.into(), true),
            "{way}"
        );
        let push = if way.contains("gradient") { "gradient" } else { "replay" };
        assert_eq!(trained["push"], push, "{way}");
        let predicted = run(&format!("predict --model {model} {test} --json")).json();
        assert!(
            (number(&predicted, "logloss") - loss).abs() < 1e-6,
            "{way}: {predicted}, at training {loss}"
        );
    }
}

/// One process, its shards in a folder, and one worker of a server learn the same; a job pulls one batch ahead, so by
/// gradients it is not the same to the bit.
#[test]
fn a_job_learns_what_one_process_learns() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 10_000, 1);
    let test = clicks(&folder.path().join("test.svm"), 3_000, 2);
    for (number_of, way) in WAYS.iter().enumerate() {
        let line = format!("train {} --test {} --json {way}", data.display(), test.display());
        let alone = run(&line).json();
        let images = folder.path().join(format!("images-{number_of}"));
        let shards = run(&format!("{line} --data-dir {}", images.display())).json();
        let server = Served::start(gannet("server --listen 127.0.0.1:0 --threads 2"));
        let job = format!("--ps-hosts {} --worker-hosts 127.0.0.1:9 --job-name worker", server.addr);
        let served = run(&format!("{line} {job} --peer-timeout 20")).json();
        for name in ["logloss", "test_logloss"] {
            let want = number(&alone, name);
            assert!((number(&shards, name) - want).abs() < 1e-5, "{way}: {shards} {alone}");
            let within = if way.contains("gradient") { 0.02 } else { 1e-5 };
            assert!((number(&served, name) / want - 1.0).abs() < within, "{way}: {served} {alone}");
        }
        assert_eq!((&served["rows"], &shards["rows"]), (&alone["rows"], &alone["rows"]), "{way}");
        assert_eq!(served["push"], alone["push"]);
    }
}

#[test]
fn settings_that_do_not_belong_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("a.svm");
    std::fs::write(&data, "1 3:1\n").unwrap();
    for (flags, expected) in [
        ("--optimizer sgd --l1 1", &["--l1 is no setting of --optimizer sgd, which has --alpha", "ftrl"][..]),
        ("--optimizer sgd --beta 1", &["--beta", "it belongs to ftrl, adagrad"]),
        ("--optimizer adagrad --l2 0", &["--l2"]),
        ("--optimizer lion", &["ftrl", "sgd", "adagrad"]),
        ("--push change", &["replay", "gradient"]),
    ] {
        let done = run(&format!("train {} {flags}", data.display()));
        assert_eq!(done.code, Some(2), "{flags}: {done:?}");
        assert!(expected.iter().all(|e| done.err.contains(e)), "{flags}: {expected:?} in {done:?}");
    }
}

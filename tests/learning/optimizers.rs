//! Every `--optimizer`, tested from outside. The shipped flights are trained by replay and by gradients, in one
//! process, on shards and over servers. The model predicts what the training measured. The message about a setting that
//! an optimizer does not have names the setting.

use crate::harness;

use harness::*;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// The optimizers' settings: what pushes carry by default, and the flags.
const WAYS: [(&str, &str); 18] = [
    ("replay", "--optimizer ftrl"),
    ("gradient", "--optimizer ftrl --push gradient"),
    ("gradient", "--optimizer ftrl --clip-value 1"),
    ("replay", "--optimizer group-ftrl --l21 0.1 --l1 0.1"),
    ("gradient", "--optimizer group-ftrl --l21 0.1 --push gradient"),
    ("replay", "--optimizer sgd --alpha 0.005"),
    ("gradient", "--optimizer sgd --push gradient"),
    ("gradient", "--optimizer sgd --push gradient --reduce sum --alpha 0.002"),
    (
        "gradient",
        "--optimizer sgd --alpha 0.1 --schedule exponential --decay-steps 50 --decay-rate 0.8 --warmup 10 --l2 1e-4",
    ),
    ("gradient", "--optimizer momentum"),
    ("gradient", "--optimizer nesterov --momentum 0.8"),
    ("replay", "--optimizer adagrad"),
    ("gradient", "--optimizer adagrad --push gradient"),
    ("replay", "--optimizer row-adagrad --beta 0.5 --epsilon 1e-6"),
    ("gradient", "--optimizer row-adagrad --push gradient"),
    ("gradient", "--optimizer rmsprop --rho 0.95"),
    ("gradient", "--optimizer adam --alpha 0.02 --schedule cosine --decay-steps 400 --decay-end 0.1"),
    (
        "gradient",
        "--optimizer amsgrad --alpha 0.01 --weight-decay 0.01 --beta1 0.8 --beta2 0.99 --clip-norm 5",
    ),
];

/// The first flights as two files, with every fifth held out. Also the log loss of predicting the held-out rate for
/// every flight.
fn flights(folder: &Path) -> (String, String, f64) {
    let file = std::fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../data/flights.csv.gz")).unwrap();
    let mut lines = BufReader::new(flate2::read::MultiGzDecoder::new(file)).lines();
    let header = lines.next().unwrap().unwrap();
    let (mut train, mut test) = (format!("{header}\n"), format!("{header}\n"));
    let (mut late, mut held) = (0.0, 0.0f64);
    for (i, line) in lines.take(30_000).enumerate() {
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
    for (push, way) in WAYS {
        let done = run(&format!("train {train} --test {test} {way} --types off --out {model} --json"));
        assert_eq!(done.code, Some(0), "{way}: {done:?}");
        let trained = done.json();
        let (loss, auc) = (number(&trained, "test_logloss"), number(&trained, "test_auc"));
        println!("{way}: progressive {}, held out {loss}, AUC {auc}", number(&trained, "logloss"));
        assert!(loss < constant - 0.02 && auc > 0.64, "{way}: {loss} {auc}, the constant has {constant}");
        assert_eq!(
            (&trained["not_finite"], trained["rows"].as_u64() > Some(3000)),
            (&0.into(), true),
            "{way}"
        );
        assert_eq!(trained["push"], push, "{way}");
        let predicted = run(&format!("predict --model {model} {test} --json")).json();
        assert!(
            (number(&predicted, "logloss") - loss).abs() < 1e-6,
            "{way}: {predicted}, at training {loss}"
        );
    }
}

/// One process, one process with its shards in a folder, and one worker of a server train the same model. A job pulls
/// one batch ahead, so with gradients the bits differ.
#[test]
fn a_job_learns_what_one_process_learns() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 10_000, 1);
    let test = clicks(&folder.path().join("test.svm"), 3_000, 2);
    // Images in memory: closing eighteen sets of them on a disk takes a minute.
    let shm = Path::new("/dev/shm");
    let images = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() }.unwrap();
    for (number_of, (push, way)) in WAYS.iter().enumerate() {
        let line = format!("train {} --test {} --json {way}", data.display(), test.display());
        let alone = run(&line).json();
        let images = images.path().join(number_of.to_string());
        let shards = run(&format!("{line} --data-dir {}", images.display())).json();
        let server = Served::start(gannet("server --listen 127.0.0.1:0 --threads 2"));
        let job =
            format!("--ps-hosts {} --worker-hosts 127.0.0.1:9 --job-name worker --tasks off", server.addr);
        let served = run(&format!("{line} {job} --peer-timeout 20")).json();
        for name in ["logloss", "test_logloss"] {
            let want = number(&alone, name);
            assert!((number(&shards, name) - want).abs() < 1e-5, "{way}: {shards} {alone}");
            let within = if *push == "gradient" { 0.02 } else { 1e-5 };
            assert!((number(&served, name) / want - 1.0).abs() < within, "{way}: {served} {alone}");
        }
        assert_eq!((&served["rows"], &shards["rows"]), (&alone["rows"], &alone["rows"]), "{way}");
        assert_eq!(served["push"], alone["push"]);
    }
}

/// Two workers push gradients to one server. The learning rate falls with each worker's own clock.
#[test]
fn two_workers_learn_together() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 20_000, 3);
    let test = clicks(&folder.path().join("test.svm"), 5_000, 4);
    let way = "--optimizer amsgrad --alpha 0.05 --schedule inverse-sqrt --decay-steps 20 --batch 100";
    let line = format!("train {} --test {} --json {way}", data.display(), test.display());
    let alone = run(&line).json();
    let server = Served::start(gannet("server --listen 127.0.0.1:0 --threads 2"));
    let job = |index| {
        format!(
            "{line} --ps-hosts {} --worker-hosts 127.0.0.1:9,127.0.0.1:10 --job-name worker --task-index {index} \
             --tasks off --peer-timeout 20",
            server.addr
        )
    };
    let second = Process::start(gannet(&job(1)));
    let first = run(&job(0)).json();
    let second = second.wait().json();
    let examples = |done: &serde_json::Value| done["examples"].as_u64().unwrap();
    assert_eq!(examples(&first) + examples(&second), 20_000);
    assert_eq!((&first["rows"], &first["not_finite"]), (&alone["rows"], &0.into()));
    let (got, want) = (number(&first, "test_logloss"), number(&alone, "test_logloss"));
    assert!((got / want - 1.0).abs() < 0.03, "two workers {got}, one process {want}");
}

#[test]
fn settings_that_do_not_belong_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("a.svm");
    std::fs::write(&data, "1 3:1\n").unwrap();
    for (flags, expected) in [
        (
            "--optimizer sgd --l1 1",
            &["--l1: no setting of --optimizer sgd, which has --alpha, --l2", "ftrl"][..],
        ),
        ("--optimizer sgd --beta 1", &["--beta", "it belongs to ftrl, group-ftrl, adagrad, row-adagrad"]),
        ("--optimizer ftrl --l21 1", &["--l21: no setting of --optimizer ftrl", "it belongs to group-ftrl"]),
        ("--optimizer adam --momentum 0.9", &["--momentum", "it belongs to momentum, nesterov"]),
        ("--optimizer momentum --beta1 0.9", &["it belongs to adam, amsgrad"]),
        ("--optimizer adagrad --rho 0.9", &["it belongs to rmsprop"]),
        ("--optimizer rmsprop --weight-decay 0.1", &["it belongs to adam, amsgrad"]),
        ("--optimizer sgd --epsilon 0.1", &["--epsilon"]),
        ("--optimizer adam --push replay", &["adam cannot replay", "--push gradient"]),
        ("--optimizer momentum --push replay", &["momentum cannot replay"]),
        ("--optimizer sgd --push replay --clip-value 1", &["sgd cannot replay", "clipping"]),
        ("--optimizer ftrl --warmup 10", &["ftrl takes no schedule", "--warmup"]),
        ("--optimizer ftrl --reduce mean", &["--reduce", "--push gradient"]),
        ("--optimizer adam --schedule cosine", &["--schedule cosine needs --decay-steps"]),
        ("--optimizer adam --decay-steps 5", &["--decay-steps", "--schedule"]),
        (
            "--optimizer adam --schedule cosine --decay-steps 5 --decay-rate 1",
            &["it belongs to exponential, step"],
        ),
        ("--optimizer adam --schedule step --decay-steps 0", &["above 0", "--decay-steps"]),
        ("--optimizer adam --schedule step --decay-steps 5 --decay-rate 2", &["--decay-rate"]),
        ("--optimizer adam --schedule saw", &["exponential", "cosine"]),
        ("--optimizer adam --alpha -1", &["adam: lr is -1", "--alpha"]),
        ("--optimizer adam --beta2 1", &["beta2 is 1", "below 1"]),
        ("--optimizer adam --clip-norm 0", &["clip by norm is 0"]),
        ("--optimizer lion", &["ftrl", "group-ftrl", "sgd", "nesterov", "row-adagrad", "amsgrad"]),
        ("--push change", &["replay", "gradient"]),
    ] {
        let done = run(&format!("train {} {flags}", data.display()));
        assert_eq!(done.code, Some(2), "{flags}: {done:?}");
        assert!(expected.iter().all(|e| done.err.contains(e)), "{flags}: {expected:?} in {done:?}");
    }
}

//! `gannet train --model` and `gannet predict`, tested from outside: models are compared with known answers, alone and
//! as jobs of several processes. Public data sets are fetched once, into `~/.cache/gannet-data` or `$GANNET_DATA`. If a
//! data set is not available, its test says SKIPPED.

use crate::harness;

use harness::*;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("{name}: {value}"))
}

/// y = 2x + 10, and noise that is uniform from -1/2 to 1/2.
fn line(path: &Path) {
    let mut text = "y,x\n".to_owned();
    let chance = |i: u64| (gannet::table::mix(i) >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
    for i in 0..10_000 {
        let x = 4.0 * chance(2 * i);
        writeln!(text, "{:.4},{x:.4}", 2.0 * x + 10.0 + chance(2 * i + 1)).unwrap();
    }
    std::fs::write(path, text).unwrap();
}

/// Servers and their addresses.
fn serve(servers: usize, threads: usize) -> (Vec<Served>, String) {
    let start = |_| Served::start(gannet(&format!("server --listen 127.0.0.1:0 --threads {threads}")));
    let served: Vec<Served> = (0..servers).map(start).collect();
    let hosts = served.iter().map(|s| s.addr.clone()).collect::<Vec<_>>().join(",");
    (served, hosts)
}

/// Runs a job of two workers and returns their reports. The flags `chief` are for the first.
fn pair(line: &str, chief: &str) -> [Value; 2] {
    let job = |index, chief| {
        format!(
            "{line} --worker-hosts 127.0.0.1:9,127.0.0.1:10 --job-name worker --task-index {index} --tasks off --peer-timeout 20 {chief}"
        )
    };
    let second = Process::start(gannet(&job(1, "")));
    let (first, second) = (run(&job(0, chief)), second.wait());
    [first, second].map(|done| {
        assert_eq!(done.code, Some(0), "{line}: {done:?}");
        done.json()
    })
}

fn is_the_line(report: &Value) {
    let weights = &report["weights"];
    assert!((number(weights, "x") - 2.0).abs() < 0.05, "{report}");
    assert!((number(weights, "intercept") - 10.0).abs() < 0.05, "{report}");
}

#[test]
fn a_line_alone_and_by_two_workers_of_two_servers() {
    let folder = tempfile::tempdir().unwrap();
    let (data, out) = (folder.path().join("line.csv"), folder.path().join("model"));
    line(&data);
    let train = format!(
        "train {} --model linear --label y --numeric x --optimizer sgd --alpha 0.01 --batch 4 --json",
        data.display()
    );
    let alone = run(&format!("{train} --out {}", out.display())).json();
    is_the_line(&alone);
    assert_eq!(
        (&alone["steps"], &alone["rows"], &alone["transport"]),
        (&2500.into(), &2.into(), &"embedded".into())
    );
    assert!(number(&alone, "steps_per_second") > 0.0 && number(&alone, "rmse") < 3.0);

    let test = format!("--test {}", data.display());
    for (sync, bound) in [("--issync 0", u64::MAX), ("--sync ssp:3", 3), ("--issync 1", 0)] {
        let (_served, hosts) = serve(2, 2);
        let [first, second] = pair(&format!("{train} {sync} {test} --ps-hosts {hosts}"), "");
        assert_eq!((&first["examples"], &second["examples"]), (&5000.into(), &5000.into()));
        is_the_line(&first);
        // The noise has a deviation of 1 / sqrt(12).
        assert!((number(&first, "test_rmse") - 0.2887).abs() < 0.01 && second.get("test_rmse").is_none());
        for report in [first, second] {
            let stale = report["staleness"].as_object().unwrap();
            assert!(
                stale.keys().all(|steps| bound == u64::MAX || steps.parse::<u64>().unwrap() <= bound),
                "{report}"
            );
            assert_eq!(stale.values().map(|pulls| pulls.as_u64().unwrap()).sum::<u64>(), 1250, "{report}");
        }
    }

    let few = folder.path().join("few.csv");
    std::fs::write(&few, "x\n0\n1\n-2\n").unwrap();
    let predicted = run(&format!("predict --model {} {}", out.display(), few.display()));
    let predicted: Vec<f64> = predicted.out.lines().map(|line| line.parse().unwrap()).collect();
    for (predicted, want) in predicted.iter().zip([10.0, 12.0, 6.0]) {
        assert!((predicted - want).abs() < 0.1, "{predicted} for {want}");
    }
    assert_eq!(predicted.len(), 3);
}

/// The folder of a table in a saved model. It checks that there is one table of this name.
fn table_of(model: &Path, name: &str) -> PathBuf {
    let entries = std::fs::read_dir(model).unwrap().map(|entry| entry.unwrap().path());
    let found: Vec<PathBuf> =
        entries.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(name)).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

/// The flights of the example, and predictions of a saved model of several tables.
#[test]
fn click_models_beat_logistic_regression_on_the_flights() {
    let folder = tempfile::tempdir().unwrap();
    let (some, out) = (folder.path().join("some.csv"), folder.path().join("model"));
    let flights = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/flights.csv.gz");
    let mut text = String::new();
    let file = std::fs::File::open(&flights).unwrap();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(file), &mut text).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').take(60_001).collect();
    std::fs::write(&some, lines.concat()).unwrap();
    let train = |model: &str| run(&format!("train {} --model {model} --json", some.display())).json();
    let plain = number(&train("lr"), "logloss");
    let machine = number(&train("fm"), "logloss");
    let deep = train(&format!("deepfm --hidden 16,8 --test {} --out {}", some.display(), out.display()));
    assert!(machine < plain - 0.005 && number(&deep, "logloss") < plain - 0.005, "{plain} {machine} {deep}");

    let predict = format!("predict --model {} {}", out.display(), some.display());
    let scored = run(&format!("{predict} --json")).json();
    assert_eq!(scored["examples"], 60_000);
    assert_eq!((&scored["logloss"], &scored["auc"]), (&deep["test_logloss"], &deep["test_auc"]));
    let probabilities: Vec<f64> = run(&predict).out.lines().map(|line| line.parse().unwrap()).collect();
    assert!(probabilities.len() == 60_000 && probabilities.iter().all(|p| (0.0..=1.0).contains(p)));

    // A layer of another saved model does not belong to this model.
    let other = folder.path().join("other");
    train(&format!("deepfm --hidden 16,8 --seed 2 --out {}", other.display()));
    let place = table_of(&out, "deepfm.1");
    std::fs::remove_dir_all(&place).unwrap();
    std::fs::rename(table_of(&other, "deepfm.1"), &place).unwrap();
    let refused = run(&predict);
    assert!(refused.code == Some(2) && refused.err.contains("deepfm.1"), "{refused:?}");
}

/// The tables of a model whose workers keep step have the same bits on any servers.
#[test]
fn a_deep_model_is_the_same_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 3_000, 1);
    let train =
        format!("train {} --model deepfm --hidden 8 --batch 64 --deterministic --json", data.display());
    let mut models = Vec::new();
    for (servers, threads, transport) in [(1, 1, "tcp"), (2, 3, "auto")] {
        let (_served, hosts) = serve(servers, threads);
        let out = folder.path().join(transport);
        let line = format!("{train} --ps-hosts {hosts} --transport {transport}");
        pair(&line, &format!("--out {}", out.display()));
        let mut rows = Vec::new();
        for name in ["", "deepfm.1", "deepfm.2"] {
            let folder = if name.is_empty() { out.clone() } else { table_of(&out, name) };
            let checkpoint = gannet::storage::Checkpoint::open(&folder).unwrap();
            let floats = checkpoint.schema().floats();
            let bits = |row: &[f32]| row.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            let page = |keys: &[u64], page: &[f32]| {
                let page = page.chunks(floats).map(bits);
                rows.extend(keys.iter().zip(page).map(|(&key, row)| (name, key, row)));
            };
            checkpoint.read(page).unwrap();
        }
        rows.sort();
        models.push(rows);
    }
    assert!(models[0].len() > 1_000 && models[0] == models[1], "other bits");
}

/// Worker 1 gets half of its data and is killed. Worker 0 fences it on every table of the model, and continues.
#[test]
fn a_worker_that_dies_is_not_waited_for_in_any_table() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 3_000, 1);
    let bytes = std::fs::read(&data).unwrap();
    for sync in ["ssp:1", "bsp"] {
        let (_served, hosts) = serve(1, 2);
        let worker = |index| {
            let mut command = gannet(&format!(
                "train - --model deepfm --hidden 4 --batch 100 --sync {sync} --worker-timeout 3 --peer-timeout 5 --json \
                 --ps-hosts {hosts} --worker-hosts a:1,b:1 --job-name worker --task-index {index}"
            ));
            command.stdin(Stdio::piped());
            Process::start(command)
        };
        let mut victim = worker(1);
        let mut pipe = victim.child.0.stdin.take().unwrap();
        pipe.write_all(&bytes[..bytes.len() / 2]).unwrap();
        let mut chief = worker(0);
        let (mut data, all) = (chief.child.0.stdin.take().unwrap(), bytes.clone());
        // It reads all of its data only after worker 1 has been given up.
        std::thread::spawn(move || data.write_all(&all));
        std::thread::sleep(std::time::Duration::from_secs(2));
        victim.signal(rustix::process::Signal::KILL);
        let done = chief.wait();
        drop(pipe);
        assert_eq!((done.code, &done.json()["examples"]), (Some(3), &1_500.into()), "{sync}: {done:?}");
        assert_eq!(done.json()["missing_workers"], serde_json::json!([1]), "{sync}: {done:?}");
        assert!(done.err.contains("waiting for worker 1, which is at clock"), "{sync}: {done:?}");
    }
}

#[test]
fn what_a_model_does_not_have_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.svm");
    std::fs::write(&path, "1 1:1 2:1 3:1\n0 1:1\n7 2:1\n").unwrap();
    for (flags, said) in [
        (
            "--factors 4",
            "--factors: no setting of --model lr, which has none; it belongs to fm, ffm, deepfm, mf",
        ),
        ("--model linear --classes 3", "it belongs to softmax"),
        ("--model fm --hidden 4", "it belongs to deepfm"),
        ("--model fm --deviation -1", "--deviation -1"),
        ("--model lda --optimizer sgd", "--optimizer"),
        ("--model lda --word-prior 0", "--word-prior 0"),
        ("--model lda --vocabulary /nowhere/words", "/nowhere/words"),
        ("--model mf", "needs two features of value 1, a user and an item"),
        ("--model softmax --classes 3", "a.svm:3: expected a class as the label"),
        ("--model fm", "a.svm:3: expected a label 0, 1, +1 or -1"),
        ("--model deepfm --optimizer adam --push replay", "adam cannot replay"),
        ("--model fm --reduce mean", "--reduce says what becomes of gradients"),
        ("--model linear --l1 1", "--l1: no setting of --optimizer adagrad"),
    ] {
        let done = run(&format!("train {} {flags}", path.display()));
        assert!(done.code == Some(2) && done.err.contains(said), "{flags}: {done:?}");
    }
    for (flags, said) in [
        ("--model lda --tasks on", "--tasks on: does not work with --model lda"),
        ("--model deepfm --sync bsp --replicas-to-aggregate 1", "--model deepfm has 4 tables"),
        ("--model lda --sync bsp --replicas-to-aggregate 1", "--model lda has 2 tables"),
    ] {
        let job = "--ps-hosts 127.0.0.1:9 --worker-hosts 127.0.0.1:9,127.0.0.1:10 --job-name worker";
        let done = run(&format!("train {} {job} {flags}", path.display()));
        assert!(done.code == Some(2) && done.err.contains(said), "{flags}: {done:?}");
    }
}

/// A folder with one of the data sets of scripts/data/fetch_models.py; `None` if it is not available.
fn fetched(data: &str, file: &str) -> Option<PathBuf> {
    let home = || {
        PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/tmp".into())).join(".cache/gannet-data")
    };
    let folder = std::env::var_os("GANNET_DATA").map_or_else(home, PathBuf::from);
    if folder.join(file).is_file() {
        return Some(folder);
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/data/fetch_models.py");
    let fetch = Command::new("python3").arg(script).arg(data).arg(&folder).output();
    if fetch.as_ref().is_ok_and(|output| output.status.success()) {
        return Some(folder);
    }
    let why = fetch.map_or_else(|e| e.to_string(), |o| String::from_utf8_lossy(&o.stderr).into_owned());
    // This bypasses the capture of a test's output, so it is printed although the test passes.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {data} of tests/learning/models.rs: {}", why.trim());
    None
}

#[test]
fn digits() {
    let Some(folder) = fetched("digits", "digits-test.svm") else { return };
    let set = |part: &str| folder.join(format!("digits-{part}.svm")).display().to_string();
    let line = format!("train {} --test {} --model softmax --epochs 20 --json", set("train"), set("test"));
    let report = run(&line).json();
    assert!(number(&report, "test_accuracy") > 0.93, "{report}");
}

/// Films: the bar is an RMSE of 0.93 on a fifth of the ratings.
#[test]
fn films() {
    let Some(folder) = fetched("movielens", "movielens-test.tsv") else { return };
    let set = |part: &str| folder.join(format!("movielens-{part}.tsv")).display().to_string();
    let flags = "--model mf --label rating --l2 0.1 --epochs 20 --json";
    let report = run(&format!("train {} --test {} {flags}", set("train"), set("test"))).json();
    assert!(number(&report, "test_rmse") < 0.93, "{report}");
}

/// Articles: after 200 sweeps the package `lda` 3.0.2 has -7.915, -7.923 and -7.910 a token, by three seeds.
#[test]
fn articles() {
    let Some(folder) = fetched("reuters", "reuters.tokens") else { return };
    let line = format!(
        "train {} --model lda --epochs 200 --vocabulary {} --json",
        folder.join("reuters.ldac").display(),
        folder.join("reuters.tokens").display()
    );
    let report = run(&line).json();
    assert_eq!(
        (&report["tokens"], &report["all_tokens"], &report["words"]),
        (&84_010.into(), &84_010.into(), &4258.into())
    );
    assert!(number(&report, "log_likelihood_per_token") > -7.909, "{report}");
    let topics = report["topics"].as_array().unwrap();
    let together = |words: &[&str]| {
        topics
            .iter()
            .any(|topic| words.iter().all(|w| topic["words"].to_string().contains(&format!("{w:?}"))))
    };
    assert!(
        topics.len() == 20 && together(&["pope", "vatican"]) && together(&["yeltsin", "russian"]),
        "{report}"
    );
}

//! How data is understood, tested from outside: labels of two values, formats that do not go together, columns of
//! numbers.

use crate::harness;

use harness::*;
use std::fmt::Write as _;

fn number(v: &serde_json::Value, name: &str) -> f64 {
    v[name].as_f64().unwrap_or_else(|| panic!("{name}: {v}"))
}

/// A pseudo-random number from 0 to 1.
fn unit(i: u64) -> f64 {
    let x = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    ((x ^ (x >> 32)) >> 11) as f64 / (1u64 << 53) as f64
}

/// Customers: income in units, age in years, a city. Customers who stay earn more and are older.
fn customers(n: u64, yes: &str, no: &str) -> String {
    let mut text = "stays,income,age,city\n".to_owned();
    for i in 0..n {
        let (income, age) = (20_000.0 + 80_000.0 * unit(3 * i), 18.0 + 60.0 * unit(3 * i + 1));
        let margin = (income - 60_000.0) / 12_000.0 + (age - 48.0) / 12.0;
        let label = if unit(3 * i + 2) < 1.0 / (1.0 + (-margin).exp()) { yes } else { no };
        writeln!(text, "{label},{income:.2},{age:.1},{}", ["Rome", "Oslo", "Bern"][i as usize % 3]).unwrap();
    }
    text
}

#[test]
fn labels_1_0_and_0_0_were_refused() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let plain = customers(600, "1", "0");
    let loss = |path: &str| number(&ok(&format!("train {path} --json")).json(), "logloss");
    let (one, zero) = (write(f, "a.csv", &plain), write(f, "b.csv", customers(600, "1.0", "0.0")));
    let signs = write(f, "c.csv", customers(600, "+1", "-1.0"));
    assert_eq!(loss(&one), loss(&zero));
    assert_eq!(loss(&one), loss(&signs));
    let libsvm = |yes, no| format!("{yes} 1:1 2:3\n{no} 1:1 3:1\n").repeat(50);
    let svm = write(f, "a.svm", libsvm("1", "0"));
    for (name, yes, no) in [("b.svm", "1.0", "0.0"), ("c.svm", "+1.0", "-1.0"), ("d.svm", "1.0", "0.00")] {
        assert_eq!(loss(&svm), loss(&write(f, name, libsvm(yes, no))), "{name}");
    }
}

#[test]
fn labels_yes_and_no_could_not_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let ones = write(f, "ones.csv", customers(900, "1", "0"));
    let expected = ok(&format!("train {ones} --test {ones} --json")).json();
    let model = f.join("model").display().to_string();
    for (yes, no) in [("yes", "no"), ("True", "False"), ("2", "1"), ("stays put", "leaves")] {
        let named = write(f, "named.csv", customers(900, yes, no));
        let advised = if yes == "stays put" { "--positive VALUE" } else { &format!("--positive {yes}") };
        refused(&format!("train {named}"), &["named.csv:", "stays", advised]);
        let mut train = gannet(&format!("train {named} --test {named} --json --out {model}"));
        train.args(["--positive", yes]);
        let done = Process::start(train).wait();
        assert_eq!(done.code, Some(0), "{done:?}");
        for name in ["logloss", "test_logloss", "test_auc"] {
            assert_eq!(done.json()[name], expected[name], "{yes} {name}");
        }
        // The model remembers which label is positive.
        let scored = ok(&format!("predict --model {model} {named} --json")).json();
        assert_eq!(scored["logloss"], expected["test_logloss"], "{yes}");
        let third = write(f, "third.csv", format!("{}maybe,1,1,Rome\n", customers(3, yes, no)));
        refused(&format!("predict --model {model} {third}"), &["third.csv:5", "maybe", yes, no]);
        refused(&format!("predict --model {model} {named} --positive {no}"), &["--positive", yes]);
    }
    let third = write(f, "third.csv", format!("{}maybe,1,1,Rome\n", customers(300, "yes", "no")));
    refused(&format!("train {third} --positive yes"), &["third.csv:302", "yes", "no", "maybe"]);
    let svm = write(f, "named.svm", "yes 1:1\nno 2:1\n".repeat(50));
    refused(&format!("train {svm}"), &["named.svm:1", "--positive yes"]);
    assert_eq!(number(&ok(&format!("train {svm} --positive yes --json")).json(), "examples"), 100.0);
    let vw = write(f, "named.vw", "2 |f a\n1 |f b\n".repeat(50));
    assert_eq!(number(&ok(&format!("train {vw} --positive 2 --json")).json(), "examples"), 100.0);
    refused(&format!("train {svm} --positive yes --model linear"), &["--positive", "linear"]);
}

#[test]
fn minus_one_zero_and_one_were_taken_together() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    for (name, text) in [
        ("a.svm", "1 1:1\n-1 2:1\n1 3:1\n0 2:1\n"),
        ("b.csv", "label,a\n1,x\n-1,y\n0,z\n"),
        ("c.vw", "0 |f a\n1 |f a\n-1 |f b\n"),
        ("d.svm", "1.0 1:1\n0.0 2:1\n-1.0 2:1\n"),
    ] {
        let line = 1 + text.lines().count() - usize::from(name != "b.csv");
        let line = if name == "b.csv" { 4 } else { line };
        let path = write(f, name, text);
        for flags in ["", "--skip-bad-lines 9", "--model fm", "--optimizer lbfgs --l2 1"] {
            refused(&format!("train {path} {flags}"), &[&format!("{name}:{line}"), "-1", "0", "mix"]);
        }
    }
}

#[test]
fn one_class_was_learned_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let one = write(f, "one.svm", "1 1:1\n".repeat(300));
    let two = clicks(&f.join("two.svm"), 300, 1).display().to_string();
    for model in ["", "--model fm", "--optimizer lbfgs --l2 1"] {
        let done = ok(&format!("train {one} {model} --json"));
        assert_eq!(done.json()["one_class"], true, "{done:?}");
        assert!(done.err.contains("label 1"), "{done:?}");
        let done = ok(&format!("train {two} {model} --json"));
        assert_eq!(done.json()["one_class"], false, "{done:?}");
        assert!(!done.err.contains("class"), "{done:?}");
    }
    // The old message advised to skip bad lines. This does so.
    let mixed = write(f, "mixed.csv", customers(200, "1", "no"));
    let done = ok(&format!("train {mixed} --skip-bad-lines 200"));
    assert!(done.err.contains("label 1") && done.err.contains("bad lines were skipped"), "{done:?}");
}

#[test]
fn a_test_file_of_another_format_was_scored_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let csv = write(f, "a.csv", customers(300, "1", "0"));
    let svm = clicks(&f.join("b.svm"), 300, 1).display().to_string();
    let model = f.join("model").display().to_string();
    for more in ["", "--model fm", "--optimizer lbfgs --l2 1"] {
        refused(&format!("train {csv} --test {svm} {more}"), &["a.csv", "b.svm", "csv", "libsvm", "--test"]);
        refused(&format!("train {svm} --test {csv} {more}"), &["a.csv", "b.svm", "csv", "libsvm", "--test"]);
        ok(&format!("train {csv} --out {model} {more}"));
        refused(&format!("predict --model {model} {svm}"), &[&model, "b.svm", "csv", "libsvm"]);
        ok(&format!("train {svm} --out {model} {more}"));
        refused(&format!("predict --model {model} {csv}"), &[&model, "a.csv", "csv", "libsvm"]);
        std::fs::remove_dir_all(&model).unwrap();
    }
    // The format of standard input is known only when data comes.
    let mut train = gannet(&format!("train - --format auto --test {svm}"));
    train.stdin(std::fs::File::open(&csv).unwrap());
    let done = Process::start(train).wait();
    assert!(done.code == Some(2) && done.err.contains("b.svm") && done.err.contains("csv"), "{done:?}");
    // A test file with one more column is read with the columns of the training.
    let wider = customers(300, "1", "0").replace("Rome", "Rome,9").replace("Oslo", "Oslo,8");
    let wider = wider.replace("Bern", "Bern,7").replace("age,city", "age,city,extra");
    let wider = write(f, "wider.csv", &wider);
    let loss = |test: &str| ok(&format!("train {csv} --test {test} --json")).json()["test_logloss"].clone();
    assert_eq!(loss(&wider), loss(&csv));
    let narrow = write(f, "narrow.csv", "stays,income,age\n1,2,3\n");
    refused(&format!("train {csv} --test {narrow}"), &["narrow.csv", "city"]);
}

#[test]
fn predict_read_the_columns_of_a_model_anew() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let csv = write(f, "a.csv", customers(300, "1", "0"));
    let svm = clicks(&f.join("b.svm"), 300, 1).display().to_string();
    let model = f.join("model").display().to_string();
    for more in ["", "--model fm"] {
        ok(&format!("train {csv} --numeric age --out {model} {more}"));
        let predict = format!("predict --model {model} {csv}");
        refused(&format!("{predict} --numeric income"), &["--numeric income", &model, "age", "leave"]);
        refused(&format!("{predict} --categorical income"), &["--categorical income", &model, "leave"]);
        ok(&format!("{predict} --numeric age,income"));
        ok(&format!("train {svm} --out {model} {more}"));
        refused(&format!("predict --model {model} {svm} --numeric age"), &["--numeric", &model, "libsvm"]);
        std::fs::remove_dir_all(&model).unwrap();
    }
}

#[test]
fn columns_became_categories_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let csv = write(folder.path(), "a.csv", customers(300, "1", "0"));
    let done = ok(&format!("train {csv} --types off --numeric age"));
    for expected in ["label stays", "age: number", "city: category", "income: category", "--numeric income"] {
        assert!(done.err.contains(expected), "{expected}: {done:?}");
    }
    assert!(!done.err.contains("--numeric city"), "{done:?}");
    let done = ok(&format!("train {csv} --model linear --label income"));
    assert!(done.err.contains("label income; age: number"), "{done:?}");
    let done = ok(&format!("train {csv}"));
    for expected in ["label stays", "age: number", "city: category", "income: number"] {
        assert!(done.err.contains(expected), "{expected}: {done:?}");
    }
    assert_eq!(ok(&format!("train {csv} --json")).err, "", "a program asked");
}

#[test]
fn unscaled_numbers_ruined_sgd_and_nothing_could_be_done() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let (csv, test) = (customers(3_000, "1", "0"), customers(3_500, "1", "0"));
    let head = test.lines().next().unwrap();
    let rest: Vec<&str> = test.lines().skip(3_001).collect();
    let (csv, test) = (write(f, "a.csv", &csv), write(f, "t.csv", format!("{head}\n{}\n", rest.join("\n"))));
    let model = f.join("model").display().to_string();
    for more in ["--optimizer sgd", "--model fm --optimizer sgd", "--model linear --optimizer sgd"] {
        let line = format!("train {csv} --numeric income,age {more} --normalize off --json");
        let done = ok(&line);
        assert!(done.err.contains("worse than") && done.err.contains("--scale standard"), "{more}: {done:?}");
        let unscaled = done.json();
        for scale in ["standard", "minmax", "log"] {
            let line = format!("{line} --scale {scale} --epochs 5 --out {model} --test {test}");
            let done = ok(&line);
            let loss = if more.contains("linear") { "test_rmse" } else { "test_logloss" };
            let limit = if more.contains("linear") { 0.49 } else { 0.66 };
            if scale != "log" {
                assert!(number(&done.json(), loss) < limit, "{more} {scale}: {done:?}");
            } else if more == "--optimizer sgd" {
                // Logarithms still range from 3 to 12, and this rate is high for them.
                let (scaled, plain) = (number(&done.json(), loss), number(&unscaled, "logloss"));
                assert!(scaled < plain, "{more}: {done:?}");
            }
            let scored = ok(&format!("predict --model {model} {test} --json")).json();
            assert_eq!(scored[&loss[5..]], done.json()[loss], "{more} {scale}: the model remembers it");
            std::fs::remove_dir_all(&model).unwrap();
        }
    }
    let lbfgs = format!("train {csv} --numeric income,age --optimizer lbfgs --l2 1 --scale standard --json");
    assert!(number(&ok(&lbfgs).json(), "logloss") < 0.5);
    let scaled = "train - --format csv --numeric age --scale standard";
    refused(scaled, &["--scale", "standard input"]);
    refused(&format!("train {csv} --scale standard --types off"), &["--scale", "--numeric"]);
    let svm = clicks(&f.join("b.svm"), 300, 1).display().to_string();
    refused(&format!("train {svm} --scale minmax"), &["--scale", "libsvm"]);
}

#[test]
fn workers_of_a_job_scale_alike() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let csv = write(f, "a.csv", customers(2_000, "yes", "no"));
    let (alone, job) = (f.join("alone").display().to_string(), f.join("job").display().to_string());
    let flags = "--numeric income,age --scale standard --positive yes --optimizer sgd";
    ok(&format!("train {csv} {flags} --push gradient --batch 128 --out {alone}"));
    let server = Served::start(gannet("server --listen 127.0.0.1:0 --threads 1"));
    let hosts = format!("--ps-hosts {} --worker-hosts 127.0.0.1:1,127.0.0.1:2", server.addr);
    let worker = |index: u32| {
        let line = format!("train {csv} {flags} --batch 64 --sync bsp --tasks off {hosts} --job-name worker");
        Process::start(gannet(&format!("{line} --task-index {index} --out {job} --json")))
    };
    let done = [worker(0), worker(1)].map(Process::wait);
    assert!(done.iter().all(|d| d.code == Some(0)), "{done:?}");
    let of = |model: &str| number(&ok(&format!("predict --model {model} {csv} --json")).json(), "logloss");
    assert!((of(&alone) - of(&job)).abs() < 1e-3, "{} {}", of(&alone), of(&job));
    server.stop();
}

#[test]
fn a_file_that_changed_between_passes_was_trained_as_it_came() {
    let folder = tempfile::tempdir().unwrap();
    let data = write(folder.path(), "a.csv", customers(20_000, "1", "0"));
    let mut command = gannet(&format!("train {data} --epochs 10000"));
    command.stdout(std::process::Stdio::null());
    let training = Process::start(command);
    std::thread::sleep(std::time::Duration::from_millis(700));
    std::fs::write(&data, customers(300, "1", "0")).unwrap();
    let done = training.wait();
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(
        done.err.contains("has changed since the training began") && done.err.contains("a.csv"),
        "{done:?}"
    );
}

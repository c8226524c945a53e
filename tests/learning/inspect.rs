//! What a model learned, tested from outside: `gannet inspect`, `predict --explain` and `--plots`; and `gannet tune`,
//! which looks for settings.

use crate::harness;

use harness::*;
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;

/// A row: the label, and four values that a table has in its columns.
fn rows(n: u32, seed: u32) -> Vec<(u32, u32, u32, f64)> {
    let row = |i: u32| {
        let drawn = |part: u32| {
            let x = (i * 4 + part).wrapping_add(seed.wrapping_mul(0x9E37_79B9)).wrapping_mul(2_654_435_761);
            (x ^ x >> 15).wrapping_mul(0x85EB_CA6B) >> 9
        };
        let (city, hour, age) = (drawn(0) % 6, drawn(1) % 24, f64::from(drawn(2) % 6_000) / 100.0);
        (u32::from(drawn(3) % 100 < 10 + 12 * city), city, hour, age)
    };
    (0..n).map(row).collect()
}

fn csv(rows: &[(u32, u32, u32, f64)]) -> String {
    rows.iter().fold("label,city,hour,age\n".to_owned(), |mut text, (label, city, hour, age)| {
        let _ = writeln!(text, "{label},c{city},h{hour},{age:.2}");
        text
    })
}

fn vw(rows: &[(u32, u32, u32, f64)]) -> String {
    rows.iter().fold(String::new(), |mut text, (label, city, hour, age)| {
        let _ = writeln!(text, "{} |place c{city} |when h{hour} age:{age:.2}", *label as i32 * 2 - 1);
        text
    })
}

fn number(report: &Value, name: &str) -> f64 {
    report[name].as_f64().unwrap_or_else(|| panic!("{name}: {report}"))
}

/// The contributions of an example, and its margin.
fn contributions(line: &str) -> (Vec<(String, f64)>, Value) {
    let object: Value = serde_json::from_str(line).unwrap();
    let each = object["contributions"].as_object().unwrap();
    (each.iter().map(|(name, value)| (name.clone(), value.as_f64().unwrap())).collect(), object)
}

#[test]
fn contributions_add_up_to_the_margin_of_each_example() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let (train, test) = (rows(4_000, 1), rows(10_000, 2));
    let (train_csv, test_csv) = (write(f, "a.csv", csv(&train)), write(f, "b.csv", csv(&test)));
    let (train_vw, test_vw) = (write(f, "a.vw", vw(&train)), write(f, "b.vw", vw(&test)));
    let models =
        ["lr", "lr --optimizer lbfgs", "fm", "ffm", "deepfm", "linear --loss poisson", "softmax --classes 2"];
    for (model, train, test) in models
        .iter()
        .map(|model| (*model, &train_csv, &test_csv))
        .chain([("lr --cross city,hour", &train_csv, &test_csv), ("deepfm", &train_vw, &test_vw)])
    {
        let out = f.join("model").display().to_string();
        ok(&format!("train {train} --model {model} --out {out}"));
        let scores = ok(&format!("predict --model {out} {test}")).out;
        let lines = ok(&format!("predict --model {out} {test} --explain")).out;
        assert_eq!((scores.lines().count(), lines.lines().count()), (10_000, 10_000), "{model}");
        for (score, line) in scores.lines().zip(lines.lines()) {
            let (each, object) = contributions(line);
            let (sum, margin) = (each.iter().map(|of| of.1).sum::<f64>(), number(&object, "margin"));
            assert!((sum - margin).abs() < 1e-9 * (1.0 + margin.abs()), "{model}: {line}");
            if model.starts_with("softmax") {
                continue;
            }
            let predicted =
                if model.contains("poisson") { margin.exp() } else { 1.0 / (1.0 + (-margin).exp()) };
            let wanted: f64 = score.parse().unwrap();
            assert!((predicted - wanted).abs() < 2e-6 * (1.0 + wanted), "{model}: {score} {line}");
        }
        let names: Vec<String> =
            contributions(lines.lines().next().unwrap()).0.into_iter().map(|of| of.0).collect();
        let named = |part: &str| names.iter().any(|name| name.starts_with(part));
        let wanted = if train.ends_with("vw") {
            ["place^c", "when^h", "when^age"]
        } else {
            ["city=c", "hour=h", "age"]
        };
        assert!(wanted.iter().all(|part| named(part)) && named("intercept"), "{model}: {names:?}");
        assert!(!model.contains("cross") || names.iter().any(|name| name.contains(" * ")), "{names:?}");
        std::fs::remove_dir_all(&out).unwrap();
    }
}

#[test]
fn the_largest_weights_have_the_names_of_their_features() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    for (data, names) in [
        (write(f, "a.csv", csv(&rows(4_000, 1))), ["city=c5", "city=c0"]),
        (write(f, "a.vw", vw(&rows(4_000, 1))), ["place^c5", "place^c0"]),
    ] {
        let out = f.join("model").display().to_string();
        ok(&format!("train {data} --epochs 3 --l1 4 --out {out}"));
        let seen = ok(&format!("inspect {out} {data} --json --top 40")).json();
        let features = seen["features"].as_array().unwrap();
        let of = |name: &str| {
            features.iter().find(|of| of["name"] == name).unwrap_or_else(|| panic!("{name}: {seen}"))
        };
        assert!(number(of(names[0]), "weight") > 0.5 && number(of(names[1]), "weight") < -0.5, "{seen}");
        assert!(number(&seen, "zero_weights") > 2.0, "L1 leaves hours without a weight: {seen}");
        let fields: Vec<&str> =
            seen["fields"].as_array().unwrap().iter().map(|of| of["field"].as_str().unwrap()).collect();
        assert!(fields[0] == "city" || fields[0] == "place", "the city says most: {fields:?}");
        // Without data features have their keys.
        let said = ok(&format!("inspect {out}")).out;
        assert!(said.contains("name DATA") && !said.contains(names[0]), "{said}");
        // Names that the model keeps are those of the data.
        ok(&format!("train {data} --epochs 3 --l1 4 --out {out} --keep-names"));
        let kept = ok(&format!("inspect {out} --json --top 40")).json();
        assert_eq!((&kept["features"], &kept["fields"]), (&seen["features"], &seen["fields"]));
        std::fs::remove_dir_all(&out).unwrap();
    }
    refused(&format!("inspect {}", f.join("nothing").display()), &["nothing"]);
    // Ids are no names, and the flag says so.
    let (ids, out) = (write(f, "a.svm", "1 3:1\n0 4:1\n".repeat(200)), f.join("ids").display().to_string());
    let said = ok(&format!("train {ids} --keep-names --out {out}")).err;
    assert!(said.contains("--keep-names: the features of this data have ids"), "{said}");
}

/// `python/tests/test_onnx.py` compares the files with predictions.
#[test]
fn an_exported_model_replaces_a_file_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let data = write(f, "a.csv", csv(&rows(500, 1)));
    let (model, file) = (f.join("model").display().to_string(), f.join("model.onnx"));
    ok(&format!("train {data} --model fm --out {model}"));
    std::fs::write(&file, "older").unwrap();
    let said = ok(&format!("export {model} {}", file.display())).out;
    let bytes = std::fs::read(&file).unwrap();
    assert!(said.contains(&format!("{} bytes of ONNX", bytes.len())), "{said}");
    let piped = gannet(&format!("export {model} -")).output().unwrap();
    assert_eq!(piped.stdout, bytes);
    refused(&format!("export {} {}", f.join("nothing").display(), file.display()), &["nothing"]);
    refused(&format!("export {model} {}", f.display()), &["is a folder: name a file"]);
    refused(&format!("export {model} {model}/MANIFEST"), &["MANIFEST", "is a file in the folder of a model"]);
    let words = write(f, "words.lda", "2 0:1 1:2\n1 1:3\n");
    let topics = f.join("topics").display().to_string();
    ok(&format!("train {words} --model lda --topics 2 --out {topics}"));
    refused(&format!("export {topics} {}", file.display()), &["holds lda", "all --model but lda"]);
    assert_eq!(std::fs::read(&file).unwrap(), bytes, "a refused export leaves the file as it was");
}

#[test]
fn plots_are_drawn_of_labelled_data() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let data = write(f, "a.csv", csv(&rows(2_000, 1)));
    let (out, plots) = (f.join("model").display().to_string(), f.join("plots/of/it"));
    let report =
        ok(&format!("train {data} --test {data} --out {out} --plots {} --json", plots.display())).json();
    let read = |path: &Path, name: &str| std::fs::read_to_string(path.join(name)).unwrap();
    let (roc, reliability) = (read(&plots, "roc.svg"), read(&plots, "reliability.svg"));
    assert!(roc.contains(&format!("AUC {:.4}", number(&report, "test_auc"))), "{roc}");
    assert!(reliability.matches("<circle").count() > 3 && reliability.ends_with("</svg>\n"), "{reliability}");
    let again = f.join("again");
    ok(&format!("predict --model {out} {data} --plots {} --json", again.display()));
    assert_eq!((read(&again, "roc.svg"), read(&again, "reliability.svg")), (roc, reliability));
    let unlabelled = write(f, "b.csv", "city,hour,age\nc1,h2,3.5\n");
    refused(
        &format!("predict --model {out} {unlabelled} --plots {}", again.display()),
        &["--plots", "no example has a label"],
    );
    refused(&format!("train {data} --model linear --plots {}", again.display()), &["--plots"]);
}

/// The best of the tries is near the best of trainings of their own.
#[test]
fn tries_side_by_side_find_what_trainings_of_their_own_find() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let data = write(f, "a.csv", csv(&rows(30_000, 1)));
    for (model, rates) in [("lr", "0.001,0.01,0.1,1"), ("fm", "0.0005,0.005,0.05")] {
        let line = format!("-- train {data} --model {model} --alpha 0.3");
        let tuned = ok(&format!("tune --json --try alpha={rates} --try l2=0,100 {line}")).json();
        let results = tuned["results"].as_array().unwrap();
        assert_eq!(results.len(), 2 * rates.split(',').count());
        let alone = |rate: &str, l2: &str| {
            let line = format!("train {data} --model {model} --alpha {rate} --l2 {l2} --json");
            number(&ok(&line).json(), "logloss")
        };
        let losses: Vec<f64> = rates.split(',').map(|rate| alone(rate, "0")).collect();
        let best = losses.iter().copied().fold(f64::INFINITY, f64::min);
        assert!((number(&results[0], "loss") / best - 1.0).abs() < 1e-3, "{best}: {tuned}");
        assert!(
            results.last().unwrap()["examples"].as_u64().unwrap() < 10_000,
            "the worst is dropped early: {tuned}"
        );
        let command = tuned["command"].as_str().unwrap();
        assert!(
            !command.contains("0.3") && command.contains("--alpha ") && command.contains("--l2 0"),
            "{command}"
        );
        let again = ok(&format!("{} --json", command.strip_prefix("gannet ").unwrap())).json();
        assert!((number(&again, "logloss") / best - 1.0).abs() < 1e-3, "{command}");
    }
    let said = ok(&format!("tune --tries 6 -- train {data} --model ffm"));
    assert!(said.out.contains("best         gannet train") && said.out.lines().count() == 9, "{said:?}");
    refused(&format!("tune --try beta=1 -- train {data}"), &["--try beta=1", "alpha"]);
    refused(&format!("tune -- train {data} --optimizer adam"), &["ftrl", "adagrad"]);
    refused(&format!("tune -- train {data} --optimizer lbfgs"), &["--l2"]);
    refused(&format!("tune -- predict --model m {data}"), &["train DATA"]);
    refused(&format!("tune --minutes 0 -- train {data}"), &["--minutes"]);
    refused(&format!("tune -- train {}", f.join("none.csv").display()), &["none.csv"]);
}

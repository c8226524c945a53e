//! `--normalize`: no result depends on the units of measurement, one-hot data is learned as before, and everybody who
//! reads a model's data normalizes it as its training did.

use crate::harness;

use gannet::storage::Checkpoint;
use gannet::table::mix;
use harness::*;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

const MODELS: [&str; 5] = ["lr", "softmax --classes 2", "linear", "fm", "deepfm"];

/// From 0 to 1, by a number.
fn chance(of: u64) -> f64 {
    (mix(of) >> 11) as f64 / (1u64 << 53) as f64
}

/// Writes lines, each from a source of chances.
fn lines(folder: &Path, name: &str, count: u64, line: impl Fn(&mut dyn FnMut() -> f64) -> String) -> String {
    let mut text = String::new();
    for i in 0..count {
        let mut at = i << 12;
        let mut draw = || {
            at += 1;
            chance(at)
        };
        writeln!(text, "{}", line(&mut draw)).unwrap();
    }
    write(folder, name, text)
}

/// Numbers of very different sizes, and one of them has the signal.
fn unscaled(folder: &Path, name: &str, count: u64, units: [f64; 3]) -> String {
    lines(folder, name, count, |draw| {
        let (x, label) = (draw(), draw());
        let (large, number) = ((500_000.0 + 40_000.0 * draw()).floor(), (2000.0 * draw()).floor());
        let [a, b, c] = units;
        let (large, small, number) = (large * a, x * 1e-4 * b, number * c);
        format!("{} 1:{large:e} 2:{small:e} 3:{number:e}", u8::from(label < x))
    })
}

fn loss(report: &Value, name: &str) -> f64 {
    report[name].as_f64().unwrap_or_else(|| panic!("{name}: {report}"))
}

fn trained(data: &str, flags: &str) -> Value {
    ok(&format!("train {data} --json {flags}")).json()
}

fn noted(model: &Path) -> (Option<String>, Option<String>) {
    let model = Checkpoint::open(model).unwrap();
    let note = |name| model.note(name).map(str::to_owned);
    (note("normalize"), note("normalized-features"))
}

#[test]
fn numbers_of_any_size_are_learned_as_well_as_by_lbfgs() {
    let folder = tempfile::tempdir().unwrap();
    let data = unscaled(folder.path(), "signal.svm", 20_000, [1.0; 3]);
    let minimum = loss(&trained(&data, &format!("--optimizer lbfgs --test {data}")), "test_logloss");
    assert!((0.49..0.51).contains(&minimum), "{minimum}");
    for model in MODELS {
        let report = trained(&data, &format!("--model {model} --test {data}"));
        if model == "linear" {
            // The deviation of the label is .5, and of the noise .408.
            assert!(loss(&report, "test_rmse") < 0.42, "{report}");
            continue;
        }
        for name in ["logloss", "test_logloss"] {
            let got = loss(&report, name);
            assert!(got < minimum * 1.02, "{model}: {name} is {got}, and that of L-BFGS {minimum}");
        }
    }
    let raw = loss(&trained(&data, "--normalize off"), "logloss");
    assert!(raw > 1.0, "without --normalize it should fail, or this test shows nothing: {raw}");
}

#[test]
fn numbers_without_a_signal_are_no_worse_than_the_mean() {
    let folder = tempfile::tempdir().unwrap();
    let data = lines(folder.path(), "unscaled.svm", 5_000, |draw| {
        let label = u8::from(draw() < 0.1);
        let mut whole = |most: f64| (most * draw()).floor();
        let (large, few, some) = (500_000.0 + whole(40_000.0), whole(10.0), whole(2000.0));
        let (many, others) = (whole(80_000.0), whole(400.0));
        let x = draw();
        format!("{label} 1:{large} 2:2610 4:1 5:{few} 7:{some} 9:{many} 11:{x:.6} 15:{others}")
    });
    for model in MODELS {
        let report = trained(&data, &format!("--model {model} --test {data}"));
        if model == "linear" {
            assert!(loss(&report, "test_rmse") < 0.32, "{report}");
        } else {
            assert!(
                loss(&report, "logloss") < 0.34 && loss(&report, "test_logloss") < 0.34,
                "{model}: {report}"
            );
        }
    }
}

#[test]
fn wide_dense_examples_do_not_diverge() {
    let folder = tempfile::tempdir().unwrap();
    let data = lines(folder.path(), "wide.svm", 3_000, |draw| {
        let (mut margin, mut line) = (0.0, String::new());
        for feature in 0..1500u64 {
            let x = draw();
            // A weight for each feature, uniform with the deviation .3.
            margin += (x - 0.5) * (chance(u64::MAX - feature) - 0.5) * 1.04;
            write!(line, " {feature}:{x:.4}").unwrap();
        }
        format!("{}{line}", u8::from(draw() < 1.0 / (1.0 + f64::exp(-margin))))
    });
    for model in ["lr", "fm", "deepfm"] {
        let got = loss(&trained(&data, &format!("--model {model}")), "logloss");
        assert!(got < 0.693, "{model}: {got}");
    }
}

#[test]
fn predictions_do_not_depend_on_units() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let units = [[1.0; 3], [1e-6, 1e6, 1e3], [2.5e5, 1e-5, 7e-4]];
    for model in MODELS {
        let scores = |(i, units): (usize, &[f64; 3])| -> Vec<f64> {
            let data = unscaled(folder.path(), &format!("{i}.svm"), 3_000, *units);
            let out = at(&model.replace(' ', "-"));
            ok(&format!("train {data} --model {model} --out {}", out.display()));
            let scores = ok(&format!("predict {data} --model {}", out.display())).out;
            scores.lines().map(|line| line.split(' ').next_back().unwrap().parse().unwrap()).collect()
        };
        let all: Vec<Vec<f64>> = units.iter().enumerate().map(scores).collect();
        assert!(all[0].iter().any(|score| (score - all[0][0]).abs() > 0.1), "{model}: all scores are alike");
        for other in &all[1..] {
            let apart = all[0].iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(apart < 2e-4, "{model}: {apart}");
        }
    }
}

#[test]
fn one_hot_data_is_learned_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("clicks.svm"), 12_000, 1);
    for model in ["lr", "fm", "linear"] {
        let rows = |normalize: &str| {
            let out = folder.path().join(format!("{model}-{normalize}"));
            trained(
                data.to_str().unwrap(),
                &format!(
                    "--model {model} --normalize {normalize} --intercept-start zero --out {}",
                    out.display()
                ),
            );
            (model_rows(&out), noted(&out))
        };
        let ((on, of_on), (off, of_off)) = (rows("on"), rows("off"));
        assert!(on == off && on.len() > 100, "{model}: {} and {} rows", on.len(), off.len());
        assert_eq!(of_on, (Some("on".into()), Some(String::new())));
        assert_eq!(of_off, (Some("off".into()), None));
    }
}

#[test]
fn a_training_goes_on_with_what_the_first_one_saw() {
    let folder = tempfile::tempdir().unwrap();
    let [first, other] = [[1.0; 3], [1e3, 1.0, 1e-3]]
        .map(|units| unscaled(folder.path(), &format!("{}.svm", units[0]), 2_000, units));
    for model in ["lr", "fm"] {
        let at = |name: &str| folder.path().join(format!("{model}-{name}"));
        let out = |name: &str| format!("--out {}", at(name).display());
        trained(&first, &format!("--model {model} {}", out("first")));
        let known = noted(&at("first"));
        assert_eq!(known.1.as_ref().unwrap().lines().count(), 3, "{known:?}");
        // A model, data in a folder, and another optimizer.
        let warm = format!("--model {model} --warm-start {}", at("first").display());
        trained(&other, &format!("{warm} {}", out("warm")));
        assert_eq!(noted(&at("warm")), known);
        refused(
            &format!("train {other} {warm} --normalize off"),
            &["--normalize of the model: on", "leave the flag"],
        );
        let kept = format!("--model {model} --data-dir {}", at("rows").display());
        trained(&first, &format!("{kept} {}", out("kept")));
        trained(&other, &format!("{kept} --continue {}", out("continued")));
        assert_eq!((noted(&at("kept")), noted(&at("continued"))), (known.clone(), known));
        trained(&other, &format!("{kept} --fresh {}", out("fresh")));
        trained(&other, &format!("--model {model} {}", out("other")));
        assert_eq!(noted(&at("fresh")), noted(&at("other")));
        // Rows that were learned from values as they are.
        let raw = format!("--model {model} --data-dir {}", at("raw").display());
        trained(&first, &format!("{raw} --normalize off"));
        refused(&format!("train {first} {raw} --continue"), &["--normalize", "off", "on"]);
    }
    let at = |name: &str| folder.path().join(format!("lr-{name}"));
    let warm = format!("--optimizer lbfgs --max-iter 5 --warm-start {}", at("first").display());
    trained(&first, &format!("{warm} --out {} --test {first}", at("by-lbfgs").display()));
    assert_eq!(noted(&at("by-lbfgs")), noted(&at("first")));
    let tested = ok(&format!("predict {first} --json --model {}", at("by-lbfgs").display())).json();
    assert!(loss(&tested, "logloss") < 0.56, "{tested}");
}

#[test]
fn standard_input_is_learned_as_a_file_is() {
    let folder = tempfile::tempdir().unwrap();
    let data = unscaled(folder.path(), "a.svm", 11_000, [1.0; 3]);
    let text = std::fs::read(&data).unwrap();
    for place in ["", "--data-dir"] {
        let model = |name: &str| {
            let place = if place.is_empty() {
                String::new()
            } else {
                format!("{place} {}", folder.path().join(name).with_extension("rows").display())
            };
            (folder.path().join(name), place)
        };
        let ((of_file, in_file), (of_input, in_input)) = (model("file"), model("input"));
        trained(&data, &format!("{in_file} --out {}", of_file.display()));
        let mut command = gannet(&format!("train - --json {in_input} --out {}", of_input.display()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&text).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(noted(&of_input), noted(&of_file));
        assert_eq!(model_rows(&of_input), model_rows(&of_file));
    }
}

#[test]
fn weights_are_shown_for_values_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let data = lines(folder.path(), "line.csv", 20_000, |draw| {
        let x = 1e6 + 4000.0 * draw();
        format!("{:.4},{x:.1}", 0.002 * (x - 1e6) + draw())
    });
    let text = format!("y,x\n{}", std::fs::read_to_string(&data).unwrap());
    std::fs::write(&data, text).unwrap();
    let report = trained(&data, "--model linear --label y --numeric x --epochs 5");
    let weight = report["weights"]["x"].as_f64().unwrap();
    assert!((weight - 0.002).abs() < 4e-5, "{report}");
}

/// Once a strong penalty pulled the intercept to 0, so that a model without weights said one half.
#[test]
fn a_penalty_pulls_the_intercept_to_the_odds_of_rare_labels() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let entropy = 0.014_427;
    let line = |i: u32| format!("{},c{}\n", u8::from(i.is_multiple_of(500)), i % 7);
    let data = write(f, "a.csv", "label,c\n".to_owned() + &(0..20_000).map(line).collect::<String>());
    for flags in
        ["--l1 1e6", "--l2 1e6", "--model fm --optimizer ftrl --l1 1e6", "--optimizer group-ftrl --l1 1e6"]
    {
        let report = ok(&format!("train {data} {flags} --test {data} --json")).json();
        let loss = report["test_logloss"].as_f64().unwrap();
        assert!((loss - entropy).abs() < 1e-3, "{flags}: {loss}, not {entropy}");
    }
}

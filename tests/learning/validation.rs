//! `--validate` and `--patience`: a training that would learn its data by heart ends early, and keeps the best model.

use crate::harness;

use harness::*;
use serde_json::Value;
use std::path::Path;

/// Clicks whose chance depends on one of two columns. The other has a value for nearly each row, so passes over it
/// learn the rows by heart.
fn clicks(folder: &Path, name: &str, seed: u32, rows: u32) -> String {
    let drawn = |i: u32, part: u32| {
        let x = (i * 4 + part).wrapping_add(seed.wrapping_mul(0x9E37_79B9)).wrapping_mul(2_654_435_761);
        (x ^ x >> 15).wrapping_mul(0x85EB_CA6B) >> 8
    };
    let line = |i: u32| {
        let (site, user) = (drawn(i, 0) % 8, drawn(i, 1) % 4_000);
        format!("{},s{site},u{user}\n", u8::from(drawn(i, 2) % 100 < 15 + 8 * site))
    };
    write(folder, name, "label,site,user\n".to_owned() + &(0..rows).map(line).collect::<String>())
}

fn number(report: &Value, name: &str) -> f64 {
    report[name].as_f64().unwrap_or_else(|| panic!("{name}: {report}"))
}

#[test]
fn a_training_ends_when_validations_get_no_better_and_keeps_the_best_model() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let (train, held, test) =
        (clicks(f, "train.csv", 1, 4_000), clicks(f, "held.csv", 2, 2_000), clicks(f, "test.csv", 3, 2_000));
    for model in ["lr", "fm --factors 4", "deepfm --factors 4"] {
        let out = f.join("model");
        let line = format!("train {train} --model {model} --alpha 0.1 --epochs 20 --test {test} --json");
        let all = ok(&line).json();
        let report = ok(&format!("{line} --validate {held} --patience 2 --out {}", out.display())).json();
        let best = number(&report, "best_validation");
        let losses: Vec<f64> = report["validations"]
            .as_array()
            .unwrap()
            .iter()
            .map(|validation| number(validation, "validation_logloss"))
            .collect();
        // The best one, two that are worse, and no more.
        let at = losses.iter().position(|loss| *loss == best).unwrap();
        assert!(losses.len() == at + 3 && losses.iter().all(|loss| *loss >= best), "{model}: {losses:?}");
        assert!(number(&report, "examples") < number(&all, "examples"), "{report}");
        assert!(
            number(&report, "test_logloss") < number(&all, "test_logloss") - 0.001,
            "{model}: {report} {all}"
        );
        // The saved model is the one that was validated and tested.
        let predict = |data: &str| {
            let said = ok(&format!("predict --model {} {data}", out.display())).err;
            let text = said.split("log loss ").nth(1).unwrap_or_else(|| panic!("{said}"));
            text.split_whitespace().next().unwrap().parse::<f64>().unwrap()
        };
        assert!((predict(&held) - best).abs() < 1e-5, "{model}: {best}");
        assert!((predict(&test) - number(&report, "test_logloss")).abs() < 1e-5, "{model}: {report}");
        std::fs::remove_dir_all(&out).unwrap();
    }
}

#[test]
fn the_last_model_is_kept_if_it_is_the_best() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let (train, held) = (clicks(f, "train.csv", 1, 4_000), clicks(f, "held.csv", 2, 2_000));
    let line = format!("train {train} --alpha 0.001 --epochs 3 --ignore user --json --out");
    let (kept, plain) = (f.join("kept").display().to_string(), f.join("plain").display().to_string());
    let report = ok(&format!("{line} {kept} --validate {held} --patience 2")).json();
    assert!(report.get("best_step").is_none() && report["stopped"] == false, "{report}");
    ok(&format!("{line} {plain}"));
    let scores = |model: &str| ok(&format!("predict --model {model} {held}")).out;
    assert_eq!(scores(&kept), scores(&plain));
    // With --validate-every a pass has several validations.
    let line = format!("train {train} --model fm --alpha 0.1 --epochs 20 --validate {held} --json");
    let report = ok(&format!("{line} --patience 3 --validate-every 5")).json();
    assert!(report["best_step"].as_u64().unwrap().is_multiple_of(5), "{report}");
    // Without a folder nothing is kept, and the report says which step was best.
    let line = format!("train {train} --model fm --alpha 0.1 --epochs 20 --validate {held} --patience 1");
    let said = ok(&line);
    assert!(
        said.err.contains("ended early: 1 validation was no better")
            && said.out.contains("best         step "),
        "{said:?}"
    );
}

/// Several passes learned the rows by heart, and nothing said so.
#[test]
fn a_last_pass_that_fits_much_better_is_warned_of_unless_data_is_held_back() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let (train, test) = (clicks(f, "train.csv", 1, 4_000), clicks(f, "test.csv", 3, 2_000));
    let line = format!("train {train} --model fm --alpha 0.1 --epochs 10");
    let said = ok(&line).err;
    assert!(said.contains("learned by heart") && said.contains("--test"), "{said}");
    for more in [format!("--test {test}"), format!("--epochs 10 --validate {test}"), "--epochs 1".to_owned()]
    {
        let said = ok(&format!("{} {more}", line.replace("--epochs 10", ""))).err;
        assert!(!said.contains("by heart"), "{more}: {said}");
    }
}

/// A share is held out of the training, whatever the process that reads it.
#[test]
fn a_share_of_the_data_is_held_out_of_every_process() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let train = clicks(f, "train.csv", 1, 4_000);
    let line = format!("train {train} --epochs 2 --validate 0.25 --json");
    let report = ok(&line).json();
    let (learned, last) = (number(&report, "examples"), &report["validations"][1]);
    assert!((5_700.0..6_300.0).contains(&learned), "3,000 of 4,000 in each pass: {report}");
    // Rows that hold the label alone in a column: what is held out was not learned.
    let lines = (0..2_000).map(|i| format!("{},r{i}\n", i % 2)).collect::<String>();
    let told = write(f, "told.csv", "label,row\n".to_owned() + &lines);
    let out = f.join("told").display().to_string();
    let jobs =
        ["train", "launch --servers 1 --workers 2 -- train", "launch --workers 2 -- train --tasks off"];
    for begin in jobs {
        let line =
            format!("{begin} {told} --no-intercept --normalize off --epochs 3 --validate 0.3 --out {out}");
        ok(&line);
        let scores = ok(&format!("predict --model {out} {told}")).out;
        let unknown = scores.lines().filter(|line| **line == *"0.500000").count();
        assert!((500..700).contains(&unknown), "{begin}: {unknown} of 2,000 rows were not learned");
        std::fs::remove_dir_all(&out).unwrap();
    }
    assert!(number(last, "validation_logloss") > 0.0, "{report}");
}

/// The chief validates, and the scheduler ends the job.
#[test]
fn a_job_ends_when_validations_get_no_better_and_keeps_the_best_model() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let (train, held, test) =
        (clicks(f, "train.csv", 1, 4_000), clicks(f, "held.csv", 2, 2_000), clicks(f, "test.csv", 3, 2_000));
    for model in ["lr", "fm --factors 4"] {
        let out = f.join("model");
        let line = format!(
            "launch --servers 2 --workers 2 -- train {train} --model {model} --alpha 0.1 --epochs 40 --test {test} \
             --tasks on --task-bytes 8kB --validate {held} --patience 2 --validate-every 6 --json --out {}",
            out.display()
        );
        let job = ok(&line).json();
        assert!(number(&job, "examples") < 80_000.0, "it ends before 40 passes: {job}");
        let reports = job["reports"].as_array().unwrap();
        // A worker that got no task has no loss.
        let learned = || reports.iter().filter(|report| report["logloss"].is_number());
        let examples = |report: &Value| number(report, "examples");
        let sum = learned().map(|report| examples(report) * number(report, "logloss")).sum::<f64>();
        let mean = sum / learned().map(examples).sum::<f64>();
        assert!((number(&job, "logloss") - mean).abs() < 1e-9, "the loss of all workers: {job}");
        let report = reports.iter().find(|report| report.get("best_step").is_some()).unwrap_or(&job);
        let best = number(report, "best_validation");
        let scored = |data: &str| {
            number(&ok(&format!("predict --model {} {data} --json", out.display())).json(), "logloss")
        };
        // Other workers learn while the chief validates and saves.
        let difference = scored(&held) - best;
        assert!(difference.abs() < 0.004, "{model}: the saved model is the best one: {best}, {difference}");
        assert!((scored(&test) - number(report, "test_logloss")).abs() < 1e-5, "{model}: {report}");
        std::fs::remove_dir_all(&out).unwrap();
    }
}

/// Clicks of users who differ in how often they click: the AUC of all says who clicks, and the GAUC what they click.
#[test]
fn the_auc_within_groups_leaves_out_what_says_only_the_group() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let line = |i: u32| format!("{},u{}\n", u8::from(i % 10 < i / 100), i / 100);
    let data = write(f, "a.csv", "label,user\n".to_owned() + &(0..1_000).map(line).collect::<String>());
    let out = f.join("model").display().to_string();
    let line = format!("train {data} --epochs 5 --test {data} --group user --json --out {out}");
    let report = ok(&line).json();
    assert!(number(&report, "test_auc") > 0.75, "{report}");
    assert_eq!(number(&report, "test_gauc"), 0.5, "of one user all scores are equal: {report}");
    let scored = ok(&format!("predict --model {out} {data} --group user --json")).json();
    assert_eq!(number(&scored, "gauc"), 0.5, "{scored}");
    assert!(ok(&format!("predict --model {out} {data} --json")).json().get("gauc").is_none());
}

#[test]
fn validation_is_refused_where_it_means_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let train = clicks(folder.path(), "train.csv", 1, 100);
    let line = format!("train {train} --validate {train} --patience 2");
    refused(&format!("train {train} --patience 2"), &["--validate"]);
    refused(&format!("train {train} --validate-every 5"), &["--validate FILE, or --test FILE"]);
    refused(&format!("{line} --optimizer lbfgs"), &["no steps of batches"]);
    refused(&format!("{line} --data-dir {}", folder.path().join("d").display()), &["--data-dir", "--out"]);
    let job = format!("{line} --ps-hosts a:1 --worker-hosts b:1,c:1 --job-name worker");
    refused(&format!("{job} --tasks off"), &["--patience", "--tasks on"]);
    refused(&format!("{job} --feed d:1"), &["--feed"]);
    refused("train - --validate 0.1", &["--validate FILE"]);
    refused(&format!("train {train} --validate 0.2 --group nobody --test {train}"), &["nobody", "site"]);
    let other = write(folder.path(), "other.svm", "1 1:1\n");
    refused(&format!("train {train} --validate {other}"), &["other.svm"]);
}

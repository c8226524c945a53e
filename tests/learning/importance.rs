//! How often examples count: `--importance`, `--class-weight` and `--keep-negatives`.

use crate::harness;

use harness::*;
use std::path::Path;

const CITIES: u32 = 16;

/// A random number of 24 bits for each row.
fn drawn(i: u32) -> u32 {
    i.wrapping_mul(2_654_435_761).rotate_left(11).wrapping_mul(0x9E37_79B1) >> 8
}

/// A label, rarer in some cities, and the city.
fn rows() -> Vec<(u8, u32)> {
    (0..6000)
        .map(|i| (u8::from(drawn(i) % 100 < 3 + drawn(i + 7919) % CITIES), drawn(i + 7919) % CITIES))
        .collect()
}

fn report(line: &str) -> serde_json::Value {
    ok(&format!("train {line} --json")).json()
}

fn loss(line: &str) -> f64 {
    report(line)["logloss"].as_f64().unwrap()
}

/// A CSV of the rows with these importances.
fn csv(folder: &Path, name: &str, importance: impl Fn(u8, u32) -> String) -> String {
    let line = |&(label, city): &(u8, u32)| format!("{label},{},c{city}\n", importance(label, city));
    write(folder, name, "label,often,city\n".to_owned() + &rows().iter().map(line).collect::<String>())
}

#[test]
fn a_column_of_importances_means_what_it_means_in_vw() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let of = |_: u8, city: u32| ["0", "0.5", "1", "3"][city as usize % 4].to_owned();
    let table = csv(f, "weighted.csv", of);
    let line = |&(label, city): &(u8, u32)| format!("{label} {} |city c{city}\n", of(label, city));
    let vw = write(f, "weighted.vw", rows().iter().map(line).collect::<String>());
    let ones = csv(f, "ones.csv", |_, _| "1".into());
    for more in ["", "--push gradient", "--model fm --factors 2", "--optimizer lbfgs --l2 1"] {
        let by_column = loss(&format!("{table} --importance often {more}"));
        assert!((by_column - loss(&format!("{vw} {more}"))).abs() < 0.002, "{more}: {by_column}");
        assert_eq!(
            loss(&format!("{ones} --importance often {more}")),
            loss(&format!("{ones} --ignore often {more}"))
        );
    }
    // The model knows that the column is none of its features, and scores rows without it.
    let (model, bare) = (f.join("model"), write(f, "bare.csv", "city\nc1\nc4\n"));
    ok(&format!("train {table} --importance often --out {}", model.display()));
    let score = |data: &str| ok(&format!("predict --model {} {data}", model.display())).out;
    let with = write(f, "with.csv", "often,city\n7,c1\n9,c4\n");
    assert_eq!(score(&bare), score(&with));
    refused(
        &format!("predict --model {} {bare} --importance city", model.display()),
        &["trained with --importance often", "leave the flag out"],
    );
    refused(&format!("train {vw} --importance often"), &["--importance", "this file has none: it is vw"]);
    let negative = write(f, "negative.csv", "label,often,city\n1,-1,c1\n");
    refused(&format!("train {negative} --importance often"), &["0 or more", "often"]);
}

#[test]
fn class_weights_multiply_importances_of_the_training_data_alone() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let plain = csv(f, "plain.csv", |_, city| (city % 3).to_string());
    let weighed =
        csv(f, "weighed.csv", |label, city| ((city % 3) * if label == 1 { 8 } else { 2 }).to_string());
    let others =
        ["", "--push gradient", "--model deepfm --factors 2", "--optimizer lbfgs", "--epochs 3 --cache K"];
    for more in others.map(|more| more.replace('K', &f.join("cache").display().to_string())) {
        let by_flag = loss(&format!("{plain} --importance often --class-weight 8:2 {more}"));
        assert_eq!(by_flag, loss(&format!("{weighed} --importance often {more}")), "{more}");
    }
    // Test data counts as it is, and the weights move the scores away from the chances of its labels.
    let line = format!("{plain} --ignore often --test {plain} --epochs 3");
    let (by_flag, without) = (report(&format!("{line} --class-weight 9:1")), report(&line));
    let at = |report: &serde_json::Value, name: &str| report[name].as_f64().unwrap();
    assert!(at(&by_flag, "test_logloss") > at(&without, "test_logloss") + 0.05, "{by_flag} {without}");
    assert!((at(&by_flag, "test_auc") - at(&without, "test_auc")).abs() < 0.02, "{by_flag} {without}");
    // Both labels have the same sum.
    let (ones, all) = (rows().iter().filter(|(label, _)| *label == 1).count() as f64, rows().len() as f64);
    let by_hand = format!("{}:{}", (all / (2.0 * ones)) as f32, (all / (2.0 * (all - ones))) as f32);
    let said = ok(&format!("train {plain} --ignore often --class-weight balanced"));
    assert!(said.err.contains(&by_hand), "{by_hand}: {}", said.err);
    assert_eq!(
        loss(&format!("{plain} --ignore often --class-weight balanced")),
        loss(&format!("{plain} --ignore often --class-weight {by_hand}"))
    );
}

#[test]
fn class_weights_that_mean_nothing_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = csv(folder.path(), "plain.csv", |_, _| "1".into());
    let no_clicks = write(folder.path(), "none.csv", "label,city\n0,a\n0,b\n");
    let train = |words: &str| format!("train {data} --ignore often {words}");
    refused(&train("--class-weight 1"), &["--class-weight", "such as 10:1"]);
    refused(&train("--class-weight 0:1"), &["above 0"]);
    refused(&train("--class-weight 2:1 --model linear"), &["--model lr, fm, ffm and deepfm", "--importance"]);
    refused(&format!("train {no_clicks} --class-weight balanced"), &["one label", "POS:NEG"]);
    refused("train - --class-weight balanced", &["comes once", "POS:NEG"]);
}

/// A tenth of the negatives is learned, and predictions are those for all of them.
#[test]
fn kept_negatives_leave_predictions_calibrated() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let rows = |seed: u32| -> String {
        let line = |i: u32| {
            let at = i + seed * 1_000_003;
            let city = drawn(at + 7919) % CITIES;
            format!("{},c{city}\n", u8::from(drawn(at) % 1_000 < 3 + 2 * city))
        };
        "label,city\n".to_owned() + &(0..60_000).map(line).collect::<String>()
    };
    let (train, test) = (write(f, "train.csv", rows(1)), write(f, "test.csv", rows(2)));
    let number = |report: &serde_json::Value, name: &str| report[name].as_f64().unwrap();
    for more in ["", "--model fm", "--optimizer lbfgs", "--normalize off", "--tasks"] {
        let begin = match more {
            "--tasks" => {
                format!("launch --servers 1 --workers 2 -- train {train} --tasks on --task-bytes 64kB")
            }
            more => format!("train {train} {more}"),
        };
        let scored = |kept: &str| {
            let out = f.join("model").display().to_string();
            let report = ok(&format!("{begin} --json --out {out} {kept}")).json();
            let scored = ok(&format!("predict --model {out} {test} --json")).json();
            std::fs::remove_dir_all(&out).unwrap();
            (number(&report, "examples"), scored)
        };
        let ((all, of_all), (few, of_few)) = (scored(""), scored(" --keep-negatives 0.1"));
        assert!(few < all / 4.0, "{more}: {few}");
        let calibration = number(&of_few, "calibration");
        assert!((0.85..1.18).contains(&calibration), "{more}: {calibration}");
        let (loss, of_all) = (number(&of_few, "logloss"), number(&of_all, "logloss"));
        assert!(loss < of_all * 1.03, "{more}: {loss}, and {of_all} with all negatives");
    }
    refused(&format!("train {train} --keep-negatives 0"), &["above 0"]);
    refused(&format!("train {train} --model linear --keep-negatives 0.5"), &["no probability"]);
}

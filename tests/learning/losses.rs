//! `--loss`: counts, medians and other quantiles, and margins, beside what their definitions say.

use crate::harness;

use harness::*;
use serde_json::Value;
use std::path::Path;

/// Numbers that depend on one of four groups: `of` says each by the group and a number below 1,000.
fn table(folder: &Path, name: &str, rows: u32, of: impl Fn(u32, u32) -> f64) -> String {
    let drawn = |i: u32| (i.wrapping_mul(2_654_435_761) ^ i >> 3).wrapping_mul(0x85EB_CA6B) >> 11;
    let line = |i: u32| {
        let group = drawn(i) % 4;
        format!("{},g{group}\n", of(group, drawn(i + 1_000_003) % 1_000))
    };
    write(folder, name, "label,group\n".to_owned() + &(0..rows).map(line).collect::<String>())
}

fn number(report: &Value, name: &str) -> f64 {
    report[name].as_f64().unwrap_or_else(|| panic!("{name}: {report}"))
}

/// The predictions for the four groups.
fn of_groups(folder: &Path, model: &Path) -> Vec<f64> {
    let data = write(folder, "groups.csv", "label,group\n1,g0\n1,g1\n1,g2\n1,g3\n");
    let lines = ok(&format!("predict --model {} {data}", model.display())).out;
    lines.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn each_loss_predicts_what_it_is_for() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    // Of group g the numbers 0, g + 1, 2 (g + 1) and 12 (g + 1), each as often as the others.
    let of = |group: u32, drawn: u32| f64::from((group + 1) * [0, 1, 2, 12][drawn as usize % 4]);
    let train = table(f, "train.csv", 40_000, of);
    let model = f.join("model");
    for kind in ["linear --alpha 0.3", "fm", "ffm", "deepfm"] {
        for (loss, wanted) in [("squared", 3.75), ("poisson", 3.75)] {
            let line = format!(
                "train {train} --model {kind} --loss {loss} --epochs 4 --json --out {}",
                model.display()
            );
            let report = ok(&line).json();
            for (group, predicted) in (1..).zip(of_groups(f, &model)) {
                let wanted = wanted * f64::from(group);
                assert!(
                    (predicted / wanted - 1.0).abs() < 0.25,
                    "{kind} {loss} {group}: {predicted}, not {wanted}"
                );
            }
            let name = if loss == "poisson" { "last_pass_poisson_deviance" } else { "last_pass_rmse" };
            assert!(number(&report, name) > 0.0);
            std::fs::remove_dir_all(&model).unwrap();
        }
    }
    // Nine of ten numbers are below the upper quantile, and four of ten below the lower one.
    let of = |group: u32, drawn: u32| f64::from(group * 100) + f64::from(drawn) / 10.0;
    let train = table(f, "uniform.csv", 40_000, of);
    for share in [0.9, 0.4] {
        let line = format!("train {train} --model linear --loss quantile:{share} --alpha 2 --epochs 6");
        // The best constant for numbers that are spread evenly from 0 to 400. Without a start nearly all are above.
        let constant = share * (1.0 - share) / 2.0 * 400.0;
        let numbers = ok(&format!("train {train} --model linear --loss quantile:{share} --json")).json();
        assert!(number(&numbers, "pinball_loss") < constant, "{share}: {numbers} {constant}");
        ok(&format!("{line} --out {}", model.display()));
        for (group, predicted) in (0..).zip(of_groups(f, &model)) {
            let wanted = f64::from(group) * 100.0 + share * 100.0;
            assert!((predicted - wanted).abs() < 12.0, "{share} {group}: {predicted}, not {wanted}");
        }
        std::fs::remove_dir_all(&model).unwrap();
    }
}

#[test]
fn reports_have_the_losses_of_their_definitions() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let of = |group: u32, drawn: u32| f64::from((group + 1) * (drawn % 3));
    let (train, test) = (table(f, "a.csv", 3_000, of), table(f, "b.csv", 500, of));
    let labels: Vec<f64> = std::fs::read_to_string(&test)
        .unwrap()
        .lines()
        .skip(1)
        .map(|line| line.split(',').next().unwrap().parse().unwrap())
        .collect();
    let mean = |each: &dyn Fn(f64, f64) -> f64, predictions: &[f64]| {
        labels.iter().zip(predictions).map(|(y, p)| each(*y, *p)).sum::<f64>() / labels.len() as f64
    };
    let deviance = |y: f64, p: f64| 2.0 * (if y > 0.0 { y * (y / p).ln() } else { 0.0 } - y + p);
    let pinball = |y: f64, p: f64| if y > p { 0.7 * (y - p) } else { 0.3 * (p - y) };
    for (loss, name) in [("poisson", "poisson_deviance"), ("quantile:0.7", "pinball_loss")] {
        let model = f.join(name);
        let line =
            format!("train {train} --model fm --loss {loss} --test {test} --json --out {}", model.display());
        let report = ok(&line).json();
        let lines = ok(&format!("predict --model {} {test}", model.display())).out;
        let predictions: Vec<f64> = lines.lines().map(|line| line.parse().unwrap()).collect();
        let wanted = mean(if loss == "poisson" { &deviance } else { &pinball }, &predictions);
        assert!((number(&report, &format!("test_{name}")) - wanted).abs() < 1e-4, "{report} {wanted}");
        let mae = mean(&|y: f64, p: f64| (y - p).abs(), &predictions);
        assert!((number(&report, "test_mae") - mae).abs() < 1e-4, "{report} {mae}");
    }
    let clicks = write(f, "c.csv", "label,a\n1,x\n-1,y\n1,x\n-1,y\n");
    let report =
        ok(&format!("train {clicks} --model linear --loss hinge --epochs 30 --test {clicks} --json")).json();
    assert!(number(&report, "test_hinge_loss") < 0.2 && number(&report, "test_accuracy") == 1.0, "{report}");
}

#[test]
fn a_loss_that_means_nothing_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let data = write(f, "a.csv", "label,a\n-3,x\n2,y\n");
    refused(&format!("train {data} --model linear --loss poisson"), &["a.csv:2", "a number from 0"]);
    refused(&format!("train {data} --loss squared"), &["--loss", "--model lr", "linear"]);
    refused(&format!("train {data} --model fm --loss quantile:2"), &["quantile:T"]);
    let clicks = write(f, "b.csv", "label,a\n1,x\n0,y\n");
    refused(&format!("train {clicks} --model linear --loss squared --class-weight 2:1"), &["--class-weight"]);
    refused(&format!("train {clicks} --model fm --loss hinge --keep-negatives 0.5"), &["no probability"]);
    // Another training cannot go on with another loss.
    let model = f.join("model");
    ok(&format!("train {clicks} --model fm --out {}", model.display()));
    let line = format!("train {clicks} --model fm --loss hinge --warm-start {}", model.display());
    refused(&line, &["--loss of the model: none", "hinge"]);
}

//! Trains on the shipped flights, with every fifth held out. The result must be no worse than scikit-learn's logistic
//! regression on the same columns: AUC .684, log loss .5105; with the date as one more column .763 and .4620
//! (docs/benchmarks.md).

use crate::model;

use flate2::read::MultiGzDecoder;
use gannet_core::Schema;
use gannet_optim::{Ftrl, Rule};
use gannet_train::{ColumnChoice, Data, FlatTable, Options, Quality, train};
use std::io::Read;
use std::sync::atomic::AtomicBool;

const COLUMNS: [&str; 8] = ["carrier", "flight", "tailnum", "origin", "dest", "hour", "month", "weekday"];

/// Trains on four fifths, in the file's order, and scores the rest. The file is in time order, so at the default
/// alpha of 0.1 the last weeks weigh too much. (After 20 epochs AUC is .682 and log loss .511; with the date .762 and
/// .462.)
fn held_out(columns: &[&str], alpha: f32, l2: f32, epochs: u32) -> Quality {
    let packed = std::fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../data/flights.csv.gz")).unwrap();
    let mut text = String::new();
    MultiGzDecoder::new(packed).read_to_string(&mut text).unwrap();
    let (header, rows) = text.split_once('\n').unwrap();
    let (mut kept, mut held) = (format!("{header}\n"), format!("{header}\n"));
    for (i, row) in rows.lines().enumerate() {
        let part = if i % 5 == 0 { &mut held } else { &mut kept };
        part.push_str(row);
        part.push('\n');
    }
    let folder = tempfile::tempdir().unwrap();
    let categorical = columns.iter().map(|c| c.to_string()).collect();
    let columns = ColumnChoice { categorical, ..ColumnChoice::default() };
    let data = |name, text: &str| Data {
        columns: columns.clone(),
        ..Data::new(&model::file(&folder, name, text.as_bytes()))
    };
    let rule = Rule::Ftrl(Ftrl { alpha, beta: 1.0, l1: 0.0, l2 });
    let test = Some(data("held.csv", &held));
    let options = Options { epochs, test, ..Options::new(data("kept.csv", &kept)) };
    let mut rows = FlatTable::new(&Schema::scalar("flights", rule)).unwrap();
    let report = train(&options, &mut rows, &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert_eq!(report.examples, 261_876 * u64::from(epochs));
    report.test.unwrap().click().unwrap().clone()
}

#[test]
fn no_worse_than_scikit_learn() {
    let dated: Vec<&str> = COLUMNS.iter().copied().chain(["date"]).collect();
    for (columns, auc, log_loss) in [(&COLUMNS[..], 0.684, 0.5105), (&dated, 0.763, 0.4620)] {
        let quality = held_out(columns, 0.03, 0.0, 20);
        let seen = (quality.auc.unwrap(), quality.log_loss, quality.calibration());
        println!("{} columns: {seen:?}", columns.len());
        assert!(seen.0 >= auc && seen.1 <= log_loss, "{} columns: {seen:?}", columns.len());
    }
}

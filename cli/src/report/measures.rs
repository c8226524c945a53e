//! The quality of predictions: one list of numbers, in words and as JSON.

use crate::report::numbers::Numbers;
use gannet::train::Quality;
use gannet::train::models::Measured;
use serde_json::{Map, Value};

/// A number of a quality.
struct Measure {
    /// Its name in an object.
    name: &'static str,
    words: &'static str,
    value: Option<f64>,
    /// Digits behind the point, in words.
    digits: usize,
}

/// The numbers of a model of clicks. Without a quality none of them is known.
fn of_clicks(quality: Option<&Quality>) -> Vec<Measure> {
    let of = |value: &dyn Fn(&Quality) -> Option<f64>| quality.and_then(value);
    vec![
        Measure { name: "logloss", words: "log loss", value: of(&|q| Some(q.log_loss)), digits: 6 },
        Measure { name: "auc", words: "AUC", value: of(&|q| q.auc), digits: 5 },
        Measure { name: "calibration", words: "calibration", value: of(&Quality::calibration), digits: 4 },
        Measure { name: "accuracy", words: "accuracy", value: of(&|q| Some(q.accuracy)), digits: 4 },
    ]
}

fn measures(measured: &Measured) -> Vec<Measure> {
    match measured {
        Measured::Click(quality) => of_clicks(Some(quality)),
        Measured::Number(q) => vec![
            Measure { name: "rmse", words: "RMSE", value: Some(q.rmse), digits: 6 },
            Measure { name: "mae", words: "MAE", value: Some(q.mae), digits: 6 },
        ],
        Measured::Class(q) => vec![
            Measure { name: "logloss", words: "log loss", value: Some(q.log_loss), digits: 6 },
            Measure { name: "accuracy", words: "accuracy", value: Some(q.accuracy), digits: 4 },
        ],
    }
}

fn put_all(object: &mut Map<String, Value>, before: &str, measures: Vec<Measure>) {
    object.extend(measures.into_iter().map(|of| (format!("{before}{}", of.name), of.value.into())));
}

fn all_in_words(measures: Vec<Measure>) -> String {
    let in_words = |Measure { words, value, digits, .. }| match value {
        Some(value) => format!("{words} {value:.digits$}"),
        None => format!("{words} -"),
    };
    measures.into_iter().map(in_words).collect::<Vec<String>>().join("  ")
}

/// Adds the quality of predictions to an object. `before` is the prefix of the names.
pub fn put(object: &mut Map<String, Value>, before: &str, measured: Option<&Measured>) {
    put_all(object, before, measured.map(measures).unwrap_or_default());
}

/// Adds the quality of predictions of clicks to an object. Unknown numbers are null.
pub fn put_clicks(object: &mut Map<String, Value>, quality: Option<&Quality>) {
    put_all(object, "", of_clicks(quality));
}

/// Adds a quality to a report: with `head` a line of the text, and to the object numbers whose names begin with `before`. Where
/// clicks are predicted, the numbers of an unknown quality are null.
pub fn put_line(
    report: &mut Numbers,
    head: Option<&str>,
    before: &str,
    measured: Option<&Measured>,
    clicks: bool,
) {
    if let (Some(head), Some(measured)) = (head, measured) {
        report.line(head);
        report.words(in_words(measured));
    }
    let unknown = || if clicks { of_clicks(None) } else { Vec::new() };
    for of in measured.map_or_else(unknown, measures) {
        report.add(&format!("{before}{}", of.name), of.value);
    }
}

/// Adds the quality of a test of clicks to a report.
pub fn put_test(report: &mut Numbers, test: Option<&Quality>) {
    let test = test.map(|quality| Measured::Click(Box::new(quality.clone())));
    put_line(report, Some("test"), "test_", test.as_ref(), true);
}

/// The quality in words.
pub fn in_words(measured: &Measured) -> String {
    all_in_words(measures(measured))
}

/// The quality of predictions of clicks in words.
pub fn clicks_in_words(quality: &Quality) -> String {
    all_in_words(of_clicks(Some(quality)))
}

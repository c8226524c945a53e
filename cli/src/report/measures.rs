//! The quality of predictions: one list of numbers, in words and as JSON.

use crate::report::numbers::Numbers;
use gannet::train::Quality;
use gannet::train::models::{Measured, NumberLoss, Objective};
use serde_json::Value;

/// A number of a quality: its name in an object, its words, its value, and the digits behind the point in words.
type Measure = (&'static str, &'static str, Option<f64>, usize);

/// The names in an object of the quality of predictions of clicks.
const OF_CLICKS: [&str; 5] = ["logloss", "auc", "calibration", "accuracy", "normalized_entropy"];

fn measures(measured: &Measured) -> Vec<Measure> {
    match measured {
        Measured::Click(q) => vec![
            ("logloss", "log loss", Some(q.log_loss), 6),
            ("auc", "AUC", q.auc, 5),
            ("calibration", "calibration", q.calibration(), 4),
            ("accuracy", "accuracy", Some(q.accuracy), 4),
            ("normalized_entropy", "normalized entropy", q.normalized_entropy(), 4),
        ]
        .into_iter()
        .chain(q.grouped.map(|grouped| ("gauc", "GAUC", Some(grouped.auc), 5)))
        .collect(),
        Measured::Separation(q) => vec![
            ("hinge_loss", loss_name(Objective::Separation), Some(q.hinge), 6),
            ("auc", "AUC", q.auc, 5),
            ("accuracy", "accuracy", Some(q.accuracy), 4),
        ],
        Measured::Number(q) => {
            let name = match q.of {
                NumberLoss::Squared => None,
                NumberLoss::Poisson => Some("poisson_deviance"),
                NumberLoss::Quantile(_) => Some("pinball_loss"),
            };
            let loss = name.map(|name| (name, loss_name(Objective::Number(q.of)), Some(q.loss), 6));
            let errors = [("rmse", "RMSE", Some(q.rmse), 6), ("mae", "MAE", Some(q.mae), 6)];
            loss.into_iter().chain(errors).collect()
        }
        Measured::Class(q) => {
            vec![("logloss", "log loss", Some(q.log_loss), 6), ("accuracy", "accuracy", Some(q.accuracy), 4)]
        }
    }
}

/// What reports call the loss of an objective.
pub fn loss_name(of: Objective) -> &'static str {
    match of {
        Objective::Click | Objective::Class(_) => "log loss",
        Objective::Separation => "hinge loss",
        Objective::Number(NumberLoss::Squared) => "RMSE",
        Objective::Number(NumberLoss::Poisson) => "Poisson deviance",
        Objective::Number(NumberLoss::Quantile(_)) => "pinball loss",
    }
}

/// The quality of predictions of clicks.
pub fn measured(quality: Quality) -> Measured {
    Measured::Click(Box::new(quality))
}

/// Adds a quality. The names of its numbers begin with `before`. With `clicks`, the numbers of an unknown quality
/// are null; without, they are left out.
pub fn put_quality(report: &mut Numbers, before: &str, measured: Option<&Measured>, clicks: bool) {
    let Some(measured) = measured else {
        let names = OF_CLICKS.iter().filter(|_| clicks);
        return names.for_each(|name| report.add(&format!("{before}{name}"), Value::Null));
    };
    for (at, (name, words, value, digits)) in measures(measured).into_iter().enumerate() {
        report.words(format_args!("{}{words} ", if at == 0 { "" } else { "  " }));
        report.show_known(&format!("{before}{name}"), value, digits, "");
    }
}

/// Adds a line with a quality, as [`put_quality`] does.
pub fn put_line(report: &mut Numbers, head: &str, before: &str, measured: Option<&Measured>, clicks: bool) {
    if measured.is_some() {
        report.line(head);
    }
    put_quality(report, before, measured, clicks);
}

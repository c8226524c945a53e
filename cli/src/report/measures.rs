//! The quality of predictions, in words and as JSON.

use crate::report::words::words;
use gannet::train::Quality;
use gannet::train::models::Measured;
use serde_json::{Map, Value, json};

/// Adds the quality of predictions to an object. `before` is the prefix of the names.
pub fn put(object: &mut Map<String, Value>, before: &str, measured: Option<&Measured>) {
    let mut put = |name: &str, value: Option<f64>| object.insert(format!("{before}{name}"), json!(value));
    match measured {
        None => {}
        Some(Measured::Click(q)) => {
            put("logloss", Some(q.log_loss));
            put("auc", q.auc);
            put("calibration", Quality::calibration(q));
            put("accuracy", Some(q.accuracy));
        }
        Some(Measured::Number(q)) => {
            put("rmse", Some(q.rmse));
            put("mae", Some(q.mae));
        }
        Some(Measured::Class(q)) => {
            put("logloss", Some(q.log_loss));
            put("accuracy", Some(q.accuracy));
        }
    }
}

/// The quality of predictions as an object.
pub fn measures(measured: Option<&Measured>) -> Map<String, Value> {
    let mut object = Map::new();
    put(&mut object, "", measured);
    object
}

/// The quality in words.
pub fn in_words(measured: &Measured) -> String {
    match measured {
        Measured::Click(quality) => words(quality),
        Measured::Number(q) => format!("RMSE {:.6}  MAE {:.6}", q.rmse, q.mae),
        Measured::Class(q) => format!("log loss {:.6}  accuracy {:.4}", q.log_loss, q.accuracy),
    }
}

//! `gannet predict --explain`: what each feature contributes to each score.

use crate::failure::Failure;
use crate::predict::output::{Ended, write as write_out};
use crate::report::warnings::warn_of_bad_lines;
use gannet::train::models::{Explained, Forecast};
use gannet::train::saved::SavedModel;
use gannet::train::{Data, FeatureNames};
use serde_json::{Map, Value, json};
use std::io;

/// Prints an object for each example: its prediction, its margin, and the contributions that add up to that.
pub fn print_explanations(data: &Data, model: &SavedModel) -> Result<(), Failure> {
    let names = FeatureNames::of(data, &|_| true).map_err(|e| Failure::input(e.to_string()))?;
    let mut out = io::stdout().lock();
    let explained = model.explain(data, |explained| -> Result<(), Ended> {
        let mut line = object(&explained, &names).to_string();
        line.push('\n');
        write_out(&mut out, &line)
    });
    match explained {
        Ok(bad_lines) => warn_of_bad_lines(&bad_lines),
        Err(ended) => return Ended::failure(ended).map_or(Ok(()), Err),
    }
    Ok(())
}

/// The object of one example. A feature that is there twice has the sum of both.
fn object(explained: &Explained<'_>, names: &FeatureNames<'_>) -> Value {
    let Explained { keys, forecast, base, contributions } = explained;
    let margin = f64::from(*base) + contributions.total();
    let mut each = Map::new();
    for (name, value) in [("(base)", f64::from(*base)), ("(network without inputs)", contributions.rest)] {
        if value != 0.0 {
            each.insert(name.to_owned(), json!(value));
        }
    }
    for (&key, value) in keys.iter().zip(&contributions.features) {
        let name = names.name(key);
        let before = each.get(&name).and_then(Value::as_f64).unwrap_or(0.0);
        each.insert(name, json!(before + value));
    }
    let mut object = Map::new();
    match forecast {
        Forecast::Probability(p) => object.insert("probability".into(), json!(p)),
        Forecast::Number(x) => object.insert("prediction".into(), json!(x)),
        Forecast::Margin(_) => None,
        Forecast::Class(class, p) => {
            object.insert("class".into(), json!(class));
            object.insert("probability".into(), json!(p))
        }
    };
    object.insert("margin".into(), json!(margin));
    object.insert("contributions".into(), Value::Object(each));
    Value::Object(object)
}

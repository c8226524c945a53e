//! What each feature contributes to a prediction, as JSON.

use super::deadline::Deadline;
use crate::error::RequestError;
use crate::models::ServedModel;
use gannet::train::models::{Explained, Forecast};
use gannet::train::{Data, FeatureNames};
use serde_json::{Map, Value, json};

/// The object of one example: its prediction, its margin, and the contributions that add up to that. A feature that is
/// there twice has the sum of both.
pub fn explanation(explained: &Explained<'_>, names: &FeatureNames<'_>) -> Value {
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

/// The explanations of a request's examples, an object a line.
///
/// # Errors
/// An example is wrong, there are more bytes than `most`, or the time is over.
pub fn explained_lines(
    model: &ServedModel,
    data: &Data,
    (most, deadline): (usize, Deadline),
) -> Result<String, RequestError> {
    let named = FeatureNames::of(data, &|_| true).map_err(|error| RequestError::Bad(error.to_string()))?;
    let mut lines = String::new();
    model.saved.explain(data, |explained| {
        lines.push_str(&explanation(&explained, &named).to_string());
        lines.push('\n');
        if lines.len() > most {
            return Err(RequestError::Bad(format!(
                "the explanations have more than {most} bytes: ask for those of fewer examples at once"
            )));
        }
        deadline.check()
    })?;
    Ok(lines)
}

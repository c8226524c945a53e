//! The report and the progress of a model's training, in words and as JSON.

use crate::failure::{Failure, backend_failure};
use crate::flags::TrainArgs;
use crate::report::account::Account;
use crate::report::measures::{in_words, put};
use crate::report::progress::{ProgressDisplay, read};
use crate::report::steps::{print_steps, staleness};
use crate::report::warnings::warn_of_loss;
use crate::report::words::size_in_words;
use gannet::train::models::{Fitted, Fitting, Measured, Model, Objective};
use gannet::train::{ColumnKeys, INTERCEPT_KEY, Tables};
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// The most rows of a model whose weights are printed.
const WEIGHTS_SHOWN: u64 = 32;

/// The name of an objective's loss.
fn loss_name(task: Objective) -> &'static str {
    match task {
        Objective::Click | Objective::Class(_) => "log loss",
        Objective::Number => "RMSE",
    }
}

/// The loss of a measure, as the progress shows it.
pub fn loss(measured: &Measured) -> f64 {
    match measured {
        Measured::Click(q) => q.log_loss,
        Measured::Number(q) => q.rmse,
        Measured::Class(q) => q.log_loss,
    }
}

/// Shows the progress of a training.
pub fn progress(display: &mut ProgressDisplay, f: &Fitting, epochs: u32, task: Objective) {
    let part = f.bytes_total.filter(|&t| t > 0).map(|total| f.bytes_read as f64 / total as f64);
    let (speed, epoch) = (f.examples as f64 / f.seconds.max(1e-9), f.epoch + 1);
    let (loss, name) = (f.loss, loss_name(task));
    let (read, learned) = (read(part), display.learned(f.examples));
    let text =
        format!("{read}pass {epoch} of {epochs}  {learned}  {speed:.0}/s  {name} of pass {epoch} {loss:.5}");
    display.show(part, text, || {
        let Fitting { examples, steps, bytes_read, bytes_total, .. } = *f;
        tracing::info!(
            target: "gannet::progress",
            epoch, epochs, examples, steps, examples_per_second = speed, bytes_read, bytes_total, loss, "training"
        );
    });
}

/// The weights by feature name, of a model with one weight a row and few rows.
pub fn weights<T: Tables>(
    model: &dyn Model,
    tables: &mut T,
    fitted: &Fitted,
) -> Result<Vec<(String, f32)>, Failure> {
    if model.sparse().weights() != 1 || fitted.rows > WEIGHTS_SHOWN {
        return Ok(Vec::new());
    }
    let mut keys = Vec::new();
    tables.scan(0, &mut |page, _| keys.extend_from_slice(page)).map_err(backend_failure)?;
    let mut weights = Vec::new();
    tables.weights(0, &keys, &mut weights).map_err(backend_failure)?;
    let columns = fitted.columns.iter().flat_map(|columns| &columns.numeric);
    let mut names: HashMap<u64, String> =
        columns.map(|name| (ColumnKeys::new(name).numeric(), name.clone())).collect();
    names.insert(INTERCEPT_KEY, "intercept".to_owned());
    let name = |key: u64| names.get(&key).cloned().unwrap_or_else(|| key.to_string());
    let mut named: Vec<_> = keys.into_iter().map(name).zip(weights).collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(named)
}

/// Warns if the predictions are useless.
pub fn warn_of_quality(fitted: &Fitted) {
    let click = |measured: &Option<Measured>| match measured {
        Some(Measured::Click(quality)) => Some(quality.clone()),
        _ => None,
    };
    let (first, test) = (click(&fitted.progressive), click(&fitted.test));
    let columns = fitted.columns.as_ref();
    crate::report::warnings::warn_of_quality(first.as_deref(), test.as_deref(), columns);
    for (which, measured) in [("progressive", &fitted.progressive), ("test", &fitted.test)] {
        if let Some(Measured::Number(q)) = measured {
            // While the model learns the mean, its error is about the deviation of the labels.
            let price = if which == "test" { 0.0 } else { q.deviation };
            warn_of_loss((which, "RMSE"), (q.rmse, q.deviation), price, columns);
        }
    }
}

fn json_of(
    args: &TrainArgs,
    fitted: &Fitted,
    weights: &[(String, f32)],
    validations: Option<Vec<Value>>,
) -> Value {
    let mut object = Map::new();
    let mut set = |name: &str, value: Value| object.insert(name.into(), value);
    set("model", json!(format!("{:?}", args.model.model).to_lowercase()));
    set("examples", json!(fitted.examples));
    set("steps", json!(fitted.steps));
    set("seconds", json!(fitted.seconds));
    set("examples_per_second", json!(fitted.examples as f64 / fitted.seconds));
    set("steps_per_second", json!(fitted.steps as f64 / fitted.seconds));
    set("rows", json!(fitted.rows));
    set("bytes_per_row", json!(fitted.bytes as f64 / fitted.rows.max(1) as f64));
    set("transport", json!(fitted.transport));
    set("push", json!(fitted.push.name()));
    set("format", json!(fitted.format));
    set("bad_lines", json!(fitted.bad_lines.count));
    set("not_finite", json!(fitted.not_finite));
    set("not_admitted", json!(fitted.not_admitted));
    set("staleness", staleness(&fitted.pulls_by_staleness));
    set("dropped_late", json!({ "records": fitted.dropped_late.0, "rows": fitted.dropped_late.1 }));
    set("stopped", json!(fitted.stopped));
    if !weights.is_empty() {
        let weights: Map<String, Value> = weights.iter().map(|(n, w)| (n.clone(), json!(w))).collect();
        set("weights", Value::Object(weights));
    }
    if let Some(validations) = validations {
        set("validations", validations.into());
    }
    if let Some(Measured::Click(quality)) = &fitted.progressive {
        object.insert("one_class".into(), json!(quality.one_class().is_some()));
    }
    put(&mut object, "", fitted.progressive.as_ref());
    put(&mut object, "last_pass_", fitted.last_pass.as_ref());
    put(&mut object, "test_", fitted.test.as_ref());
    Value::Object(object)
}

/// Prints the report of a training.
pub fn print(
    args: &TrainArgs,
    (fitted, account): (&Fitted, &Account),
    weights: &[(String, f32)],
    validations: Option<Vec<Value>>,
) {
    if args.json {
        let mut object = json_of(args, fitted, weights, validations);
        account.put(&mut object);
        return say!("{object}");
    }
    let Fitted { examples, steps, seconds, transport, push, format, .. } = fitted;
    let (of_examples, of_steps) = (*examples as f64 / seconds, *steps as f64 / seconds);
    let push = push.name();
    say!(
        "{examples} examples in {seconds:.2} s, {of_examples:.0} examples/s, {of_steps:.0} steps/s ({transport}, {push}, {format})"
    );
    let passes =
        [("progressive", &fitted.progressive), ("last pass", &fitted.last_pass), ("test", &fitted.test)];
    for (name, measured) in passes.into_iter().filter(|p| p.0 != "last pass" || args.epochs > 1) {
        if let Some(measured) = measured {
            say!("{name:<12} {}", in_words(measured));
        }
    }
    say!("tables       {}", size_in_words(fitted.rows, fitted.bytes as f64 / fitted.rows.max(1) as f64));
    if !weights.is_empty() {
        let each: Vec<String> = weights.iter().map(|(name, weight)| format!("{name} {weight:.5}")).collect();
        say!("weights      {}", each.join("  "));
    }
    print_steps(&fitted.pulls_by_staleness, fitted.dropped_late);
    if fitted.not_admitted > 0 {
        say!("admission    {} pushes to keys without a row were not admitted", fitted.not_admitted);
    }
    if fitted.not_finite > 0 {
        say!(
            "dropped      {} examples or rows whose update was NaN, infinite or beyond the range of --row-type: a smaller \
             --alpha may help",
            fitted.not_finite
        );
    }
}

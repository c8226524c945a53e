//! The weights of a small model, and warnings about its quality.

use crate::failure::Failure;
use crate::report::warnings::warn_of_loss;
use crate::train::normalize;
use gannet::train::models::{Measured, Model, NumberLoss};

use gannet::train::{ColumnKeys, INTERCEPT_KEY, Normalize, Report, Tables};
use std::collections::HashMap;

/// The most rows of a model whose weights are printed.
const WEIGHTS_SHOWN: u64 = 32;

/// The weights by feature name, of a model with one weight a row and few rows. They are for values as the data has
/// them.
pub fn weights<T: Tables>(
    model: &dyn Model,
    tables: &mut T,
    report: &Report,
) -> Result<Vec<(String, f32)>, Failure> {
    if model.sparse().weights() != 1 || report.rows > WEIGHTS_SHOWN {
        return Ok(Vec::new());
    }
    let mut keys = Vec::new();
    tables.scan(0, &mut |page, _| keys.extend_from_slice(page))?;
    let mut weights = Vec::new();
    tables.weights(0, &keys, &mut weights)?;
    if let Some(known) = normalize::of_process().and_then(Normalize::known) {
        known.measured_as_given(&keys, &mut weights);
    }
    let columns = report.columns.iter().flat_map(|columns| columns.numbers());
    let mut names: HashMap<u64, String> =
        columns.map(|name| (ColumnKeys::new(name).numeric(), name.clone())).collect();
    names.insert(INTERCEPT_KEY, "intercept".to_owned());
    let name = |key: u64| names.get(&key).cloned().unwrap_or_else(|| key.to_string());
    let mut named: Vec<_> = keys.into_iter().map(name).zip(weights).collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(named)
}

/// Warns if the predictions are useless, or if nothing says what several passes are worth. `is_validated`: other data
/// was scored on the way.
pub fn warn_of_quality(of: &Report, is_validated: bool) {
    let columns = of.columns.as_ref();
    let first = of.progressive.as_ref().and_then(Measured::click);
    let test = of.test.as_ref().and_then(Measured::click);
    crate::report::warnings::warn_of_quality(first, test, columns);
    if of.test.is_none() && !is_validated {
        let last = of.last_loss.or_else(|| of.last_pass.as_ref().map(Measured::loss));
        crate::report::warnings::warn_of_passes(of.progressive.as_ref().map(Measured::loss), last);
    }
    for (which, measured) in [("progressive", &of.progressive), ("test", &of.test)] {
        if let Some(Measured::Number(q)) = measured
            && q.of == NumberLoss::Squared
        {
            // While the model learns the mean, its error is about the deviation of the labels.
            let price = if which == "test" { 0.0 } else { q.deviation };
            warn_of_loss((which, "RMSE"), (q.rmse, q.deviation), price, columns);
        }
    }
}

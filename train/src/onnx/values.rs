//! The normalization of values as nodes: what [`Normalization::of`] computes.

use super::graph::{Graph, Value};
use super::messages::{DOUBLE, FLOAT};
use crate::limits::NORMALIZED_MAX;
use crate::read::normalization::Normalization;

/// The normalized values of features, whose `rows` are those of these keys; the row behind the last is that of all
/// others. The result for these does not matter: their weights are 0.
pub fn normalized(
    graph: &mut Graph,
    normalization: &Normalization,
    (keys, rows): (&[u64], &Value),
    given: &Value,
) -> Value {
    let sign = graph.node("Sign", &[given]);
    if normalization.features().is_empty() {
        return sign;
    }
    let count = keys.len() + 1;
    // A feature that is not listed becomes its sign, which a factor of 0 marks: no listed one has it.
    let (mut centers, mut factors, mut units) = (vec![0.0; count], vec![0.0; count], vec![0.0; count]);
    for (at, &key) in keys.iter().enumerate() {
        if let Some(feature) = normalization.feature(key) {
            (centers[at], factors[at], units[at]) = (feature.center, feature.factor, feature.unit);
        }
    }
    let of_rows = |graph: &mut Graph, of: &[f32]| {
        let table = graph.floats(&[count], of);
        graph.node("Gather", &[&table, rows])
    };
    let compressed = match units.iter().any(|&unit| unit > 0.0) {
        true => {
            let units = of_rows(graph, &units);
            logarithms(graph, &units, (given, &sign))
        }
        false => given.clone(),
    };
    let (centers, factors) = (of_rows(graph, &centers), of_rows(graph, &factors));
    let centered = graph.node("Sub", &[&compressed, &centers]);
    let scaled = graph.node("Mul", &[&centered, &factors]);
    let (least, most) = (graph.floats(&[], &[-NORMALIZED_MAX]), graph.floats(&[], &[NORMALIZED_MAX]));
    let bounded = graph.node("Clip", &[&scaled, &least, &most]);
    let zero = graph.floats(&[], &[0.0]);
    let is_other = graph.node("Equal", &[&factors, &zero]);
    graph.node("Where", &[&is_other, &sign, &bounded])
}

/// `sign(x) ln(1 + |x| / unit)` where the unit is above 0, else x. In float64, as readers compute it.
fn logarithms(graph: &mut Graph, units: &Value, (given, sign): (&Value, &Value)) -> Value {
    let zero = graph.floats(&[], &[0.0]);
    let is_skewed = graph.node("Greater", &[units, &zero]);
    let (one, wide_one) = (graph.floats(&[], &[1.0]), graph.doubles(&[], &[1.0]));
    let divisor = graph.node("Where", &[&is_skewed, units, &one]);
    let size = graph.node("Abs", &[given]);
    let (size, divisor) = (graph.cast(&size, DOUBLE), graph.cast(&divisor, DOUBLE));
    let ratio = graph.node("Div", &[&size, &divisor]);
    let above_one = graph.node("Add", &[&ratio, &wide_one]);
    let logarithm = graph.node("Log", &[&above_one]);
    let logarithm = graph.cast(&logarithm, FLOAT);
    let signed = graph.node("Mul", &[sign, &logarithm]);
    graph.node("Where", &[&is_skewed, &signed, given])
}

//! What the features of an example contribute to its output. The contributions add up to the output, up to the rounding
//! of f32.
//!
//! A weight contributes `w x`. Of a pair of features each gets half. A network has no terms that belong to one feature:
//! its output is attributed to its inputs by the rescale rule of DeepLIFT (Shrikumar, Greenside, Kundaje, "Learning
//! important features through propagating activation differences", 2017), with inputs of 0 as the reference. What the
//! network says of those is the [rest](Contributions::rest).

use super::learned_rows::LearnedRows;
use super::{BatchRows, Example};
use crate::batch::Batch;
use gannet_optim::Scalar;

/// The contributions to one output of an example.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contributions {
    /// The number of the output: of several classes the likeliest, else 0.
    pub output: usize,
    /// That of each feature, in the order of the example.
    pub features: Vec<f64>,
    /// What no feature contributes: the output of a network without inputs. 0 for models without one.
    pub rest: f64,
}

impl Contributions {
    /// Their sum, which is the output without the base of the example.
    pub fn total(&self) -> f64 {
        self.features.iter().sum::<f64>() + self.rest
    }
}

/// Reads the weights of rows, and learns nothing.
pub(crate) struct ReadRows<'a>(super::learned_rows::SummedGradients<'a, Scalar>);

impl ReadRows<'_> {
    /// The weights of a segment of row `at`.
    pub fn weights(&self, at: usize, segment: usize) -> &[f32] {
        self.0.weights(at, segment)
    }
}

/// The rows of a batch, to read them.
pub(crate) fn to_read(rows: &mut [BatchRows]) -> Vec<ReadRows<'_>> {
    rows.iter_mut().map(|rows| ReadRows(rows.summed(Scalar))).collect()
}

/// The contributions of weights alone: segment 0 of each feature's row, from weight `output` on.
pub(crate) fn linear(batch: &Batch, i: usize, rows: &ReadRows<'_>, output: usize) -> Vec<f64> {
    let features = Example::of(batch, i).features();
    features.map(|(at, x, _)| f64::from(rows.weights(at, 0)[output]) * f64::from(x)).collect()
}

/// The scalar product in f64.
pub(crate) fn product(a: &[f32], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * b).sum()
}

/// `sums += factor * vector`.
pub(crate) fn add(sums: &mut [f64], factor: f64, vector: &[f32]) {
    sums.iter_mut().zip(vector).for_each(|(sum, v)| *sum += factor * f64::from(*v));
}

/// Adds half of each pair to both of its features, for a machine whose second segments are factors.
pub(crate) fn add_pairs(batch: &Batch, i: usize, rows: &ReadRows<'_>, factors: usize, of: &mut [f64]) {
    let example = Example::of(batch, i);
    let mut sums = vec![0.0; factors];
    for (at, x, intercept) in example.features() {
        if !intercept {
            add(&mut sums, f64::from(x), rows.weights(at, 1));
        }
    }
    for ((at, x, intercept), of) in example.features().zip(of) {
        if !intercept {
            let (v, x) = (rows.weights(at, 1), f64::from(x));
            let own: f64 = v.iter().map(|v| f64::from(*v).powi(2)).sum();
            *of += 0.5 * x * (product(v, &sums) - x * own);
        }
    }
}

/// A network of rectified units: the values of its units with some inputs, before they are rectified.
fn forward(layers: &[ReadRows<'_>], widths: &[usize], input: Vec<f64>) -> Vec<Vec<f64>> {
    let mut values = vec![input];
    for (layer, &units) in layers.iter().zip(&widths[1..]) {
        let is_first = values.len() == 1;
        let before: Vec<f64> =
            values[values.len() - 1].iter().map(|&x| if is_first { x } else { x.max(0.0) }).collect();
        let unit = |u: usize| product(layer.weights(u, 0), &before) + f64::from(layer.weights(u, 1)[0]);
        values.push((0..units).map(unit).collect());
    }
    values
}

/// How much each input of a network contributes to its output for one unit of the input, and the output for inputs of
/// 0. `widths`: the number of inputs, and of units of each layer.
pub(crate) fn multipliers(layers: &[ReadRows<'_>], widths: &[usize], input: Vec<f64>) -> (Vec<f64>, f64) {
    let reference = forward(layers, widths, vec![0.0; input.len()]);
    let values = forward(layers, widths, input);
    let mut by_output = vec![1.0];
    for (at, layer) in layers.iter().enumerate().rev() {
        let mut by_input = vec![0.0; widths[at]];
        for (unit, &by) in by_output.iter().enumerate() {
            add(&mut by_input, by, layer.weights(unit, 0));
        }
        if at > 0 {
            for (by, (&z, &z0)) in by_input.iter_mut().zip(values[at].iter().zip(&reference[at])) {
                let (change, change_in) = (z.max(0.0) - z0.max(0.0), z - z0);
                // Without a change the unit contributes nothing, whatever the slope.
                *by *= if change_in.abs() > 1e-12 { change / change_in } else { 0.0 };
            }
        }
        by_output = by_input;
    }
    (by_output, reference.last().map_or(0.0, |output| output[0]))
}

//! Initial values: what a missing key reads as. They are a function of (table seed, key) only. So they depend
//! neither on the order in which keys come nor on the number of servers.

use crate::hash::mix;
use gannet_optim::Update;

/// The key of the intercept, a feature of value 1 that every example has. The penalties of a rule do not act on its
/// row, in any table.
pub const INTERCEPT_KEY: u64 = u64::MAX;

/// Writes the stored floats of a row that starts from these weights into `row`, for the key of the row.
///
/// # Panics
/// As [`Update::init`].
#[inline(always)]
pub fn init_row<U: Update>(rule: U, key: u64, weights: &[f32], row: &mut [f32]) {
    if key == INTERCEPT_KEY {
        rule.init_free(weights, row);
    } else {
        rule.init(weights, row);
    }
}

/// [`Update::is_sound`] of the row of this key.
#[inline(always)]
pub(crate) fn is_sound_of<U: Update>(rule: U, key: u64, row: &[f32]) -> bool {
    if key == INTERCEPT_KEY { rule.is_sound_free(row) } else { rule.is_sound(row) }
}

/// The weights of a row before its first push: a function of (table seed, key) only.
///
/// ```
/// use gannet_core::{Init, Schema};
/// use gannet_optim::{AdaGrad, Rule};
///
/// let rule = Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 });
/// let init = Init::Normal { mean: 0.0, deviation: 0.01 };
/// let schema = Schema { dim: 16, init, seed: 42, ..Schema::scalar("users", rule) };
/// let mut weights = [0.0; 16];
/// schema.initial_weights(7, &mut weights);
/// assert!(weights.iter().all(|weight| weight.abs() < 0.1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All zero.
    Zero,
    /// Uniform in `[low, high)`.
    Uniform {
        /// Lowest value.
        low: f32,
        /// Upper bound, not included.
        high: f32,
    },
    /// Normal with this mean and standard deviation.
    Normal {
        /// Mean.
        mean: f32,
        /// Standard deviation.
        deviation: f32,
    },
}

impl Init {
    /// A bound on the magnitude of initial values.
    pub(crate) fn largest(self) -> f32 {
        match self {
            Init::Zero => 0.0,
            Init::Uniform { low, high } => low.abs().max(high.abs()),
            // `normal` is at most sqrt(2 ln(2^32 + 1)), which is 6.7.
            Init::Normal { mean, deviation } => mean.abs() + 6.7 * deviation,
        }
    }
}

/// Writes the initial weights of `key` into `out`: one row of `out.len()` weights.
///
/// ```
/// use gannet_core::{Init, initial_weights};
///
/// let mut weights = [9.0; 4];
/// initial_weights(Init::Uniform { low: -1.0, high: 1.0 }, 42, 7, &mut weights);
/// assert!(weights.iter().all(|weight| (-1.0..1.0).contains(weight)));
/// ```
pub fn initial_weights(init: Init, seed: u64, key: u64, out: &mut [f32]) {
    match init {
        Init::Zero => out.fill(0.0),
        Init::Uniform { low, high } => {
            let base = mix(seed ^ mix(key));
            for (i, w) in out.iter_mut().enumerate() {
                *w = low + (high - low) * unit(mix(base ^ i as u64));
            }
        }
        Init::Normal { mean, deviation } => {
            let base = mix(seed ^ mix(key));
            for (i, w) in out.iter_mut().enumerate() {
                *w = mean + deviation * normal(mix(base ^ i as u64));
            }
        }
    }
}

/// 24 random bits as a float in [0, 1).
fn unit(bits: u64) -> f32 {
    (bits >> 40) as f32 * (1.0 / (1 << 24) as f32)
}

/// One value of the pair of Box and Muller (1958), computed in f64 and rounded.
fn normal(bits: u64) -> f32 {
    let u = ((bits >> 32) as f64 + 1.0) / 4_294_967_297.0; // (0, 1): the logarithm is finite
    let v = (bits as u32) as f64 / 4_294_967_296.0;
    ((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_determinism() {
        let mut row = vec![0.0; 100_000];
        initial_weights(Init::Normal { mean: 1.0, deviation: 0.5 }, 7, 42, &mut row);
        let n = row.len() as f64;
        let mean = row.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
        let variance = row.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n;
        assert!((mean - 1.0).abs() < 0.01 && (variance - 0.25).abs() < 0.01, "{mean} {variance}");
        initial_weights(Init::Uniform { low: -1.0, high: 3.0 }, 7, 42, &mut row);
        let mean = row.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
        assert!((mean - 1.0).abs() < 0.02 && row.iter().all(|x| (-1.0..3.0).contains(x)));
        let (mut a, mut b, mut c) = ([0.0; 4], [0.0; 4], [0.0; 4]);
        let init = Init::Uniform { low: 0.0, high: 1.0 };
        initial_weights(init, 1, 5, &mut a);
        initial_weights(init, 1, 5, &mut b);
        initial_weights(init, 1, 6, &mut c);
        assert_eq!(a, b);
        assert_ne!(a, c);
    }
}

//! Sums of log losses, with one logarithm for many examples.

use gannet_optim::lbfgs::Sum;

/// Below this the series of ln(1 + e) to its fifth power is exact to an f64's last bit. Above it, rounding 1 + e loses
/// less than 2^-43 of the logarithm.
const SMALL: f64 = 1.0 / 1024.0;
/// The most factors of a product. Each is at most 2, so the product stays in the range of f64.
const FACTORS_MAX: u32 = 512;

/// A sum of log losses. The loss at a margin m is `max(m, 0) - m label + ln(1 + e)` with `e = exp(-|m|)`. The logarithm
/// of a product is the sum of logarithms, so the factors `1 + e` of examples with one importance are multiplied first.
#[derive(Debug)]
pub struct LogLosses {
    sum: Sum,
    product: f64,
    factors: u32,
    importance: f64,
}

impl Default for LogLosses {
    fn default() -> LogLosses {
        LogLosses { sum: Sum::default(), product: 1.0, factors: 0, importance: 1.0 }
    }
}

impl LogLosses {
    /// Adds the loss of an example at a margin, times its importance. `label` is 0 or 1. Returns the loss's derivative
    /// in the margin, without importance.
    #[inline(always)]
    pub fn add(&mut self, margin: f64, label: f64, importance: f64) -> f64 {
        let e = (-margin.abs()).exp();
        let inverse = 1.0 / (1.0 + e);
        let probability = if margin >= 0.0 { inverse } else { e * inverse };
        let series = e * (1.0 - e * (1.0 / 2.0 - e * (1.0 / 3.0 - e * (1.0 / 4.0 - e * (1.0 / 5.0)))));
        let (series, factor) = if e < SMALL { (series, 1.0) } else { (0.0, 1.0 + e) };
        if self.factors == FACTORS_MAX || importance != self.importance {
            self.flush(importance);
        }
        self.product *= factor;
        self.factors += 1;
        self.sum.add(importance * (margin.max(0.0) - margin * label + series));
        probability - label
    }

    #[inline(never)]
    fn flush(&mut self, importance: f64) {
        self.sum.add(self.importance * self.product.ln());
        (self.product, self.factors, self.importance) = (1.0, 0, importance);
    }

    /// The sum.
    pub fn value(mut self) -> f64 {
        self.flush(1.0);
        self.sum.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a logarithm for each example: margins near 0 and far from it, runs of one importance.
        #[test]
        fn like_one_logarithm_for_each_example(
            examples in prop::collection::vec((-40.0f64..40.0, any::<bool>(), 1u8..3), 1..30), repeat in 1usize..80,
        ) {
            let (mut sum, mut want) = (LogLosses::default(), Sum::default());
            for (margin, label, importance) in examples {
                let (label, importance) = (f64::from(u8::from(label)), f64::from(importance));
                for _ in 0..repeat {
                    let slope = sum.add(margin, label, importance);
                    let sigmoid = 1.0 / (1.0 + (-margin).exp());
                    prop_assert!((slope - (sigmoid - label)).abs() <= 1e-15);
                    let signed = if label == 1.0 { margin } else { -margin };
                    want.add(importance * ((-signed).max(0.0) + (-signed.abs()).exp().ln_1p()));
                }
            }
            let (sum, want) = (sum.value(), want.value());
            prop_assert!((sum - want).abs() <= 1e-12 * want, "{sum} {want}");
        }
    }

    #[test]
    fn what_is_not_finite_shows() {
        let mut sum = LogLosses::default();
        sum.add(f64::NAN, 1.0, 1.0);
        sum.add(1.0, 1.0, 1.0);
        assert!(sum.value().is_nan());
    }
}

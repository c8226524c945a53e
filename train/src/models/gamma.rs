//! The logarithm of the gamma function, for the likelihoods of topic models.

/// ln of the gamma function for x > 0, to about 1e-13 relative. From 10 on it uses Stirling's series (Abramowitz and
/// Stegun, 6.1.41), below 10 first the recurrence gamma(x + 1) = x gamma(x).
pub(crate) fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut product) = (x, 1.0);
    while x < 10.0 {
        product *= x;
        x += 1.0;
    }
    let y = 1.0 / (x * x);
    let series = 1.0 / 12.0 - y * (1.0 / 360.0 - y * (1.0 / 1260.0 - y * (1.0 / 1680.0 - y / 1188.0)));
    (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series / x - f64::ln(product)
}

#[cfg(test)]
mod tests {
    use super::ln_gamma;

    #[test]
    fn like_factorials_and_halves() {
        let mut factorial = 0.0f64;
        for n in 1..200 {
            assert!((ln_gamma(f64::from(n)) - factorial).abs() <= 1e-12 * factorial.max(1.0), "{n}");
            factorial += f64::from(n).ln();
        }
        // gamma(1/2) is the square root of pi; gamma(1/100) by Wolfram's tables.
        assert!((ln_gamma(0.5) - std::f64::consts::PI.ln() / 2.0).abs() < 1e-13);
        assert!((ln_gamma(0.01) - 4.599_479_878_042_022).abs() < 1e-12);
    }
}

//! Values of a column: how two floats store an f64, and OWL-QN's two maps.

/// Splits an f64 into a sum of two floats. It keeps at least 48 bits, in the range of f32.
#[inline(always)]
pub fn split(value: f64) -> [f32; 2] {
    let high = value as f32;
    [high, (value - f64::from(high)) as f32]
}

/// Joins two floats that [`split`] made. Splitting the result again gives the same two floats.
#[inline(always)]
pub fn join(pair: [f32; 2]) -> f64 {
    f64::from(pair[0]) + f64::from(pair[1])
}

/// Adds to the sum of a pass. `sum` holds the number of its pass and the sum so far, each in two floats. Numbers of
/// passes are below 2^48. A newer pass starts the sum anew; a value of an older pass is dropped.
#[inline(always)]
pub fn add_to_pass(sum: &mut [f32; 4], pass: u64, value: [f32; 2]) {
    let of = join([sum[0], sum[1]]) as u64;
    if pass < of {
        return;
    }
    let before = if pass == of { join([sum[2], sum[3]]) } else { 0.0 };
    let ([a, b], [c, d]) = (split(pass as f64), split(before + join(value)));
    *sum = [a, b, c, d];
}

/// The pseudo-gradient of `loss + l1 * |w|_1` (Andrew and Gao, equation 4) from the gradient of the loss.
#[inline(always)]
pub fn pseudo_gradient(gradient: f64, weight: f64, l1: f64) -> f64 {
    if weight > 0.0 || weight == 0.0 && gradient + l1 < 0.0 {
        gradient + l1
    } else if weight < 0.0 || gradient - l1 > 0.0 {
        gradient - l1
    } else {
        0.0
    }
}

/// The point `weight + step`, or 0 if it has left the orthant. The orthant is that of the weight, or of steepest
/// descent where the weight is 0.
#[inline(always)]
pub fn project(weight: f64, step: f64, slope: f64) -> f64 {
    let orthant = if weight != 0.0 { weight } else { -slope };
    let point = weight + step;
    if point * orthant > 0.0 { point } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn two_floats_keep_48_bits_and_are_stable(mantissa in -1.0f64..1.0, exponent in -60i32..60) {
            let value = mantissa * f64::from(exponent).exp2();
            let kept = join(split(value));
            prop_assert!((kept - value).abs() <= value.abs() * 2f64.powi(-48));
            prop_assert_eq!(split(kept), split(join(split(kept))));
            prop_assert_eq!(join(split(-kept)), -kept);
        }

        #[test]
        fn a_pass_sums_what_is_its_own(pushes in prop::collection::vec((1u64..5, -9i32..9), 0..40), high in 0u64..1 << 47) {
            let (mut sum, mut model) = ([0.0; 4], (0, 0.0));
            for (pass, value) in pushes {
                let (pass, value) = (high + pass, f64::from(value));
                add_to_pass(&mut sum, pass, split(value));
                model = match pass.cmp(&model.0) {
                    std::cmp::Ordering::Less => model,
                    std::cmp::Ordering::Equal => (pass, model.1 + value),
                    std::cmp::Ordering::Greater => (pass, value),
                };
            }
            prop_assert_eq!((join([sum[0], sum[1]]) as u64, join([sum[2], sum[3]])), model);
        }

        /// The pseudo-gradient is the one-sided slope of steepest descent. The test computes it by finite differences.
        #[test]
        fn the_pseudo_gradient_is_the_slope_downhill(g in -2.0f64..2.0, w in prop_oneof![Just(0.0), -2.0f64..2.0], l1 in 0.0f64..1.5) {
            let h = 1e-7;
            let f = |x: f64| g * x + l1 * x.abs();
            let (right, left) = ((f(w + h) - f(w)) / h, (f(w) - f(w - h)) / h);
            let slope = pseudo_gradient(g, w, l1);
            let want = if right < 0.0 { right } else if left > 0.0 { left } else { 0.0 };
            prop_assume!(w == 0.0 || w.abs() > 1e-6);
            prop_assert!((slope - want).abs() < 1e-6, "{slope} {want}");
        }
    }

    #[test]
    fn a_step_stays_in_its_orthant() {
        assert_eq!(project(1.0, -0.5, 3.0), 0.5);
        assert_eq!(project(1.0, -1.5, 3.0), 0.0);
        assert_eq!(project(0.0, -1.5, 3.0), -1.5);
        assert_eq!(project(0.0, 1.5, 3.0), 0.0);
        assert_eq!(project(0.0, 1.5, 0.0), 0.0);
    }
}

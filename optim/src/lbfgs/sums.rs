//! Sums in f64 with a fixed order, whose error does not grow with their length.

/// A compensated sum: it keeps what each addition rounds away (Neumaier 1974).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    sum: f64,
    lost: f64,
}

impl Sum {
    /// Adds a value.
    #[inline(always)]
    pub fn add(&mut self, value: f64) {
        let sum = self.sum + value;
        let (large, small) =
            if self.sum.abs() >= value.abs() { (self.sum, value) } else { (value, self.sum) };
        self.lost += (large - sum) + small;
        self.sum = sum;
    }

    /// The sum so far.
    #[inline(always)]
    pub fn value(&self) -> f64 {
        // After an overflow there is nothing to correct, and infinity minus itself would hide the overflow.
        if self.lost.is_finite() { self.sum + self.lost } else { self.sum }
    }
}

impl FromIterator<f64> for Sum {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Sum {
        let mut sum = Sum::default();
        values.into_iter().for_each(|value| sum.add(value));
        sum
    }
}

/// The number of partial sums, so that a CPU can add several at a time. The order is the same on every CPU.
const LANES: usize = 8;

#[inline(always)]
fn lanes(n: usize, term: impl Fn(usize) -> f64) -> f64 {
    let mut sums = [0.0; LANES];
    let whole = n / LANES * LANES;
    for i in (0..whole).step_by(LANES) {
        for (lane, sum) in sums.iter_mut().enumerate() {
            *sum += term(i + lane);
        }
    }
    for i in whole..n {
        sums[i - whole] += term(i);
    }
    let [a, b, c, d, e, f, g, h] = sums;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// The dot product of two short columns. A caller adds the results of blocks with a [`Sum`].
///
/// # Panics
/// When the lengths differ.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "columns of one length");
    lanes(a.len(), |i| a[i] * b[i])
}

/// The sum of absolute values of a short column.
pub fn norm1(a: &[f64]) -> f64 {
    lanes(a.len(), |i| a[i].abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_terms_beside_a_large_one_are_not_lost() {
        let terms = std::iter::once(1e16).chain(std::iter::repeat_n(1.0, 1000)).chain([-1e16]);
        assert_eq!(terms.collect::<Sum>().value(), 1000.0);
        let mut over = Sum::default();
        over.add(f64::INFINITY);
        over.add(1.0);
        assert_eq!(over.value(), f64::INFINITY);
    }

    proptest! {
        #[test]
        fn like_plain_sums(a in prop::collection::vec(-100i32..100, 0..70)) {
            let a: Vec<f64> = a.into_iter().map(f64::from).collect();
            let b: Vec<f64> = a.iter().rev().copied().collect();
            // The values are integers, so every order is exact.
            prop_assert_eq!(dot(&a, &b), a.iter().zip(&b).map(|(x, y)| x * y).sum::<f64>());
            prop_assert_eq!(norm1(&a), a.iter().map(|x| x.abs()).sum::<f64>());
            prop_assert_eq!(a.iter().copied().collect::<Sum>().value(), a.iter().sum::<f64>());
        }
    }
}

//! The two-loop recursion on coefficients. Every vector in it is a combination of the pairs and the gradient, so it
//! needs only their dot products (Chen et al. 2014).

/// Dot products of the vectors `s_0 .. s_(m-1)`, `y_0 .. y_(m-1)`, `g`: a symmetric matrix of `2 m + 1` rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Gram {
    pairs: usize,
    dots: Vec<f64>,
}

impl Gram {
    /// A matrix of zeros for `pairs` pairs.
    pub fn new(pairs: usize) -> Gram {
        let side = 2 * pairs + 1;
        Gram { pairs, dots: vec![0.0; side * side] }
    }

    /// The number of vectors.
    pub fn side(&self) -> usize {
        2 * self.pairs + 1
    }

    /// The index of `s` of a pair.
    pub fn s(&self, pair: usize) -> usize {
        pair
    }

    /// The index of `y` of a pair.
    pub fn y(&self, pair: usize) -> usize {
        self.pairs + pair
    }

    /// The index of the gradient.
    pub fn g(&self) -> usize {
        2 * self.pairs
    }

    /// The dot product of two of the vectors.
    ///
    /// # Panics
    /// When an index is out of range.
    pub fn get(&self, a: usize, b: usize) -> f64 {
        self.dots[a * self.side() + b]
    }

    /// Sets the dot product of two of the vectors, in both places of the symmetric matrix.
    ///
    /// # Panics
    /// When an index is out of range.
    pub fn set(&mut self, a: usize, b: usize, dot: f64) {
        let side = self.side();
        self.dots[a * side + b] = dot;
        self.dots[b * side + a] = dot;
    }

    /// The dot product of one of the vectors with a combination of them.
    fn with(&self, a: usize, coefficients: &[f64]) -> f64 {
        let row = &self.dots[a * self.side()..][..self.side()];
        row.iter().zip(coefficients).map(|(dot, x)| dot * x).sum()
    }
}

/// `- H g` as coefficients of the vectors, in the order of [`Gram`]. `order` names the pairs to use, the oldest first;
/// `s y` of each must be positive. Without pairs the result is `- g`.
pub fn direction(gram: &Gram, order: &[usize]) -> Vec<f64> {
    let mut p = vec![0.0; gram.side()];
    p[gram.g()] = -1.0;
    let mut alphas = vec![0.0; order.len()];
    for (alpha, &i) in alphas.iter_mut().zip(order).rev() {
        *alpha = gram.with(gram.s(i), &p) / gram.get(gram.s(i), gram.y(i));
        p[gram.y(i)] -= *alpha;
    }
    if let Some(&newest) = order.last() {
        let (s, y) = (gram.s(newest), gram.y(newest));
        let scale = gram.get(s, y) / gram.get(y, y);
        p.iter_mut().for_each(|x| *x *= scale);
    }
    for (alpha, &i) in alphas.iter().zip(order) {
        let beta = gram.with(gram.y(i), &p) / gram.get(gram.s(i), gram.y(i));
        p[gram.s(i)] += alpha - beta;
    }
    p
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn dot(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(x, y)| x * y).sum()
    }

    /// `- H g` with H as a full matrix: BFGS's own update (Nocedal and Wright, 7.16), oldest pair first.
    fn dense(pairs: &[(Vec<f64>, Vec<f64>)], g: &[f64]) -> Vec<f64> {
        let n = g.len();
        let last = pairs.last();
        let scale = last.map_or(1.0, |(s, y)| dot(s, y) / dot(y, y));
        let mut h: Vec<Vec<f64>> =
            (0..n).map(|i| (0..n).map(|j| if i == j { scale } else { 0.0 }).collect()).collect();
        for (s, y) in pairs {
            let rho = 1.0 / dot(s, y);
            // V = I - rho y s'; H = V' H V + rho s s'.
            let v = |i: usize, j: usize| f64::from(u8::from(i == j)) - rho * y[i] * s[j];
            let hv: Vec<Vec<f64>> =
                (0..n).map(|i| (0..n).map(|j| (0..n).map(|k| h[i][k] * v(k, j)).sum()).collect()).collect();
            h = (0..n)
                .map(|i| {
                    (0..n)
                        .map(|j| (0..n).map(|k| v(k, i) * hv[k][j]).sum::<f64>() + rho * s[i] * s[j])
                        .collect()
                })
                .collect();
        }
        h.iter().map(|row| -dot(row, g)).collect()
    }

    proptest! {
        #[test]
        fn like_the_dense_update(
            seed in prop::collection::vec(-1.0f64..1.0, 6 * 9), pairs in 0usize..4, start in 0usize..4,
        ) {
            let n = 6;
            let vectors: Vec<&[f64]> = seed.chunks_exact(n).collect();
            // y = A s with A = 2 + diagonal: s y is positive.
            let slots = 4;
            let made: Vec<(Vec<f64>, Vec<f64>)> = (0..pairs)
                .map(|i| {
                    let s: Vec<f64> = vectors[i].iter().map(|x| x + 0.1).collect();
                    let y = s.iter().enumerate().map(|(k, x)| x * (2.0 + k as f64)).collect();
                    (s, y)
                })
                .collect();
            let g = vectors[8];
            // A ring, as in a table.
            let order: Vec<usize> = (0..pairs).map(|i| (start + i) % slots).collect();
            let mut gram = Gram::new(slots);
            let mut basis: Vec<(usize, &[f64])> = vec![(gram.g(), g)];
            for (&at, (s, y)) in order.iter().zip(&made) {
                basis.push((gram.s(at), s));
                basis.push((gram.y(at), y));
            }
            for (i, a) in &basis {
                for (j, b) in &basis {
                    gram.set(*i, *j, dot(a, b));
                }
            }
            let p = direction(&gram, &order);
            let mut got = vec![0.0; n];
            for (at, column) in &basis {
                got.iter_mut().zip(*column).for_each(|(x, b)| *x += p[*at] * b);
            }
            for (x, want) in got.iter().zip(dense(&made, g)) {
                prop_assert!((x - want).abs() <= 1e-9 * want.abs().max(1.0), "{got:?}");
            }
        }
    }
}

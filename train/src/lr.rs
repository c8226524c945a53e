//! Logistic regression, one example at a time: predict, then step along the gradient of the log loss. Sixteen features
//! a step, for each of the rules; the formulas are those of optim, coordinate by coordinate, and give the same bits.

use crate::metrics::sigmoid;
use gannet_node::optim::{AdaGrad, Ftrl, Sgd};

/// Features that are handled together.
const LANES: usize = 16;

/// A rule as the replay sees it: one coordinate, `P` planes.
pub(crate) trait Learner<const P: usize>: Copy {
    /// The weight of a row.
    fn weight(&self, row: [f32; P]) -> f32;
    /// The row after gradient `g`; `w` is its weight before.
    fn step(&self, row: [f32; P], w: f32, g: f32) -> [f32; P];
}

impl Learner<2> for Ftrl {
    #[inline(always)]
    fn weight(&self, [z, n]: [f32; 2]) -> f32 {
        Ftrl::weight(self, z, n.sqrt())
    }

    #[inline(always)]
    fn step(&self, [z, n]: [f32; 2], w: f32, g: f32) -> [f32; 2] {
        let (z, n) = Ftrl::step(self, z, n, w, g);
        [z, n]
    }
}

impl Learner<1> for Sgd {
    #[inline(always)]
    fn weight(&self, [w]: [f32; 1]) -> f32 {
        w
    }

    #[inline(always)]
    fn step(&self, [w]: [f32; 1], _: f32, g: f32) -> [f32; 1] {
        [w - self.lr * g]
    }
}

impl Learner<2> for AdaGrad {
    #[inline(always)]
    fn weight(&self, [w, _]: [f32; 2]) -> f32 {
        w
    }

    #[inline(always)]
    fn step(&self, [w, s]: [f32; 2], _: f32, g: f32) -> [f32; 2] {
        let s = s + g * g;
        [w - self.lr * g / (s.sqrt() + self.eps), s]
    }
}

/// Lanes of one example, kept between examples.
pub(crate) struct Scratch<const P: usize> {
    x: Vec<[f32; LANES]>,
    w: Vec<[f32; LANES]>,
    planes: Vec<[[f32; LANES]; P]>,
}

impl<const P: usize> Scratch<P> {
    pub(crate) fn new() -> Self {
        Scratch { x: Vec::new(), w: Vec::new(), planes: Vec::new() }
    }

    /// Predicts and learns one example; returns its margin before. `local` and `values` are the example's features, no
    /// row of `rows` twice.
    #[inline(always)]
    pub(crate) fn example<L: Learner<P>>(
        &mut self,
        rule: L,
        label: f32,
        local: &[u32],
        values: &[f32],
        rows: &mut [[f32; P]],
    ) -> f32 {
        let groups = local.len().div_ceil(LANES);
        if groups > self.x.len() {
            self.x.resize(groups, [0.0; LANES]);
            self.w.resize(groups, [0.0; LANES]);
            self.planes.resize(groups, [[0.0; LANES]; P]);
        }
        let (x, w, planes) = (&mut self.x[..groups], &mut self.w[..groups], &mut self.planes[..groups]);
        let mut sums = [0.0f32; LANES];
        let features = local.chunks(LANES).zip(values.chunks(LANES));
        for (((local, values), (x, w)), planes) in features.zip(x.iter_mut().zip(&mut *w)).zip(&mut *planes) {
            if local.len() < LANES {
                // Lanes without a feature: a zero row and x = 0, whose gradient is 0.
                *x = [0.0; LANES];
                *planes = [[0.0; LANES]; P];
            }
            x[..values.len()].copy_from_slice(values);
            for (lane, &at) in local.iter().enumerate() {
                let row = rows[at as usize];
                for p in 0..P {
                    planes[p][lane] = row[p];
                }
            }
            for lane in 0..LANES {
                w[lane] = rule.weight(std::array::from_fn(|p| planes[p][lane]));
                sums[lane] += w[lane] * x[lane];
            }
        }
        let margin = total(sums);
        let error = sigmoid(margin) - label;
        for ((local, planes), (x, w)) in local.chunks(LANES).zip(planes).zip(x.iter().zip(&*w)) {
            for lane in 0..LANES {
                let row = rule.step(std::array::from_fn(|p| planes[p][lane]), w[lane], error * x[lane]);
                for p in 0..P {
                    planes[p][lane] = row[p];
                }
            }
            for (lane, &at) in local.iter().enumerate() {
                rows[at as usize] = std::array::from_fn(|p| planes[p][lane]);
            }
        }
        margin
    }
}

/// The sum of the lanes, by halves.
#[inline(always)]
fn total(mut sums: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            sums[lane] += sums[lane + half];
        }
        half /= 2;
    }
    sums[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_node::optim::Update;
    use proptest::prelude::*;

    /// One coordinate by the learner and by optim: the same bits.
    fn same<const P: usize, L: Learner<P> + Update>(rule: L, gradients: &[f32]) {
        let mut theirs = vec![0.0; P];
        Update::init(&rule, &[0.0], &mut theirs);
        let mut ours: [f32; P] = theirs.clone().try_into().unwrap();
        for &g in gradients {
            let mut weight = [0.0];
            Update::weights(&rule, &theirs, &mut weight);
            assert_eq!(rule.weight(ours).to_bits(), weight[0].to_bits());
            ours = rule.step(ours, weight[0], g);
            Update::update(&rule, &mut theirs, &[g]);
            assert_eq!(
                ours.map(f32::to_bits)[..],
                theirs.iter().map(|v| v.to_bits()).collect::<Vec<_>>()[..]
            );
        }
    }

    proptest! {
        #[test]
        fn the_rules_are_those_of_optim(gradients in prop::collection::vec(-2.0f32..2.0, 1..50), l1 in 0.0f32..1.0) {
            same(Ftrl { alpha: 0.1, beta: 1.0, l1, l2: 0.3 }, &gradients);
            same(Sgd { lr: 0.05 }, &gradients);
            same(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 }, &gradients);
        }
    }
}

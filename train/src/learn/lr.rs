//! Logistic regression, one example at a time: predict, then step along the gradient of the log loss. It handles
//! sixteen features at once, for each rule. The formulas are those of the crate optim and give the same bits.

use crate::learn::metrics::sigmoid;
use crate::read::block::Block;
use gannet_optim::{AdaGrad, Ftrl, GroupFtrl, Sgd, Update};

/// Features that are handled together.
pub(crate) const LANES: usize = 16;

/// A rule as replay runs it: one coordinate whose row has `P` floats.
pub(crate) trait ReplayRule<const P: usize>: Copy {
    /// The weight of a row.
    fn weight(&self, row: [f32; P]) -> f32;
    /// The row after gradient `g`. `w` is the weight of the row before.
    fn step(&self, row: [f32; P], w: f32, g: f32) -> [f32; P];
}

// The rules of FTRL have no branch for free rows: the lanes of an example are computed together.

impl ReplayRule<2> for Ftrl {
    #[inline(always)]
    fn weight(&self, [z, n]: [f32; 2]) -> f32 {
        let unless_free = |penalty: f32| if n < 0.0 { 0.0 } else { penalty };
        let (l1, l2) = (unless_free(self.l1), unless_free(self.l2));
        Ftrl::weight(&Ftrl { l1, l2, ..*self }, z, n.abs().sqrt())
    }

    #[inline(always)]
    fn step(&self, [z, n]: [f32; 2], w: f32, g: f32) -> [f32; 2] {
        let (z, next) = Ftrl::step(self, z, n.abs(), w, g);
        [z, next.copysign(n)]
    }
}

/// [`Ftrl`] without penalties, and so without free rows.
#[derive(Clone, Copy)]
pub(crate) struct PlainFtrl(pub Ftrl);

impl ReplayRule<2> for PlainFtrl {
    #[inline(always)]
    fn weight(&self, [z, n]: [f32; 2]) -> f32 {
        self.0.without_penalty().weight(z, n.sqrt())
    }

    #[inline(always)]
    fn step(&self, [z, n]: [f32; 2], w: f32, g: f32) -> [f32; 2] {
        let (z, n) = Ftrl::step(&self.0, z, n, w, g);
        [z, n]
    }
}

impl ReplayRule<2> for GroupFtrl {
    #[inline(always)]
    fn weight(&self, [z, n]: [f32; 2]) -> f32 {
        let mut weight = [0.0];
        self.weights(&[z, n.abs()], &mut weight);
        let free = self.ftrl().without_penalty().weight(z, n.abs().sqrt());
        if n < 0.0 { free } else { weight[0] }
    }

    #[inline(always)]
    fn step(&self, row: [f32; 2], w: f32, g: f32) -> [f32; 2] {
        ReplayRule::step(&self.ftrl(), row, w, g)
    }
}

impl ReplayRule<1> for Sgd {
    #[inline(always)]
    fn weight(&self, [w]: [f32; 1]) -> f32 {
        w
    }

    #[inline(always)]
    fn step(&self, [w]: [f32; 1], _: f32, g: f32) -> [f32; 1] {
        [w - self.lr * g]
    }
}

impl ReplayRule<2> for AdaGrad {
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

/// Rows of a table by their places.
pub(crate) trait RowPlaces<const P: usize> {
    /// The row at a place.
    fn row(&self, at: u32) -> [f32; P];
    /// Replaces it.
    fn set(&mut self, at: u32, row: [f32; P]);
}

impl<const P: usize> RowPlaces<P> for [[f32; P]] {
    #[inline(always)]
    fn row(&self, at: u32) -> [f32; P] {
        self[at as usize]
    }

    #[inline(always)]
    fn set(&mut self, at: u32, row: [f32; P]) {
        self[at as usize] = row;
    }
}

/// What an example says besides its features.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExampleTarget {
    pub label: f32,
    pub importance: f32,
    /// The margin without features.
    pub base: f32,
}

impl ExampleTarget {
    /// That of example `i`.
    #[inline(always)]
    pub(crate) fn of(block: &Block, i: usize) -> ExampleTarget {
        ExampleTarget { label: block.labels[i], importance: block.importance(i), base: block.base(i) }
    }
}

/// Buffers for the lanes of one example, reused for the next.
pub(crate) struct ExampleLanes<const P: usize> {
    x: Vec<[f32; LANES]>,
    w: Vec<[f32; LANES]>,
    planes: Vec<[[f32; LANES]; P]>,
    /// Rows left unchanged because their new values were NaN or infinite.
    pub not_finite: u64,
}

impl<const P: usize> ExampleLanes<P> {
    pub(crate) fn new() -> Self {
        ExampleLanes { x: Vec::new(), w: Vec::new(), planes: Vec::new(), not_finite: 0 }
    }

    /// Predicts and learns one example, and returns the margin that it predicted before. `places` and `values` are
    /// the example's features, no place twice. The gradient counts as often as the importance says, as in `vw --ftrl`.
    #[inline(always)]
    pub(crate) fn example<L: ReplayRule<P>, R: RowPlaces<P> + ?Sized>(
        &mut self,
        rule: L,
        target: ExampleTarget,
        places: &[u32],
        values: &[f32],
        rows: &mut R,
    ) -> f32 {
        let margin = self.predict(rule, places, values, rows) + target.base;
        self.step(rule, (sigmoid(margin) - target.label) * target.importance, places, rows);
        margin
    }

    #[inline(always)]
    fn predict<L: ReplayRule<P>, R: RowPlaces<P> + ?Sized>(
        &mut self,
        rule: L,
        places: &[u32],
        values: &[f32],
        rows: &R,
    ) -> f32 {
        let groups = places.len().div_ceil(LANES);
        if groups > self.x.len() {
            self.x.resize(groups, [0.0; LANES]);
            self.w.resize(groups, [0.0; LANES]);
            self.planes.resize(groups, [[0.0; LANES]; P]);
        }
        let mut sums = [0.0f32; LANES];
        let features = places.chunks(LANES).zip(values.chunks(LANES));
        let lanes = self.x.iter_mut().zip(&mut self.w).zip(&mut self.planes);
        for ((places, values), ((x, w), planes)) in features.zip(lanes) {
            if places.len() < LANES {
                // Lanes without a feature get a zero row and x = 0, so that their gradient is 0.
                *x = [0.0; LANES];
                *planes = [[0.0; LANES]; P];
            }
            x[..values.len()].copy_from_slice(values);
            for (lane, &at) in places.iter().enumerate() {
                let row = rows.row(at);
                for p in 0..P {
                    planes[p][lane] = row[p];
                }
            }
            for lane in 0..LANES {
                w[lane] = rule.weight(std::array::from_fn(|p| planes[p][lane]));
                sums[lane] += w[lane] * x[lane];
            }
        }
        total(sums)
    }

    /// Steps the rows that [`predict`](Self::predict) has read. `error` is prediction - label, times the importance.
    #[inline(always)]
    fn step<L: ReplayRule<P>, R: RowPlaces<P> + ?Sized>(
        &mut self,
        rule: L,
        error: f32,
        places: &[u32],
        rows: &mut R,
    ) {
        let groups = places.len().div_ceil(LANES);
        let (x, w, planes) = (&self.x[..groups], &self.w[..groups], &mut self.planes[..groups]);
        // Stays 0 while every new value is finite.
        let mut sound = [0.0f32; LANES];
        for ((x, w), planes) in x.iter().zip(w).zip(&mut *planes) {
            for lane in 0..LANES {
                let row = rule.step(std::array::from_fn(|p| planes[p][lane]), w[lane], error * x[lane]);
                for p in 0..P {
                    planes[p][lane] = row[p];
                    sound[lane] += row[p] * 0.0;
                }
            }
        }
        let all_finite = total(sound) == 0.0;
        for (places, planes) in places.chunks(LANES).zip(&*planes) {
            for (lane, &at) in places.iter().enumerate() {
                let row: [f32; P] = std::array::from_fn(|p| planes[p][lane]);
                if all_finite || row.iter().all(|v| v.is_finite()) {
                    rows.set(at, row);
                } else {
                    self.not_finite += 1;
                }
            }
        }
    }
}

/// The sum of the lanes, added by halves.
#[inline(always)]
pub(crate) fn total(mut sums: [f32; LANES]) -> f32 {
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
    use proptest::prelude::*;

    /// Steps one coordinate with the learner and with optim: both give the same bits.
    fn same<const P: usize, L: ReplayRule<P> + Update>(rule: L, gradients: &[f32]) {
        same_as(rule, rule, gradients);
    }

    fn same_as<const P: usize, L: ReplayRule<P>, U: Update>(ours: L, theirs: U, gradients: &[f32]) {
        let mut rows = [vec![0.0; P], vec![0.0; P]];
        Update::init(&theirs, &[0.0], &mut rows[0]);
        Update::init_free(&theirs, &[0.0], &mut rows[1]);
        rows.into_iter().for_each(|row| same_from(ours, theirs, row, gradients));
    }

    fn same_from<const P: usize, L: ReplayRule<P>, U: Update>(
        learner: L,
        rule: U,
        mut theirs: Vec<f32>,
        gradients: &[f32],
    ) {
        let mut ours: [f32; P] = theirs.clone().try_into().unwrap();
        for &g in gradients {
            let mut weight = [0.0];
            Update::weights(&rule, &theirs, &mut weight);
            assert_eq!(learner.weight(ours).to_bits(), weight[0].to_bits());
            ours = learner.step(ours, weight[0], g);
            Update::update(&rule, &mut theirs, &[g]);
            assert_eq!(
                ours.map(f32::to_bits)[..],
                theirs.iter().map(|v| v.to_bits()).collect::<Vec<_>>()[..]
            );
        }
    }

    /// AdaGrad with eps 0 divides 0 by 0 in lanes without a feature. Those lanes must not change any row.
    #[test]
    fn rows_that_would_not_be_finite_stay_as_they_were() {
        let mut rows = [[0.5f32], [0.25], [0.125]];
        let mut scratch = ExampleLanes::<1>::new();
        let margin = scratch.example(
            Sgd { lr: 1e30 },
            ExampleTarget { label: 0.0, importance: 1.0, base: 0.0 },
            &[2, 0],
            &[1e20, 1.0],
            &mut rows[..],
        );
        assert!(margin > 1e18 && scratch.not_finite == 1);
        assert_eq!((rows[1], rows[2]), ([0.25], [0.125]));
        assert!(rows[0][0] < -1e29);
        let rule = AdaGrad { lr: 0.1, eps: 0.0, initial_accumulator: 1.0 };
        let (mut rows, mut scratch) = ([[0.0f32, 1.0]; 3], ExampleLanes::<2>::new());
        scratch.example(
            rule,
            ExampleTarget { label: 1.0, importance: 1.0, base: 0.0 },
            &[0, 1],
            &[1.0, 0.0],
            &mut rows[..],
        );
        assert_eq!((rows[1], rows[2], scratch.not_finite), ([0.0, 1.0], [0.0, 1.0], 0));
        assert!(rows[0][0] > 0.0);
    }

    proptest! {
        #[test]
        fn the_rules_are_those_of_optim(gradients in prop::collection::vec(-2.0f32..2.0, 1..50), l1 in 0.0f32..1.0) {
            same(Ftrl { alpha: 0.1, beta: 1.0, l1, l2: 0.3 }, &gradients);
            same(GroupFtrl { alpha: 0.1, beta: 1.0, l1, l2: 0.3, l21: l1 / 2.0 }, &gradients);
            let plain = Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 };
            same_as(PlainFtrl(plain), plain, &gradients);
            same_as(PlainFtrl(plain), GroupFtrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0, l21: 0.0 }, &gradients);
            same(Sgd { lr: 0.05 }, &gradients);
            same(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 }, &gradients);
        }
    }
}

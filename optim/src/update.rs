//! What an update rule does to one row.

use crate::arch::{Isa, Scalar};
use crate::slices::{GradientLanes, none_negative, write_gradient};

/// What a rule does to one row. `dim` is the number of weights of a row.
///
/// Implementations are `#[inline(always)]`: a caller that knows `dim` as a constant gets code for that `dim`. Lengths
/// are asserted once a row, before the first write, so a wrong call changes nothing.
pub trait Update: Copy {
    /// The number of planes of a row. A plane has `dim` floats.
    const PLANES: usize;

    /// Floats that a row has once, after its planes.
    const SCALARS: usize = 0;

    /// Planes that are never negative in rows that are not free, such as sums of squares. They are the last ones.
    /// Scalars are never negative.
    const SQUARES: usize = 0;

    /// Whether the weights are computed from the whole row. Otherwise they are its first plane.
    const DERIVES: bool = false;

    /// Whether a step rounds by [`chance`](Self::with_chance).
    const ROUNDS: bool = false;

    /// Floats of a stored row of `dim` weights: `PLANES * dim + SCALARS`, and fewer where floats hold two weights.
    #[inline(always)]
    fn floats(dim: usize) -> usize {
        Self::PLANES * dim + Self::SCALARS
    }

    /// The rule for one step of one row, with the number that decides how the step is rounded. Rules that do not
    /// [round](Self::ROUNDS) are unchanged.
    #[inline(always)]
    fn with_chance(self, chance: u64) -> Self {
        let _ = chance;
        self
    }

    /// Writes a fresh row with these `weights` (`dim`) into `row` (`floats(dim)`).
    ///
    /// # Panics
    /// When `row.len() != floats(weights.len())`.
    fn init(&self, weights: &[f32], row: &mut [f32]);

    /// [`init`](Self::init) of a free row: the penalties of the rule never act on it. A rule without penalties makes
    /// the row that `init` makes.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    #[inline(always)]
    fn init_free(&self, weights: &[f32], row: &mut [f32]) {
        self.init(weights, row);
    }

    /// Applies `gradient` to `row` (`floats(dim)`) on an instruction set. `gradient` has `dim` floats and is that of
    /// the loss with respect to the weights. Every instruction set gives the same bits. Values that are not finite pass
    /// through by the rules of IEEE 754: see [`all_finite`](crate::all_finite).
    ///
    /// # Panics
    /// When `row.len() != floats(gradient.len())`.
    fn update_on<I: Isa>(&self, isa: I, row: &mut [f32], gradient: &[f32]);

    /// [`update_on`](Self::update_on) with a gradient that is computed from the weights before the step, a register at
    /// a time. `derived` (`dim`) are the row's weights if the rule [derives](Self::DERIVES) them: read first, and
    /// replaced by the new ones. Otherwise it is not used. `scratch` (`dim`) may hold anything.
    ///
    /// # Panics
    /// When `row.len() != floats(scratch.len())`, or `derived` is shorter than `scratch` and the rule derives.
    #[inline(always)]
    fn descend_on<I: Isa, G: GradientLanes<I>>(
        &self,
        isa: I,
        row: &mut [f32],
        derived: &mut [f32],
        gradient: &G,
        scratch: &mut [f32],
    ) {
        let dim = scratch.len();
        if Self::DERIVES {
            write_gradient(isa, &derived[..dim], gradient, scratch);
            self.update_on(isa, row, scratch);
            self.weights_on(isa, row, &mut derived[..dim]);
        } else {
            write_gradient(isa, &row[..dim], gradient, scratch);
            self.update_on(isa, row, scratch);
        }
    }

    /// [`update_on`](Self::update_on) one coordinate at a time: the oracle.
    #[inline(always)]
    fn update(&self, row: &mut [f32], gradient: &[f32]) {
        self.update_on(Scalar, row, gradient);
    }

    /// How many floats from the first on the weights are computed from. [`weights_on`](Self::weights_on) also takes a
    /// row that ends behind them.
    #[inline(always)]
    fn weight_floats(dim: usize) -> usize {
        if Self::DERIVES { Self::floats(dim) } else { dim }
    }

    /// Writes the weights of `row` (`floats(dim)`, or at least [`weight_floats(dim)`](Self::weight_floats)) into `out`
    /// (`dim`): what a pull of weights returns. The default is the first plane.
    ///
    /// # Panics
    /// When `row` is shorter.
    #[inline(always)]
    fn weights_on<I: Isa>(&self, isa: I, row: &[f32], out: &mut [f32]) {
        let _ = isa;
        out.copy_from_slice(&row[..out.len()]);
    }

    /// [`weights_on`](Self::weights_on) one coordinate at a time: the oracle.
    #[inline(always)]
    fn weights(&self, row: &[f32], out: &mut [f32]) {
        self.weights_on(Scalar, row, out);
    }

    /// Whether this rule can have reached the state `row` (`floats(dim)`): sums of squares and scalars are not negative
    /// and not NaN. Whoever calls this also checks that all floats are finite. A change of state from a peer must pass
    /// this check.
    #[inline(always)]
    fn is_sound(&self, row: &[f32]) -> bool {
        let dim = (row.len() - Self::SCALARS) / Self::PLANES;
        none_negative(&row[row.len() - Self::SCALARS - Self::SQUARES * dim..])
    }

    /// [`is_sound`](Self::is_sound) of a row that may be [free](Self::init_free).
    #[inline(always)]
    fn is_sound_free(&self, row: &[f32]) -> bool {
        self.is_sound(row)
    }
}

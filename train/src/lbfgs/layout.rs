//! The columns of the table of vectors, and the programs on them.

use gannet_core::{ColumnSum, Program, ProgramStep, SHARDS_DEFAULT, Schema, Term, Vectors};
use gannet_optim::lbfgs::{Gram, direction};

/// The name of the table of vectors.
pub const TABLE: &str = "lbfgs";
/// The name of the table of cells, which carries the commands.
pub const CELLS_TABLE: &str = "lbfgs.step";

/// The sum of the workers' gradients, which they push.
pub const GRADIENTS: u16 = 0;
/// The direction.
pub const DIRECTION: u16 = 1;
/// The weights. One column has the current weights, and a step writes the next ones into the other.
pub const WEIGHTS: [u16; 2] = [2, 3];
/// The gradient of the smooth part of the objective, at the weights of the same half.
pub const SLOPE: [u16; 2] = [4, 5];
/// OWL-QN's pseudo-gradient.
pub const PSEUDO: u16 = 6;
/// One over an upper bound of each weight's curvature. It replaces the inverse of the Hessian where no pair says
/// more.
pub const PRECONDITIONER: u16 = 7;
/// With L1: the preconditioner on the support, and 0 elsewhere.
pub const SUPPORT_PRECONDITIONER: u16 = 8;
const WIDE: u16 = 8;
/// With L1: 1 where the pseudo-gradient is not 0, and 0 elsewhere. Only these weights move in the next step.
pub const SUPPORT: u16 = 9;
/// The first column of the pairs.
const PAIRS: u16 = 10;

/// The segment of a row with the direction, which workers pull.
pub const DIRECTION_SEGMENT: usize = 1;
/// The segment of a row with both halves of the weights, which workers pull.
pub const WEIGHTS_SEGMENT: usize = 2;

/// The columns of the table of vectors, and the programs on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Pairs that the table keeps. There is one slot more, for the new pair.
    pub history: u16,
}

impl Layout {
    /// The limit of `history`.
    pub const HISTORY_MAX: u16 = 50;

    /// The number of slots for pairs.
    pub fn slots(self) -> usize {
        self.history as usize + 1
    }

    /// The columns of the table.
    pub fn vectors(self) -> Vectors {
        Vectors { wide: WIDE, narrow: PAIRS - 1 - WIDE + 2 * (self.history + 1) }
    }

    /// The schema of the table of vectors.
    pub fn schema(self) -> Schema {
        self.vectors().schema(TABLE, SHARDS_DEFAULT)
    }

    /// The schema of the table of cells. It has one shard, so that one thread owns all cells.
    pub fn cells() -> Schema {
        Vectors { wide: 4, narrow: 0 }.schema(CELLS_TABLE, 1)
    }

    fn s(self, slot: usize) -> u16 {
        PAIRS + slot as u16
    }

    fn y(self, slot: usize) -> u16 {
        self.s(slot) + self.history + 1
    }

    /// The column of a vector of the Gram matrix. `slope` is the column of the gradient.
    fn column(self, gram: &Gram, vector: usize, slope: u16) -> u16 {
        match vector {
            v if v == gram.g() => slope,
            v if v < self.slots() => self.s(v),
            v => self.y(v - self.slots()),
        }
    }
}

/// The penalties of the objective.
#[derive(Clone, Copy, Debug)]
pub struct Penalties {
    pub l1: f64,
    pub l2: f64,
    /// The key without penalties.
    pub free: Option<u64>,
}

impl Penalties {
    fn program(&self, pass: u64, steps: Vec<ProgramStep>, sums: Vec<ColumnSum>) -> Program {
        Program { pass, free: self.free, steps, sums }
    }

    /// The column that the two-loop recursion uses as the gradient.
    pub fn slope(&self, half: usize) -> u16 {
        if self.l1 > 0.0 { PSEUDO } else { SLOPE[half] }
    }

    /// The preconditioner of the next step.
    fn preconditioner(&self) -> u16 {
        if self.l1 > 0.0 { SUPPORT_PRECONDITIONER } else { PRECONDITIONER }
    }

    /// `SLOPE := GRADIENTS + l2 WEIGHTS` at the weights of a half. With L1 also the pseudo-gradient, and its support.
    fn slope_steps(&self, half: usize) -> Vec<ProgramStep> {
        let terms = vec![Term::new(1.0, GRADIENTS), Term::penalised(self.l2, WEIGHTS[half])];
        let mut steps = vec![ProgramStep::Combine { to: SLOPE[half], terms }];
        if self.l1 > 0.0 {
            let (gradient, weights) = (SLOPE[half], WEIGHTS[half]);
            let (to, terms) = (SUPPORT_PRECONDITIONER, vec![Term::new(1.0, PRECONDITIONER)]);
            steps.extend([
                ProgramStep::Slope { to: PSEUDO, gradient, weights, l1: self.l1 },
                ProgramStep::Support { to: SUPPORT, of: PSEUDO },
                ProgramStep::Combine { to, terms },
                ProgramStep::Multiply { to, by: SUPPORT },
            ]);
        }
        steps
    }

    /// `|w|^2` and `|w|_1` of the penalised weights, and the square of the (pseudo-)gradient's length.
    fn norms(&self, half: usize) -> [ColumnSum; 3] {
        let (w, slope) = (WEIGHTS[half], self.slope(half));
        [
            ColumnSum::Dot { a: w, b: w, penalised: true },
            ColumnSum::Norm1 { a: w, penalised: true },
            ColumnSum::Dot { a: slope, b: slope, penalised: false },
        ]
    }
}

/// The slots of the pairs, the oldest first.
pub type PairOrder = [usize];

impl Layout {
    /// Computes the preconditioner from the curvatures that `pass` has summed.
    pub fn precondition(self, pass: u64, p: &Penalties) -> Program {
        let steps = vec![ProgramStep::Reciprocal { to: PRECONDITIONER, of: GRADIENTS, plus: p.l2 }];
        p.program(pass, steps, Vec::new())
    }

    /// The dot products of the vectors `of` of the Gram matrix with all valid vectors, over the weights that may move.
    /// Those of two steps are left out: the recursion does not use them.
    fn dots(
        self,
        gram: &Gram,
        order: &PairOrder,
        of: &[usize],
        half: usize,
        p: &Penalties,
    ) -> (Vec<(usize, usize)>, Vec<ColumnSum>) {
        let mut all = valid(gram, order);
        all.sort_unstable();
        // By the first vector, so that a shard weights it once for all of its products.
        let pairs = all.iter().enumerate().flat_map(|(at, &a)| all[at..].iter().map(move |&b| (a, b)));
        let wanted = |&(a, b): &(usize, usize)| b >= self.slots() && (of.contains(&a) || of.contains(&b));
        let pairs: Vec<(usize, usize)> = pairs.filter(wanted).collect();
        let column = |vector| self.column(gram, vector, p.slope(half));
        let sums = pairs.iter().map(|&(a, b)| {
            // In variables w / sqrt(P) steps shrink as gradients grow, so only a product of two gradients has the
            // factor P. The pseudo-gradient is 0 outside its support, so its products need no restriction.
            let (of_gradients, with_slope) = (a >= self.slots(), b == gram.g());
            let (a, b) = (column(a), column(b));
            match of_gradients {
                true => ColumnSum::Weighted { a, b, by: p.preconditioner() },
                false if p.l1 > 0.0 && !with_slope => ColumnSum::Weighted { a, b, by: SUPPORT },
                false => ColumnSum::Dot { a, b, penalised: false },
            }
        });
        let sums = sums.collect();
        (pairs, sums)
    }

    /// The program for the weights of a half, whose gradients `pass` has summed. It computes the slope there, all dot
    /// products and the weights' norms.
    pub fn gram_program(
        self,
        gram: &Gram,
        order: &PairOrder,
        half: usize,
        pass: u64,
        p: &Penalties,
    ) -> GramProgram {
        let (dots, mut sums) = self.dots(gram, order, &valid(gram, order), half, p);
        sums.extend(p.norms(half));
        GramProgram { program: p.program(pass, p.slope_steps(half), sums), dots }
    }

    /// The program that computes the direction. With L1 only weights on the support move. It then also computes the
    /// point at step 1, in the other half, and the direction leads there. Its sums: slope . direction, w . d and d . d
    /// of the penalised weights, and `|w|_1` at step 1 (with L1).
    pub fn direction_program(self, gram: &Gram, order: &PairOrder, half: usize, p: &Penalties) -> Program {
        let (other, slope) = (1 - half, p.slope(half));
        let (to, weights) = (DIRECTION, WEIGHTS[half]);
        // Combinations of gradients are multiplied by the preconditioner. Combinations of steps are added afterwards.
        let (mut of_gradients, mut of_steps) = (Vec::new(), vec![Term::new(1.0, to)]);
        for (v, x) in direction(gram, order).into_iter().enumerate().filter(|(_, x)| *x != 0.0) {
            let term = Term::new(x, self.column(gram, v, slope));
            if v < self.slots() { of_steps.push(term) } else { of_gradients.push(term) }
        }
        let mut steps = vec![
            ProgramStep::Combine { to, terms: of_gradients },
            ProgramStep::Multiply { to, by: p.preconditioner() },
            ProgramStep::Combine { to, terms: of_steps },
        ];
        let dot = |a, b, penalised| ColumnSum::Dot { a, b, penalised };
        let mut sums = vec![dot(SLOPE[half], to, false), dot(weights, to, true), dot(to, to, true)];
        if p.l1 > 0.0 {
            let point = WEIGHTS[other];
            steps.push(ProgramStep::Multiply { to, by: SUPPORT });
            steps.push(ProgramStep::Project { to: point, weights, step: to, slope });
            let terms = vec![Term::new(1.0, point), Term::new(-1.0, weights)];
            steps.push(ProgramStep::Combine { to, terms });
            sums.push(ColumnSum::Norm1 { a: point, penalised: true });
        }
        p.program(0, steps, sums)
    }

    /// The program that takes a step along the direction. It computes the weights of the other half, the slope there
    /// from the gradients of `pass`, and the step's pair in `slot`. If the pair is valid, `order` has the slot.
    #[allow(clippy::too_many_arguments)] // what a step is made of
    pub fn step_program(
        self,
        gram: &Gram,
        order: &PairOrder,
        slot: usize,
        half: usize,
        step: f64,
        pass: u64,
        p: &Penalties,
    ) -> GramProgram {
        let other = 1 - half;
        let terms = vec![Term::new(1.0, WEIGHTS[half]), Term::new(step, DIRECTION)];
        let mut steps = vec![ProgramStep::Combine { to: WEIGHTS[other], terms }];
        steps.extend(p.slope_steps(other));
        let change = |to, of: [u16; 2]| {
            let terms = vec![Term::new(1.0, of[other]), Term::new(-1.0, of[half])];
            ProgramStep::Combine { to, terms }
        };
        steps.push(change(self.s(slot), WEIGHTS));
        steps.push(change(self.y(slot), SLOPE));
        // With L1 every product is over another support than before.
        let new = [gram.s(slot), gram.y(slot), gram.g()];
        let of = if p.l1 > 0.0 { valid(gram, order) } else { new.to_vec() };
        let (dots, mut sums) = self.dots(gram, order, &of, other, p);
        sums.extend(p.norms(other));
        GramProgram { program: p.program(pass, steps, sums), dots }
    }

    /// Sets the weights of a half to the sums of `pass`, and to 0 where nothing was pushed.
    pub fn begin_from(self, half: usize, pass: u64) -> Program {
        let terms = vec![Term::new(1.0, GRADIENTS)];
        let steps = vec![ProgramStep::Combine { to: WEIGHTS[half], terms }];
        Program { pass, steps, ..Program::default() }
    }
}

/// The vectors of the Gram matrix that hold something.
fn valid(gram: &Gram, order: &PairOrder) -> Vec<usize> {
    order.iter().flat_map(|&slot| [gram.s(slot), gram.y(slot)]).chain([gram.g()]).collect()
}

/// A program whose first sums are the dot products `dots`. The last three sums are the norms.
pub struct GramProgram {
    pub program: Program,
    pub dots: Vec<(usize, usize)>,
}

impl GramProgram {
    /// Writes the dot products into the Gram matrix. Returns the norms.
    pub fn take(&self, gram: &mut Gram, sums: &[f64]) -> Option<[f64; 3]> {
        let (dots, norms) = sums.split_at_checked(self.dots.len())?;
        self.dots.iter().zip(dots).for_each(|(&(a, b), &dot)| gram.set(a, b, dot));
        norms.try_into().ok()
    }
}

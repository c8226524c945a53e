//! SIMD registers as values with safe operations, and which instruction sets this CPU has.
//!
//! There are three levels. The file of each instruction set, and `float16.rs`, hold the unsafe calls. A value of
//! [`Avx2`] or [`Avx512`] can only be made where the CPU has the instructions, and a register can only be made from
//! such a value; so all operations on registers are safe. The rules are generic over the instruction set and do not
//! know which one they use.
//!
//! [`Scalar`] is the oracle. Every operation here is an IEEE 754 operation that rounds once, so every instruction set
//! gives the oracle's bits.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
pub(crate) mod float16;
mod scalar;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;
pub use scalar::Scalar;

use crate::{Rule, Update};
use std::ops::{Add, Div, Mul, Sub};
use std::sync::OnceLock;

/// Sealed: only this crate defines instruction sets.
pub(crate) trait Sealed {}

/// Several coordinates side by side: one float, or one register. A value exists only where the CPU has its
/// instructions.
#[allow(private_bounds)]
pub trait Lanes:
    Sealed + Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// `x` in each lane.
    fn splat(self, x: f32) -> Self;
    /// The correctly rounded square root.
    fn sqrt(self) -> Self;
    /// The absolute value.
    fn abs(self) -> Self;
    /// The magnitude of `self` with the sign of `sign`.
    fn copysign(self, sign: Self) -> Self;
    /// `self` where it is larger, else `other`; also `other` where either is NaN.
    fn larger(self, other: Self) -> Self;
}

/// An instruction set that this CPU has. Holding the value proves it.
#[allow(private_bounds)]
pub trait Isa: Sealed + Copy {
    /// Its register.
    type Lanes: Lanes;
    /// Floats in a register. 16 is a multiple of it.
    const LANES: usize;
    /// `x` in each lane.
    fn splat(self, x: f32) -> Self::Lanes;
    /// Loads up to [`LANES`](Self::LANES) floats. The other lanes are 0.
    fn load(self, from: &[f32]) -> Self::Lanes;
    /// Stores as many lanes as fit into `to`, which is at most [`LANES`](Self::LANES) long.
    fn store(self, lanes: Self::Lanes, to: &mut [f32]);
    /// Runs `work`, compiled for this instruction set. Only the parts that are `#[inline(always)]` are compiled for it.
    fn run<U: Update, W: Work>(self, rule: U, work: W) -> W::Out;
}

/// Work over many rows, compiled once for each rule and instruction set. See [`Rule::work`].
pub trait Work {
    /// What the work returns.
    type Out;
    /// The work. An implementation must be `#[inline(always)]` down to its loop: code that is not inlined is compiled
    /// for the oldest CPU.
    fn run<I: Isa, U: Update>(self, isa: I, rule: U) -> Self::Out;
}

/// One of the instruction sets that rules are compiled for. This CPU has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cpu {
    /// One coordinate at a time.
    Scalar,
    /// Eight coordinates at a time.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// Sixteen coordinates at a time.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

impl Cpu {
    /// The widest instruction set that this CPU has.
    pub fn detect() -> Cpu {
        static WIDEST: OnceLock<Cpu> = OnceLock::new();
        *WIDEST.get_or_init(|| Cpu::all().pop().unwrap_or(Cpu::Scalar))
    }

    /// Every instruction set that this CPU has: the oracle first, then the wider ones.
    pub fn all() -> Vec<Cpu> {
        #[allow(unused_mut)]
        let mut all = vec![Cpu::Scalar];
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(Avx2::new().map(Cpu::Avx2));
            all.extend(Avx512::new().map(Cpu::Avx512));
        }
        all
    }

    /// The fastest instruction set for rows of `dim` weights. No register is partly empty, and rows of eight or fewer
    /// weights do not use registers of sixteen.
    pub fn fit(self, dim: usize) -> Cpu {
        match self {
            Cpu::Scalar => Cpu::Scalar,
            #[cfg(target_arch = "x86_64")]
            _ if dim < Avx2::LANES => Cpu::Scalar,
            #[cfg(target_arch = "x86_64")]
            Cpu::Avx512(isa) if dim < 16 || (1..=8).contains(&(dim % 16)) => Cpu::Avx2(isa.avx2()),
            #[cfg(target_arch = "x86_64")]
            wide => wide,
        }
    }

    /// This instruction set, or AVX2 if it is wider.
    pub(crate) fn at_most_eight(self) -> Cpu {
        match self {
            #[cfg(target_arch = "x86_64")]
            Cpu::Avx512(isa) => Cpu::Avx2(isa.avx2()),
            narrow => narrow,
        }
    }

    /// The name of the instruction set.
    pub fn name(self) -> &'static str {
        match self {
            Cpu::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Cpu::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Cpu::Avx512(_) => "avx512",
        }
    }

    /// Runs `work` with `rule` on this instruction set. Call it once a batch, not once a row.
    #[inline]
    pub fn run<U: Update, W: Work>(self, rule: U, work: W) -> W::Out {
        match self {
            Cpu::Scalar => Scalar.run(rule, work),
            #[cfg(target_arch = "x86_64")]
            Cpu::Avx2(isa) => isa.run(rule, work),
            #[cfg(target_arch = "x86_64")]
            Cpu::Avx512(isa) => isa.run(rule, work),
        }
    }
}

impl Rule {
    /// Runs `work` with the rule and the instruction set as types. Call it once a batch, not once a row.
    #[inline]
    pub fn work<W: Work>(&self, cpu: Cpu, work: W) -> W::Out {
        match *self {
            Rule::Add(r) => cpu.run(r, work),
            Rule::Sgd(r) => cpu.run(r, work),
            Rule::AdaGrad(r) => cpu.run(r, work),
            Rule::Ftrl(r) => cpu.run(r, work),
            Rule::Momentum(r) => cpu.run(r, work),
            Rule::RmsProp(r) => cpu.run(r, work),
            Rule::Adam(r) => cpu.run(r, work),
            Rule::AmsGrad(r) => cpu.run(r, work),
            Rule::RowAdaGrad(r) => cpu.run(r, work),
            Rule::GroupFtrl(r) => cpu.run(r, work),
            Rule::Packed(format, rule) => rule.work(format, cpu, work),
        }
    }
}

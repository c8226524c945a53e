//! What an instruction set offers to a rule: registers, and the operations on them.

use crate::update::Update;
use std::ops::{Add, Div, Mul, Sub};

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

/// Work over many rows, compiled once for each rule and instruction set. See [`crate::Rule::work`].
pub trait Work {
    /// What the work returns.
    type Out;
    /// The work. An implementation must be `#[inline(always)]` down to its loop: code that is not inlined is compiled
    /// for the oldest CPU.
    fn run<I: Isa, U: Update>(self, isa: I, rule: U) -> Self::Out;
}

//! The instruction sets of this CPU, and which one fits a row.

use crate::arch::isa::{Isa, Work};
use crate::arch::scalar::Scalar;
#[cfg(target_arch = "x86_64")]
use crate::arch::{Avx2, Avx512};
use crate::update::Update;
use std::sync::OnceLock;

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

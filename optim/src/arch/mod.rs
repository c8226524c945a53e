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
mod cpu;
#[cfg(target_arch = "x86_64")]
pub(crate) mod float16;
mod isa;
mod scalar;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;
pub use cpu::Cpu;
pub(crate) use isa::Sealed;
pub use isa::{Isa, Lanes, Work};
pub use scalar::Scalar;

//! Update rules: what an optimizer does to one row, as plain functions on slices.
//!
//! A row is [`Update::PLANES`] planes of `dim` floats each, one after the other. Then come [`Update::SCALARS`] floats
//! that the row has once. [`GradientTransform`] says what happens to a gradient and to the learning rate before the
//! rule. [`Rule`] is the plain data that a table's schema carries. Once a batch, [`Rule::visit`] turns it into a type
//! that implements [`Update`], so the loop over the rows is compiled for that rule.
//!
//! Each rule is one formula, written once and applied to each coordinate independently. There is no separate
//! tail and no fused multiply-add. So a coordinate's result has the same bits for every dimension, position and
//! register width. The two rules that sum over a row (row-wise AdaGrad and group FTRL) sum in one fixed order.
//!
//! ```
//! use gannet_optim::{AdaGrad, Rule, Update, Visitor};
//!
//! struct Batch<'a> { rows: &'a mut [f32], gradients: &'a [f32], dim: usize }
//!
//! impl Visitor for Batch<'_> {
//!     type Out = ();
//!     fn run<U: Update>(self, rule: U) {
//!         let rows = self.rows.chunks_exact_mut(U::floats(self.dim));
//!         for (row, gradient) in rows.zip(self.gradients.chunks_exact(self.dim)) {
//!             rule.update(row, gradient);
//!         }
//!     }
//! }
//!
//! let rule = Rule::AdaGrad(AdaGrad { lr: 0.5, eps: 0.0, initial_accumulator: 9.0 });
//! rule.check().unwrap();
//! let mut rows = [1.0, 2.0, 9.0, 9.0]; // one row of dimension 2: two weights, two sums of g^2
//! rule.visit(Batch { rows: &mut rows, gradients: &[4.0, 0.0], dim: 2 });
//! assert_eq!(rows, [0.6, 2.0, 25.0, 9.0]);
//! ```
#![deny(unsafe_code)]

mod adagrad;
mod adam;
mod add;
mod arch;
mod error;
mod float16;
mod ftrl;
mod gradient_transform;
mod group_ftrl;
pub mod lbfgs;
mod momentum;
mod packed;
mod products;
mod rmsprop;
mod row_adagrad;
mod rule;
mod rule_words;
mod sgd;
mod slices;
mod update;

pub use adagrad::AdaGrad;
pub use adam::{Adam, AmsGrad};
pub use add::Add;
#[cfg(target_arch = "x86_64")]
pub use arch::{Avx2, Avx512};
pub use arch::{Cpu, Isa, Lanes, Scalar, Work};
pub use error::RuleError;
pub use float16::Float16;
pub use ftrl::Ftrl;
pub use gradient_transform::{Decay, GradientTransform, Schedule};
pub use group_ftrl::GroupFtrl;
pub use momentum::Momentum;
pub use packed::{Packed, PackedRule};
pub use products::{add_scaled, dot, sum};
pub use rmsprop::RmsProp;
pub use row_adagrad::RowAdaGrad;
pub use rule::{Rule, Visitor};
pub use rule_words::in_words;
pub use sgd::Sgd;
pub use slices::{GradientLanes, add_change, all_finite};
pub use update::Update;

//! The optim room of gannet: what an optimizer does to one row, as plain functions on slices.
//!
//! A row is [`Update::PLANES`] planes of `dim` floats each, one plane after the other. [`Rule`] is the
//! plain data that a table's schema carries; [`Rule::visit`] turns it, once a batch, into a type that
//! implements [`Update`], so that the loop over the rows is compiled for that rule.
//!
//! Every rule is one formula, written once, applied to each coordinate by itself: there is no separate
//! tail, no reduction across coordinates and no fused multiply-add. The result of a coordinate therefore
//! has the same bits whatever the dimension, the position and the width of the vectors it was compiled to.
//!
//! ```
//! use gannet_optim::{AdaGrad, Rule, Update, Visitor};
//!
//! struct Batch<'a> { rows: &'a mut [f32], gradients: &'a [f32], dim: usize }
//!
//! impl Visitor for Batch<'_> {
//!     type Out = ();
//!     fn run<U: Update>(self, rule: U) {
//!         let rows = self.rows.chunks_exact_mut(U::PLANES * self.dim);
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
mod add;
mod ftrl;
mod rule;
mod sgd;
mod slices;

pub use adagrad::AdaGrad;
pub use add::Add;
pub use ftrl::Ftrl;
pub use rule::{Rule, RuleError, Update, Visitor};
pub use sgd::Sgd;
pub use slices::{add_change, all_finite};

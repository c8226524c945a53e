//! L-BFGS and OWL-QN as algebra on slices and scalars. Servers apply the part on columns of rows. The leader of the
//! training uses the dot products that the servers return. Sums are f64 in a fixed order.
//!
//! Sources:
//! - Nocedal and Wright, Numerical Optimization, 2nd ed., algorithms 7.4 (two-loop recursion), 3.5 and 3.6 (strong
//!   Wolfe).
//! - Chen, Wang and Zhou, Large-scale L-BFGS using MapReduce, NIPS 2014 (the recursion over a Gram matrix).
//! - Andrew and Gao, Scalable training of L1-regularized log-linear models, ICML 2007 (OWL-QN).
//! - Schmidt, Graphical Model Structure Learning with L1-Regularization, thesis, University of British Columbia, 2010
//!   (PSSgb: the recursion over the weights that may move).

mod columns;
mod sums;
mod two_loop;
mod wolfe;

pub use columns::{add_to_pass, join, project, pseudo_gradient, split};
pub use sums::{Sum, dot, norm1};
pub use two_loop::{Gram, direction};
pub use wolfe::{Point, Search, strong_wolfe};

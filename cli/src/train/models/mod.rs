//! `gannet train --model` of any model but logistic regression.

pub mod embedded;
pub mod learn;
pub mod plan;
pub mod topics;
pub mod worker;

//! Learns logistic regression: the training loop, its two update modes, and how good the predictions are.
//!
//! [`train`] checks the options and reports, and `training_loop` is the loop. [`replay`] learns one example at a time
//! and pushes changes of state; [`gradient`] pushes gradients. [`lr`] and [`kernel`] are the arithmetic of one
//! example.

pub(crate) mod auc;
pub(crate) mod evaluate;
pub(crate) mod gradient;
pub(crate) mod kernel;
pub(crate) mod lr;
pub(crate) mod metrics;
pub(crate) mod options;
mod pass_sums;
pub(crate) mod push_content;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod train;
mod training_loop;
pub(crate) mod update_mode;

//! Learns logistic regression: the training loop, its two update modes, and measures of the predictions.
//!
//! [`train`] checks the options and writes the report. `training_loop` is the loop. [`replay`] learns one example at
//! a time and pushes changes of state; [`gradient`] pushes gradients. [`lr`] and [`kernel`] compute one example.

pub(crate) mod auc;
pub(crate) mod evaluate;
pub(crate) mod gradient;
pub(crate) mod grouped_auc;
pub(crate) mod kernel;
pub(crate) mod lr;
pub(crate) mod measures;
pub(crate) mod metrics;
pub(crate) mod options;
mod pass_sums;
pub(crate) mod pending;
pub(crate) mod push_content;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod train;
mod training_loop;
pub(crate) mod update_mode;

//! `--optimizer` and its settings, and what pushes carry.

use clap::{Args, ValueEnum};

/// Update rules that `--optimizer` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptimizerName {
    /// FTRL-Proximal (McMahan et al. 2013), per coordinate.
    Ftrl,
    /// Plain stochastic gradient descent.
    Sgd,
    /// AdaGrad (Duchi et al. 2011).
    Adagrad,
}

/// What `--push` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushName {
    /// The change of state that learning the batch one example at a time makes: the loss of online learning.
    Replay,
    /// The batch's gradient, summed over its examples; the rule runs on the servers.
    Gradient,
}

/// The update rule. A setting that the chosen rule does not have is refused.
#[derive(Args, Debug)]
pub struct OptimizerArgs {
    /// The update rule.
    #[arg(long, value_enum, default_value = "ftrl")]
    pub optimizer: OptimizerName,
    /// What a push carries. Default: replay where the rule's state adds up (ftrl, adagrad, sgd), gradient otherwise.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub push: Option<PushName>,
    /// Learning rate. Default: 0.1.
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub alpha: Option<f32>,
    /// ftrl: the learning rate's offset. adagrad: the initial accumulator. Default: 1.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub beta: Option<f32>,
    /// ftrl: L1 penalty. Default: 0.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub l1: Option<f32>,
    /// ftrl: L2 penalty. Default: 0.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub l2: Option<f32>,
}

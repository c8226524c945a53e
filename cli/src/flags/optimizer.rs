//! `--optimizer` and its settings, and what pushes carry.

use bytesize::ByteSize;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// How L-BFGS trains. All flags but `--warm-start` are refused with another optimizer.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Optimizer")]
pub struct LbfgsArgs {
    /// lbfgs: curvature pairs to keep. Each takes two floats a weight. Default: 10.
    #[arg(long, value_name = "PAIRS", value_parser = clap::value_parser!(u16).range(1..=50))]
    pub history: Option<u16>,
    /// lbfgs: most iterations. Default: 100.
    #[arg(long = "max-iter", alias = "iterations", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub iterations: Option<u32>,
    /// lbfgs: stop when the gradient of the mean objective is no longer than this. No component is then larger, which
    /// is what scikit-learn's tol means. Default: 1e-4.
    #[arg(long, value_name = "LENGTH", allow_negative_numbers = true)]
    pub tolerance: Option<f64>,
    /// Start from a model that `gannet train --out` wrote. Its weights and its --scale are used. The optimizer's state
    /// is used if the optimizer is the same; L-BFGS uses the weights only. DIR may also be a checkpoint directory of a
    /// job (its newest checkpoint), or DIR@N for checkpoint N. In a job each worker needs DIR, and worker 0 puts its
    /// rows on the servers.
    #[arg(long, help_heading = "Training", value_name = "DIR")]
    pub warm_start: Option<PathBuf>,
    /// lbfgs: memory for this worker's examples. Default: 8GiB.
    #[arg(long, value_name = "SIZE", value_parser = crate::flags::words::numbers::size)]
    pub data_memory: Option<ByteSize>,
    /// lbfgs: seconds that a worker may take to read its data, or for one pass, before the others give up. Default:
    /// 600.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub pass_timeout: Option<f64>,
}

/// Update rules that `--optimizer` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptimizerName {
    /// FTRL-Proximal (McMahan et al. 2013), per coordinate.
    Ftrl,
    /// FTRL-Proximal with a group lasso over the row (Ni et al. 2019): --l21.
    GroupFtrl,
    /// Plain stochastic gradient descent.
    Sgd,
    /// Gradient descent with momentum (Polyak 1964).
    Momentum,
    /// Gradient descent with Nesterov's momentum (Sutskever et al. 2013).
    Nesterov,
    /// AdaGrad (Duchi et al. 2011).
    Adagrad,
    /// AdaGrad with one accumulator a row (Naumov et al. 2019).
    RowAdagrad,
    /// RMSProp (Tieleman and Hinton 2012).
    Rmsprop,
    /// Adam (Kingma and Ba 2015); with --weight-decay AdamW (Loshchilov and Hutter 2019).
    Adam,
    /// AMSGrad (Reddi et al. 2018).
    Amsgrad,
    /// L-BFGS on the whole data (Nocedal 1980); with --l1 OWL-QN (Andrew and Gao 2007).
    Lbfgs,
}

/// What `--push` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushName {
    /// The change of state from learning the batch one example at a time. The loss is that of online learning.
    Replay,
    /// The batch's gradient. The server runs the update rule.
    Gradient,
}

/// What `--reduce` offers: how the gradients of a key in a batch are combined.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceName {
    /// They are added.
    Sum,
    /// They are averaged over the examples that have the key.
    Mean,
}

/// How `--schedule` lets the learning rate fall.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleName {
    /// Not at all.
    Constant,
    /// By --decay-rate every --decay-steps, smoothly.
    Exponential,
    /// By --decay-rate every --decay-steps, in one jump.
    Step,
    /// To --decay-end in --decay-steps, along (1 - t / steps) ^ --decay-power.
    Polynomial,
    /// As 1 / sqrt(1 + t / --decay-steps).
    InverseSqrt,
    /// To --decay-end in --decay-steps, along half a cosine.
    Cosine,
}

/// The update rule. A setting that the chosen rule does not have is refused.
#[derive(Args, Debug)]
#[command(next_help_heading = "Optimizer")]
pub struct OptimizerArgs {
    /// The update rule. Default: ftrl for --model lr, adagrad for the other models.
    #[arg(long, value_enum)]
    pub optimizer: Option<OptimizerName>,
    /// What a push carries. Default: replay for ftrl, group-ftrl, sgd, adagrad and row-adagrad without schedule,
    /// clipping or added L2, because their state adds up; else gradient.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub push: Option<PushName>,
    /// How the gradients of a key in a batch are combined (--push gradient). Default: mean for sgd, momentum and
    /// nesterov, whose steps grow with the gradient; sum for the others.
    #[arg(long, value_enum, value_name = "HOW")]
    pub reduce: Option<ReduceName>,
    #[command(flatten)]
    #[allow(missing_docs)] // clap would show it
    pub settings: OptimizerSettings,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub schedule: ScheduleArgs,
}

/// Settings of the rules.
#[derive(Args, Debug)]
pub struct OptimizerSettings {
    /// Learning rate. Default: 0.1 for ftrl, group-ftrl, adagrad, row-adagrad; 0.03 for sgd,
    /// rmsprop; 0.02 for adam, amsgrad; 0.01 for momentum, nesterov. Models other than lr have another for adagrad.
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub alpha: Option<f32>,
    /// ftrl, group-ftrl: the learning rate's offset. adagrad, row-adagrad: the initial accumulator. Default: 1.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub beta: Option<f32>,
    /// ftrl, group-ftrl, lbfgs: L1 penalty, but not of the intercept. Default: 0.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub l1: Option<f32>,
    /// L2 penalty. For ftrl, group-ftrl and lbfgs it is part of the rule, and not of the intercept; for the others
    /// l2 * w is added to each gradient. Default: 0; 1 for lbfgs without --l1.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub l2: Option<f32>,
    /// group-ftrl: penalty on the length of a row. Default: 0.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub l21: Option<f32>,
    /// momentum, nesterov: the weight of the past. Default: 0.9.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub momentum: Option<f32>,
    /// rmsprop: the weight of the past in the mean square. Default: 0.9.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub rho: Option<f32>,
    /// adam, amsgrad: the weight of the past in the mean. Default: 0.9.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub beta1: Option<f32>,
    /// adam, amsgrad: the weight of the past in the mean square. Default: 0.999.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub beta2: Option<f32>,
    /// adagrad, row-adagrad, rmsprop, adam, amsgrad: added to the denominator, so that steps stay finite. Default:
    /// 1e-8.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub epsilon: Option<f32>,
    /// adam, amsgrad: decoupled weight decay. Default: 0.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub weight_decay: Option<f32>,
    /// Clip each value of a gradient to X at most.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub clip_value: Option<f32>,
    /// Scale each row's gradient to length X at most.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub clip_norm: Option<f32>,
}

/// How the learning rate changes with the number of each worker's push. Not for ftrl and group-ftrl.
#[derive(Args, Debug)]
pub struct ScheduleArgs {
    /// How the learning rate falls. Default: constant.
    #[arg(long, value_enum, value_name = "HOW")]
    pub schedule: Option<ScheduleName>,
    /// Pushes in which the learning rate first rises to --alpha. Default: 0.
    #[arg(long, value_name = "PUSHES")]
    pub warmup: Option<u32>,
    /// Pushes in one unit of the schedule. Every --schedule but constant needs it.
    #[arg(long, value_name = "PUSHES")]
    pub decay_steps: Option<u32>,
    /// exponential, step: the factor. Default: 0.96 and 0.1.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub decay_rate: Option<f32>,
    /// polynomial, cosine: the last factor of the learning rate. Default: 0.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub decay_end: Option<f32>,
    /// polynomial: the power. Default: 1.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub decay_power: Option<f32>,
}

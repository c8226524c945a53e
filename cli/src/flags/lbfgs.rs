//! Settings of `--optimizer lbfgs`, which reads all the data in each step.

use bytesize::ByteSize;
use clap::Args;
use std::path::PathBuf;

/// How L-BFGS trains. All flags but `--warm-start` are refused with another optimizer.
#[derive(Args, Debug, Clone)]
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
    /// is used if the optimizer is the same. Works in one process; L-BFGS, which uses the weights only, also in a job.
    /// DIR may also be a checkpoint directory of a job (its newest checkpoint), or DIR@N for checkpoint N.
    #[arg(long, value_name = "DIR")]
    pub warm_start: Option<PathBuf>,
    /// lbfgs: memory for this worker's examples. Default: 8GiB.
    #[arg(long, value_name = "SIZE", value_parser = crate::flags::memory::size)]
    pub data_memory: Option<ByteSize>,
    /// lbfgs: seconds that a worker may take to read its data, or for one pass, before the others give up. Default:
    /// 600.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub pass_timeout: Option<f64>,
}

impl LbfgsArgs {
    /// The first of these flags that was given.
    pub fn first_given(&self) -> Option<&'static str> {
        let flags = [
            (self.history.is_some(), "--history"),
            (self.iterations.is_some(), "--max-iter"),
            (self.tolerance.is_some(), "--tolerance"),
            (self.data_memory.is_some(), "--data-memory"),
            (self.pass_timeout.is_some(), "--pass-timeout"),
        ];
        flags.iter().find(|(is_given, _)| *is_given).map(|&(_, flag)| flag)
    }
}

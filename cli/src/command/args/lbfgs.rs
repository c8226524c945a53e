//! Settings of `--optimizer lbfgs`, which looks at the whole data a step.

use bytesize::ByteSize;
use clap::Args;
use std::path::PathBuf;

/// How L-BFGS trains. All of them but `--warm-start` are refused with another optimizer.
#[derive(Args, Debug, Clone)]
pub struct LbfgsArgs {
    /// lbfgs: curvature pairs that are kept, two floats a weight each. Default: 10.
    #[arg(long, value_name = "PAIRS", value_parser = clap::value_parser!(u16).range(1..=50))]
    pub history: Option<u16>,
    /// lbfgs: iterations at most. Default: 100.
    #[arg(long = "max-iter", alias = "iterations", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub iterations: Option<u32>,
    /// lbfgs: the training is over when the gradient of the mean objective is no longer than this. Then no part of it is
    /// larger, which is what scikit-learn's tol means. Default: 1e-4.
    #[arg(long, value_name = "LENGTH", allow_negative_numbers = true)]
    pub tolerance: Option<f64>,
    /// Go on from a model that `gannet train --out` wrote. It begins with its weights, with the optimizer's state where
    /// that is of the same optimizer, and with its --scale. In one process; L-BFGS, which takes the weights, also in a job.
    #[arg(long, value_name = "DIR")]
    pub warm_start: Option<PathBuf>,
    /// lbfgs: memory that this worker's examples may take. Default: 8GiB.
    #[arg(long, value_name = "SIZE", value_parser = super::memory::size)]
    pub data_memory: Option<ByteSize>,
    /// lbfgs: seconds that a worker may take to read its data, or for a pass over it, before the others give up. Default: 600.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub pass_timeout: Option<f64>,
}

impl LbfgsArgs {
    /// The first of these flags that was given.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            (self.history.is_some(), "--history"),
            (self.iterations.is_some(), "--max-iter"),
            (self.tolerance.is_some(), "--tolerance"),
            (self.data_memory.is_some(), "--data-memory"),
            (self.pass_timeout.is_some(), "--pass-timeout"),
        ];
        given.iter().find(|(given, _)| *given).map(|&(_, flag)| flag)
    }
}

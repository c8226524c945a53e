//! Settings of `--optimizer lbfgs`, which looks at the whole data a step.

use bytesize::ByteSize;
use clap::Args;
use std::path::PathBuf;

const LBFGS: &str = "L-BFGS (--optimizer lbfgs; with --l1 OWL-QN)";

/// How L-BFGS trains. All of them but `--warm-start` are refused with another optimizer.
#[derive(Args, Debug, Clone)]
pub struct LbfgsArgs {
    /// Curvature pairs that are kept, two floats a weight each. Default: 10.
    #[arg(long, help_heading = LBFGS, value_name = "PAIRS", value_parser = clap::value_parser!(u16).range(1..=50))]
    pub history: Option<u16>,
    /// Iterations at most. Default: 10000.
    #[arg(long, help_heading = LBFGS, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub iterations: Option<u32>,
    /// It is over when 10 iterations have made the objective smaller by less than this share of it. Default: 1e-9.
    #[arg(long, help_heading = LBFGS, value_name = "SHARE", allow_negative_numbers = true)]
    pub tolerance: Option<f64>,
    /// Go on from a model that `gannet train --out` wrote: from its weights, and from the optimizer's state where it
    /// is of the
    /// same optimizer. In one process; L-BFGS, which takes the weights, also in a job.
    #[arg(long, help_heading = "Options", value_name = "DIR")]
    pub warm_start: Option<PathBuf>,
    /// Memory that this worker's examples may take. Default: 8GiB.
    #[arg(long, help_heading = LBFGS, value_name = "SIZE", value_parser = super::memory::size)]
    pub data_memory: Option<ByteSize>,
    /// Seconds that a worker may take to read its data, or for a pass over it, before the others give up. Default: 600.
    #[arg(long, help_heading = LBFGS, value_name = "SECONDS", allow_negative_numbers = true)]
    pub pass_timeout: Option<f64>,
}

impl LbfgsArgs {
    /// The first of these flags that was given.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            (self.history.is_some(), "--history"),
            (self.iterations.is_some(), "--iterations"),
            (self.tolerance.is_some(), "--tolerance"),
            (self.data_memory.is_some(), "--data-memory"),
            (self.pass_timeout.is_some(), "--pass-timeout"),
        ];
        given.iter().find(|(given, _)| *given).map(|&(_, flag)| flag)
    }
}

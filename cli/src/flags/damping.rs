//! `--damping`: whether a push counts less when other workers have pushed to its rows meanwhile.

use clap::{Args, ValueEnum};

/// What `--damping` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum DampingName {
    /// A change counts for 1 / (1 + c). c is the number of pushes of other workers to its row since it was pulled.
    On,
    /// Changes are added as they are.
    Off,
}

/// Whether the pushes of a job's workers are damped.
#[derive(Args, Debug, Clone, Copy)]
pub struct DampingArgs {
    /// Job: whether changes of state (--push replay) are damped by the pushes of other workers. All workers need the
    /// same value. Default: on with more than two workers and without bsp, else off.
    #[arg(long, value_enum)]
    pub damping: Option<DampingName>,
}

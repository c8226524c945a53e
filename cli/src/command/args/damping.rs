//! Whether the pushes of a job's workers are damped by each other.

use clap::{Args, ValueEnum};

/// What `--damping` offers.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum DampingName {
    /// A change counts for 1 / (1 + c), where c is how many pushes of other workers its row has had since it was pulled.
    On,
    /// Changes are added as they are.
    Off,
}

/// Whether the pushes of a job's workers are damped by each other.
#[derive(Args, Debug, Clone, Copy)]
pub struct DampingArgs {
    /// Job: whether the changes of state that workers push (--push replay) are damped by those of others. The same for all of its
    /// workers. Default: on with more than two workers that do not train in synchronous steps.
    #[arg(long, value_enum)]
    pub damping: Option<DampingName>,
}

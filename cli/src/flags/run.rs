//! Which run the rows belong to, and what happens to a run that exists already.

use clap::Args;

/// The name of a run without `--run`.
pub const DEFAULT_RUN: &str = "default";

/// For the workers and the client of a job, and for a training that keeps its rows in a folder.
#[derive(Args, Debug, Clone)]
pub struct RunArgs {
    /// Job, or --data-dir: the name of this training on these servers or in this folder. Runs with different names
    /// share no rows. All workers of a job need the same name, and with --checkpoint or --coordinator also each ps
    /// [default: default]
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,
    /// Train the rows of a finished run further, or those of an unfinished run with other flags. The first process of a
    /// run decides. An unfinished run continues without this flag if the flags are those that it began with.
    #[arg(long = "continue", conflicts_with = "fresh")]
    pub go_on: bool,
    /// Begin the run with new rows. The old rows are deleted. Refused while a worker of the run lives.
    #[arg(long)]
    pub fresh: bool,
    /// Job with fixed shares (--tasks off): exit without an error when a worker has not trained its share.
    #[arg(long)]
    pub allow_missing_workers: bool,
}

impl RunArgs {
    /// The run's name.
    pub fn name(&self) -> &str {
        self.run.as_deref().unwrap_or(DEFAULT_RUN)
    }

    /// The first of the flags that was given.
    pub fn first_given(&self) -> Option<&'static str> {
        let flags = [
            (self.run.is_some(), "--run"),
            (self.go_on, "--continue"),
            (self.fresh, "--fresh"),
            (self.allow_missing_workers, "--allow-missing-workers"),
        ];
        flags.iter().find(|(is_given, _)| *is_given).map(|&(_, flag)| flag)
    }
}

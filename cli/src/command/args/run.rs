//! Which run the rows are of, and what becomes of one that is there.

use clap::Args;

/// The name of a run that is given none.
pub const DEFAULT_RUN: &str = "default";

/// Of a job's workers and its client, and of a training that keeps its rows in a folder.
#[derive(Args, Debug, Clone)]
pub struct RunArgs {
    /// Job, or --data-dir: the name of this training on these servers, or in this folder: runs of different names share no
    /// rows. The same for all workers of a job [default: default]
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,
    /// Train the rows of a run that is finished further, or those of one that is not with other flags. The first process of a
    /// run decides; a run that is not finished goes on by itself where the flags are those that it was begun with.
    #[arg(long = "continue", conflicts_with = "fresh")]
    pub go_on: bool,
    /// Begin the run with new rows; those that it had are dropped. Not while a worker of it lives.
    #[arg(long)]
    pub fresh: bool,
    /// Job with fixed shares (--tasks off): end without an error when a worker has not trained its share.
    #[arg(long)]
    pub allow_missing_workers: bool,
}

impl RunArgs {
    /// The run's name.
    pub fn name(&self) -> &str {
        self.run.as_deref().unwrap_or(DEFAULT_RUN)
    }

    /// The first of the flags that was given.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            (self.run.is_some(), "--run"),
            (self.go_on, "--continue"),
            (self.fresh, "--fresh"),
            (self.allow_missing_workers, "--allow-missing-workers"),
        ];
        given.iter().find(|(given, _)| *given).map(|&(_, flag)| flag)
    }
}

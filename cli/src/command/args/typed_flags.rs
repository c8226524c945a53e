//! What was typed, where the value alone does not say it: flags that have a default, and spellings of one value.

use clap::ArgMatches;
use clap::parser::ValueSource;

/// What was typed of the flags of a job.
#[derive(Clone, Debug, Default)]
pub struct JobFlagsGiven {
    /// `--task-index`.
    pub task_index: bool,
    /// `--peer-timeout`.
    pub peer_timeout: bool,
    /// What followed `--issync`; empty where that was not given.
    pub issync: String,
}

impl JobFlagsGiven {
    /// Of `gannet train`.
    pub fn of(train: &ArgMatches) -> JobFlagsGiven {
        let given = |id: &str| train.value_source(id) == Some(ValueSource::CommandLine);
        let issync = train.get_raw("issync").and_then(|mut values| values.next());
        JobFlagsGiven {
            task_index: given("task_index"),
            peer_timeout: given("peer_timeout"),
            issync: issync.map(|value| value.to_string_lossy().into_owned()).unwrap_or_default(),
        }
    }
}

//! Which flags were typed, where the value alone does not show it: flags with a default, and spellings of one value.

use clap::ArgMatches;
use clap::parser::ValueSource;

/// Which flags of a job were typed.
#[derive(Clone, Debug, Default)]
pub struct TypedJobFlags {
    /// `--task-index`.
    pub task_index: bool,
    /// `--peer-timeout`.
    pub peer_timeout: bool,
    /// The text after `--issync`, empty without the flag.
    pub issync: String,
}

impl TypedJobFlags {
    /// The flags of `gannet train`.
    pub fn of(train: &ArgMatches) -> TypedJobFlags {
        let is_typed = |id: &str| train.value_source(id) == Some(ValueSource::CommandLine);
        let issync = train.get_raw("issync").and_then(|mut values| values.next());
        TypedJobFlags {
            task_index: is_typed("task_index"),
            peer_timeout: is_typed("peer_timeout"),
            issync: issync.map(|value| value.to_string_lossy().into_owned()).unwrap_or_default(),
        }
    }
}

//! What a push says, and what came of it.

use crate::push_name::PushName;
use crate::table::owned::shards::Shards;
use crate::table::pushes::read_write::Write;

/// The outcome of a push, in rows. [`Shards`] has an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Rows applied now.
    pub applied: u32,
    /// Rows dropped because the shard already had their part.
    pub duplicate: u32,
    /// Rows dropped because a value or the resulting row is NaN, infinite or beyond the row type. Or because a change
    /// of state would make a row that the rule cannot produce, such as one with a negative sum of squares.
    pub not_finite: u32,
    /// Rows not created because this push of their keys was not admitted ([`Admission`](crate::Admission)).
    pub not_admitted: u32,
    /// Changes of state that were dropped because their row was deleted after the pull from which they were computed
    /// ([`PushOptions::since`]).
    pub refused: u32,
}

/// What a push says besides its name and its rows. By default the clock is 0, and the size is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushOptions {
    /// The clock that the schedule of the learning rate follows.
    pub clock: u64,
    /// Rows of the whole push, over all shards of the table; 0: unknown.
    pub total: u64,
    /// When the rows were read from which changes of state were computed. Changes of rows that were deleted since are
    /// dropped: they would land on a new row. `None`: all changes are applied.
    pub since: Option<ReadAt>,
}

/// When rows were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAt {
    /// The [snapshot version](Shards::snapshot_version) of the rows.
    pub version: u64,
    /// They were read from these shards, since they were opened or taken over. An earlier owner may have had commands
    /// that these shards have not: then only what was deleted since they were opened counts as deleted later.
    pub here: bool,
}

/// A push whose keys are divided into runs.
pub(crate) struct PushRequest<'a> {
    pub(crate) shards: &'a mut Shards,
    pub(crate) name: &'a PushName,
    pub(crate) options: PushOptions,
    /// Rows behind those of the call that the last run has, and that were refused.
    pub(crate) refused: u32,
    pub(crate) write: Write,
    pub(crate) keys: &'a [u64],
    pub(crate) slots: &'a mut [u32],
    pub(crate) values: &'a [f32],
    pub(crate) applied: &'a mut Applied,
}

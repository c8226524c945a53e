//! Rows that die: which rows of a table are deleted because nobody pushes them any more, because they weigh nothing,
//! or because the table is full. The decision is made once, by the owner of the shards. What follows is a deletion
//! like any other, which copies, deltas and checkpoints see as a command.

pub(crate) mod evictor;
mod hour_share;
mod push_times;
pub(crate) mod refused_changes;
pub(crate) mod settings;

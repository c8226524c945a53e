//! Commands: each changes a shard fully or not at all, and a backup can replay it.

pub(crate) mod command;
pub(crate) mod command_record;
pub(crate) mod delete;
pub(crate) mod deletions;
pub(crate) mod program;
pub(crate) mod replay;
pub(crate) mod run_program;

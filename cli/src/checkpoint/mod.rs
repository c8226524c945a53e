//! `gannet checkpoint`: the checkpoints of a job, saved from running servers, and read and changed as files.

pub mod arrays;
pub mod chain;
pub mod diff;
pub mod export;
pub mod import;
pub mod list;
pub mod npz;
pub mod prune;
pub mod restore;
pub mod safetensors;
pub mod save;
pub mod saver;
pub mod show;
pub mod source;
pub mod target;
pub mod verify;

use crate::failure::Failure;
use crate::flags::{CheckpointArgs, CheckpointCommand};

/// Runs the command.
pub fn run_checkpoint(args: &CheckpointArgs) -> Result<(), Failure> {
    match &args.command {
        CheckpointCommand::Save(args) => save::run_save(args),
        CheckpointCommand::Restore(args) => crate::checkpoint::restore::run_restore(args),
        CheckpointCommand::Ls(args) => list::run_list(args),
        CheckpointCommand::Show(args) => show::run_show(args),
        CheckpointCommand::Verify(args) => verify::run_verify(args),
        CheckpointCommand::Diff(args) => diff::run_diff(args),
        CheckpointCommand::Prune(args) => prune::run_prune(args),
        CheckpointCommand::Export(args) => export::run_export(args),
        CheckpointCommand::Import(args) => import::run_import(args),
    }
}

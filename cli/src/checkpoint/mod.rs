//! `gannet checkpoint`: the checkpoints of a job, saved from running servers, and read and changed as files.

pub mod arrays;
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
pub mod target;
pub mod verify;

use crate::failure::Failure;
use crate::flags::{CheckpointArgs, CheckpointCommand};
use gannet::storage::{CheckpointDir, CheckpointDirError, JobManifest};
use std::path::Path;

/// Runs the command.
pub fn run(args: &CheckpointArgs) -> Result<(), Failure> {
    match &args.command {
        CheckpointCommand::Save(args) => save::run(args),
        CheckpointCommand::Restore(args) => crate::checkpoint::restore::run(args),
        CheckpointCommand::Ls(args) => list::run(args),
        CheckpointCommand::Show(args) => show::run(args),
        CheckpointCommand::Verify(args) => verify::run(args),
        CheckpointCommand::Diff(args) => diff::run(args),
        CheckpointCommand::Prune(args) => prune::run(args),
        CheckpointCommand::Export(args) => export::run(args),
        CheckpointCommand::Import(args) => import::run(args),
    }
}

/// The chain of the checkpoint with this number, or of the newest that can be used.
pub fn chain(directory: &CheckpointDir, number: Option<u64>) -> Result<Vec<JobManifest>, Failure> {
    match number {
        Some(number) => Ok(directory.chain(number)?),
        None => directory.newest_chain()?.ok_or_else(|| none(directory.path())),
    }
}

/// The failure for a folder without checkpoints.
pub fn none(path: &Path) -> Failure {
    Failure::input(format!(
        "{}: there is no checkpoint here: give the folder that --checkpoint of the job named",
        path.display()
    ))
}

/// The newest manifest of a chain, which is never empty.
pub fn newest(chain: &[JobManifest]) -> Result<&JobManifest, Failure> {
    chain.last().ok_or_else(|| Failure::input("the chain of the checkpoint is empty"))
}

/// What kind of checkpoint it is, in words.
pub fn kind(manifest: &JobManifest) -> String {
    match manifest.parent {
        None => "full".into(),
        Some(parent) => format!("increment of {parent}"),
    }
}

/// Why a checkpoint is damaged, without the offer of another one.
pub fn reason(error: &CheckpointDirError) -> String {
    match error {
        CheckpointDirError::Refused { reason, .. } => reason.to_string(),
        other => other.to_string(),
    }
}

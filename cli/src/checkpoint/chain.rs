//! A checkpoint and those that it needs.

use crate::failure::Failure;
use gannet::storage::{CheckpointDir, CheckpointDirError, JobManifest};
use std::path::Path;

/// How often another newest checkpoint is read, because the one before was pruned meanwhile.
pub const LOOKS_MAX: u32 = 100;

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

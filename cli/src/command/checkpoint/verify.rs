//! `gannet checkpoint verify`: reads every byte.

use super::super::args::ShowArgs;
use super::super::failure::SYSTEM;
use super::super::{Failure, checkpoint_place};
use super::{none, reason};
use bytesize::ByteSize;
use gannet::storage::{CheckpointDir, CheckpointDirError, CheckpointState, Verified};
use serde_json::json;

/// How often another newest checkpoint is verified, because the one before was pruned meanwhile.
const LOOKS_MAX: u32 = 100;

/// The newest checkpoint whose save was finished. If there is none, those that were listed may have been pruned while
/// they were read: then there are others.
fn newest(directory: &CheckpointDir) -> Result<u64, Failure> {
    let mut before = Vec::new();
    for _ in 0..LOOKS_MAX {
        let all = directory.list()?;
        let finished = all.iter().rev().find(|c| !matches!(c.state, CheckpointState::Incomplete));
        if let Some(finished) = finished {
            return Ok(finished.number);
        }
        let numbers: Vec<u64> = all.iter().map(|listed| listed.number).collect();
        if numbers == before {
            break;
        }
        before = numbers;
    }
    Err(none(directory.path()))
}

/// The number of the checkpoint that was verified, and the result.
type VerifiedNumber = (u64, Result<Verified, CheckpointDirError>);

/// Verifies a checkpoint. Without a number, and if the newest one is pruned while it is read, verifies a newer one.
fn verify(directory: &CheckpointDir, asked: Option<u64>) -> Result<VerifiedNumber, Failure> {
    let mut looks = 1;
    loop {
        let number = asked.map_or_else(|| newest(directory), Ok)?;
        let verified = directory.verify(number);
        let is_gone = verified.as_ref().is_err_and(CheckpointDirError::is_gone);
        if !is_gone || asked.is_some() || looks == LOOKS_MAX {
            return Ok((number, verified));
        }
        looks += 1;
    }
}

/// Runs the command.
pub fn run(args: &ShowArgs) -> Result<(), Failure> {
    let directory = checkpoint_place::open(&args.dir)?;
    let (number, verified) = verify(&directory, args.number)?;
    match verified {
        Ok(read) => {
            let (checkpoints, files, rows) = (read.checkpoints, read.files, read.rows);
            if args.json {
                let bytes = read.bytes;
                say!(
                    "{}",
                    json!({ "number": number, "good": true, "checkpoints": checkpoints, "files": files,
                            "bytes": bytes, "rows": rows })
                );
            } else {
                let bytes = ByteSize(read.bytes);
                let of =
                    if checkpoints == 1 { String::new() } else { format!(" of {checkpoints} checkpoints") };
                say!("checkpoint {number} is good: {files} files{of}, {bytes}, {rows} rows");
            }
            Ok(())
        }
        Err(error) if error.is_pruned() => Err(error.into()),
        Err(error) => {
            if let (true, CheckpointDirError::Refused { newest, .. }) = (args.json, &error) {
                let why = reason(&error);
                say!("{}", json!({ "number": number, "good": false, "why": why, "newest_good": newest }));
            }
            Err(Failure::new(SYSTEM, error.to_string()))
        }
    }
}

//! `gannet checkpoint verify`: reads every byte.

use crate::checkpoint::chain::{LOOKS_MAX, none, reason};
use crate::checkpoint_place::open_checkpoints;
use crate::failure::{Failure, SYSTEM};
use crate::flags::{ShowArgs, VerifyArgs};
use bytesize::ByteSize;
use gannet::storage::{CheckpointDir, CheckpointDirError, CheckpointState, Verified};
use serde_json::{Value, json};

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
pub fn run_verify(VerifyArgs { checkpoint: args, all }: &VerifyArgs) -> Result<(), Failure> {
    let directory = open_checkpoints(&args.dir)?;
    if *all {
        return run_all(args, &directory);
    }
    let (number, verified) = verify(&directory, args.number)?;
    match verified {
        Ok(read) => {
            match args.json {
                true => say!("{}", good(number, &read)),
                false => say!("{}", in_words(number, &read)),
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

fn good(number: u64, read: &Verified) -> Value {
    let Verified { checkpoints, files, bytes, rows } = read;
    json!({ "number": number, "good": true, "checkpoints": checkpoints, "files": files, "bytes": bytes, "rows": rows })
}

fn in_words(number: u64, read: &Verified) -> String {
    let (files, rows, bytes) = (read.files, read.rows, ByteSize(read.bytes));
    let of = match read.checkpoints {
        1 => String::new(),
        checkpoints => format!(" of {checkpoints} checkpoints"),
    };
    format!("checkpoint {number} is good: {files} files{of}, {bytes}, {rows} rows")
}

/// Reads all checkpoints. With `--json` each has a line.
fn run_all(args: &ShowArgs, directory: &CheckpointDir) -> Result<(), Failure> {
    let all = directory.verify_all()?;
    if all.is_empty() {
        return Err(none(&args.dir));
    }
    let mut damaged = Vec::new();
    for (number, read) in &all {
        match (read, args.json) {
            (Ok(read), true) => say!("{}", good(*number, read)),
            (Ok(read), false) => say!("{}", in_words(*number, read)),
            (Err(error), true) => {
                say!("{}", json!({ "number": number, "good": false, "why": error.to_string() }))
            }
            (Err(error), false) => say!("checkpoint {number} is damaged: {error}"),
        }
        damaged.extend(read.is_err().then(|| number.to_string()));
    }
    match damaged.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(
            SYSTEM,
            format!("damaged: {} of {} checkpoints in {}", damaged.join(", "), all.len(), args.dir.display()),
        )),
    }
}

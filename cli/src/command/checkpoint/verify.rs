//! `gannet checkpoint verify`: reads every byte.

use super::super::args::{ShowArgs, VerifyArgs};
use super::super::failure::SYSTEM;
use super::super::{Failure, checkpoint_place};
use super::{none, reason};
use bytesize::ByteSize;
use gannet::storage::{CheckpointDir, CheckpointDirError, CheckpointState, Verified};
use serde_json::{Value, json};

/// Runs the command.
pub fn run(VerifyArgs { checkpoint: args, all }: &VerifyArgs) -> Result<(), Failure> {
    let directory = checkpoint_place::open(&args.dir)?;
    if *all {
        return run_all(args, &directory);
    }
    let number = match args.number {
        Some(number) => number,
        None => {
            let all = directory.list()?;
            let finished = all.iter().rev().find(|c| !matches!(c.state, CheckpointState::Incomplete));
            finished.ok_or_else(|| none(&args.dir))?.number
        }
    };
    match directory.verify(number) {
        Ok(read) => {
            match args.json {
                true => say!("{}", good(number, &read)),
                false => say!("{}", in_words(number, &read)),
            }
            Ok(())
        }
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

//! `gannet checkpoint verify`: reads every byte.

use super::super::args::ShowArgs;
use super::super::failure::SYSTEM;
use super::super::{Failure, checkpoint_place};
use super::{none, reason};
use bytesize::ByteSize;
use gannet::storage::{CheckpointDirError, CheckpointState};
use serde_json::json;

/// Runs the command.
pub fn run(args: &ShowArgs) -> Result<(), Failure> {
    let directory = checkpoint_place::open(&args.dir)?;
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
        Err(error) => {
            if let (true, CheckpointDirError::Refused { newest, .. }) = (args.json, &error) {
                let why = reason(&error);
                say!("{}", json!({ "number": number, "good": false, "why": why, "newest_good": newest }));
            }
            Err(Failure::new(SYSTEM, error.to_string()))
        }
    }
}

//! `gannet checkpoint ls`: every checkpoint of a folder, and which can be used.

use crate::checkpoint::chain::{kind, reason};
use crate::checkpoint_place::open_checkpoints;
use crate::failure::Failure;
use crate::flags::ListArgs;
use bytesize::ByteSize;
use gannet::storage::{CheckpointState, ListedCheckpoint};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

/// Runs the command.
pub fn run_list(args: &ListArgs) -> Result<(), Failure> {
    let all = open_checkpoints(&args.dir)?.list()?;
    if args.json {
        let all: Vec<Value> = all.iter().map(object).collect();
        say!("{}", json!({ "checkpoints": all }));
        return Ok(());
    }
    if all.is_empty() {
        say!("{}: no checkpoints", args.dir.display());
        return Ok(());
    }
    say!("{:>10}  {:>8}  {:>12}  {:>10}  {:<18}  state", "number", "age", "rows", "bytes", "kind");
    for listed in &all {
        let (rows, bytes, kind) = match &listed.state {
            CheckpointState::Valid(manifest) => {
                (manifest.rows().to_string(), ByteSize(manifest.bytes()).to_string(), kind(manifest))
            }
            _ => ("-".into(), ByteSize(listed.bytes).to_string(), "-".into()),
        };
        let age = age(listed).map_or("-".into(), in_words);
        say!("{:>10}  {age:>8}  {rows:>12}  {bytes:>10}  {kind:<18}  {}", listed.number, state(listed));
    }
    Ok(())
}

fn state(listed: &ListedCheckpoint) -> String {
    match &listed.state {
        CheckpointState::Valid(_) => "valid".into(),
        CheckpointState::Incomplete => "incomplete: its save is in progress or was cut short".into(),
        CheckpointState::Damaged(error) => format!("damaged: {}", reason(error)),
    }
}

fn object(listed: &ListedCheckpoint) -> Value {
    let age = age(listed).map(|age| age.as_secs());
    let (number, state) = (listed.number, state(listed));
    match &listed.state {
        CheckpointState::Valid(manifest) => json!({
            "number": number, "state": "valid", "age_seconds": age, "run": manifest.run,
            "parent": manifest.parent, "rows": manifest.rows(), "deletions": manifest.deletions(),
            "bytes": manifest.bytes(),
        }),
        CheckpointState::Incomplete => {
            json!({ "number": number, "state": "incomplete", "age_seconds": age, "why": state })
        }
        CheckpointState::Damaged(error) => {
            json!({ "number": number, "state": "damaged", "age_seconds": age, "why": reason(error) })
        }
    }
}

/// The time since the manifest, or the last file of an unfinished save, was written.
fn age(listed: &ListedCheckpoint) -> Option<Duration> {
    let written = SystemTime::UNIX_EPOCH + Duration::from_secs(listed.written?);
    Some(SystemTime::now().duration_since(written).unwrap_or_default())
}

fn in_words(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

//! kill -9 between any two steps that matter: of pushes, deletions, evictions, programs on vectors, checkpoints. A
//! child process SIGKILLs itself at its n-th kill point, for every n. What it leaves is then read, and work goes on.
//!
//! Needs the feature `kill-points`: `cargo test -p gannet-core --features kill-points --test kill`.
#![cfg(feature = "kill-points")]

mod checkpoints;
mod evictions;
mod tables;
mod vectors;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

/// A folder on tmpfs if there is one: a kill is the same there, and no sync waits for a disk.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The number in an environment variable of a child.
fn number(name: &str) -> i64 {
    std::env::var(name).unwrap().parse().unwrap()
}

/// A test of this binary as a child that is killed after so many kill points (`KILL_AFTER`) in `KILL_FOLDER`.
fn child(test: &str, folder: &Path, after: i64) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]);
    command.env("KILL_FOLDER", folder).env("KILL_AFTER", after.to_string());
    command
}

/// Runs a child. Returns whether it finished; otherwise it was killed.
fn finishes(mut child: Command) -> bool {
    let output = child.output().unwrap();
    match (output.status.code(), output.status.signal()) {
        (Some(42), _) => true,
        (_, Some(9)) => false,
        other => panic!("the child ended with {other:?}:\n{}", String::from_utf8_lossy(&output.stderr)),
    }
}

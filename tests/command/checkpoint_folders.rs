//! Folders in which checkpoints cannot be saved. Whoever would save there is told so when it begins, with exit code 2.

use crate::harness;

use gannet::storage::{CheckpointDir, JobManifest};
use harness::*;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const NOBODY_ID: u32 = 65_534;

/// Runs the binary as a user who is not root: root may write everywhere.
struct OtherUser {
    binary: PathBuf,
}

impl OtherUser {
    /// Everybody may enter `folder` and write in it.
    fn new(folder: &Path) -> OtherUser {
        std::fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
        let binary = folder.join("gannet");
        std::fs::copy(env!("CARGO_BIN_EXE_gannet"), &binary).unwrap();
        std::fs::set_permissions(&binary, Permissions::from_mode(0o755)).unwrap();
        OtherUser { binary }
    }

    fn run(&self, line: &str) -> Done {
        let mut command = Command::new(&self.binary);
        command.args(line.split_whitespace()).stdin(std::process::Stdio::null()).current_dir("/");
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY_ID);
        }
        Process::start(command).wait()
    }
}

#[test]
fn a_checkpoint_folder_that_cannot_be_written_ends_every_saver_with_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let user = OtherUser::new(folder.path());
    let data = clicks(&folder.path().join("train.svm"), 100, 1);
    let file = write(folder.path(), "file", "mine");
    let closed = folder.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, Permissions::from_mode(0o555)).unwrap();
    let closed = closed.display().to_string();
    let server = Served::start(gannet("server --listen 127.0.0.1:0 --threads 1 --transport tcp"));
    let (addr, data) = (&server.addr, data.display());
    let job = format!("--ps-hosts {addr} --worker-hosts 127.0.0.1:9 --job-name");
    for dir in [&closed, &format!("{closed}/inside"), &file, &format!("{file}/inside")] {
        for line in [
            format!("server --listen 127.0.0.1:0 --checkpoint {dir}"),
            format!("train --checkpoint {dir} {job} ps --listen 127.0.0.1:0"),
            format!("train {data} --checkpoint {dir} {job} worker"),
            format!("checkpoint save {dir} --ps-hosts {addr}"),
        ] {
            let done = user.run(&line);
            assert_eq!(done.code, Some(2), "{line}: {done:?}");
            assert!(done.err.contains(dir.as_str()) && done.err.contains("name a"), "{line}: {done:?}");
        }
    }
    assert_eq!(std::fs::read(file).unwrap(), b"mine");
}

/// That is no lost peer (exit code 3): the folder is a wrong one.
#[test]
fn a_folder_with_checkpoints_of_another_run_ends_a_save_with_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let draft = CheckpointDir::create(folder.path()).unwrap().begin().unwrap();
    let manifest = JobManifest::new(draft.number(), "monday");
    draft.publish(&manifest).unwrap();
    let dir = folder.path().display();
    let server = format!("server --listen 127.0.0.1:0 --threads 1 --transport tcp --checkpoint {dir}");
    let server = Served::start(gannet(&server));
    refused(&format!("checkpoint save {dir} --ps-hosts {}", server.addr), &["monday", "--checkpoint"]);
}

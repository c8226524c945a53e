//! A restore into a data folder is killed again and again, as a process of its own. What it leaves is never served, and
//! the next restore has every row once.

use crate::saved::{Saver, rows_of};
use gannet_core::{CheckpointDir, Cursor, Schema, Shards, Store};
use gannet_optim::{Add, Rule};
use gannet_server::{LocalServer, RestoreSource, ServerConfig, open_whole, restore_folder};
use gannet_sim::{Faults, Sim};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

const ROWS: u64 = 150_000;
const KILLS: u32 = 12;

fn schema(name: &str) -> Schema {
    Schema { shards: 8, ..Schema::scalar(name, Rule::Add(Add)) }
}

/// The child: restores.
#[test]
fn child() {
    let (Ok(from), Ok(to)) = (std::env::var("RESTORE_FROM"), std::env::var("RESTORE_TO")) else { return };
    let store = Store::open_dir(Path::new(&to)).unwrap();
    let from = CheckpointDir::open(Path::new(&from)).unwrap();
    let restored = restore_folder(&store, 2, &RestoreSource::new(&from, 0, 1)).unwrap();
    std::process::exit(if restored.kept { 43 } else { 42 });
}

/// Runs the child, which is killed `after` its restore has begun; 0: never.
fn run_child(from: &Path, to: &Path, after: Option<Duration>) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["restore_killed::child", "--exact", "--nocapture"]);
    let mut child = command
        .env("RESTORE_FROM", from)
        .env("RESTORE_TO", to)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    if let Some(after) = after {
        let (mark, begun) = (to.join("RESTORING"), Instant::now());
        while !mark.exists() && child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(60), "the child hangs");
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(after);
        child.kill().unwrap();
    }
    child.wait().unwrap()
}

#[test]
fn a_restore_that_is_killed_begins_again() {
    let checkpoints = tempfile::tempdir().unwrap();
    let mut saver = Saver::new(checkpoints.path());
    let mut tables = ["a", "b"].map(|name| open_whole(&Store::memory(), &schema(name)).unwrap());
    let cursor = Cursor { pusher: 7, incarnation: 3, seq: 5, closed: false };
    for (table, first) in tables.iter_mut().zip([0, 1 << 40]) {
        let keys: Vec<u64> = (first..first + ROWS).collect();
        let rows: Vec<f32> = keys.iter().map(|&key| (key % 1000) as f32).collect();
        table.restore_rows(&keys, &rows).unwrap();
        table.set_cursor(&cursor).unwrap();
    }
    let [a, b] = &mut tables;
    saver.save(&mut [a, b], true);
    a.free(5);
    saver.save(&mut [a, b], false);

    let data = tempfile::tempdir().unwrap();
    let mut killed = 0;
    for kill in 0..KILLS {
        // Earlier kills begin with what later ones leave.
        let status =
            run_child(checkpoints.path(), data.path(), Some(Duration::from_millis(u64::from(kill * kill))));
        if status.signal() != Some(9) {
            // 43: the kill before this one came when the restore had just ended.
            assert!(matches!(status.code(), Some(42 | 43)), "{status}");
            break;
        }
        killed += 1;
        if data.path().join("RESTORING").exists() {
            let store = Store::open_dir(data.path()).unwrap();
            let config = ServerConfig { threads: 1, store, ..ServerConfig::new("sim:0") };
            assert!(LocalServer::new(Sim::new(1, Faults::none()), config).is_err(), "kill {kill}");
        }
    }
    assert!(killed >= 3, "only {killed} restores were killed");
    let last = run_child(checkpoints.path(), data.path(), None);
    assert!(matches!(last.code(), Some(42 | 43)), "{last}");
    assert!(!data.path().join("RESTORING").exists());
    let store = Store::open_dir(data.path()).unwrap();
    for table in &mut tables {
        let schema = table.schema().clone();
        let mut restored = Shards::open(&store, &schema, 0..8).unwrap();
        assert!(rows_of(&mut restored) == rows_of(table), "table {:?} has other rows", schema.name);
        assert_eq!(restored.push_progress().len(), 1);
        assert_eq!((restored.pushers()[0].seq, restored.stats().rows), (5, table.stats().rows));
    }
}

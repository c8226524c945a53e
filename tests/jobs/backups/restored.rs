//! A job whose rows are gone, because a server and all its backups have died, goes back to its newest checkpoint.

use super::cluster::{Cluster, Setup};
use crate::world::until;

use gannet::storage::CheckpointDir;

/// A cluster with checkpoints in a folder.
fn cluster(folder: &tempfile::TempDir, servers: usize, backups: u32) -> Cluster {
    let flags = format!("--checkpoint {}", folder.path().display());
    let (server, client) = (flags.clone(), String::new());
    let worker = format!("{flags} --checkpoint-secs 1");
    Cluster::of(Setup { servers, backups, passes: 6, server, client, worker, ..Setup::default() })
}

/// Waits for a checkpoint above a number. Returns its number.
fn until_saved(folder: &tempfile::TempDir, above: u64) -> u64 {
    let newest = || {
        let newest = CheckpointDir::open(folder.path()).ok()?.newest_valid().ok()??;
        Some(newest.number).filter(|number| *number > above)
    };
    until("a checkpoint", || newest().is_some());
    newest().unwrap()
}

#[test]
fn a_job_goes_back_to_its_checkpoint_and_counts_every_record_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = cluster(&folder, 3, 1);
    cluster.until_backed(1);
    let workers = [cluster.worker(0, "asp"), cluster.worker(1, "asp")];
    cluster.until_done(4);
    // One server has two places when a checkpoint is saved.
    cluster.kill(1);
    cluster.servers[1] = Some(cluster.server(1));
    cluster.until_taken(1);
    cluster.until_backed(1);
    let saved = until_saved(&folder, until_saved(&folder, 0));
    assert!(saved > 1);
    // A place has neither an owner nor a backup any more.
    let gone = [cluster.owner(0), cluster.backup(0)];
    let left = (0..3).find(|at| !gone.contains(at)).unwrap();
    gone.iter().for_each(|&at| cluster.kill(at));
    gone.iter().for_each(|&at| cluster.servers[at] = Some(cluster.server(at)));
    let ended = cluster.servers[left].as_mut().unwrap().child.ended();
    assert_eq!(ended.code(), Some(1), "it has rows that are newer than the checkpoint");
    let generation = &cluster.status()["generation"];
    assert!(generation["number"] == 1 && generation["undone"].as_u64() > Some(0), "{generation}");
    cluster.servers[left] = Some(cluster.server(left));
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(3), "{done:?}");
    }
    cluster.until_backed(0);
    let workers = [cluster.worker(0, "asp"), cluster.worker(1, "asp")];
    for worker in workers {
        let done = worker.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    cluster.check();
}

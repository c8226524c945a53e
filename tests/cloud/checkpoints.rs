//! Checkpoints in a bucket.

use crate::harness::ports::free_addr;
use crate::harness::*;
use crate::store::ObjectStore;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

/// A server with a trained table, and the line that saves its checkpoints.
fn trained(store: &ObjectStore, url: &str, folder: &std::path::Path) -> (Served, String) {
    let data = clicks(&folder.join("train.svm"), 4000, 5);
    let served =
        Served::start(store.gannet(&format!("server --listen 127.0.0.1:0 --threads 2 --checkpoint {url}")));
    let (addr, data) = (&served.addr, data.display());
    let out = folder.join("model");
    let train = format!(
        "train {data} --job-name worker --worker-hosts 127.0.0.1:9 --ps-hosts {addr} --out {}",
        out.display()
    );
    store.ok(&train);
    let save = format!("checkpoint save {url} --ps-hosts {addr}");
    (served, save)
}

#[test]
#[ignore = "needs an object store: scripts/test_cloud.sh"]
fn every_command_works_on_a_bucket() {
    let (store, folder) = (ObjectStore::start(None), tempfile::tempdir().unwrap());
    let url = "s3://models/ctr/daily";
    let (served, save) = trained(&store, url, folder.path());
    assert_eq!(store.valid(url), [] as [u64; 0]);
    assert!(store.ok(&save).out.starts_with("checkpoint 1 (full)"));
    let increment = store.ok(&format!("{save} --increment"));
    assert!(increment.out.starts_with("checkpoint 2"), "{increment:?}");
    for number in 3..=4 {
        assert!(store.ok(&save).out.starts_with(&format!("checkpoint {number} (full)")));
    }
    assert_eq!(store.valid(url), [1, 2, 3, 4]);
    assert!(store.ok(&format!("checkpoint verify {url} 2")).out.contains("checkpoint 2 is good"));
    let same = store.ok(&format!("checkpoint diff {url} 1 4"));
    assert!(same.out.contains(": 0 rows added, 0 removed, 0 changed, "), "{same:?}");
    let pruned = store.ok(&format!("checkpoint prune {url} --keep 2"));
    assert!(pruned.out.contains("kept: 3, 4"), "{pruned:?}");
    assert_eq!(store.valid(url), [3, 4]);
    let rows = folder.path().join("server");
    let restored = store.ok(&format!("checkpoint restore {url} --data-dir {}", rows.display()));
    assert!(restored.out.contains("checkpoint 4 of s3://models/ctr/daily is restored"), "{restored:?}");
    drop(served);
    let again = Served::start(
        store
            .gannet(&format!("server --listen 127.0.0.1:0 --threads 2 --restore {url}@3 --checkpoint {url}")),
    );
    let saved = store.ok(&format!("checkpoint save {url} --ps-hosts {}", again.addr));
    assert!(saved.out.starts_with("checkpoint 5 (full)"), "{saved:?}");
    let same = store.ok(&format!("checkpoint diff {url} 4 5"));
    assert!(same.out.contains(": 0 rows added, 0 removed, 0 changed, "), "{same:?}");
}

#[test]
#[ignore = "needs an object store: scripts/test_cloud.sh"]
fn a_bucket_that_cannot_be_used_is_named() {
    let store = ObjectStore::start(None);
    let folder = tempfile::tempdir().unwrap();
    let absent = store.run("checkpoint ls s3://absent/job");
    assert!(absent.code != Some(0) && absent.err.contains("there is no such bucket"), "{absent:?}");
    let scheme = store.run("checkpoint ls ftp://models/job");
    assert!(scheme.code == Some(2) && scheme.err.contains("ftp://models/job"), "{scheme:?}");
    let empty = store.run("checkpoint verify s3://models/nothing");
    assert!(empty.code == Some(2) && empty.err.contains("s3://models/nothing"), "{empty:?}");
    let (_served, save) = trained(&store, "s3://models/a", folder.path());
    let other = store.run(&save.replace("s3://models/a", "s3://models/b"));
    assert!(other.code != Some(0) && other.err.contains("cannot reach the folder"), "{other:?}");

    let strict = ObjectStore::start(Some(1));
    let wrong = strict.run("checkpoint ls s3://models/job");
    assert!(wrong.code == Some(1) && wrong.err.contains("AWS_ACCESS_KEY_ID"), "{wrong:?}");
}

/// A save that loses its store fails by name and leaves nothing that passes for a checkpoint. The next one works.
#[test]
#[ignore = "needs an object store: scripts/test_cloud.sh"]
fn a_store_that_is_lost_in_the_middle_of_a_save_costs_only_that_save() {
    let (store, folder) = (ObjectStore::start(None), tempfile::tempdir().unwrap());
    let url = "s3://models/job";
    let (_served, save) = trained(&store, url, folder.path());
    store.ok(&save);
    let bytes = i64::MAX - store.left.load(SeqCst);
    let mut failed = 0;
    for part in 1..4 {
        store.left.store(bytes * part / 5, SeqCst);
        let done = store.run(&save);
        store.left.store(i64::MAX, SeqCst);
        if done.code != Some(0) {
            failed += 1;
            assert!(done.err.contains(url), "{done:?}");
        }
        let before = store.valid(url);
        assert_eq!(before[0], 1);
        store.ok(&save);
        assert_eq!(store.valid(url).len(), before.len() + 1);
    }
    assert!(failed > 0 && store.cut.load(SeqCst) > 0, "no save was cut");
}

#[test]
#[ignore = "needs an object store: scripts/test_cloud.sh"]
fn a_job_that_was_killed_goes_on_from_the_bucket() {
    let (store, folder) = (ObjectStore::start(None), tempfile::tempdir().unwrap());
    let url = "s3://models/killed";
    let data = clicks(&folder.path().join("train.svm"), 20_480, 5);
    let hosts = format!("--ps-hosts {} --worker-hosts w:0 --checkpoint {url}", free_addr());
    let start = || {
        let ps = store.gannet(&format!("train --job-name ps --task-index 0 {hosts} --threads 2"));
        let server = Served::start(ps);
        let worker = store.gannet(&format!(
            "train {} --job-name worker --task-index 0 {hosts} --checkpoint-secs 1 --epochs 60 --batch 32 --json \
             --peer-timeout 30 --out {}",
            data.display(),
            folder.path().join("model").display()
        ));
        (server, Process::start(worker))
    };
    let (server, mut worker) = start();
    let begun = Instant::now();
    while store.valid(url).is_empty() {
        assert!(begun.elapsed() < limit(), "no checkpoint");
    }
    assert!(worker.child.0.try_wait().unwrap().is_none(), "the job was over before it was killed");
    drop(worker);
    server.kill();
    let (_server, worker) = start();
    let done = worker.wait();
    assert_eq!(done.code, Some(0), "{done:?}");
    // With tasks, the scheduler's state of the checkpoint says which records are trained already.
    let trained = done.json()["examples"].as_u64().unwrap();
    assert!(trained > 0 && trained < 20_480 * 60, "{done:?}");
}

//! SIGKILL at every step of saving and pruning checkpoints. A child process saves full checkpoints and increments, and
//! prunes after each. It kills itself at its n-th kill point, for every n. Whatever the child had published is then the
//! newest valid checkpoint or older than it, every checkpoint that passes for valid is complete, and saving goes on.

use crate::{child, finishes, folder, number};
use gannet_core::*;
use gannet_optim::{Add, Rule};
use std::collections::BTreeMap;
use std::path::Path;

const STEPS: u64 = 7;
const KEEP: u32 = 2;
const SHARDS: u32 = 2;

fn schema() -> Schema {
    Schema { shards: SHARDS, ..Schema::scalar("clicks", Rule::Add(Add)) }
}

/// Rows that step `n` sets, and keys that it deletes.
fn changed(n: u64) -> (Vec<u64>, Vec<u64>) {
    ((n * 10..n * 10 + 15).collect(), (n * 10 - 5..n * 10).collect())
}

/// All rows after step `n`.
fn model(n: u64) -> BTreeMap<u64, f32> {
    let mut rows = BTreeMap::new();
    for step in 1..=n {
        let (set, deleted) = changed(step);
        rows.extend(set.into_iter().map(|key| (key, step as f32)));
        deleted.iter().for_each(|key| {
            rows.remove(key);
        });
    }
    rows
}

fn step_of(manifest: &JobManifest) -> u64 {
    manifest.note("step").unwrap().parse().unwrap()
}

/// Saves step `n`: every third one whole, the others as increments of the newest.
fn save(directory: &CheckpointDir, n: u64) {
    let newest = directory.newest_valid().unwrap();
    let before = newest.as_ref().map_or(0, step_of);
    let parent = newest.filter(|_| n % 3 != 1).map(|manifest| manifest.number);
    let draft = directory.begin().unwrap();
    let from = if parent.is_some() { before } else { 0 };
    let cut = |shard| ShardCut { shard, birth: 7, epoch: 1, from, to: n, file: None };
    let (uid, cursors) = (TableUid([3; 16]), Vec::new());
    let table = TableCut { schema: schema(), uid, shards: (0..SHARDS).map(cut).collect(), cursors };
    let mut manifest = JobManifest { parent, tables: vec![table], ..JobManifest::new(draft.number(), "run") };
    let rows: Vec<(u64, f32)> = match parent {
        None => model(n).into_iter().collect(),
        Some(_) => model(n).into_iter().filter(|(_, step)| *step as u64 > before).collect(),
    };
    let deleted: Vec<u64> =
        model(before).into_keys().filter(|key| parent.is_some() && !model(n).contains_key(key)).collect();
    for shard in 0..SHARDS {
        let here = |key: u64| shard_of(hash(key), SHARDS) == shard;
        let head = manifest.row_file_head(0, shard).unwrap();
        let mut writer = RowFileWriter::create(directory, head, 1).unwrap();
        for (key, value) in rows.iter().filter(|(key, _)| here(*key)) {
            writer.rows(&[*key], &[*value]).unwrap();
        }
        if parent.is_some() {
            let deleted: Vec<u64> = deleted.iter().copied().filter(|key| here(*key)).collect();
            writer.deletions(&deleted).unwrap();
        }
        manifest.tables[0].shards[shard as usize].file = Some(writer.finish().unwrap());
    }
    manifest.states.push(draft.state("tasks", &n.to_le_bytes()).unwrap());
    manifest.notes.push(("step".into(), n.to_string()));
    draft.publish(&manifest).unwrap();
}

/// The child: saves and prunes from step 1 on, and is killed after so many kill points.
#[test]
fn play() {
    let Ok(folder) = std::env::var("KILL_FOLDER") else { return };
    let folder = Path::new(&folder);
    kill::after(number("KILL_AFTER"));
    let directory = CheckpointDir::create(&folder.join("checkpoints")).unwrap();
    for n in 1..=STEPS {
        save(&directory, n);
        std::fs::write(folder.join("new"), n.to_string()).unwrap();
        std::fs::rename(folder.join("new"), folder.join("published")).unwrap();
        directory.prune(KEEP).unwrap();
    }
    std::process::exit(42);
}

/// Every checkpoint that passes for valid is complete: all bytes are right, and all rows are those of its step.
fn check(directory: &CheckpointDir, context: &str) {
    for listed in directory.list().unwrap() {
        let manifest = match listed.state {
            CheckpointState::Valid(manifest) => manifest,
            CheckpointState::Incomplete => continue,
            CheckpointState::Damaged(error) => panic!("{context}: {error}"),
        };
        directory.verify(listed.number).unwrap_or_else(|error| panic!("{context}: {error}"));
        let chain = directory.chain(listed.number).unwrap();
        let mut rows = BTreeMap::new();
        for shard in 0..SHARDS {
            let put =
                |keys: &[u64], floats: &[f32]| rows.extend(keys.iter().copied().zip(floats.iter().copied()));
            directory.shard_rows(&chain, "clicks", shard, put).unwrap();
        }
        let step = step_of(&manifest);
        assert_eq!(rows, model(step), "{context}: checkpoint {} of step {step}", listed.number);
        assert_eq!(directory.read_state(&manifest, "tasks").unwrap(), step.to_le_bytes(), "{context}");
    }
}

#[test]
fn every_step_of_a_save_and_a_prune_can_be_the_last() {
    let mut kills = 0;
    loop {
        let after = kills + 1;
        let folder = folder();
        let finished = finishes(child("checkpoints::play", folder.path(), after));
        let context = format!("killed at point {after}");
        let published = std::fs::read_to_string(folder.path().join("published"));
        let published = published.map_or(0, |text| text.parse::<u64>().unwrap());
        let directory = CheckpointDir::create(&folder.path().join("checkpoints")).unwrap();
        check(&directory, &context);
        let newest = directory.newest_valid().unwrap().as_ref().map_or(0, step_of);
        assert!(newest == published || newest == published + 1, "{context}: {newest}, published {published}");
        // Another process goes on from there. At the end nothing is left of the save that was cut short.
        for n in newest + 1..=STEPS {
            save(&directory, n);
            directory.prune(KEEP).unwrap();
            check(&directory, &context);
        }
        let pruned = directory.prune(KEEP).unwrap();
        assert!(pruned.damaged.is_empty(), "{context}: {pruned:?}");
        assert_eq!(directory.newest_valid().unwrap().as_ref().map(step_of), Some(STEPS), "{context}");
        // A kill before the mark of a folder leaves one that nobody takes for a checkpoint.
        let is_unmarked = |path: &Path| {
            let mut names = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
            names.all(|name| name == "RESERVED.new")
        };
        let folders = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
        let left = folders.filter(|path| !is_unmarked(path)).count();
        assert_eq!(left, pruned.kept.len() + pruned.unfinished.len(), "{context}");
        if finished {
            break;
        }
        assert!(pruned.unfinished.is_empty() || newest == STEPS, "{context}: {pruned:?}");
        kills += 1;
    }
    assert!(kills > 100, "only {kills} kill points were passed");
    println!("{kills} kills");
}

//! `gannet checkpoint`: the checkpoints of a job, listed, checked, compared, pruned, exported and imported.

use crate::harness;

use gannet::optim::AdaGrad;
use gannet::storage::{CheckpointDir, Cursor, JobManifest, RowFileWriter, ShardCut, TableCut, TableUid};
use gannet::table::{hash, shard_of};
use gannet::{Rule, Schema};
use harness::*;
use std::collections::BTreeMap;
use std::path::Path;

const SHARDS: u32 = 4;

fn schema() -> Schema {
    let rule = Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 1.0 });
    Schema { dim: 2, shards: SHARDS, ..Schema::scalar("users", rule) }
}

/// A stored row: two weights, two accumulators.
fn row(key: u64, value: f32) -> [f32; 4] {
    [value, key as f32 / 4.0, 1.0, 1.0 + value * value]
}

/// Saves rows, and deletions if there is a parent.
fn save(folder: &Path, parent: Option<u64>, rows: &BTreeMap<u64, f32>, deleted: &[u64]) -> u64 {
    let directory = CheckpointDir::create(folder).unwrap();
    let draft = directory.begin().unwrap();
    let (from, to) = (parent.unwrap_or(0), draft.number());
    let cut = |shard| ShardCut { shard, birth: 9, epoch: 1, from, to, file: None };
    let cursors = vec![Cursor { pusher: 0, incarnation: 1, seq: to, closed: false }];
    let table = TableCut {
        schema: schema(),
        uid: TableUid([5; 16]),
        shards: (0..SHARDS).map(cut).collect(),
        cursors,
    };
    let mut manifest = JobManifest { parent, tables: vec![table], ..JobManifest::new(to, "monday") };
    for shard in 0..SHARDS {
        let here = |key: &u64| shard_of(hash(*key), SHARDS) == shard;
        let head = manifest.row_file_head(0, shard).unwrap();
        let mut writer = RowFileWriter::create(&directory, head, 1).unwrap();
        for (key, value) in rows.iter().filter(|(key, _)| here(key)) {
            writer.rows(&[*key], &row(*key, *value)).unwrap();
        }
        if parent.is_some() {
            writer.deletions(&deleted.iter().copied().filter(here).collect::<Vec<u64>>()).unwrap();
        }
        manifest.tables[0].shards[shard as usize].file = Some(writer.finish().unwrap());
    }
    manifest.states.push(draft.state("tasks", b"three of nine").unwrap());
    manifest.notes.push(("complete".into(), "0".into()));
    draft.publish(&manifest).unwrap();
    to
}

/// A folder with checkpoint 1 (100 rows), its increment 2 (10 new rows, 5 changed, 3 deleted), a whole one 3, and a
/// save that was cut short.
fn some() -> (tempfile::TempDir, String, BTreeMap<u64, f32>) {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = folder.path().join("checkpoints");
    let mut rows: BTreeMap<u64, f32> = (0..100).map(|key| (key, 0.5)).collect();
    save(&path, None, &rows, &[]);
    let changed: BTreeMap<u64, f32> = (95..110).map(|key| (key, 1.5)).collect();
    save(&path, Some(1), &changed, &[1, 2, 3]);
    [1, 2, 3].iter().for_each(|key| {
        rows.remove(key);
    });
    rows.extend(changed);
    save(&path, None, &rows, &[]);
    CheckpointDir::open(&path).unwrap().begin().unwrap();
    let path = path.display().to_string();
    (folder, path, rows)
}

/// Changes a byte in the middle of a file.
fn damage(dir: &str, file: &str) {
    let path = Path::new(dir).join(file);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn ls_and_show_say_what_is_there() {
    let (_folder, dir, _) = some();
    let listed = ok(&format!("checkpoint ls {dir}")).out;
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 5, "{listed}");
    for (line, words) in lines[1..].iter().zip([
        &["1 ", "100", "full", "valid"][..],
        &["2 ", "15", "increment of 1", "valid"],
        &["3 ", "107", "full", "valid"],
        &["4 ", "incomplete"],
    ]) {
        assert!(words.iter().all(|word| line.contains(word)), "{words:?} in {line}");
    }
    let json = ok(&format!("checkpoint ls {dir} --json")).json();
    let states: Vec<&str> =
        json["checkpoints"].as_array().unwrap().iter().map(|c| c["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["valid", "valid", "valid", "incomplete"], "{json}");
    assert_eq!(
        (&json["checkpoints"][1]["parent"], &json["checkpoints"][1]["deletions"]),
        (&1.into(), &3.into())
    );

    let shown = ok(&format!("checkpoint show {dir} 2")).out;
    for words in [
        "checkpoint 2 of run \"monday\": increment of 1, 15 rows, 3 deletions",
        "it needs the checkpoints 1",
        "table users (id 05050505",
        "2 weights",
        "4 shards",
        "note complete: 0",
        "state tasks",
    ] {
        assert!(shown.contains(words), "{words} in {shown}");
    }
    let json = ok(&format!("checkpoint show {dir} --json")).json();
    assert_eq!((&json["number"], &json["rows"]), (&3.into(), &107.into()));
    assert_eq!(json["tables"][0]["shards"].as_array().unwrap().len(), 4, "{json}");
}

#[test]
fn damage_is_named_and_a_good_checkpoint_is_offered() {
    let (_folder, dir, _) = some();
    assert!(ok(&format!("checkpoint verify {dir}")).out.contains("checkpoint 3 is good"));
    assert!(ok(&format!("checkpoint verify {dir} 2")).out.contains("of 2 checkpoints"));
    damage(&dir, "0000000003/t00-0002.rows");
    let done = run(&format!("checkpoint verify {dir}"));
    assert_eq!(done.code, Some(1), "{done:?}");
    for words in ["0000000003/t00-0002.rows", "block", "the newest good checkpoint", "is 2"] {
        assert!(done.err.contains(words), "{words} in {done:?}");
    }
    let json = run(&format!("checkpoint verify {dir} 3 --json")).json();
    assert_eq!((&json["good"], &json["newest_good"]), (&false.into(), &2.into()));
    // The first checkpoint is damaged too: its increment cannot be used either.
    std::fs::write(Path::new(&dir).join("0000000001/MANIFEST"), b"GANNETJM").unwrap();
    let listed = ok(&format!("checkpoint ls {dir}")).out;
    assert_eq!(listed.matches("damaged: ").count(), 2, "{listed}");
    refused(&format!("checkpoint show {dir} 2"), &["0000000001/MANIFEST", "is 3"]);
    refused(&format!("checkpoint show {dir} 4"), &["no MANIFEST", "is 3"]);
    refused(&format!("checkpoint ls {dir}/nowhere"), &["nowhere", "--checkpoint"]);
    std::fs::create_dir(format!("{dir}/empty")).unwrap();
    refused(&format!("checkpoint verify {dir}/empty"), &["empty", "no checkpoint"]);
}

#[test]
fn diff_counts_and_lists_rows() {
    let (_folder, dir, _) = some();
    let diff = ok(&format!("checkpoint diff {dir} 1 2 --keys 3")).out;
    assert!(diff.contains("table users: 10 rows added, 3 removed, 5 changed, 92 the same"), "{diff}");
    let keys = |what: &str| -> Vec<u64> {
        let line = diff.lines().find_map(|line| line.trim().strip_prefix(what)).unwrap();
        line.split_whitespace().map(|key| key.parse().unwrap()).collect()
    };
    let mut removed = keys("removed:");
    removed.sort_unstable();
    assert_eq!((removed, keys("added:").len(), keys("changed:").len()), (vec![1, 2, 3], 3, 3));
    let same = ok(&format!("checkpoint diff {dir} 2 3")).out;
    assert!(same.contains("0 rows added, 0 removed, 0 changed, 107 the same"), "{same}");
}

#[test]
fn prune_removes_what_it_said() {
    let (_folder, dir, _) = some();
    let dry = ok(&format!("checkpoint prune {dir} --keep 1 --dry-run")).out;
    assert!(dry.contains("would remove: 1, 2") && dry.contains("would keep: 3"), "{dry}");
    let listed = ok(&format!("checkpoint ls {dir} --json")).json();
    assert_eq!(listed["checkpoints"].as_array().unwrap().len(), 4);
    let kept = ok(&format!("checkpoint prune {dir} --keep 2")).out;
    assert!(kept.contains("removed: none") && kept.contains("kept: 1, 2, 3"), "{kept}");
    let done = ok(&format!("checkpoint prune {dir} --keep 1")).out;
    assert!(done.contains("removed: 1, 2") && done.contains("in progress: 4"), "{done}");
    assert!(!Path::new(&dir).join("0000000001").exists());
    refused(&format!("checkpoint prune {dir} --keep 0"), &["--keep"]);
}

/// The rows of a text file: weights as floats, by key.
fn text_rows(file: &str) -> BTreeMap<u64, Vec<f32>> {
    let rows = std::fs::read_to_string(file).unwrap();
    let row = |line: &str| {
        let (key, values) = line.split_once(' ').unwrap();
        (key.parse().unwrap(), values.split(' ').map(|value| value.parse().unwrap()).collect())
    };
    rows.lines().map(row).collect()
}

#[test]
fn rows_leave_and_come_back_in_every_format() {
    let (folder, dir, rows) = some();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let text = at("rows.txt");
    // An increment: its rows, and those of its parent that it neither changes nor deletes.
    ok(&format!("checkpoint export {dir} 2 --table users --format text --state {text}"));
    let want: BTreeMap<u64, Vec<f32>> =
        rows.iter().map(|(key, value)| (*key, row(*key, *value).to_vec())).collect();
    assert_eq!(text_rows(&text), want);
    ok(&format!("checkpoint export {dir} --table users --format text {text}"));
    let weights = want.iter().map(|(key, row)| (*key, row[..2].to_vec())).collect();
    assert_eq!(text_rows(&text), weights);

    for format in ["npz", "safetensors"] {
        let (file, copy) = (at(&format!("rows.{format}")), at(&format!("copy-{format}")));
        let flags = format!("--table users --format {format}");
        ok(&format!("checkpoint export {dir} {flags} --state {file}"));
        let optimizer = "--optimizer adagrad --dim 2 --state --shards 8";
        let said = ok(&format!("checkpoint import {file} {flags} {optimizer} {copy}")).out;
        assert!(said.contains("107 rows of table users are checkpoint 1"), "{said}");
        ok(&format!("checkpoint verify {copy}"));
        ok(&format!("checkpoint export {copy} --table users --format text --state {text}"));
        assert_eq!(text_rows(&text), want, "{format}");
        // All of these weights are numbers of bf16 and of f16.
        for row_type in ["bf16", "f16"] {
            let small = at(&format!("{row_type}-{format}"));
            ok(&format!("checkpoint import {file} {flags} {optimizer} --row-type {row_type} {small}"));
            ok(&format!("checkpoint verify {small}"));
            ok(&format!("checkpoint export {small} --table users --format text --state {text}"));
            assert_eq!(text_rows(&text), want, "{format}");
            ok(&format!("checkpoint export {small} --table users --format text {text}"));
            assert_eq!(text_rows(&text), weights, "{format}");
        }
        // Weights alone: the state begins anew, and the weights are those of the file.
        ok(&format!("checkpoint export {dir} {flags} {file}"));
        ok(&format!("checkpoint import {file} {flags} --optimizer sgd {copy}"));
        ok(&format!("checkpoint export {copy} 2 --table users --format text {text}"));
        assert_eq!(text_rows(&text), weights, "{format}");
    }
    refused(&format!("checkpoint export {dir} x --table users --format text {text}"), &["x is no number"]);
    refused(&format!("checkpoint export {dir} --table ads --format text {text}"), &["ads", "users"]);
}

#[test]
fn bad_arrays_are_refused_by_name() {
    let (folder, dir, _) = some();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let copy = at("copy");
    for format in ["npz", "safetensors"] {
        let file = at(&format!("rows.{format}"));
        let flags = format!("--table users --format {format}");
        ok(&format!("checkpoint export {dir} {flags} {file}"));
        let good = std::fs::read(&file).unwrap();
        let import = format!("checkpoint import {file} {flags} {copy}");
        refused(&format!("{import} --dim 3"), &["2 values", "--dim 3"]);
        refused(&format!("{import} --dim 2 --state"), &["2 values", "4 floats"]);
        refused(&format!("{import} --push replay"), &["--push"]);
        refused(&format!("{import} --row-type bf16 --optimizer ftrl"), &["--row-type bf16", "ftrl"]);
        refused(&format!("{import} --shards 3"), &["power of two"]);
        for length in [0, 7, good.len() / 2, good.len() - 1] {
            std::fs::write(&file, &good[..length]).unwrap();
            refused(&import, &[&file]);
        }
        // The second key is the first one's again. Archives have a checksum, so this needs a file without one.
        if format == "safetensors" {
            let start = 8 + u64::from_le_bytes(good[..8].try_into().unwrap()) as usize;
            let mut twice = good.clone();
            twice.copy_within(start..start + 8, start + 8);
            std::fs::write(&file, &twice).unwrap();
            refused(&import, &["twice"]);
            let last = good.len() - 4;
            let mut infinite = good.clone();
            infinite[last..].copy_from_slice(&f32::INFINITY.to_le_bytes());
            std::fs::write(&file, &infinite).unwrap();
            refused(&import, &["must be finite"]);
            let mut beyond = good.clone();
            beyond[last..].copy_from_slice(&65_505.0f32.to_le_bytes());
            std::fs::write(&file, &beyond).unwrap();
            refused(&format!("{import} --row-type f16"), &["weights of f16", "within the range"]);
        } else {
            let mut changed = good.clone();
            changed[300] ^= 1;
            std::fs::write(&file, &changed).unwrap();
            refused(&import, &[&file]);
        }
        std::fs::write(&file, &good).unwrap();
        refused(&format!("{import}-other --format text"), &["--format"]);
        refused(&format!("checkpoint import {file} {flags} {dir} --run tuesday"), &["monday", "tuesday"]);
    }
    let left = std::fs::read_dir(&copy).map_or(0, Iterator::count);
    assert_eq!(left, 0, "a refused import leaves nothing");
}

/// A file of numpy.savez_compressed, with int64 keys 3, -1 and 2^40.
#[test]
fn a_file_of_numpy_is_imported() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/command/numpy_compressed.npz");
    ok(&format!("checkpoint import {file} --table users --format npz --optimizer sgd {}", at("copy")));
    ok(&format!("checkpoint export {} --table users --format text {}", at("copy"), at("rows.txt")));
    let want = [(3, vec![0.0, 0.25]), (u64::MAX, vec![0.5, 0.75]), (1 << 40, vec![1.0, 1.25])];
    assert_eq!(text_rows(&at("rows.txt")), want.into());
}

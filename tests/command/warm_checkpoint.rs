//! `--warm-start` with a checkpoint of a job: its rows are those of its full checkpoint and the increments after it.

use crate::harness;
use crate::saving::{close, rows, scratch};

use gannet::Schema;
use gannet::storage::{Checkpoint, CheckpointDir, JobManifest, RowFileWriter, ShardCut, TableCut, TableUid};
use gannet::table::{hash, shard_of};
use harness::*;
use std::path::Path;

const SHARDS: u32 = 4;

/// Saves rows and deletions of a table of run "monday" as the next checkpoint.
fn save(
    folder: &Path,
    schema: &Schema,
    parent: Option<u64>,
    rows: &[(u64, Vec<f32>)],
    deleted: &[u64],
) -> u64 {
    let directory = CheckpointDir::create(folder).unwrap();
    let draft = directory.begin().unwrap();
    let (from, to) = (parent.unwrap_or(0), draft.number());
    let cut = |shard| ShardCut { shard, birth: 9, epoch: 1, from, to, file: None };
    let schema = Schema { name: format!("monday.{}", schema.name), shards: SHARDS, ..schema.clone() };
    let shards = (0..SHARDS).map(cut).collect();
    let table = TableCut { schema, uid: TableUid([5; 16]), shards, cursors: Vec::new() };
    let mut manifest = JobManifest { parent, tables: vec![table], ..JobManifest::new(to, "monday") };
    for shard in 0..SHARDS {
        let here = |key: u64| shard_of(hash(key), SHARDS) == shard;
        let head = manifest.row_file_head(0, shard).unwrap();
        let mut writer = RowFileWriter::create(&directory, head, 1).unwrap();
        for (key, row) in rows.iter().filter(|(key, _)| here(*key)) {
            writer.rows(&[*key], row).unwrap();
        }
        if parent.is_some() {
            writer
                .deletions(&deleted.iter().copied().filter(|&key| here(key)).collect::<Vec<u64>>())
                .unwrap();
        }
        manifest.tables[0].shards[shard as usize].file = Some(writer.finish().unwrap());
    }
    draft.publish(&manifest).unwrap();
    to
}

/// The rows of a saved model as a full checkpoint and an increment: of every third row the full one has another state,
/// and it has rows that the increment deletes. Rows of a job with several workers have a count of pushes behind them.
fn as_checkpoints(model: &Path, folder: &Path, counts: bool) -> [u64; 2] {
    let saved = Checkpoint::open(model).unwrap();
    let (stored, mut all) = (saved.schema().floats(), Vec::new());
    let schema = if counts { saved.schema().counting() } else { saved.schema().clone() };
    let floats = schema.floats();
    let row = |row: &[f32]| row.iter().copied().chain(counts.then_some(7.0)).collect::<Vec<f32>>();
    saved
        .read(|keys, rows| all.extend(keys.iter().copied().zip(rows.chunks_exact(stored).map(row))))
        .unwrap();
    let changed = all.iter().step_by(3).cloned().collect::<Vec<_>>();
    let mut before = all;
    before.iter_mut().step_by(3).for_each(|(_, row)| row.fill(0.5));
    let gone: Vec<u64> = (1 << 50..(1 << 50) + 20).collect();
    before.extend(gone.iter().map(|&key| (key, vec![2.0; floats])));
    let full = save(folder, &schema, None, &before, &[]);
    [full, save(folder, &schema, Some(full), &changed, &gone)]
}

#[test]
fn a_checkpoint_of_a_job_is_a_warm_start() {
    warm_start(false);
    warm_start(true);
}

fn warm_start(counts: bool) {
    let folder = scratch();
    let f = folder.path();
    let data = |name: &str, seed| clicks(&f.join(name), 2_000, seed).display().to_string();
    let (a, b) = (data("a.svm", 1), data("b.svm", 2));
    let [model, checkpoints, on, want] = ["model", "checkpoints", "on", "want"].map(|name| f.join(name));
    // The checkpoints have no table of the normalization.
    ok(&format!("train {a} --intercept-start zero --out {}", model.display()));
    let [full, increment] = as_checkpoints(&model, &checkpoints, counts);
    ok(&format!("train {b} --warm-start {} --out {}", model.display(), want.display()));
    let named = checkpoints.display().to_string();
    for warm in [
        named.clone(),
        format!("{named}@{increment}"),
        CheckpointDir::open(&checkpoints).unwrap().folder(increment).display().to_string(),
    ] {
        let done = ok(&format!("train {b} --warm-start {warm} --out {}", on.display()));
        assert!(done.err.contains("does not say which columns are numbers"), "{done:?}");
        assert!(!done.err.contains("starts from zero"), "the optimizer is the same: {done:?}");
        assert_eq!(rows(&on), rows(&want), "{warm}");
    }
    // The full checkpoint has other rows, and more of them.
    ok(&format!("train {b} --warm-start {named}@{full} --out {}", on.display()));
    assert!(rows(&on).contains_key(&(1 << 50)) && rows(&on) != rows(&want));
    // Another optimizer takes the weights.
    let still = "--optimizer sgd --alpha 1e-30";
    let done = ok(&format!("train {a} {still} --warm-start {named} --out {}", on.display()));
    assert!(done.err.contains("starts from zero"), "{done:?}");
    close(&on.display().to_string(), &model.display().to_string(), &a);
    ok(&format!(
        "train {a} --optimizer lbfgs --l2 1 --max-iter 1 --warm-start {named} --out {}",
        on.display()
    ));
}

#[test]
fn a_checkpoint_that_cannot_be_a_warm_start_is_refused_by_name() {
    let folder = scratch();
    let f = folder.path();
    let a = clicks(&f.join("a.svm"), 300, 1).display().to_string();
    let [model, checkpoints] = ["model", "checkpoints"].map(|name| f.join(name));
    ok(&format!("train {a} --out {}", model.display()));
    let [full, increment] = as_checkpoints(&model, &checkpoints, false);
    let (named, directory) = (checkpoints.display().to_string(), CheckpointDir::open(&checkpoints).unwrap());
    let warm = |more: &str| format!("train {a} {more} --warm-start {named}");
    refused(&warm("--model fm --factors 4"), &["--warm-start", "no table", "monday.lr"]);
    refused(&format!("{}@77", warm("")), &["--warm-start", "77", &increment.to_string()]);
    // Damaged rows of an increment, and then no full checkpoint.
    let file = std::fs::read_dir(directory.folder(increment)).unwrap().map(|entry| entry.unwrap().path());
    let file = file.filter(|path| path.extension().is_some_and(|kind| kind == "rows")).min().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    refused(&warm(""), &["--warm-start", &file.display().to_string()]);
    std::fs::remove_dir_all(directory.folder(full)).unwrap();
    refused(&warm(""), &["--warm-start", &format!("increment of checkpoint {full}")]);
    std::fs::remove_dir_all(directory.folder(increment)).unwrap();
    refused(&warm(""), &["--warm-start", &named]);
}

//! Readers beside writers: `predict` beside a training that saves, `restore` and `verify` beside a job that prunes.

use crate::harness;

use super::saving::scratch;
use gannet::Schema;
use gannet::storage::{Checkpoint, CheckpointDir, CheckpointWriter, JobManifest, remove_model};
use harness::*;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

/// A table with its rows.
struct Table {
    schema: Schema,
    rows: Vec<(Vec<u64>, Vec<f32>)>,
    notes: Vec<(&'static str, String)>,
}

impl Table {
    fn read(folder: &Path) -> Option<Table> {
        let from = Checkpoint::open(folder).ok()?;
        let mut rows = Vec::new();
        from.read(|keys, values| rows.push((keys.to_vec(), values.to_vec()))).unwrap();
        let names = [
            "model",
            "classes",
            "factors",
            "hidden",
            "generation",
            "format",
            "intercept",
            "complete",
            "normalize",
            "normalized-features",
        ];
        let notes = names.into_iter().filter_map(|name| Some((name, from.note(name)?.to_owned()))).collect();
        Some(Table { schema: from.schema().clone(), rows, notes })
    }

    /// Saves the table as part of a save with this name.
    fn save(&self, folder: &Path, save: &str) {
        let mut writer = CheckpointWriter::create(folder, &self.schema).unwrap();
        self.notes.iter().for_each(|(name, value)| writer.note(name, value));
        writer.note("save", save);
        self.rows.iter().for_each(|(keys, values)| writer.add(keys, values));
        writer.finish().unwrap();
    }
}

/// Stops the writer at the end of the test, also when it fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Of 7,136 predictions 17 ended with "damaged" or "no gannet checkpoint here".
#[test]
fn predict_beside_a_training_that_saves_finds_the_old_model_or_the_new_one() {
    let folder = scratch();
    let data = clicks(&folder.path().join("train.svm"), 300, 1).display().to_string();
    for flags in ["", "--model deepfm --factors 2 --hidden 2"] {
        let out = folder.path().join(format!("model{}", flags.len()));
        let name = out.display().to_string();
        ok(&format!("train {data} {flags} --out {name}"));
        let predict = format!("predict --model {name} {data}");
        let scores = ok(&predict).out;
        let first = Table::read(&out).unwrap();
        let folders = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
        let mut layers: Vec<_> = folders.filter_map(|path| Some((Table::read(&path)?, path))).collect();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _over = Over(&over);
            scope.spawn(|| {
                // As a training saves: the first table last, and then the others of the save before go.
                for save in (0..).map(|save: u32| save.to_string()).take_while(|_| !over.load(SeqCst)) {
                    let named = |table: &Table| out.join(format!("{}-{save}", table.schema.name));
                    layers.iter().for_each(|(table, _)| table.save(&named(table), &save));
                    first.save(&out, &save);
                    for (table, path) in &mut layers {
                        remove_model(path).unwrap();
                        *path = named(table);
                    }
                }
            });
            for round in 0..60 {
                let done = run(&predict);
                assert_eq!((done.code, &done.out), (Some(0), &scores), "round {round}: {}", done.err);
            }
            let again = folder.path().join(format!("again{}", flags.len()));
            for round in 0..5 {
                let line = format!("train {data} {flags} --warm-start {name} --out {}", again.display());
                let done = run(&line);
                assert_eq!(done.code, Some(0), "round {round}: {}", done.err);
            }
        });
    }
}

/// Of 86 restores 50 said "damaged".
#[test]
fn restore_and_verify_beside_a_job_that_prunes_find_no_damage() {
    let folder = scratch();
    let path = folder.path().join("checkpoints");
    let directory = CheckpointDir::create(&path).unwrap();
    let save = || {
        let draft = directory.begin().unwrap();
        let states = ["a", "b", "c", "d"].map(|name| (name.to_owned(), vec![7; 10_000]));
        let states = draft.states(&states).unwrap();
        let manifest = JobManifest { states, ..JobManifest::new(draft.number(), "monday") };
        draft.publish(&manifest).unwrap();
    };
    save();
    let (dir, out) = (path.display(), folder.path().join("out"));
    let over = AtomicBool::new(false);
    let (mut pruned, prunes) = (0, AtomicU32::new(0));
    std::thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            while !over.load(SeqCst) {
                save();
                directory.prune(1).unwrap();
                prunes.fetch_add(1, SeqCst);
            }
        });
        for round in 0..40 {
            let done = run(&format!("checkpoint verify {dir}"));
            assert_eq!(done.code, Some(0), "round {round}: {}", done.err);
            let out = out.join(round.to_string());
            let done = run(&format!("checkpoint restore {dir} --data-dir {}", out.display()));
            assert_eq!(done.code, Some(0), "round {round}: {}", done.err);
            let newest = directory.newest_valid().unwrap().unwrap().number;
            // On a slow disk no other round may meet a prune.
            let before = prunes.load(SeqCst);
            while round == 0 && prunes.load(SeqCst) < before + 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let done = run(&format!("checkpoint verify {dir} {newest}"));
            if done.code == Some(2) {
                let says = "use a newer one; the newest good checkpoint in";
                assert!(
                    done.err.contains("removed while it was read") && done.err.contains(says),
                    "{done:?}"
                );
                pruned += 1;
                continue;
            }
            // It was gone before the first of its files was read.
            let is_gone = done.code == Some(1) && done.err.contains("there is no whole checkpoint here");
            assert!(done.code == Some(0) || is_gone, "round {round}: {}", done.err);
            pruned += u32::from(is_gone);
        }
    });
    assert!(pruned > 0, "nothing was pruned beside a reader");
}

/// Of 1,186 exports 17 ended with "use a newer one".
#[test]
fn an_export_beside_a_prune_takes_the_newer_checkpoint() {
    let folder = scratch();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (dir, arrays) = (at("checkpoints"), at("rows.npz"));
    super::foreign_server_files::save(folder.path(), &folder.path().join("first"));
    ok(&format!("checkpoint export {} {arrays} --table default.lr --format npz", at("first")));
    let import = format!(
        "checkpoint import {arrays} {dir} --format npz --table default.lr --optimizer sgd --shards 64"
    );
    ok(&import);
    let text = |file: &str| {
        let file = at(file);
        ok(&format!("checkpoint export {dir} {file} --table default.lr --format text"));
        let text = std::fs::read_to_string(file).unwrap();
        text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
    };
    let (whole, over) = (text("whole"), AtomicBool::new(false));
    let prunes = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            while !over.load(SeqCst) {
                ok(&import);
                CheckpointDir::open(Path::new(&dir)).unwrap().prune(1).unwrap();
                prunes.fetch_add(1, SeqCst);
            }
        });
        let mut rounds = 0;
        while rounds < 40 || prunes.load(SeqCst) < 10 {
            assert_eq!(text("again"), whole);
            rounds += 1;
        }
    });
}

//! Checkpoint directories against a model in memory; which checkpoint is used when others are damaged.

use super::directory::{CheckpointDir, CheckpointState};
use super::error::CheckpointDirError;
use super::manifest::{JobManifest, ShardCut, StateEntry, TableCut};
use super::names::MANIFEST;
use crate::checkpoint::row_files::row_file_writer::RowFileWriter;
use crate::hash::{hash, shard_of};
use crate::image::files::durability::{Durable, observed};
use crate::push_name::Cursor;
use crate::schema::admission::Admission;
use crate::schema::identity::TableUid;
use crate::schema::table_schema::Schema;
use gannet_optim::{Add, Rule};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const UID: TableUid = TableUid([7; 16]);

/// Rows by key, with the bits of their floats.
type Model = BTreeMap<u64, Vec<u32>>;

fn schema(dim: u32, shards: u32) -> Schema {
    Schema { dim, shards, ..Schema::scalar("clicks", Rule::Add(Add)) }
}

/// What one checkpoint changes: rows that are set, and keys that are deleted.
#[derive(Clone, Debug, Default)]
struct Change {
    set: BTreeMap<u64, f32>,
    deleted: Vec<u64>,
}

/// A manifest without files, for the cut after `step` commands. The parent ended at the command with its number.
fn manifest(schema: &Schema, number: u64, step: u64, parent: Option<u64>) -> JobManifest {
    let from = parent.unwrap_or(0);
    let shard =
        |shard| ShardCut { shard, birth: 50 + u64::from(shard), epoch: 1, from, to: step, file: None };
    let shards = (0..schema.shards).map(shard).collect();
    let cursors = vec![Cursor { pusher: 3, incarnation: 2, seq: step, closed: false }];
    let table = TableCut { schema: schema.clone(), uid: UID, shards, cursors };
    JobManifest { parent, tables: vec![table], ..JobManifest::new(number, "monday") }
}

/// Saves a change as the next checkpoint. Shards without a change have no file.
fn save(directory: &CheckpointDir, schema: &Schema, change: &Change, parent: Option<u64>, level: i32) -> u64 {
    let draft = directory.begin().unwrap();
    let step = draft.number();
    let mut manifest = manifest(schema, draft.number(), step, parent);
    for shard in 0..schema.shards {
        let of_shard = |key: &u64| shard_of(hash(*key), schema.shards) == shard;
        let rows: Vec<(u64, f32)> =
            change.set.iter().filter(|(key, _)| of_shard(key)).map(|(k, v)| (*k, *v)).collect();
        let deleted: Vec<u64> = change.deleted.iter().copied().filter(of_shard).collect();
        if rows.is_empty() && deleted.is_empty() {
            continue;
        }
        let head = manifest.row_file_head(0, shard).unwrap();
        let mut writer = RowFileWriter::create(directory, head, level).unwrap();
        for (key, value) in rows {
            writer.rows(&[key], &vec![value; schema.floats()]).unwrap();
        }
        if !deleted.is_empty() {
            writer.deletions(&deleted).unwrap();
        }
        manifest.tables[0].shards[shard as usize].file = Some(writer.finish().unwrap());
    }
    manifest.states.push(draft.state("tasks", &step.to_le_bytes()).unwrap());
    draft.publish(&manifest).unwrap();
    step
}

/// All rows of a checkpoint.
fn load(directory: &CheckpointDir, number: u64) -> Result<Model, CheckpointDirError> {
    let chain = directory.chain(number)?;
    let mut all = Model::new();
    let schema = &chain.last().unwrap().tables[0].schema;
    for shard in 0..schema.shards {
        directory.shard_rows(&chain, &schema.name, shard, |keys, floats| {
            for (key, row) in keys.iter().zip(floats.chunks(schema.floats())) {
                let twice = all.insert(*key, row.iter().map(|x| x.to_bits()).collect());
                assert_eq!(twice, None, "key {key} was passed on twice");
            }
        })?;
    }
    Ok(all)
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let values = prop_oneof![Just(0.0f32), Just(-1.5), any::<f32>()];
    let change =
        (prop::collection::btree_map(0..400u64, values, 0..120), prop::collection::vec(0..400u64, 0..40));
    let sound = change.prop_map(|(set, mut deleted)| {
        deleted.retain(|key| !set.contains_key(key));
        deleted.sort_unstable();
        deleted.dedup();
        Change { set, deleted }
    });
    prop::collection::vec(sound, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_chain_of_checkpoints_holds_what_a_map_holds(
        changes in changes(),
        dim in 1u32..5,
        log_shards in 0u32..4,
        level in prop_oneof![Just(0), Just(1), Just(-5)],
    ) {
        let folder = tempfile::tempdir().unwrap();
        let directory = CheckpointDir::create(folder.path()).unwrap();
        let schema = schema(dim, 1 << log_shards);
        let (mut model, mut models, mut parent) = (Model::new(), Vec::new(), None);
        for mut change in changes {
            if parent.is_none() {
                change.deleted.clear();
            }
            for key in &change.deleted {
                model.remove(key);
            }
            for (key, value) in &change.set {
                model.insert(*key, vec![value.to_bits(); schema.floats()]);
            }
            let number = save(&directory, &schema, &change, parent, level);
            models.push((number, model.clone()));
            parent = Some(number);
        }
        for (number, model) in &models {
            prop_assert_eq!(&load(&directory, *number).unwrap(), model);
            let verified = directory.verify(*number).unwrap();
            prop_assert_eq!(verified.checkpoints, *number);
        }
        prop_assert_eq!(directory.newest_valid().unwrap().map(|m| m.number), parent);
    }
}

/// A directory with checkpoints 1 (all rows), 2 and 3 (increments), 4 (all rows).
fn four() -> (tempfile::TempDir, CheckpointDir, Schema) {
    let folder = tempfile::tempdir().unwrap();
    let directory = CheckpointDir::create(folder.path()).unwrap();
    let schema = schema(2, 2);
    let set = |keys: std::ops::Range<u64>| keys.map(|key| (key, key as f32)).collect();
    let all = Change { set: set(0..50), deleted: Vec::new() };
    save(&directory, &schema, &all, None, 1);
    save(&directory, &schema, &Change { set: set(60..70), deleted: vec![1, 2] }, Some(1), 1);
    save(&directory, &schema, &Change { set: set(0..3), deleted: vec![60] }, Some(2), 1);
    save(&directory, &schema, &all, None, 1);
    (folder, directory, schema)
}

fn words(directory: &CheckpointDir, number: u64) -> String {
    directory.chain(number).unwrap_err().to_string()
}

#[test]
fn the_newest_good_checkpoint_is_found_and_offered() {
    let (_folder, directory, _) = four();
    let newest = |directory: &CheckpointDir| directory.newest_valid().unwrap().map(|m| m.number);
    assert_eq!(newest(&directory), Some(4));
    assert!(words(&directory, 77).contains("is 4"), "{}", words(&directory, 77));
    let file = directory.folder(4).join("t00-0000.rows");
    let good = std::fs::read(&file).unwrap();
    std::fs::write(&file, &good[1..]).unwrap();
    assert_eq!(newest(&directory), Some(3));
    assert!(words(&directory, 4).contains("bytes were saved") || words(&directory, 4).contains("were saved"));
    assert!(words(&directory, 4).contains("is 3: name it"), "{}", words(&directory, 4));
    // A length that is right and a byte that is wrong: only reading finds it.
    let mut bad = good.clone();
    bad[100] ^= 1;
    std::fs::write(&file, &bad).unwrap();
    assert_eq!(newest(&directory), Some(4));
    let error = directory.verify(4).unwrap_err().to_string();
    assert!(error.contains("t00-0000.rows") && error.contains("is 3: name it"), "{error}");
    std::fs::remove_file(&file).unwrap();
    std::fs::remove_file(directory.folder(2).join(MANIFEST)).unwrap();
    assert_eq!(newest(&directory), Some(1));
    let error = words(&directory, 3);
    assert!(error.contains("increment of checkpoint 2, which is not here"), "{error}");
    let states = directory.list().unwrap();
    let state = |at: usize| match &states[at].state {
        CheckpointState::Valid(_) => "valid",
        CheckpointState::Incomplete => "incomplete",
        CheckpointState::Damaged(_) => "damaged",
    };
    assert_eq!([0, 1, 2, 3].map(state), ["valid", "incomplete", "damaged", "damaged"]);
    std::fs::write(directory.folder(1).join(MANIFEST), b"GANNETJM").unwrap();
    let error = directory.newest_valid().unwrap_err();
    assert!(error.to_string().contains("no other good checkpoint"), "{error}");
}

#[test]
fn damage_below_an_increment_is_found() {
    let (_folder, directory, _) = four();
    let file = directory.folder(1).join("t00-0001.rows");
    let mut bytes = std::fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    for number in [1, 2, 3] {
        let error = directory.verify(number).unwrap_err().to_string();
        assert!(error.contains("0000000001/t00-0001.rows") && error.contains("is 4: name it"), "{error}");
    }
    assert_eq!(directory.verify(4).unwrap().checkpoints, 1);
    let state = directory.folder(4).join("tasks.state");
    std::fs::write(&state, [9; 8]).unwrap();
    let error = directory.verify(4).unwrap_err().to_string();
    assert!(error.contains("tasks.state") && error.contains("no other good"), "{error}");
}

/// An increment must continue its parent's cut. Both the writer and the reader refuse another one.
#[test]
fn increments_of_another_history_are_refused_by_name() {
    type Spoil = fn(&mut JobManifest);
    let spoils: [(&str, Spoil); 6] = [
        ("run", |m| m.run = "tuesday".into()),
        ("id 09090909", |m| m.tables[0].uid = TableUid([9; 16])),
        ("birth 1,", |m| m.tables[0].shards[0].birth = 1),
        ("epoch 2", |m| m.tables[0].shards[0].epoch = 2),
        ("command 3", |m| m.tables[0].shards[0].from = 3),
        ("its rule is", |m| {
            m.tables[0].schema.rule = Rule::Sgd(gannet_optim::Sgd { lr: 0.5 });
        }),
    ];
    for (words, spoil) in spoils {
        let (_folder, directory, schema) = four();
        let draft = directory.begin().unwrap();
        let number = draft.number();
        let mut manifest = manifest(&schema, number, number, Some(4));
        spoil(&mut manifest);
        let path = draft.path().join(MANIFEST);
        let error = draft.publish(&manifest).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
        std::fs::write(path, manifest.encode()).unwrap();
        let error = directory.chain(number).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("is 4: name it"), "{words}: {error}");
    }
    let (_folder, directory, _) = four();
    let manifest = directory.chain(4).unwrap().remove(0);
    manifest.must_be_of("monday", directory.path()).unwrap();
    let error = manifest.must_be_of("tuesday", directory.path()).unwrap_err().to_string();
    assert!(error.contains("monday") && error.contains("tuesday"), "{error}");
}

#[test]
fn prune_keeps_what_an_increment_needs() {
    let (_folder, directory, schema) = four();
    assert_eq!(directory.prune(2).unwrap().kept, [1, 2, 3, 4]);
    directory.begin().unwrap();
    save(&directory, &schema, &Change::default(), Some(4), 1);
    directory.begin().unwrap();
    std::fs::write(directory.folder(2).join(MANIFEST), b"version 9").unwrap();
    let plan = directory.prune_plan(1).unwrap();
    assert_eq!((&plan.kept[..], &plan.removed[..]), (&[4, 6][..], &[1, 5][..]));
    assert_eq!((&plan.damaged[..], &plan.unfinished[..]), (&[2, 3][..], &[7][..]));
    assert_eq!(directory.prune(1).unwrap(), plan);
    assert_eq!(directory.numbers().unwrap(), [2, 3, 4, 6, 7]);
    directory.verify(6).unwrap();
}

/// One directory for two runs: each pruned the checkpoints of the other, and its save under way.
#[test]
fn the_checkpoints_of_one_run_are_not_pruned_for_another() {
    let folder = tempfile::tempdir().unwrap();
    let directory = CheckpointDir::create(folder.path()).unwrap();
    let publish = |run: &str| {
        let draft = directory.begin().unwrap();
        let number = draft.number();
        draft.publish(&JobManifest::new(number, run)).unwrap();
    };
    ["a", "a", "b"].into_iter().for_each(publish);
    directory.begin().unwrap(); // 4: a save of run a that is under way
    ["b", "b", "b"].into_iter().for_each(publish);
    let plan = directory.prune_run(&JobManifest::new(1, "b"), 2).unwrap();
    assert_eq!((&plan.kept[..], &plan.removed[..]), (&[1, 2, 6, 7][..], &[3, 5][..]));
    assert_eq!(plan.unfinished, [4]);
    assert_eq!(directory.numbers().unwrap(), [1, 2, 4, 6, 7]);
    // Without a run, as many of each stay.
    let plan = directory.prune(1).unwrap();
    assert_eq!((&plan.kept[..], &plan.removed[..]), (&[2, 7][..], &[1, 6][..]));
    publish("a");
    assert_eq!(directory.prune(1).unwrap().removed, [2, 4]);
}

/// Two jobs whose runs had one name pruned the checkpoints of each other.
#[test]
fn the_checkpoints_of_another_job_with_a_run_of_the_same_name_stay() {
    let folder = tempfile::tempdir().unwrap();
    let directory = CheckpointDir::create(folder.path()).unwrap();
    let of = |birth: u64| JobManifest {
        notes: JobManifest::run_birth_note(birth).into_iter().collect(),
        ..JobManifest::new(1, "default")
    };
    for birth in [5, 7, 0, 5, 7] {
        let draft = directory.begin().unwrap();
        let number = draft.number();
        draft.publish(&JobManifest { number, ..of(birth) }).unwrap();
    }
    let plan = directory.prune_run(&of(7), 1).unwrap();
    assert_eq!((&plan.kept[..], &plan.removed[..]), (&[1, 3, 4, 5][..], &[2][..]));
    let newest = directory.newest_manifest().unwrap().unwrap();
    assert_eq!((newest.number, newest.run_birth()), (5, Some("0000000000000007")));
    for own in [0, 7] {
        newest.must_be_born(own, directory.path()).unwrap();
        of(0).must_be_born(own, directory.path()).unwrap();
    }
    let error = newest.must_be_born(5, directory.path()).unwrap_err().to_string();
    assert!(error.contains("of another job") && error.contains("\"default\""), "{error}");
}

/// What a saver that was killed had written took space for ever.
#[test]
fn a_saver_gives_up_the_drafts_that_it_left_when_it_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let directory = CheckpointDir::create(folder.path()).unwrap();
    let begin = |saver: &str| {
        let draft = directory.begin_as(saver).unwrap();
        draft.state("tasks", &[7; 1000]).unwrap();
        draft
    };
    let published = begin("a");
    let tasks = StateEntry { name: "tasks".into(), bytes: 1000, crc: crc32c::crc32c(&[7; 1000]) };
    published.publish(&JobManifest { states: vec![tasks], ..JobManifest::new(1, "r") }).unwrap();
    for saver in ["a", "b", "a"] {
        begin(saver);
    }
    directory.begin().unwrap().state("tasks", &[7; 1000]).unwrap();
    assert_eq!(directory.give_up_of("a").unwrap(), [2, 4]);
    let bytes: Vec<u64> = directory.list().unwrap().iter().map(|listed| listed.bytes).collect();
    assert!(bytes[0] > 1000 && bytes[2] > 1000 && bytes[4] > 1000, "{bytes:?}");
    assert_eq!((bytes[1], bytes[3]), (0, 0));
    directory.verify(1).unwrap();
    assert_eq!(directory.give_up_of("a").unwrap(), [0; 0]);
    assert_eq!(directory.begin().unwrap().number(), 6, "a number was given out again");
}

/// Whatever the manifest names is on the medium before the manifest gets its name, and then that name is.
#[test]
fn everything_is_synced_before_the_manifest_has_its_name() {
    let (_folder, directory, schema) = four();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let (seen_here, draft) = (seen.clone(), directory.folder(5));
    let manifest = draft.join(MANIFEST);
    observed::set(Some(Box::new(move |what: &Durable, done| {
        if done {
            seen_here.borrow_mut().push((what.clone(), manifest.exists()));
        }
        Ok(())
    })));
    let set = (0..9).map(|key| (key, 1.0)).collect();
    save(&directory, &schema, &Change { set, deleted: Vec::new() }, None, 1);
    observed::set(None);
    let (above, own) = (Durable::Folder(directory.path().into()), Durable::Folder(draft));
    let file = (Durable::File, false);
    let names = |done| [(own.clone(), done), (above.clone(), done)];
    // The number; two row files and the list of states, with its name; the state and the manifest; then the names.
    let mut want = vec![(above.clone(), false), file.clone(), file.clone(), file.clone()];
    want.extend(names(false));
    want.extend([file.clone(), file]);
    want.extend(names(true));
    assert_eq!(*seen.borrow(), want);
}

/// Checkpoints of format 1 as they were first written: number 1 has all rows, and 2 is an increment. They are read for
/// ever.
#[test]
fn an_old_checkpoint_is_read() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/checkpoint-v1");
    let directory = CheckpointDir::open(&path).unwrap();
    let verified = directory.verify(2).unwrap();
    assert_eq!((verified.checkpoints, verified.files), (2, 6));
    let newest = directory.newest_valid().unwrap().unwrap();
    assert_eq!((newest.number, newest.parent, newest.run.as_str()), (2, Some(1), "monday"));
    assert_eq!(newest.note("cut"), Some("4"));
    let cursor = Cursor { pusher: 3, incarnation: 2, seq: 4, closed: false };
    assert_eq!((newest.tables[0].uid, &newest.tables[0].cursors[..]), (UID, &[cursor][..]));
    assert_eq!(newest.tables[0].schema, pinned_schema());
    assert_eq!(directory.read_state(&newest, "tasks").unwrap(), b"two of three splits");
    let mut want: Model = (0..300).map(|key| (key, pinned_row(key, 0))).collect();
    assert_eq!(load(&directory, 1).unwrap(), want);
    (0..20).for_each(|key| {
        want.remove(&key);
    });
    want.extend((290..320).map(|key| (key, pinned_row(key, 1))));
    assert_eq!(load(&directory, 2).unwrap(), want);
    let chain = directory.chain(2).unwrap();
    let sketches = [0, 1].map(|shard| directory.shard_sketch(&chain, "clicks", shard).unwrap());
    assert_eq!(sketches, [Some(vec![2; 64]), Some(vec![1; 64])]);
}

fn pinned_schema() -> Schema {
    let rule = Rule::AdaGrad(gannet_optim::AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 1.0 });
    let admission = Admission::Count { pushes: 2, sketch_bytes: 64 };
    Schema { dim: 2, shards: 2, admission, ..Schema::scalar("clicks", rule) }
}

fn pinned_row(key: u64, round: u64) -> Vec<u32> {
    (0..4).map(|at| ((key * 4 + at) as f32 / 8.0 + round as f32).to_bits()).collect()
}

#[test]
fn no_two_savers_get_the_same_number() {
    let folder = tempfile::tempdir().unwrap();
    let directory = CheckpointDir::create(folder.path()).unwrap();
    let begin = || (0..20).map(|_| directory.begin().unwrap().number()).collect::<Vec<u64>>();
    let mut all: Vec<u64> = std::thread::scope(|scope| {
        let savers: Vec<_> = (0..4).map(|_| scope.spawn(begin)).collect();
        savers.into_iter().flat_map(|saver| saver.join().unwrap()).collect()
    });
    all.sort_unstable();
    assert_eq!(all, (1..=80).collect::<Vec<u64>>());
}

/// The regular files in a folder and below, by their paths in it.
pub(crate) fn user_files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![folder.to_path_buf()]);
    while let Some(at) = folders.pop() {
        for entry in std::fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let bytes = std::fs::read(&path).unwrap();
                    found.insert(path.strip_prefix(folder).unwrap().to_path_buf(), bytes);
                }
            }
        }
    }
    found
}

//! Stores of checkpoints: the local one and the one in memory keep the same promises, and a store that fails at any
//! call costs no checkpoint.

use gannet_core::{
    CheckpointDir, CheckpointDirError, CheckpointState, CheckpointStore, JobManifest, LocalStore,
    RowFileWriter, Schema, ShardCut, TableCut, TableUid,
};
use gannet_memory_store::{Fault, MemoryStore};
use gannet_optim::{Add, Rule};
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

/// So many rows take more than one block.
const KEYS: u64 = 50_000;

/// Saves step `n`, an increment of `parent`: the row of each key is `n`.
fn save(directory: &CheckpointDir, n: u64, parent: Option<&JobManifest>) -> Result<u64, CheckpointDirError> {
    let draft = directory.begin()?;
    let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
    let from = parent.map_or(0, |parent| parent.tables[0].shards[0].to);
    let cut = ShardCut { shard: 0, birth: 5, epoch: 1, from, to: n, file: None };
    let table = TableCut { schema, uid: TableUid([7; 16]), shards: vec![cut], cursors: Vec::new() };
    let (number, parent) = (draft.number(), parent.map(|parent| parent.number));
    let mut manifest = JobManifest { parent, tables: vec![table], ..JobManifest::new(number, "monday") };
    let head = manifest.row_file_head(0, 0).unwrap();
    let mut writer = RowFileWriter::create(directory, head, 0)?;
    let keys: Vec<u64> = (0..if n == 3 { KEYS } else { 10 }).collect();
    writer.rows(&keys, &vec![n as f32; keys.len()])?;
    manifest.tables[0].shards[0].file = Some(writer.finish()?);
    manifest.states.push(draft.state("tasks", &n.to_le_bytes())?);
    draft.publish(&manifest)?;
    Ok(number)
}

/// The numbers of all checkpoints, also of those that are not complete.
fn numbers(directory: &CheckpointDir) -> Vec<u64> {
    directory.list().unwrap().iter().map(|listed| listed.number).collect()
}

/// The step that the newest valid checkpoint has. All of its bytes are checked, and some of its rows.
fn newest(directory: &CheckpointDir) -> u64 {
    let Some(manifest) = directory.newest_valid().unwrap() else { return 0 };
    directory.verify(manifest.number).unwrap();
    let step = manifest.tables[0].shards[0].to;
    assert_eq!(directory.read_state(&manifest, "tasks").unwrap(), step.to_le_bytes());
    let chain = directory.chain(manifest.number).unwrap();
    let mut last = 0.0;
    let rows = |keys: &[u64], floats: &[f32]| {
        last = keys.iter().position(|&key| key == 9).map_or(last, |at| floats[at]);
    };
    directory.shard_rows(&chain, "clicks", 0, rows).unwrap();
    assert_eq!(last, step as f32);
    step
}

/// Steps 1 to 6, each an increment of the newest one except for 1 and 4, with a prune after each.
fn job(directory: &CheckpointDir, from: u64) -> Result<(), CheckpointDirError> {
    for n in from..=6 {
        let parent = directory.newest_valid()?.filter(|_| n % 3 != 1);
        save(directory, n, parent.as_ref())?;
        directory.prune(2)?;
    }
    Ok(())
}

/// Every call of six saves and prunes fails once, in each way. The newest valid checkpoint is then whole, none that was
/// saved before is lost, and the job goes on.
#[test]
fn a_store_that_fails_at_any_call_costs_no_checkpoint() {
    let sound = MemoryStore::default();
    job(&CheckpointDir::with_store("sound", Arc::new(sound.clone())), 1).unwrap();
    let calls = sound.calls();
    assert!(calls > 100, "only {calls} calls");
    let faults = [Fault::Fails, Fault::AnswerLost, Fault::Torn, Fault::Full, Fault::Slow(Duration::ZERO)];
    for (fault, at) in faults.iter().flat_map(|fault| (1..=calls).map(move |at| (*fault, at))) {
        let store = MemoryStore::default();
        let directory = CheckpointDir::with_store("memory", Arc::new(store.clone()));
        store.set_faults(move |call| (call.number == at).then_some(fault));
        let mut saved = 0;
        let failed = (1..=6).find_map(|n| {
            let step = || {
                let parent = directory.newest_valid()?.filter(|_| n % 3 != 1);
                save(&directory, n, parent.as_ref())?;
                Ok::<(), CheckpointDirError>(())
            };
            let done = step().map(|()| saved = n).and_then(|()| directory.prune(2).map(drop));
            done.err().map(|error| (n, error))
        });
        store.clear_faults();
        let context = format!("{fault:?} at call {at}: {failed:?}");
        let found = newest(&directory);
        assert!(found == saved || (fault == Fault::AnswerLost && found == saved + 1), "{context}: {found}");
        if let Some((_, error)) = &failed {
            assert!(error.to_string().starts_with(|c: char| c.is_lowercase()), "{context}");
        }
        job(&directory, found + 1).unwrap();
        assert_eq!(newest(&directory), 6, "{context}");
        let left = directory.list().unwrap();
        assert!(left.iter().all(|c| !matches!(c.state, CheckpointState::Damaged(_))), "{context}: {left:?}");
    }
}

#[test]
fn a_full_store_says_so_and_a_slow_one_is_waited_for() {
    let store = MemoryStore::default();
    let directory = CheckpointDir::with_store("s3://bucket/job", Arc::new(store.clone()));
    store.set_faults(|call| (call.method == "write").then_some(Fault::Full));
    let error = save(&directory, 3, None).unwrap_err();
    assert!(error.is_system());
    let error = error.to_string();
    assert!(error.starts_with("writing s3://bucket/job/0000000001/t00-0000.rows: no space"), "{error}");
    store.set_faults(|_| Some(Fault::Slow(Duration::from_millis(1))));
    assert_eq!(save(&directory, 3, None).unwrap(), 2);
    assert_eq!(newest(&directory), 3);
    directory.discard(1).unwrap();
    assert_eq!(numbers(&directory), [2]);
}

#[test]
fn a_number_that_was_given_up_stays_taken_until_a_newer_checkpoint_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let stores: [Arc<dyn CheckpointStore>; 2] =
        [Arc::new(LocalStore::create(folder.path()).unwrap()), Arc::new(MemoryStore::default())];
    for store in stores {
        let directory = CheckpointDir::with_store("here", store.clone());
        let draft = directory.begin().unwrap();
        draft.state("tasks", b"some").unwrap();
        directory.give_up(1).unwrap();
        assert_eq!((store.files("0000000001").unwrap(), numbers(&directory)), (vec![], vec![1]));
        draft.state("tasks", b"what a writer elsewhere writes late").unwrap();
        assert!(directory.prune(1).unwrap().removed.is_empty());
        let next = directory.begin().unwrap();
        assert_eq!(next.number(), 2);
        next.publish(&JobManifest::new(2, "monday")).unwrap();
        assert_eq!(directory.prune(1).unwrap().removed, [1]);
        directory.give_up(1).unwrap(); // it is gone already
        assert_eq!(directory.begin().unwrap().number(), 3);
    }
}

/// What the code above the stores relies on.
#[test]
fn stores_keep_the_same_promises() {
    let folder = tempfile::tempdir().unwrap();
    let local = LocalStore::create(&folder.path().join("a/b")).unwrap();
    let stores: [&dyn CheckpointStore; 2] = [&local, &MemoryStore::default()];
    for store in stores {
        let kind = |error: io::Error| error.kind();
        assert_eq!(store.files("x").map_err(kind), Err(io::ErrorKind::NotFound));
        assert!(store.reserve("x").unwrap() && !store.reserve("x").unwrap(), "{store:?}");
        assert_eq!(store.files("x").unwrap(), []);
        assert_eq!(store.open("x", "file").err().map(kind), Some(io::ErrorKind::NotFound));
        let mut writer = store.create("x", "file").unwrap();
        let mut want = Vec::new();
        let mut buffer = Vec::new();
        for round in 0..20_u8 {
            buffer.resize(100_000 * usize::from(round % 7), round);
            want.extend_from_slice(&buffer);
            buffer = writer.write(buffer).unwrap();
            assert!(buffer.is_empty());
        }
        writer.finish().unwrap();
        store.sync("x").unwrap();
        store.publish("x", "whole", b"12345").unwrap();
        let refused = store.create("x", "file").err().map(kind);
        assert_eq!(refused, Some(io::ErrorKind::AlreadyExists));
        // Two begin a file at once, as an old writer and a new one do: the first one to finish has it.
        let (first, late) = (store.create("x", "twice").unwrap(), store.create("x", "twice"));
        first.finish().unwrap();
        let late = late.and_then(|late| late.finish());
        assert_eq!(late.map_err(kind), Err(io::ErrorKind::AlreadyExists));
        store.remove_files("x", &["twice".to_owned(), "absent".to_owned()]).unwrap();
        assert!(store.reserve("y").unwrap());
        store.publish("y", "file", b"1").unwrap();
        store.publish("y", "file", b"1").unwrap();
        let other = store.publish("y", "file", b"2");
        assert_eq!(other.map_err(kind), Err(io::ErrorKind::AlreadyExists), "it replaces a file");
        store.remove_files("y", &["file".to_owned()]).unwrap();
        assert_eq!((store.files("y").unwrap(), store.reserve("y").unwrap()), (vec![], false));
        assert!(store.is_reserved("y").unwrap() && !store.is_reserved("z").unwrap());
        store.remove_folder("y").unwrap();
        store.remove_files("y", &["file".to_owned()]).unwrap();
        drop(store.create("x", "given-up").unwrap());
        let opened = store.open("x", "file").unwrap();
        let (bytes, mut input, mut found) = (opened.bytes, opened.input, Vec::new());
        input.read_to_end(&mut found).unwrap();
        assert!(bytes == want.len() as u64 && found == want, "{store:?}");
        let mut files: Vec<(String, u64)> =
            store.files("x").unwrap().into_iter().map(|file| (file.name, file.bytes)).collect();
        files.retain(|(name, _)| name != "given-up");
        files.sort();
        assert_eq!(files, [("file".into(), bytes), ("whole".into(), 5)]);
        let all: Vec<String> = store.files("x").unwrap().into_iter().map(|file| file.name).collect();
        store.remove_files("x", &all).unwrap();
        assert_eq!(store.folders().unwrap(), ["x"]);
        store.remove_folder("x").unwrap();
        assert!(store.folders().unwrap().is_empty() && store.reserve("x").unwrap());
    }
}

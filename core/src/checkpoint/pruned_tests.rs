//! Readers of checkpoints beside a prune: what was pruned is not damaged, and the newest one is always found.

use super::directory::{CheckpointDir, CheckpointState};
use super::draft::Draft;
use super::error::CheckpointDirError;
use super::manifest::JobManifest;
use crate::checkpoint::stores::local_store::LocalStore;
use crate::checkpoint::stores::store::{CheckpointStore, OpenedFile, StoreWriter, StoredFile};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// A folder in memory, if there is such a filesystem: a save syncs each file.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Saves a checkpoint with a state, and an increment of it. Returns the number of the increment.
fn save_two(directory: &CheckpointDir) -> u64 {
    let mut parent = None;
    for _ in 0..2 {
        let draft = directory.begin().unwrap();
        let (number, state) = (draft.number(), draft.state("tasks", b"what the scheduler knows").unwrap());
        let manifest = JobManifest { parent, states: vec![state], ..JobManifest::new(number, "monday") };
        draft.publish(&manifest).unwrap();
        parent = Some(number);
    }
    parent.unwrap()
}

/// A store beside which, after so many calls of a reader, a newer checkpoint is saved and all others are pruned.
#[derive(Debug)]
struct PrunedMeanwhile {
    store: LocalStore,
    beside: CheckpointDir,
    calls: AtomicU32,
    at: u32,
    /// A save that is under way. Then it is finished at that call, and the prune has only just begun.
    draft: Mutex<Option<Draft>>,
}

impl PrunedMeanwhile {
    fn call(&self) -> &LocalStore {
        if self.calls.fetch_add(1, SeqCst) != self.at {
            return &self.store;
        }
        match self.draft.lock().unwrap().take() {
            Some(draft) => {
                let manifest = JobManifest::new(draft.number(), "monday");
                draft.publish(&manifest).unwrap();
                for folder in ["0000000001", "0000000002"] {
                    self.store.remove_files(folder, &["MANIFEST".to_owned()]).unwrap();
                }
            }
            None => {
                save_two(&self.beside);
                self.beside.prune(1).unwrap();
            }
        }
        &self.store
    }
}

impl CheckpointStore for PrunedMeanwhile {
    fn reserve(&self, folder: &str) -> io::Result<bool> {
        self.call().reserve(folder)
    }
    fn folders(&self) -> io::Result<Vec<String>> {
        self.call().folders()
    }
    fn files(&self, folder: &str) -> io::Result<Vec<StoredFile>> {
        self.call().files(folder)
    }
    fn create(&self, folder: &str, name: &str) -> io::Result<Box<dyn StoreWriter>> {
        self.call().create(folder, name)
    }
    fn open(&self, folder: &str, name: &str) -> io::Result<OpenedFile> {
        self.call().open(folder, name)
    }
    fn publish(&self, folder: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.call().publish(folder, name, bytes)
    }
    fn sync(&self, folder: &str) -> io::Result<()> {
        self.call().sync(folder)
    }
    fn is_reserved(&self, folder: &str) -> io::Result<bool> {
        self.call().is_reserved(folder)
    }
    fn remove_files(&self, folder: &str, names: &[String]) -> io::Result<()> {
        self.call().remove_files(folder, names)
    }
    fn remove_folder(&self, folder: &str) -> io::Result<()> {
        self.call().remove_folder(folder)
    }
}

/// Calls `read` on a directory whose checkpoint 2 is pruned at each call of the store in turn, until none is left.
fn pruned_at_each_call(read: impl FnMut(&CheckpointDir, u32)) {
    at_each_call(false, read);
}

/// `drafted`: checkpoint 3 has a folder before, and is finished when the prune begins.
fn at_each_call(drafted: bool, mut read: impl FnMut(&CheckpointDir, u32)) {
    for at in 0.. {
        let folder = scratch();
        let beside = CheckpointDir::create(folder.path()).unwrap();
        assert_eq!(save_two(&beside), 2);
        let (store, calls) = (LocalStore::new(folder.path()), AtomicU32::new(0));
        let draft = Mutex::new(drafted.then(|| beside.begin().unwrap()));
        let store = Arc::new(PrunedMeanwhile { store, beside, calls, at, draft });
        read(&CheckpointDir::with_store(folder.path(), store.clone()), at);
        if store.calls.load(SeqCst) <= at {
            return assert!(at > 1, "{at} calls");
        }
    }
}

/// What is wrong with a checkpoint that was pruned.
fn assert_pruned(error: &CheckpointDirError, directory: &Path) {
    let CheckpointDirError::Refused { reason, newest, .. } = error else { panic!("{error}") };
    match &**reason {
        // It was gone before the first of its files was read.
        CheckpointDirError::Missing(_) => {}
        CheckpointDirError::Pruned(_) => {
            let offer = format!(
                "use a newer one; the newest good checkpoint in {0} is 4: name it ({0}@4)",
                directory.display()
            );
            assert!(error.is_pruned() && error.to_string().ends_with(&offer), "{error}");
        }
        other => panic!("{other}"),
    }
    assert_eq!(*newest, Some(4));
}

#[test]
fn a_checkpoint_that_was_pruned_meanwhile_was_called_damaged() {
    let mut pruned = 0;
    pruned_at_each_call(|directory, _| {
        if let Err(error) = directory.verify(2) {
            assert_pruned(&error, directory.path());
            pruned += u32::from(error.is_pruned());
        }
    });
    assert!(pruned > 3, "{pruned}");
    pruned_at_each_call(|directory, _| match directory.chain(2) {
        Ok(chain) => {
            assert_eq!(chain.len(), 2);
            match directory.read_state(&chain[1], "tasks") {
                Ok(state) => assert_eq!(state, b"what the scheduler knows"),
                Err(error) => assert!(error.is_pruned(), "{error}"),
            }
        }
        Err(error) => assert_pruned(&error, directory.path()),
    });
    pruned_at_each_call(|directory, _| {
        for listed in directory.list().unwrap() {
            assert!(!matches!(listed.state, CheckpointState::Damaged(_)), "{listed:?}");
        }
    });
}

#[test]
fn the_newest_checkpoint_was_not_found_beside_a_prune() {
    pruned_at_each_call(|directory, at| {
        let newest = directory.newest_valid().unwrap().map(|manifest| manifest.number);
        assert!(matches!(newest, Some(2 | 4)), "{newest:?} after {at} calls");
    });
}

/// A file that is gone while the manifest is there is damage, as before.
#[test]
fn a_file_that_is_missing_beside_its_manifest_is_damage() {
    let folder = scratch();
    let directory = CheckpointDir::create(folder.path()).unwrap();
    save_two(&directory);
    let manifest = directory.newest_valid().unwrap().unwrap();
    std::fs::remove_file(directory.folder(2).join("tasks.state")).unwrap();
    for error in [directory.verify(2).unwrap_err(), directory.read_state(&manifest, "tasks").unwrap_err()] {
        assert!(!error.is_pruned() && error.to_string().contains("it does not exist"), "{error}");
    }
}

#[test]
fn readers_beside_a_job_that_saves_and_prunes_find_no_damage() {
    let folder = scratch();
    let directory = CheckpointDir::create(folder.path()).unwrap();
    save_two(&directory);
    let over = AtomicBool::new(false);
    let read = || {
        let mut reads = 0;
        while !over.load(SeqCst) || reads == 0 {
            let newest = directory.newest_valid().unwrap().unwrap().number;
            for number in [newest, newest.saturating_sub(2).max(1)] {
                let Err(error) = directory.verify(number) else { continue };
                let CheckpointDirError::Refused { reason, newest, .. } = &error else { panic!("{error}") };
                let is_gone = matches!(**reason, CheckpointDirError::Missing(_));
                assert!(is_gone || error.is_pruned(), "{error}");
                assert!(newest.is_some_and(|newest| newest > number), "{error}");
            }
            reads += 1;
        }
    };
    std::thread::scope(|scope| {
        let readers = [scope.spawn(read), scope.spawn(read)];
        for _ in 0..300 {
            save_two(&directory);
            directory.prune(1).unwrap();
        }
        over.store(true, SeqCst);
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

#[test]
fn the_newest_manifest_is_found_beside_a_prune() {
    pruned_at_each_call(|directory, at| {
        let newest = directory.newest_manifest().unwrap().map(|manifest| manifest.number);
        assert!(matches!(newest, Some(2 | 4)), "{newest:?} after {at} calls");
    });
}

/// A reader found checkpoint 3 unfinished, and then checkpoint 2 gone: "no checkpoint was finished here".
#[test]
fn a_checkpoint_that_was_finished_while_the_one_before_was_removed_was_not_found() {
    at_each_call(true, |directory, at| {
        let newest = directory.newest_valid().unwrap().map(|manifest| manifest.number);
        assert!(matches!(newest, Some(2 | 3)), "{newest:?} after {at} calls");
    });
    at_each_call(true, |directory, at| {
        let newest = directory.newest_manifest().unwrap().map(|manifest| manifest.number);
        assert!(matches!(newest, Some(2 | 3)), "{newest:?} after {at} calls");
    });
}

/// Once each look at the newest of 1,000 checkpoints asked all of them: in a bucket that were 1,000 requests.
#[test]
fn the_newest_manifest_of_many_takes_two_calls() {
    let folder = scratch();
    let beside = CheckpointDir::create(folder.path()).unwrap();
    let saved: Vec<u64> = (0..100).map(|_| save_two(&beside)).collect();
    let (store, calls) = (LocalStore::new(folder.path()), AtomicU32::new(0));
    let store = Arc::new(PrunedMeanwhile { store, beside, calls, at: u32::MAX, draft: Mutex::default() });
    let directory = CheckpointDir::with_store(folder.path(), store.clone());
    assert_eq!(directory.newest_manifest().unwrap().unwrap().number, saved[99]);
    assert_eq!(store.calls.load(SeqCst), 2);
}

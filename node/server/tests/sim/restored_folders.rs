//! Data folders that were restored, and a server that starts on one: it may not need the checkpoint any more.

use crate::restore::{Job, opened, schema};
use crate::saved::{Saver, rows_of};
use gannet_core::{
    CheckpointDir, CheckpointStore, LocalStore, OpenedFile, Shards, Store, StoreWriter, StoredFile,
};
use gannet_server::{RestoreSource, restore_folder};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// A server with a good data folder did not start again when the checkpoints were damaged, or no longer there.
#[test]
fn a_server_with_a_data_folder_needs_no_checkpoint() {
    let (folder, data) = (crate::folder_in_memory(), crate::folder_in_memory());
    let (mut saver, mut job) = (Saver::new(folder.path()), Job::new(1, 4));
    job.train(4);
    let first = job.save(&mut saver, true);
    job.train(1);
    job.save(&mut saver, true);
    let wanted = rows_of(&mut job.clicks);
    let newest = RestoreSource::new(&opened(folder.path()), 0, 1);
    let store = Store::open_dir(data.path()).unwrap();
    assert!(!restore_folder(&store, 1, &newest).unwrap().kept);
    let pruned = RestoreSource { number: Some(first), ..newest.clone() };
    opened(folder.path()).prune(1).unwrap();
    let kept = |source: &RestoreSource| restore_folder(&store, 1, source).unwrap().kept;
    // The number that was named is gone; then every checkpoint is damaged; then there is none.
    assert!(kept(&newest) && kept(&pruned));
    std::fs::write(folder.path().join("0000000002/t00-0000.rows"), b"short").unwrap();
    assert!(kept(&newest));
    std::fs::remove_dir_all(folder.path().join("0000000002")).unwrap();
    assert!(kept(&newest));
    // Another run has nothing in the folder, and in memory there is nothing to go on from.
    let of_run = RestoreSource { run: Some("monday".into()), ..newest.clone() };
    assert!(restore_folder(&store, 1, &of_run).is_err());
    assert!(restore_folder(&Store::memory(), 1, &newest).is_err());
    let mut table = Shards::open(&store, &schema("clicks", 4), 0..4).unwrap();
    assert_eq!(rows_of(&mut table), wanted);
}

/// A folder with the rows of an older checkpoint, on which the job had gone on, was refused beside a newer checkpoint.
#[test]
fn rows_of_an_older_checkpoint_are_those_of_the_job_too() {
    let (folder, data) = (crate::folder_in_memory(), crate::folder_in_memory());
    let (mut saver, mut job) = (Saver::new(folder.path()), Job::new(1, 4));
    job.train(2);
    let first = job.save(&mut saver, true);
    job.train(2);
    job.save(&mut saver, false);
    let newest = RestoreSource::new(&opened(folder.path()), 0, 1);
    let store = Store::open_dir(data.path()).unwrap();
    let older = RestoreSource { number: Some(first), ..newest.clone() };
    assert_eq!(restore_folder(&store, 1, &older).unwrap().checkpoint, first);
    let again = restore_folder(&store, 1, &newest).unwrap();
    assert_eq!((again.kept, again.rows), (true, 0));
}

/// A store in which checkpoint 2 appears, and checkpoint 1 is pruned, at one of the times that a file is opened.
#[derive(Debug)]
struct PrunedMeanwhile {
    store: LocalStore,
    folder: PathBuf,
    hidden: PathBuf,
    opened: AtomicU32,
    at: u32,
}

impl CheckpointStore for PrunedMeanwhile {
    fn open(&self, folder: &str, name: &str) -> io::Result<OpenedFile> {
        if self.opened.fetch_add(1, SeqCst) == self.at {
            std::fs::rename(&self.hidden, self.folder.join("0000000002")).unwrap();
            assert_eq!(opened(&self.folder).prune(1).unwrap().removed, [1]);
        }
        self.store.open(folder, name)
    }
    fn reserve(&self, folder: &str) -> io::Result<bool> {
        self.store.reserve(folder)
    }
    fn folders(&self) -> io::Result<Vec<String>> {
        self.store.folders()
    }
    fn files(&self, folder: &str) -> io::Result<Vec<StoredFile>> {
        self.store.files(folder)
    }
    fn create(&self, folder: &str, name: &str) -> io::Result<Box<dyn StoreWriter>> {
        self.store.create(folder, name)
    }
    fn publish(&self, folder: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.store.publish(folder, name, bytes)
    }
    fn sync(&self, folder: &str) -> io::Result<()> {
        self.store.sync(folder)
    }
    fn is_reserved(&self, folder: &str) -> io::Result<bool> {
        self.store.is_reserved(folder)
    }
    fn remove_files(&self, folder: &str, names: &[String]) -> io::Result<()> {
        self.store.remove_files(folder, names)
    }
    fn remove_folder(&self, folder: &str) -> io::Result<()> {
        self.store.remove_folder(folder)
    }
}

/// A restore of the newest checkpoint ended when that one was pruned after its manifest was read.
#[test]
fn a_restore_whose_checkpoint_is_pruned_while_it_loads_the_rows_takes_the_newer_one() {
    for at in 0.. {
        let (folder, data) = (crate::folder_in_memory(), crate::folder_in_memory());
        let (mut saver, mut job) = (Saver::new(folder.path()), Job::new(1, 4));
        job.train(4);
        job.save(&mut saver, true);
        job.train(1);
        job.save(&mut saver, true);
        let wanted = rows_of(&mut job.clicks);
        let (folder, hidden) = (folder.path().to_owned(), data.path().join("hidden"));
        std::fs::rename(folder.join("0000000002"), &hidden).unwrap();
        let local = LocalStore::new(&folder);
        let beside =
            Arc::new(PrunedMeanwhile { store: local, folder, hidden, opened: AtomicU32::new(0), at });
        let directory = CheckpointDir::with_store(&beside.folder, beside.clone());
        let store = Store::open_dir(&data.path().join("server-0")).unwrap();
        let restored = restore_folder(&store, 2, &RestoreSource::new(&directory, 0, 1)).unwrap();
        if beside.opened.load(SeqCst) <= at {
            return assert!(restored.checkpoint == 1 && at > 8, "{at} files were opened");
        }
        // Once all files of checkpoint 1 are open, its restore comes to its end.
        if restored.checkpoint == 2 {
            let mut table = Shards::open(&store, &schema("clicks", 4), 0..4).unwrap();
            assert_eq!(rows_of(&mut table), wanted, "pruned when file {at} was opened");
        }
    }
}

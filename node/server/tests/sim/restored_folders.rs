//! Data folders that were restored, and a server that starts on one: it may not need the checkpoint any more.

use crate::restore::{Job, opened, schema};
use crate::saved::{Saver, rows_of};
use gannet_core::{Shards, Store};
use gannet_server::{RestoreSource, restore_folder};

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

//! Files and folders of the user in a checkpoint directory stay as they are, whatever their names.

use super::checkpoint_tests::user_files;
use super::directory::{CheckpointDir, CheckpointState};
use super::manifest::JobManifest;
use std::fs;
use std::path::Path;

fn save(directory: &CheckpointDir, run: &str) -> u64 {
    let draft = directory.begin_as(run).unwrap();
    let states = [("tasks".to_owned(), b"some".to_vec()), ("runs".to_owned(), b"more".to_vec())];
    let states = draft.states(&states).unwrap();
    let number = draft.number();
    draft.publish(&JobManifest { states, ..JobManifest::new(number, run) }).unwrap();
    number
}

/// Writes a file, and the folders above it.
fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn folders_of_the_user_with_ten_digits_were_removed_and_raised_the_number() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in
        ["1700000000/photo.jpg", "2024010112/t00-0000.rows", "0000000002/MANIFEST", "0000000004/SAVER"]
    {
        write(&at(name), name);
    }
    fs::create_dir(at("0000000003")).unwrap();
    write(&at("0000000006"), "a file with ten digits");
    let before = user_files(folder.path());
    let directory = CheckpointDir::open(folder.path()).unwrap();
    assert!(directory.list().unwrap().is_empty() && directory.newest_valid().unwrap().is_none());
    let numbers: Vec<u64> = (0..4).map(|_| save(&directory, "monday")).collect();
    assert_eq!(numbers, [1, 5, 7, 8], "names of the user are left out");
    directory.begin_as("monday").unwrap().state("tasks", b"killed").unwrap();
    save(&directory, "monday");
    assert_eq!(directory.prune(1).unwrap().removed, [1, 5, 7, 8, 9]);
    let (after, ours) = (user_files(folder.path()), directory.list().unwrap());
    assert!(before.iter().all(|(path, bytes)| after.get(path) == Some(bytes)), "{before:?} {after:?}");
    assert!(ours.len() == 1 && matches!(ours[0].state, CheckpointState::Valid(_)));
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 6 + 1, "a removed checkpoint leaves something");
}

#[test]
fn files_of_the_user_in_a_checkpoint_were_removed_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let directory = CheckpointDir::open(folder.path()).unwrap();
    let first = save(&directory, "monday");
    let killed = directory.begin_as("monday").unwrap();
    killed.state("tasks", b"what a save has written").unwrap();
    let given_up = directory.begin_as("tuesday").unwrap();
    given_up.state("tasks", b"what a save has written").unwrap();
    // Names of ours in each: the bytes tell that the user has written them.
    let names =
        ["photo.jpg", "mine.state", "t00-0007.rows", "MANIFEST.new", "SAVER.new", "REMOVED", "sub/SAVER"];
    for number in [first, killed.number(), given_up.number()] {
        names.iter().for_each(|name| write(&directory.folder(number).join(name), "of the user"));
    }
    assert_eq!(directory.give_up_of("tuesday").unwrap(), [given_up.number()]);
    save(&directory, "monday");
    // A foreign file named REMOVED is in the way of the removal of checkpoint 1, which says so.
    let refused = directory.prune(1).unwrap_err().to_string();
    assert!(refused.contains("REMOVED") && refused.contains("move it away"), "{refused}");
    fs::rename(directory.folder(first).join("REMOVED"), folder.path().join("moved")).unwrap();
    assert_eq!(directory.prune(1).unwrap().removed, [1]);
    for number in [first, killed.number(), given_up.number()] {
        let path = directory.folder(number);
        let mut left: Vec<_> = user_files(&path).into_iter().collect();
        left.retain(|(name, _)| name != Path::new("REMOVED"));
        assert_eq!(left.len(), names.len() - 1, "{}: {left:?}", path.display());
        assert!(left.iter().all(|(_, bytes)| bytes == b"of the user"));
    }
    // These folders are the user's now: no later checkpoint takes their numbers, or removes them.
    assert_eq!(directory.list().unwrap().len(), 1);
    assert_eq!(save(&directory, "monday"), 5);
}

#[test]
fn a_prune_that_was_killed_goes_on_at_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let directory = CheckpointDir::open(folder.path()).unwrap();
    let first = save(&directory, "monday");
    let path = directory.folder(first);
    fs::rename(path.join("MANIFEST"), path.join("REMOVED")).unwrap();
    write(&path.join("letter"), "of the user");
    fs::remove_file(path.join("runs.state")).unwrap();
    save(&directory, "monday");
    assert!(matches!(directory.list().unwrap()[0].state, CheckpointState::Incomplete));
    assert_eq!(directory.prune(1).unwrap().removed, [first]);
    assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
    assert_eq!(fs::read(path.join("letter")).unwrap(), b"of the user");
}

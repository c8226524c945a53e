//! The list of tables in a data folder: a lost table is named, a dropped one stays dropped, and a user's file is no
//! list.

use super::*;
use crate::image::store::Store;
use crate::table::shards::Shards;
use gannet_optim::{Add, Rule};

fn schema(name: &str) -> Schema {
    Schema { shards: 2, ..Schema::scalar(name, Rule::Add(Add)) }
}

fn make(store: &Store, name: &str) {
    Shards::open(store, &schema(name), 0..2).unwrap().mark_clean().unwrap();
}

fn lines(folder: &Path) -> String {
    fs::read_to_string(folder.join(NAME)).unwrap()
}

#[test]
fn a_table_that_was_lost_as_a_whole_was_made_anew_with_rows_of_zeros() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_dir(folder.path()).unwrap();
    ["a", "b"].iter().for_each(|name| make(&store, name));
    drop(store);
    assert_eq!(lines(folder.path()), "gannet tables 1\n+ a\n+ b\n");
    fs::rename(folder.path().join("a"), folder.path().join("away")).unwrap();
    let gone = Store::open_dir(folder.path()).err().unwrap().to_string();
    assert!(gone.contains("\"a\"") && gone.contains("TABLES") && gone.contains("put them back"), "{gone}");
    fs::rename(folder.path().join("away"), folder.path().join("a")).unwrap();
    assert_eq!(Store::open_dir(folder.path()).unwrap().tables(), ["a", "b"]);
    // The user has removed the table and its line, as the message says.
    fs::remove_dir_all(folder.path().join("a")).unwrap();
    fs::write(folder.path().join(NAME), "gannet tables 1\n+ b\n").unwrap();
    let store = Store::open_dir(folder.path()).unwrap();
    make(&store, "a");
    assert_eq!(store.tables(), ["a", "b"]);
}

#[test]
fn a_drop_that_was_killed_at_any_step_leaves_the_table_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let store = Store::open_dir(folder.path()).unwrap();
    ["a", "b"].iter().for_each(|name| make(&store, name));
    drop(store);
    let before = lines(folder.path());
    // In the middle of the line: the table is there.
    fs::write(at(NAME), format!("{before}- a")).unwrap();
    assert_eq!(Store::open_dir(folder.path()).unwrap().tables(), ["a", "b"]);
    assert_eq!(lines(folder.path()), before, "the list is whole again");
    // Behind the line, with some of its files.
    fs::write(at(NAME), format!("{before}- a\n")).unwrap();
    fs::remove_file(at("a/shard-0000.image")).unwrap();
    fs::write(at("a/letter"), "of the user").unwrap();
    assert_eq!(Store::open_dir(folder.path()).unwrap().tables(), ["b"]);
    assert_eq!(fs::read_dir(at("a")).unwrap().count(), 1, "the letter stays");
    assert_eq!(lines(folder.path()), "gannet tables 1\n+ b\n");
}

#[test]
fn a_folder_without_a_list_has_the_tables_of_its_images() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_dir(folder.path()).unwrap();
    make(&store, "a");
    drop(store);
    fs::remove_file(folder.path().join(NAME)).unwrap();
    for name in ["photos/shard-0001.image", "photos/a.jpg"] {
        fs::create_dir_all(folder.path().join("photos")).unwrap();
        fs::write(folder.path().join(name), "of the user").unwrap();
    }
    assert_eq!(Store::open_dir(folder.path()).unwrap().tables(), ["a"]);
    assert_eq!(lines(folder.path()), "gannet tables 1\n+ a\n");
}

#[test]
fn a_list_that_is_none_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for text in [
        "a list of dinner tables",
        "gannet tables 2\n+ a\n",
        "gannet tables 1\na\n",
        "gannet tables 1\n+ ../a\n",
    ] {
        fs::write(folder.path().join(NAME), text).unwrap();
        let why = Store::open_dir(folder.path()).err().unwrap().to_string();
        assert!(why.contains("TABLES") && why.contains("put the file back"), "{why}");
        assert_eq!(lines(folder.path()), text);
    }
}

#[test]
fn many_changes_make_a_list_that_the_next_start_shortens() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_dir(folder.path()).unwrap();
    for _ in 0..3 {
        ["a", "b"].iter().for_each(|name| make(&store, name));
        assert!(store.drop_table("a").unwrap() && !store.tables().contains(&"a".to_owned()));
    }
    assert!(lines(folder.path()).lines().count() > 4);
    drop(store);
    assert_eq!(Store::open_dir(folder.path()).unwrap().tables(), ["b"]);
    assert_eq!(lines(folder.path()), "gannet tables 1\n+ b\n");
}

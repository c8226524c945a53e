//! The list of tables in a data folder: a lost table is named, a dropped one stays dropped, and a user's file is no
//! list.

use super::*;
use crate::image::files::store::Store;
use crate::table::owned::shards::Shards;
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

#[test]
fn a_table_that_was_put_back_after_its_drop_was_removed_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let store = Store::open_dir(folder.path()).unwrap();
    ["a", "b"].iter().for_each(|name| make(&store, name));
    fs::create_dir(at("backup")).unwrap();
    for file in table_folder::images_of_table(&at("a")).unwrap() {
        fs::copy(&file, at("backup").join(file.file_name().unwrap())).unwrap();
    }
    assert!(store.drop_table("a").unwrap());
    drop(store);
    assert!(lines(folder.path()).ends_with("- a\nx a\n"));
    fs::rename(at("backup"), at("a")).unwrap();
    assert_eq!(Store::open_dir(folder.path()).unwrap().tables(), ["a", "b"]);
}

#[test]
fn copies_and_notes_of_the_user_went_with_a_dropped_table() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let store = Store::open_dir(folder.path()).unwrap();
    make(&store, "a");
    let names = ["shard-0000.image.bak", "shard-x.image", "step-0000", "shard-0000.txt", "shard-00.image"];
    for name in names {
        fs::copy(at("a/shard-0000.image"), at("a").join(name)).unwrap();
    }
    let empty = ["shard-notes.txt", "step-list", "step-0000-01234567.0", "shard-0009.image"];
    empty.iter().for_each(|name| fs::write(at("a").join(name), "").unwrap());
    assert!(store.drop_table("a").unwrap());
    assert_eq!(fs::read_dir(at("a")).unwrap().count(), names.len() + empty.len());
    assert!(!at("a/shard-0001.image").exists());
}

#[test]
fn a_copy_of_a_tables_folder_was_taken_for_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let store = Store::open_dir(folder.path()).unwrap();
    make(&store, "a");
    drop(store);
    fs::create_dir(at("a.bak")).unwrap();
    for file in table_folder::images_of_table(&at("a")).unwrap() {
        fs::copy(&file, at("a.bak").join(file.file_name().unwrap())).unwrap();
    }
    assert_eq!(Store::open_dir(folder.path()).unwrap().tables(), ["a"]);
    fs::remove_dir_all(at("a.bak")).unwrap();
    Store::open_dir(folder.path()).unwrap();
    // A table on another disk, behind a link.
    fs::rename(at("a"), at("elsewhere")).unwrap();
    std::os::unix::fs::symlink(at("elsewhere"), at("a")).unwrap();
    let store = Store::open_dir(folder.path()).unwrap();
    make(&store, "a");
    assert!(store.drop_table("a").unwrap());
    assert_eq!(fs::read_dir(at("elsewhere")).unwrap().count(), 0, "its files are gone");
    make(&store, "a");
    drop(store);
    assert_eq!(Store::open_dir(folder.path()).unwrap().tables(), ["a"]);
}

#[test]
fn a_table_that_was_removed_under_its_server_was_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_dir(folder.path()).unwrap();
    make(&store, "a");
    fs::remove_dir_all(folder.path().join("a")).unwrap();
    let gone = Shards::open(&store, &schema("a"), 0..2).err().unwrap();
    assert!(matches!(gone, OpenError::TableGone { .. }), "{gone}");
    assert!(store.drop_table("a").unwrap());
    make(&store, "a");
}

#[test]
fn a_move_that_was_killed_goes_on_wherever_it_was() {
    for killed_at in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let store = Store::open_dir(&from).unwrap();
        ["a", "b"].iter().for_each(|name| make(&store, name));
        drop(store);
        fs::create_dir(&to).unwrap();
        let moves = ["TABLES", "a/shard-0000.image", "a/shard-0001.image", "b/shard-0000.image"];
        for name in &moves[..=killed_at] {
            fs::create_dir_all(to.join(name).parent().unwrap()).unwrap();
            fs::rename(from.join(name), to.join(name)).unwrap();
        }
        let store = Store::open_dir(&from).unwrap();
        store.move_tables(&to).unwrap();
        assert!(store.tables().is_empty(), "{killed_at}");
        assert_eq!(Store::open_dir(&to).unwrap().tables(), ["a", "b"], "{killed_at}");
        assert_eq!(lines(&to), "gannet tables 1\n+ a\n+ b\n");
    }
}

/// Several threads of a server open a new table at once. One lists it while another looks for images.
#[test]
fn threads_that_make_a_table_at_once_do_not_take_it_for_a_lost_one() {
    for round in 0..60 {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_dir(folder.path()).unwrap();
        std::thread::scope(|scope| {
            for shard in 0..4 {
                let store = store.clone();
                scope.spawn(move || {
                    let schema = Schema { shards: 4, ..schema("a") };
                    let opened = Shards::open(&store, &schema, shard..shard + 1);
                    assert!(opened.is_ok(), "round {round}: {:?}", opened.err());
                });
            }
        });
    }
}

#[test]
fn a_line_that_was_cut_short_by_a_full_disk_does_not_join_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let names = TableNames::open(folder.path()).unwrap();
    names.add("a", true).unwrap();
    // A file that takes no more bytes.
    names.lock().file = Some(OpenOptions::new().write(true).open("/dev/full").unwrap());
    assert!(names.add("b", false).is_err() && !names.has("b"));
    names.add("c", false).unwrap();
    names.remove("c").unwrap();
    names.lock().file = Some(OpenOptions::new().write(true).open("/dev/full").unwrap());
    assert!(names.lock().note_end("c").is_err());
    names.add("d", true).unwrap();
    assert_eq!(lines(folder.path()), "gannet tables 1\n+ a\n+ d\n");
}

#[test]
fn a_table_with_the_name_of_a_file_ended_its_data_folder() {
    let reserved = ["TABLES", "TABLES.new", "RUNS", "PLACE", "RESTORING", "former", "scheduler.x.book"];
    for name in reserved {
        let refused = Schema::check_name(name).unwrap_err().to_string();
        assert!(refused.contains(name) && refused.contains("use another one"), "{refused}");
    }
    for name in ["TABLE", "runs", "RUNS2", "former2", "a.book", "t.new"] {
        Schema::check_name(name).unwrap();
    }
}

//! Readers of model folders beside saves, and the tables of one save.

use crate::schema::table_schema::Schema;
use crate::table::models::checkpoint::{Checkpoint, CheckpointError};
use crate::table::models::checkpoint_writer::CheckpointWriter;
use crate::table::models::model_folder::remove_model;
use gannet_optim::{Add, Rule};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const KEYS: u64 = 40;

/// A folder in memory, if there is such a filesystem: a save syncs each file.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn schema() -> Schema {
    Schema { shards: 4, ..Schema::scalar("clicks", Rule::Add(Add)) }
}

/// Saves a table whose rows all have this value.
fn save(folder: &Path, value: u32) {
    let mut writer = CheckpointWriter::create(folder, &schema()).unwrap();
    writer.note("save", &value.to_string());
    let keys: Vec<u64> = (0..KEYS).collect();
    writer.add(&keys, &[value as f32; KEYS as usize]);
    writer.finish().unwrap();
}

/// The folder of the other table of a save.
fn layer(folder: &Path, value: u32) -> PathBuf {
    folder.join(format!("clicks-{value}"))
}

/// Saves a model of two tables, as `gannet train` does: the first table last, then the other one of the save before
/// goes.
fn save_both(folder: &Path, value: u32) {
    save(&layer(folder, value), value);
    save(folder, value);
    if layer(folder, value - 1).exists() {
        remove_model(&layer(folder, value - 1)).unwrap();
    }
}

fn layers(first: &Checkpoint) -> Vec<PathBuf> {
    let save = first.note("save").unwrap().parse().unwrap();
    vec![layer(&first.folder, save)]
}

/// The value of all rows.
fn value(checkpoint: &Checkpoint) -> Result<u32, CheckpointError> {
    let mut values = Vec::new();
    checkpoint.read(|_, rows| values.extend_from_slice(rows))?;
    assert_eq!(values.len(), KEYS as usize);
    assert!(values.iter().all(|value| *value == values[0]), "rows of two saves: {values:?}");
    Ok(values[0] as u32)
}

#[test]
fn a_reader_lost_the_files_that_a_save_removed() {
    let folder = scratch();
    save(folder.path(), 1);
    let (light, held) =
        (Checkpoint::open(folder.path()).unwrap(), Checkpoint::open_to_read(folder.path()).unwrap());
    save(folder.path(), 2);
    assert_eq!(value(&held).unwrap(), 1);
    assert_eq!(value(&held).unwrap(), 1, "twice");
    let error = value(&light).unwrap_err();
    assert!(matches!(error, CheckpointError::Replaced { .. }), "{error}");
    assert!(error.to_string().contains("read it again"), "{error}");
    assert_eq!(value(&Checkpoint::open_to_read(folder.path()).unwrap()).unwrap(), 2);
}

/// A file that is gone although its manifest is the newest one is damage.
#[test]
fn a_missing_file_is_damage_if_no_save_removed_it() {
    let folder = scratch();
    save(folder.path(), 1);
    let files = Checkpoint::open(folder.path()).unwrap().files();
    std::fs::remove_file(folder.path().join(&files[0])).unwrap();
    let error = Checkpoint::open_to_read(folder.path()).unwrap_err();
    assert!(matches!(&error, CheckpointError::Damaged { path, .. } if path.ends_with(&files[0])), "{error}");
}

#[test]
fn the_tables_of_a_model_were_of_a_save_that_was_gone() {
    let folder = scratch();
    save_both(folder.path(), 1);
    let opens = Cell::new(0);
    // A save comes each time, except for the fourth, when the first table is open and the other one is not.
    let others = |first: &Checkpoint| {
        let named = layers(first);
        opens.set(opens.get() + 1);
        if opens.get() < 4 {
            save_both(folder.path(), opens.get() + 1);
        }
        named
    };
    let (first, others) = Checkpoint::open_tables(folder.path(), others).unwrap();
    assert_eq!((value(&first).unwrap(), value(&others[0]).unwrap(), opens.get()), (4, 4, 4));
    std::fs::remove_dir_all(layer(folder.path(), 4)).unwrap();
    let error = Checkpoint::open_tables(folder.path(), layers).unwrap_err();
    assert!(matches!(&error, CheckpointError::Missing(path) if *path == layer(folder.path(), 4)), "{error}");
}

/// Readers beside a writer that saves without a pause: each reads one save, whole, and no older one than before.
#[test]
fn readers_beside_a_writer_read_one_save() {
    let folder = scratch();
    save_both(folder.path(), 1);
    let over = AtomicBool::new(false);
    let read = || {
        let (mut last, mut reads) = (1, 0);
        while !over.load(SeqCst) || reads == 0 {
            let (first, others) = Checkpoint::open_tables(folder.path(), layers).unwrap();
            let now = value(&first).unwrap();
            assert_eq!(value(&others[0]).unwrap(), now);
            assert!(now >= last, "{now} after {last}");
            (last, reads) = (now, reads + 1);
        }
    };
    std::thread::scope(|scope| {
        let readers = [scope.spawn(read), scope.spawn(read)];
        (2..400).for_each(|value| save_both(folder.path(), value));
        over.store(true, SeqCst);
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

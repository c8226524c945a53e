//! Tests of model folders: what is saved comes back, damage is found, and files of the user stay.

use crate::schema::table_schema::Schema;
use crate::table::models::checkpoint::*;
use crate::table::models::checkpoint_writer::CheckpointWriter;
use crate::table::models::model_folder::{foreign_entry, remove_model};
use gannet_optim::{Add, Rule};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn save(folder: &Path, base: u64) -> Schema {
    let schema = Schema { dim: 2, shards: 2, ..Schema::scalar("t", Rule::Add(Add)) };
    let mut writer = CheckpointWriter::create(folder, &schema).unwrap();
    writer.note("model", "lr");
    writer.shard(0, &[base, base + 1], &[1.0, 2.0, 3.0, 4.0]).unwrap();
    writer.shard(1, &[base + 2], &[5.0, base as f32]).unwrap();
    assert_eq!(writer.finish().unwrap(), 3);
    schema
}

fn load(folder: &Path) -> Result<Vec<(u64, [f32; 2])>, CheckpointError> {
    let mut all = Vec::new();
    Checkpoint::open(folder)?.read(|keys, rows| {
        all.extend(keys.iter().copied().zip(rows.chunks(2).map(|r| [r[0], r[1]])));
    })?;
    Ok(all)
}

#[test]
fn comes_back_and_replaces() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(load(folder.path()), Err(CheckpointError::Missing(_))));
    let schema = save(folder.path(), 10);
    save(folder.path(), 20);
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    assert_eq!((checkpoint.schema(), checkpoint.rows(), checkpoint.note("model")), (&schema, 3, Some("lr")));
    assert_eq!(load(folder.path()).unwrap(), [(20, [1.0, 2.0]), (21, [3.0, 4.0]), (22, [5.0, 20.0])]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3, "older files are gone");
    // An unfinished save changes nothing.
    let mut writer = CheckpointWriter::create(folder.path(), &schema).unwrap();
    writer.shard(0, &[1], &[0.0, 0.0]).unwrap();
    drop(writer);
    assert_eq!(load(folder.path()).unwrap()[0].0, 20);
}

/// The error of the system, without a remedy, came for the name of a file.
#[test]
fn a_file_in_place_of_the_folder_is_named_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    std::fs::write(&file, "of the user").unwrap();
    std::os::unix::fs::symlink("/nowhere", &link).unwrap();
    let schema = Schema::scalar("t", Rule::Add(Add));
    for path in [&file, &link] {
        let error = CheckpointWriter::create(path, &schema).err().unwrap();
        let CheckpointError::InTheWay { path: named } = &error else { panic!("{error}") };
        assert!(named == path && error.to_string().contains("move it away"), "{error}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"of the user");
}

/// Any changed, missing or extra byte of any file is found.
#[test]
fn every_changed_byte_is_found() {
    let folder = tempfile::tempdir().unwrap();
    save(folder.path(), 10);
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let good = std::fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            std::fs::write(&path, &bad).unwrap();
            // Reserved bytes of the manifest's head are the only ones that may change.
            let reserved = path.ends_with(MANIFEST) && (24..32).contains(&at);
            assert_eq!(load(folder.path()).is_err(), !reserved, "{path:?} byte {at}");
        }
        for bad in [&good[..good.len() - 1], &[&good[..], b"x"].concat(), b""] {
            std::fs::write(&path, bad).unwrap();
            assert!(load(folder.path()).is_err(), "{path:?} of {} bytes", bad.len());
        }
        std::fs::write(&path, &good).unwrap();
    }
    load(folder.path()).unwrap();
}

/// Golden: the archive of a manifest is frozen.
#[test]
fn manifest_bytes_are_frozen() {
    let manifest = ManifestV1 {
        schema: vec![1, 2, 3],
        generation: 4,
        rows: 5,
        files: vec![FileV1 { name: "rows-000004-0000".into(), shard: 0, rows: 5, crc: 6 }],
        notes: vec![("a".into(), "b".into())],
    };
    let bytes = rkyv::to_bytes::<rkyv::rancor::Error>(&manifest).unwrap();
    assert_eq!((bytes.len(), crc32c::crc32c(&bytes)), (112, GOLDEN_CRC), "{:?}", &bytes[..]);
}
const GOLDEN_CRC: u32 = 4_115_943_461;

#[test]
fn another_folder_has_what_was_saved_whatever_is_saved_next() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    save(&first, 1);
    let before = load(&first).unwrap();
    Checkpoint::open(&first).unwrap().link_into(&second).unwrap();
    save(&first, 7);
    assert_eq!(load(&second).unwrap(), before);
    assert_ne!(load(&first).unwrap(), before);
}

/// Writes files of a user. Returns them with their bytes.
fn users_files(folder: &Path, names: &[&str]) -> BTreeMap<PathBuf, Vec<u8>> {
    let write = |name: &&str| {
        let (path, bytes) = (folder.join(name), format!("the user's {name}").into_bytes());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &bytes).unwrap();
        (path, bytes)
    };
    names.iter().map(write).collect()
}

fn assert_untouched(files: &BTreeMap<PathBuf, Vec<u8>>) {
    for (path, bytes) in files {
        assert!(std::fs::read(path).is_ok_and(|now| now == *bytes), "{} has changed", path.display());
    }
}

#[test]
fn a_save_removed_files_of_the_user_whose_names_begin_with_rows() {
    let folder = tempfile::tempdir().unwrap();
    let names =
        ["rows-january.svm", "rows-000001-0000", "rows-000002-0001", "rows-000003-7", "rows-", "LOCK"];
    let files = users_files(folder.path(), &names);
    for base in [10, 20, 30] {
        save(folder.path(), base);
        assert_untouched(&files);
        assert_eq!(load(folder.path()).unwrap()[0].0, base);
        let entries = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(entries, names.len() + 3, "a manifest, two row files, and nothing of older saves");
    }
    remove_model(folder.path()).unwrap();
    assert_untouched(&files);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), names.len());
}

/// A save that was killed leaves row files without a manifest. The next save removes them, and no file of the user.
#[test]
fn an_unfinished_save_is_cleared_and_no_file_of_the_user() {
    for shards in 0..3u32 {
        let folder = tempfile::tempdir().unwrap();
        let schema = save(folder.path(), 10);
        let mut writer = CheckpointWriter::create(folder.path(), &schema).unwrap();
        (0..shards).for_each(|shard| writer.shard(shard % 2, &[1], &[0.0, 0.0]).unwrap());
        drop(writer);
        assert_eq!(foreign_entry(folder.path()).unwrap(), None);
        // One has a name that the unfinished save could have used.
        let files = users_files(folder.path(), &["rows-000002-0007", "notes.txt", "sub/rows-000002-0000"]);
        assert!(foreign_entry(folder.path()).unwrap().is_some_and(|path| path.starts_with(folder.path())));
        save(folder.path(), 20);
        assert_untouched(&files);
        assert_eq!(load(folder.path()).unwrap()[0].0, 20);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3 + 3, "after {shards} row files");
    }
}

#[test]
fn a_save_replaced_files_of_the_user_that_have_the_names_of_ours() {
    for name in [MANIFEST, "MANIFEST.new", "SAVING"] {
        let folder = tempfile::tempdir().unwrap();
        let files = users_files(folder.path(), &[name]);
        let schema = Schema::scalar("t", Rule::Add(Add));
        let refused = CheckpointWriter::create(folder.path(), &schema).err().unwrap().to_string();
        assert!(refused.contains(name) && refused.contains("move it away"), "{refused}");
        assert_untouched(&files);
        let linked = folder.path().join("elsewhere");
        std::fs::rename(folder.path().join(name), &linked).unwrap();
        std::os::unix::fs::symlink(&linked, folder.path().join(name)).unwrap();
        assert!(CheckpointWriter::create(folder.path(), &schema).is_err(), "{name} is a link");
        std::fs::remove_file(&linked).unwrap();
        assert!(
            CheckpointWriter::create(folder.path(), &schema).is_err(),
            "{name} is a link that leads nowhere"
        );
    }
}

#[test]
fn an_empty_file_of_the_user_was_taken_for_ours() {
    for name in [MANIFEST, "MANIFEST.new", "SAVING"] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(name), "").unwrap();
        assert!(
            CheckpointWriter::create(folder.path(), &Schema::scalar("t", Rule::Add(Add))).is_err(),
            "{name}"
        );
    }
}

#[test]
fn a_pipe_in_the_place_of_a_file_blocked_the_reader() {
    for (name, mode) in [(MANIFEST, rustix::fs::Mode::RWXU), ("rows-000001-0000", rustix::fs::Mode::RWXU)] {
        let folder = tempfile::tempdir().unwrap();
        save(folder.path(), 1);
        let path = folder.path().join(name);
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
        let damaged = load(folder.path()).unwrap_err().to_string();
        assert!(damaged.contains(name) && damaged.contains("no regular file"), "{damaged}");
    }
}

#[test]
fn removing_a_model_leaves_what_its_folder_has_of_the_user() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    save(&model, 1);
    let table = model.join("t-5");
    save(&table, 1);
    let files = users_files(&model, &["t-6/weights.bin", "t-7/MANIFEST", "rows-000001-0000.bak"]);
    assert!(foreign_entry(&model).unwrap().is_some());
    remove_model(&model).unwrap();
    assert_untouched(&files);
    assert!(table.join(MANIFEST).exists(), "it is no table of this save: its notes name none");
    let alone = folder.path().join("alone");
    save(&alone, 1);
    assert_eq!(foreign_entry(&alone).unwrap(), None);
    remove_model(&alone).unwrap();
    assert!(!alone.exists());
}

/// In a container every process has the same number.
#[test]
fn what_a_killed_process_of_the_same_number_had_left_ended_every_later_save() {
    let folder = tempfile::tempdir().unwrap();
    let left = folder.path().join(format!("SAVING.{}", std::process::id()));
    save(folder.path(), 1);
    std::fs::write(&left, "").unwrap();
    save(folder.path(), 2);
    assert!(left.exists(), "an empty file may be the user's");
    std::fs::write(&left, b"GANNETSV and more").unwrap();
    save(folder.path(), 3);
    assert_eq!(load(folder.path()).unwrap()[0].0, 3);
}

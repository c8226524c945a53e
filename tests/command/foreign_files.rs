//! Files that Gannet has not written, in the folders that it writes: each byte of them stays, or the command refuses
//! before it trains.

use crate::harness::{clicks, gannet, ok, refused, run};
use gannet::storage::Checkpoint;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Writes files of a user. Returns them with their bytes.
pub fn users_files<'a>(
    folder: &Path,
    names: impl IntoIterator<Item = &'a str>,
) -> BTreeMap<PathBuf, Vec<u8>> {
    let write = |name: &str| {
        let (path, bytes) = (folder.join(name), format!("the user's {name}").into_bytes());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &bytes).unwrap();
        (path, bytes)
    };
    names.into_iter().map(write).collect()
}

pub fn assert_untouched(files: &BTreeMap<PathBuf, Vec<u8>>, what: &str) {
    for (path, bytes) in files {
        assert!(std::fs::read(path).is_ok_and(|now| now == *bytes), "{what}: {} has changed", path.display());
    }
}

#[test]
fn a_training_removed_its_own_data_because_its_name_begins_with_rows() {
    let folder = scratch();
    let out = folder.path();
    let data = clicks(&out.join("rows-january.svm"), 1_000, 1);
    let before = std::fs::read(&data).unwrap();
    for model in ["", "", "--model fm", "--model fm"] {
        if model == "--model fm" && !out.join("fm").exists() {
            std::fs::create_dir(out.join("fm")).unwrap();
        }
        let to = if model.is_empty() { out.to_path_buf() } else { out.join("fm") };
        ok(&format!("train {} {model} --out {}", data.display(), to.display()));
        assert_eq!(std::fs::read(&data).unwrap(), before);
    }
}

#[test]
fn a_training_removed_a_folder_of_the_user_that_is_named_previous() {
    let folder = scratch();
    let (data, out) = (clicks(&folder.path().join("d.svm"), 500, 1), folder.path().join("out"));
    let line = format!("train {} --out {}", data.display(), out.display());
    for name in ["previous/thesis.txt", "previous.old/deep/thesis.txt", "previous.new/thesis.txt", "previous"]
    {
        let files = users_files(&out, [name]);
        refused(&line, &[name.trim_end_matches("/thesis.txt"), "move it away", "name another folder"]);
        assert_untouched(&files, name);
        assert!(!out.join("MANIFEST").exists(), "it was refused before training");
        std::fs::remove_dir_all(&out).unwrap();
    }
    // Beside the user's other files a training keeps two models, as ever.
    let files = users_files(&out, ["notes.txt", "previously/thesis.txt"]);
    (0..3).for_each(|_| drop(ok(&line)));
    assert_untouched(&files, "beside");
    assert!(out.join("previous/MANIFEST").exists() && !out.join("previous.old").exists());
    // And what the user puts into the folder of the previous model is not lost either.
    let files = users_files(&out, ["previous/notes.txt"]);
    refused(&line, &["previous/notes.txt", "move it away"]);
    assert_untouched(&files, "in previous");
}

#[test]
fn a_training_removed_a_folder_of_the_user_that_is_named_like_a_table() {
    let folder = scratch();
    let (data, out) = (clicks(&folder.path().join("d.svm"), 500, 1), folder.path().join("out"));
    let line = format!("train {} --model deepfm --out {}", data.display(), out.display());
    ok(&line);
    let table =
        std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.is_dir());
    let name = table.unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let prefix = name.rsplit_once('-').unwrap().0;
    let names = [format!("{prefix}-5/thesis.txt"), format!("{prefix}-6/rows-000001-0000")];
    let files = users_files(&out, names.iter().map(String::as_str));
    ok(&line);
    ok(&line);
    assert_untouched(&files, "deepfm");
    assert!(!out.join(&name).exists(), "the table of the first save is gone");
    ok(&format!("predict --model {} {}", out.display(), data.display()));
}

#[test]
fn a_link_named_like_a_table_lost_the_files_that_it_points_to() {
    let folder = scratch();
    let (data, out) = (clicks(&folder.path().join("d.svm"), 500, 1), folder.path().join("out"));
    let store = folder.path().join("store");
    let line = |out: &Path| format!("train {} --model deepfm --out {}", data.display(), out.display());
    ok(&line(&store));
    let table = std::fs::read_dir(&store).unwrap().map(|entry| entry.unwrap()).find(|e| e.path().is_dir());
    let (table, name) = table.map(|table| (table.path(), table.file_name())).unwrap();
    let files = || std::fs::read_dir(&table).unwrap().count();
    let before = files();
    ok(&line(&out));
    std::os::unix::fs::symlink(&table, out.join(&name)).unwrap();
    ok(&line(&out));
    ok(&line(&out));
    assert_eq!(files(), before);
    assert!(out.join(&name).is_symlink());
}

#[test]
fn a_model_below_another_ones_folder_is_no_part_of_it() {
    let folder = scratch();
    let (data, out) = (clicks(&folder.path().join("d.svm"), 500, 1), folder.path().join("out"));
    let line = |out: &Path| format!("train {} --out {}", data.display(), out.display());
    ok(&line(&out));
    ok(&line(&out.join("january")));
    let january = std::fs::read(out.join("january/MANIFEST")).unwrap();
    (0..3).for_each(|_| drop(ok(&line(&out))));
    assert_eq!(std::fs::read(out.join("january/MANIFEST")).unwrap(), january);
    assert!(!out.join("previous/january").exists());
}

#[test]
fn a_model_of_topics_is_saved_again_and_again() {
    let folder = scratch();
    let (data, out) = (clicks(&folder.path().join("d.svm"), 200, 1), folder.path().join("out"));
    let line = format!("train {} --model lda --epochs 2 --out {}", data.display(), out.display());
    (0..4).for_each(|_| drop(ok(&line)));
    let topics = totals_of_topics(&out.join("previous"));
    let files = users_files(&topics, ["thesis.txt"]);
    refused(&line, &["thesis.txt", "move it away"]);
    assert_untouched(&files, "topics");
}

/// The folder of the totals of topics in the folder of a model. It is the only one, and of the same save as the words.
fn totals_of_topics(model: &Path) -> PathBuf {
    let entries = std::fs::read_dir(model).unwrap().map(|entry| entry.unwrap().path());
    let named = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("lda.topics");
    let all: Vec<PathBuf> = entries.filter(named).collect();
    let [one] = &all[..] else { panic!("{all:?}") };
    let save = |folder: &Path| Checkpoint::open(folder).unwrap().note("save").map(str::to_owned);
    assert!(save(one).is_some() && save(one) == save(model));
    one.clone()
}

/// A save writes the words last. A kill before that left the words of one save and the totals of another.
#[test]
fn totals_of_topics_were_written_over_before_the_words_of_their_save() {
    let folder = scratch();
    let (data, out) = (clicks(&folder.path().join("d.svm"), 200, 1), folder.path().join("out"));
    let line = format!("train {} --model lda --epochs 2 --out {}", data.display(), out.display());
    ok(&line);
    let first = totals_of_topics(&out);
    ok(&line);
    assert_ne!(totals_of_topics(&out), first);
    assert_eq!(totals_of_topics(&out.join("previous")).file_name(), first.file_name());
}

#[test]
fn a_training_replaced_a_manifest_of_another_program() {
    let folder = scratch();
    let (data, out) = (clicks(&folder.path().join("d.svm"), 500, 1), folder.path().join("out"));
    for name in ["MANIFEST", "MANIFEST.new", "SAVING"] {
        let files = users_files(&out, [name]);
        refused(&format!("train {} --out {}", data.display(), out.display()), &[name, "move it away"]);
        assert_untouched(&files, name);
        std::fs::remove_dir_all(&out).unwrap();
    }
}

#[test]
fn a_model_saved_into_a_data_folder_kept_the_server_from_starting_again() {
    let folder = scratch();
    let (data, out) = (clicks(&folder.path().join("d.svm"), 500, 1), folder.path().join("data"));
    let name = out.display().to_string();
    ok(&format!("train {} --data-dir {name}", data.display()));
    refused(&format!("train {} --out {name}", data.display()), &[&name, "data folder of a server"]);
    ok(&format!("train {} --data-dir {name} --fresh", data.display()));
}

/// Numbers from a seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Trainings that save often, are killed and begin again, among files of the user that come and go.
#[test]
fn files_of_the_user_stay_whatever_is_saved_or_killed_beside_them() {
    let rounds = std::env::var("ROUNDS").map_or(6, |rounds| rounds.parse().unwrap());
    for seed in 0..rounds {
        let (mut dice, folder) = (Dice(seed + 1), scratch());
        let (data, out) = (clicks(&folder.path().join("d.svm"), 3_000, seed), folder.path().join("out"));
        let model = ["", "--model fm", "--model deepfm"][dice.below(3) as usize];
        let mut files = BTreeMap::new();
        for life in 0..4 {
            let name = match dice.below(10) {
                0 => format!("rows-{:06}-{:04}", dice.below(9), dice.below(64)),
                1 => format!("rows-{:06}-0000-1", dice.below(9)),
                2 => "rows-january.svm".to_owned(),
                3 => format!("deepfm.{}-{}/weights", dice.below(3), dice.below(9)),
                4 => format!("previous{}/thesis.txt", ["", ".old", ".new", "ly"][dice.below(4) as usize]),
                5 => ["MANIFEST.new", "SAVING", "MANIFEST"][dice.below(3) as usize].to_owned(),
                6 => format!("170000000{}/notes.txt", dice.below(9)),
                7 => format!("shard-{:04}.image", dice.below(9)),
                8 => "LOCK".to_owned(),
                _ => format!("notes-{life}.txt"),
            };
            // The user writes no file over one of ours.
            if !out.join(&name).exists() {
                files.extend(users_files(&out, [&*name]));
            }
            let what = format!("seed {seed}, life {life}, {model}");
            let line =
                format!("train {} {model} --epochs 40 --save-secs 1 --out {}", data.display(), out.display());
            if dice.below(4) == 0 {
                let done = run(&line);
                assert!(matches!(done.code, Some(0 | 2)), "{what}: {}", done.err);
            } else {
                let mut child = gannet(&line).spawn().unwrap();
                std::thread::sleep(Duration::from_millis(dice.below(400)));
                child.kill().unwrap();
                child.wait().unwrap();
            }
            assert_untouched(&files, &what);
            // What stands in the way would refuse every later training.
            files.retain(|path, _| {
                let stays = dice.below(3) > 0;
                if !stays {
                    std::fs::remove_file(path).unwrap();
                    let _ = std::fs::remove_dir(path.parent().unwrap());
                }
                stays
            });
        }
        // Without the user's files a training ends, so no life has left anything that stands in its way.
        for path in files.keys() {
            std::fs::remove_file(path).unwrap();
            let _ = std::fs::remove_dir(path.parent().unwrap());
        }
        ok(&format!("train {} {model} --out {}", data.display(), out.display()));
        ok(&format!("predict --model {} {}", out.display(), data.display()));
    }
}

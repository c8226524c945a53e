//! A growing folder: what is found, what is not read, and where it ends.

use crate::read::growing::folder::{Folder, Until};
use crate::read::growing::local_tasks::LocalTasks;
use crate::read::growing::looking::GrowingSource;
use crate::read::splits::split::Splits;
use gannet_jobs::scheduler::growing::Growing;
use gannet_wire::{Found, GrownTask};
use rustix::fs::{Timespec, Timestamps, futimens};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// A time in the year 2027, in nanoseconds since 1970.
const NOW: u64 = 1_800_000_000_000_000_000;

fn write(folder: &Path, name: &str, bytes: &str, seconds: i64) {
    fs::write(folder.join(name), bytes).unwrap();
    let file = fs::File::options().write(true).open(folder.join(name)).unwrap();
    let at = Timespec { tv_sec: seconds, tv_nsec: 0 };
    futimens(file, &Timestamps { last_access: at, last_modification: at }).unwrap();
}

/// Looks, and returns the names of the tasks that are new, in their order.
fn look(folder: &Folder, growing: &mut Growing) -> Vec<String> {
    growing.take_in(folder.look(&growing.stand()).unwrap());
    let mut names = Vec::new();
    while let Some(number) = growing.hand_out() {
        let Some(GrownTask::Lines { file, start, end }) = growing.task(number).cloned() else { panic!() };
        names.push(if end - start == file.bytes {
            file.name
        } else {
            format!("{}:{start}-{end}", file.name)
        });
        growing.done(number);
    }
    names
}

#[test]
fn files_are_found_once_in_order_and_unfinished_ones_not() {
    let (dir, mut growing) = (tempfile::tempdir().unwrap(), Growing::default());
    let folder = Folder::new(dir.path(), false, Until::Stopped, Some(10), || NOW);
    assert_eq!(folder.look(&growing.stand()), Ok(Found::Nothing));
    assert_eq!(folder.first(), Ok(None));
    for name in [".a", "_a", "a.tmp", "a.part", "a.partial", "a.crdownload", "a.filepart"] {
        write(dir.path(), name, "1 1:1\n", 1);
    }
    fs::create_dir(dir.path().join("older")).unwrap();
    write(dir.path(), "empty", "", 1);
    assert_eq!(folder.look(&growing.stand()), Ok(Found::Nothing));
    write(dir.path(), "b", "1 1:1\n", 1);
    write(dir.path(), "a", "1 1:1\n", 2);
    assert_eq!(folder.first(), Ok(Some(dir.path().join("a").display().to_string())));
    assert_eq!(look(&folder, &mut growing), ["a", "b"]);
    assert!(look(&folder, &mut growing).is_empty());
    fs::rename(dir.path().join("a.tmp"), dir.path().join("0")).unwrap();
    write(dir.path(), "long", &"1 1:1\n".repeat(5), 1);
    assert_eq!(look(&folder, &mut growing), ["0", "long:0-10", "long:10-20", "long:20-30"]);
    // A changed file is not found again, and a packed one is one task.
    write(dir.path(), "a", "1 1:1\n1 2:1\n", 9);
    fs::write(dir.path().join("p.zst"), zstd::encode_all("1 1:1\n".repeat(90).as_bytes(), 1).unwrap())
        .unwrap();
    assert_eq!(look(&folder, &mut growing), ["p.zst"]);
}

#[test]
fn the_order_of_times_is_that_of_the_last_writes() {
    let (dir, mut growing) = (tempfile::tempdir().unwrap(), Growing::default());
    let folder = Folder::new(dir.path(), true, Until::Stopped, None, || NOW);
    write(dir.path(), "a", "1 1:1\n", 30);
    write(dir.path(), "b", "1 1:1\n", 20);
    assert_eq!(look(&folder, &mut growing), ["b", "a"]);
    // The name stays known while the file is there, and is a new one afterwards.
    write(dir.path(), "b", "1 1:1\n", 40);
    assert!(look(&folder, &mut growing).is_empty());
    fs::remove_file(dir.path().join("b")).unwrap();
    assert!(look(&folder, &mut growing).is_empty());
    write(dir.path(), "b", "1 1:1\n", 50);
    assert_eq!(look(&folder, &mut growing), ["b"]);
}

#[test]
fn a_folder_ends_with_the_files_of_its_start_or_of_a_time() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "b", "1 1:1\n", 20);
    for by_time in [false, true] {
        let mut growing = Growing::default();
        let folder = Folder::new(dir.path(), by_time, Until::End, None, || NOW);
        assert_eq!(look(&folder, &mut growing), ["b"]);
        assert!(growing.is_trained());
    }
    write(dir.path(), "a", "1 1:1\n", 30);
    let mut growing = Growing::default();
    let past = Folder::new(dir.path(), false, Until::Time(25_000_000_000), None, || NOW);
    assert_eq!(look(&past, &mut growing), ["b"]);
    assert!(growing.is_trained());
    let mut growing = Growing::default();
    let future = Folder::new(dir.path(), false, Until::Time(NOW + 1), None, || NOW);
    assert_eq!(look(&future, &mut growing), ["a", "b"]);
    assert!(!growing.is_trained());
}

#[test]
fn one_process_takes_all_tasks_and_then_none() {
    let dir = tempfile::tempdir().unwrap();
    (0..5).for_each(|at| write(dir.path(), &format!("{at}"), "1 1:1\n", 20));
    let tasks = LocalTasks::new(Arc::new(Folder::new(dir.path(), false, Until::End, None, || NOW)));
    let mut names = Vec::new();
    while let Some(split) = tasks.take(&|| false).unwrap() {
        names.push(tasks.grown(split.index).unwrap().name().rsplit_once('/').unwrap().1.to_owned());
        tasks.done(split.index, 1).unwrap();
        assert!(tasks.grown(split.index).is_none());
    }
    assert_eq!(names, ["0", "1", "2", "3", "4"]);
    let gone =
        LocalTasks::new(Arc::new(Folder::new(&dir.path().join("none"), false, Until::End, None, || NOW)));
    assert!(gone.take(&|| false).unwrap_err().contains("--follow"));
}

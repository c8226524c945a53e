//! Files that Gannet has not written, in the folders of servers and their checkpoints: each byte of them stays,
//! whatever is saved, pruned, restored, exported or killed beside them.

use crate::foreign_files::{Dice, assert_untouched, users_files};
use crate::harness::{Owned, Served, clicks, fails, gannet, ok, refused, run};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// Trains in a server with the checkpoint folder `dir`, and saves.
pub fn save(folder: &Path, dir: &Path) {
    let data = clicks(&folder.join("d.svm"), 300, 1);
    std::fs::create_dir_all(dir).unwrap();
    let server =
        Served::start(gannet(&format!("server --listen 127.0.0.1:0 --checkpoint {}", dir.display())));
    train_on(&server, &data, "");
    ok(&format!("checkpoint save {} --ps-hosts {}", dir.display(), server.addr));
}

pub fn train_on(server: &Served, data: &Path, flags: &str) {
    ok(&format!(
        "train {} --ps-hosts {} --worker-hosts 127.0.0.1:9 --job-name worker --task-index 0 {flags}",
        data.display(),
        server.addr
    ));
}

#[test]
fn an_export_replaced_what_is_no_regular_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let dir = at("saved");
    save(folder.path(), &dir);
    let export =
        |file: &str| format!("checkpoint export {} {file} --table default.lr --format text", dir.display());
    let name = |name: &str| at(name).display().to_string();
    ok(&export(&name("plain")));
    let plain = std::fs::read(at("plain")).unwrap();
    assert!(plain.len() > 100);
    // Standard output, as a text and as an archive. The message goes to standard error.
    let out = ok(&export("-"));
    assert_eq!(out.out.as_bytes(), plain);
    assert!(out.err.contains("rows of weights") && !Path::new("-").exists());
    let piped = |file: &str| {
        let line = format!("checkpoint export {} {file} --table default.lr --format npz", dir.display());
        gannet(&line).stdout(Stdio::piped()).output().unwrap()
    };
    piped(&name("plain.npz"));
    assert_eq!(piped("-").stdout, std::fs::read(at("plain.npz")).unwrap());
    // A pipe gets the bytes, and stays a pipe.
    rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RWXU).unwrap();
    let reader = {
        let path = at("pipe");
        std::thread::spawn(move || std::fs::read(path).unwrap())
    };
    ok(&export(&name("pipe")));
    assert_eq!(reader.join().unwrap(), plain);
    assert!(!std::fs::symlink_metadata(at("pipe")).unwrap().is_file());
    // A link stays one, and the file behind it has the rows.
    std::fs::write(at("behind"), "old").unwrap();
    std::os::unix::fs::symlink(at("behind"), at("link")).unwrap();
    ok(&export(&name("link")));
    assert!(at("link").is_symlink());
    assert_eq!(std::fs::read(at("behind")).unwrap(), plain);
    // A device stays one. (A test may run as root.)
    let full = run(&export("/dev/full"));
    assert!(full.code == Some(1) && full.err.contains("No space left"), "{:?} {}", full.code, full.err);
    assert!(!std::fs::metadata("/dev/full").unwrap().is_file());
    // A file beside the target with the name that an older version used.
    let files = users_files(folder.path(), ["plain.new", "plain.keys", "plain.values"]);
    ok(&export(&name("plain")));
    piped(&name("plain"));
    assert_untouched(&files, "export");
    refused(&export(&name("saved")), &["is a folder"]);
}

#[test]
fn a_pipe_in_a_data_folder_blocked_the_server_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let (data, dir) = (clicks(&folder.path().join("d.svm"), 300, 1), folder.path().join("data"));
    let line = format!("train {} --data-dir {}", data.display(), dir.display());
    ok(&line);
    let mut names = vec!["LOCK".to_owned(), "TABLES".to_owned(), "RUNS".to_owned()];
    let table = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.is_dir())
        .unwrap();
    let table = table.file_name().unwrap().to_str().unwrap();
    names.push(format!("{table}/shard-0000.image"));
    for name in names {
        let (path, away) = (dir.join(&name), folder.path().join("away"));
        let was_there = std::fs::rename(&path, &away).is_ok();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        let done = run(&format!("{line} --fresh"));
        assert!(done.code.is_some_and(|code| code != 0), "{name}: {:?} {}", done.code, done.err);
        assert!(done.err.contains(name.rsplit('/').next().unwrap()), "{name}: {}", done.err);
        assert!(done.err.contains("no regular file"), "{name}: {}", done.err);
        std::fs::remove_file(&path).unwrap();
        if was_there {
            std::fs::rename(&away, &path).unwrap();
        }
    }
    ok(&format!("{line} --fresh"));
}

#[test]
fn a_server_whose_lock_file_was_moved_shared_its_images_with_a_second_one() {
    let folder = tempfile::tempdir().unwrap();
    let (data, dir) = (clicks(&folder.path().join("d.svm"), 300, 1), folder.path().join("data"));
    let line = |dir: &Path| format!("server --listen 127.0.0.1:0 --data-dir {}", dir.display());
    let server = Served::start(gannet(&line(&dir)));
    train_on(&server, &data, "");
    std::fs::rename(dir.join("LOCK"), folder.path().join("LOCK")).unwrap();
    fails(&line(&dir), 1, &["another server uses this data folder"]);
    // The same images in a folder of another name.
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::copy(dir.join("RUNS"), other.join("RUNS")).unwrap();
    std::fs::rename(dir.join("default.lr"), other.join("default.lr")).unwrap();
    let second = Served::start(gannet(&line(&other)));
    let done = run(&format!(
        "train {} --ps-hosts {} --worker-hosts 127.0.0.1:9 --job-name worker --task-index 0 --continue \
         --peer-timeout 5",
        data.display(),
        second.addr
    ));
    assert!(done.code != Some(0) && done.err.contains("another server uses"), "{:?} {}", done.code, done.err);
    second.kill();
    std::fs::rename(other.join("default.lr"), dir.join("default.lr")).unwrap();
    server.kill();
    // A killed server holds no lock.
    let again = Served::start(gannet(&line(&dir)));
    train_on(&again, &data, "--continue");
}

/// A name that a user could give a file in one of these folders, with names of ours among them.
fn name(dice: &mut Dice) -> String {
    let n = dice.below(9);
    let places =
        ["", "", "default.lr/", "former/", "former/default.lr/", "photos/", "0000000001/", "0000000002/"];
    let place = places[dice.below(places.len() as u64) as usize];
    let name = match dice.below(14) {
        0 => format!("shard-{n:04}.image"),
        1 => format!("shard-{:04}.new", dice.below(64)),
        2 => format!("step-{n:04}-0badf00d.0"),
        3 => format!("170000000{n}/notes.txt"),
        4 => format!(
            "000000000{n}/{}",
            ["MANIFEST", "SAVER", "t00-0000.rows", "tasks.state"][dice.below(4) as usize]
        ),
        5 => format!("t00-{n:04}.rows"),
        6 => ["MANIFEST.new", "REMOVED", "STATES", "SAVER.new", "RESERVED.new"][dice.below(5) as usize]
            .to_owned(),
        7 => ["PLACE.new", "RUNS.new", "TABLES.new", "INCARNATIONS.new"][dice.below(4) as usize].to_owned(),
        8 => "scheduler.other.book".to_owned(),
        9 => "former.new/letter".to_owned(),
        10 => ["LOCK", "RESTORING", "PLACE"][dice.below(3) as usize].to_owned(),
        11 => format!("rows-{n:06}-0000"),
        12 => "rows.txt.new".to_owned(),
        _ => format!("notes-{n}.txt"),
    };
    format!("{place}{name}")
}

/// Runs a command for a moment and kills it, or lets it end. Refusals (2) and errors of the system (1, 3) are fine:
/// something may be in the way.
fn run_or_kill(line: &str, dice: &mut Dice, what: &str) {
    if dice.below(2) == 0 {
        let done = run(line);
        assert!(matches!(done.code, Some(0..=3)), "{what}: {line}: {:?} {}", done.code, done.err);
        return;
    }
    let mut child = Owned(gannet(line).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    std::thread::sleep(Duration::from_millis(dice.below(300)));
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    let _ = child.0.stdout.take().map(|mut out| out.read_to_end(&mut Vec::new()));
}

#[test]
fn files_of_the_user_stay_beside_servers_and_their_checkpoints() {
    let rounds = std::env::var("ROUNDS").map_or(2, |rounds| rounds.parse().unwrap());
    let seeds = tempfile::tempdir().unwrap();
    let saved = seeds.path().join("saved");
    save(seeds.path(), &saved);
    let rows = seeds.path().join("rows.npz");
    ok(&format!("checkpoint export {} {} --table default.lr --format npz", saved.display(), rows.display()));
    for seed in 0..rounds {
        let (mut dice, folder) = (Dice(seed * 7 + 3), tempfile::tempdir().unwrap());
        let data = clicks(&folder.path().join("d.svm"), 2_000, seed);
        let at = |name: &str| folder.path().join(name);
        let (dir, checkpoints, restored) = (at("data"), at("checkpoints"), at("restored"));
        let mut files: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
        for life in 0..8 {
            let server = restored.join("server-0");
            for place in [&dir, &checkpoints, &server, &folder.path().to_path_buf()] {
                let name = name(&mut dice);
                if !place.join(&name).exists() && !name.split('/').any(|part| place.join(part).is_file()) {
                    files.extend(users_files(place, [&*name]));
                }
            }
            let (d, c, r) = (dir.display(), checkpoints.display(), restored.display());
            let line = match dice.below(7) {
                0 => format!("train {} --data-dir {d} --fresh", data.display()),
                1 => format!("train {} --data-dir {d} --continue", data.display()),
                2 => format!(
                    "checkpoint import {} {c} --table default.lr --format npz --shards 4",
                    rows.display()
                ),
                3 => format!("checkpoint prune {c} --keep 1"),
                4 => format!("checkpoint restore {} --data-dir {r}", saved.display()),
                5 => format!(
                    "checkpoint export {} {} --table default.lr --format text",
                    saved.display(),
                    at("rows.txt").display()
                ),
                _ => format!("server --listen 127.0.0.1:0 --data-dir {} --checkpoint {c}", server.display()),
            };
            let what = format!("seed {seed}, life {life}");
            match line.starts_with("server") {
                true => {
                    let mut child =
                        Owned(gannet(&line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
                    std::thread::sleep(Duration::from_millis(100 + dice.below(300)));
                    let _ = child.0.kill();
                    child.0.wait().unwrap();
                }
                false => run_or_kill(&line, &mut dice, &what),
            }
            assert_untouched(&files, &format!("{what}: {line}"));
            files.retain(|path, _| {
                let stays = dice.below(3) > 0;
                if !stays {
                    std::fs::remove_file(path).unwrap();
                    let _ = std::fs::remove_dir(path.parent().unwrap());
                }
                stays
            });
        }
    }
}

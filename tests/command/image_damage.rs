//! Damage of what is at rest: images of a stopped server, and checkpoints.

use crate::foreign_server_files::{save, train_on};
use crate::harness::{Served, clicks, fails, gannet, ok, refused, run};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Flips a bit of the first byte behind `from` that is not zero.
fn flip(path: &Path, from: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut bytes = vec![0; 1 << 20];
    let got = file.read_at(&mut bytes, from).unwrap();
    let at = bytes[..got].iter().position(|&byte| byte != 0).unwrap();
    file.write_all_at(&[bytes[at] ^ 16], from + at as u64).unwrap();
}

#[test]
fn flipped_bits_in_the_rows_of_a_stopped_server_were_served_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let (data, dir) = (clicks(&folder.path().join("d.svm"), 2_000, 1), folder.path().join("data"));
    let name = dir.display().to_string();
    let line = format!("server --listen 127.0.0.1:0 --data-dir {name}");
    let server = Served::start(gannet(&line));
    train_on(&server, &data, "");
    server.stop();
    let image = dir.join("default.lr/shard-0007.image");
    assert!(image.with_extension("sums").is_file());
    // In each part of the file: the header behind its checksum, the index, the rows.
    for from in [0x3000, 2 << 20, 4 << 20] {
        flip(&image, from);
        fails(
            &line,
            1,
            &["shard-0007.image", &format!("from byte {}", from >> 21 << 21), "--no-verify", "checkpoint"],
        );
        let doctor = run(&format!("doctor --data-dir {name} --json"));
        assert_eq!(doctor.code, Some(1), "{}", doctor.err);
        let json = doctor.json();
        let found =
            json["findings"].as_array().unwrap().iter().find(|found| found["area"] == "images").unwrap();
        assert!(found["level"] == "problem" && found["text"].as_str().unwrap().contains("shard-0007.image"));
        let hurried = Served::start(gannet(&format!("{line} --no-verify")));
        hurried.kill();
        flip(&image, from);
    }
    let doctor = ok(&format!("doctor --data-dir {name}"));
    assert!(doctor.out.contains("64 images") && doctor.out.contains("0 B have none"), "{}", doctor.out);
    // A server that is killed leaves what it has changed without a check, and the rest with one.
    let server = Served::start(gannet(&line));
    let note = run(&format!("doctor --data-dir {name}"));
    assert!(note.out.contains("a server uses it") && note.code == Some(0), "{}", note.out);
    server.kill();
    flip(&image, 4 << 20);
    fails(&line, 1, &["shard-0007.image", "--no-verify"]);
    flip(&image, 4 << 20);
    Served::start(gannet(&line)).stop();
}

#[test]
fn all_checkpoints_of_a_folder_are_read_and_each_damaged_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("saved");
    save(folder.path(), &dir);
    let rows = folder.path().join("rows.npz").display().to_string();
    let dir = dir.display().to_string();
    ok(&format!("checkpoint export {dir} {rows} --table default.lr --format npz"));
    for _ in 0..2 {
        ok(&format!("checkpoint import {dir} {rows} --table default.lr --format npz --shards 4"));
    }
    let good = ok(&format!("checkpoint verify {dir} --all"));
    assert_eq!(good.out.lines().filter(|line| line.contains("is good")).count(), 3, "{}", good.out);
    flip(Path::new(&format!("{dir}/0000000002/t00-0001.rows")), 40);
    let done = run(&format!("checkpoint verify {dir} --all"));
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert!(
        done.out.contains("checkpoint 2 is damaged") && done.out.contains("t00-0001.rows"),
        "{}",
        done.out
    );
    assert_eq!(done.out.lines().filter(|line| line.contains("is good")).count(), 2, "{}", done.out);
    assert!(done.err.contains("damaged: 2 of 3 checkpoints"), "{}", done.err);
    let json = run(&format!("checkpoint verify {dir} --all --json"));
    let good =
        json.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["good"].clone());
    assert_eq!(good.collect::<Vec<_>>(), [true, false, true]);
    refused(&format!("checkpoint verify {dir} 2 --all"), &["--all"]);
}

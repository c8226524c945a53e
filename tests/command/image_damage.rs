//! Damage of what is at rest: images of a stopped server, and checkpoints.

use crate::foreign_server_files::{save, train_on};
use crate::harness::{Served, clicks, fails, gannet, ok, refused, run};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The place of the first byte from `from` on that is not zero.
fn used_byte(path: &Path, from: u64) -> u64 {
    let mut bytes = vec![0; 1 << 20];
    let got = File::open(path).unwrap().read_at(&mut bytes, from).unwrap();
    from + bytes[..got].iter().position(|&byte| byte != 0).unwrap() as u64
}

/// Flips a bit.
fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 16], at).unwrap();
}

#[test]
fn flipped_bits_in_the_rows_of_a_stopped_server_were_served_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let (data, dir) = (clicks(&folder.path().join("d.svm"), 2_000, 1), folder.path().join("data"));
    let name = dir.display().to_string();
    let line = format!("server --listen 127.0.0.1:0 --data-dir {name}");
    let server = Served::start(gannet(&line));
    train_on(&server, &data, "--normalize off");
    server.stop();
    let mut images: Vec<_> =
        std::fs::read_dir(dir.join("default.lr")).unwrap().map(|entry| entry.unwrap().path()).collect();
    images.retain(|path| path.extension().is_some_and(|kind| kind == "image"));
    images.sort();
    let image = images.last().unwrap().clone();
    let file = image.file_name().unwrap().to_str().unwrap();
    assert!(image.with_extension("sums").is_file());
    // In each part of the file: the header behind its checksum, the index, the rows.
    for from in [0x3000, 2 << 20, 4 << 20] {
        let at = used_byte(&image, from);
        flip(&image, at);
        fails(&line, 1, &[file, &format!("from byte {}", from >> 21 << 21), "--no-verify", "checkpoint"]);
        let doctor = run(&format!("doctor --data-dir {name} --json"));
        assert_eq!(doctor.code, Some(1), "{}", doctor.err);
        let json = doctor.json();
        let found =
            json["findings"].as_array().unwrap().iter().find(|found| found["area"] == "images").unwrap();
        assert!(found["level"] == "problem" && found["text"].as_str().unwrap().contains(file));
        let hurried = Served::start(gannet(&format!("{line} --no-verify")));
        hurried.kill();
        flip(&image, at);
    }
    let doctor = ok(&format!("doctor --data-dir {name}"));
    assert!(
        doctor.out.contains(&format!("{} images", images.len())) && doctor.out.contains("0 B have none"),
        "{}",
        doctor.out
    );
    // A server that is killed leaves what it has changed without a check, and the rest with one.
    let server = Served::start(gannet(&line));
    let note = run(&format!("doctor --data-dir {name}"));
    assert!(note.out.contains("a server uses it") && note.code == Some(0), "{}", note.out);
    server.kill();
    flip(&image, 4 << 20);
    fails(&line, 1, &[file, "--no-verify"]);
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
        ok(&format!("checkpoint import {rows} {dir} --table default.lr --format npz --shards 4"));
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

#[test]
fn doctor_found_nothing_wrong_with_images_that_were_lost_swapped_or_zeros() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 300, 1).display().to_string();
    let rows = folder.path().join("rows");
    ok(&format!("train {data} --data-dir {}", rows.display()));
    let images = || {
        let table = std::fs::read_dir(&rows).unwrap().map(|entry| entry.unwrap().path());
        let table = table.filter(|path| path.is_dir()).find(|path| path.ends_with("default.lr")).unwrap();
        [0, 1].map(|shard| table.join(format!("shard-{shard:04}.image")))
    };
    let doctor = || run(&format!("doctor --data-dir {}", rows.display()));
    assert_eq!(doctor().code, Some(0), "{}", doctor().out);
    let ([first, second], aside) = (images(), folder.path().join("aside"));
    std::fs::rename(&first, &aside).unwrap();
    assert!(doctor().code != Some(0) && doctor().out.contains("shard-0000"), "lost: {}", doctor().out);
    std::fs::rename(&second, &first).unwrap();
    std::fs::rename(&aside, &second).unwrap();
    assert!(doctor().code != Some(0) && doctor().out.contains("holds shard 1"), "swapped: {}", doctor().out);
    std::fs::rename(&second, &aside).unwrap();
    std::fs::rename(&first, &second).unwrap();
    std::fs::write(&first, vec![0; std::fs::metadata(&aside).unwrap().len() as usize]).unwrap();
    assert!(doctor().code != Some(0) && doctor().out.contains("shard-0000"), "zeros: {}", doctor().out);
    std::fs::rename(&aside, &first).unwrap();
    std::fs::remove_file(first.with_extension("sums")).unwrap();
    assert!(doctor().out.contains("checksums are gone or damaged"), "{}", doctor().out);
}

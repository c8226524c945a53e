//! `gannet train --admit-count | --admit-probability`, tested from outside. Exactly the keys that should get rows do:
//! in one process, over servers, and on images that outlive them.

use crate::harness;

use harness::*;
use std::collections::HashMap;
use std::path::Path;

/// For each feature of a libsvm file, and for the intercept, the number of batches of 256 examples that contain it.
fn batches_with_key(data: &Path) -> HashMap<String, u64> {
    let mut counts = HashMap::<String, u64>::new();
    let text = std::fs::read_to_string(data).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for batch in lines.chunks(256) {
        let features = batch.iter().flat_map(|line| line.split_whitespace().skip(1));
        let mut keys: Vec<&str> = features.map(|f| f.split(':').next().unwrap()).collect();
        keys.push("intercept");
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter().for_each(|key| *counts.entry(key.into()).or_default() += 1);
    }
    counts
}

#[test]
fn keys_get_rows_at_their_nth_batch_and_not_before() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 2_000, 1);
    let counts = batches_with_key(&data);
    let served = Served::start(gannet("server --listen 127.0.0.1:0 --threads 2"));
    let job = format!(
        "--ps-hosts {} --worker-hosts 127.0.0.1:9 --job-name worker --tasks off --batch 256",
        served.addr
    );
    let images = format!("--data-dir {}", folder.path().join("images").display());
    for (n, place) in [(3, ""), (3, &job[..]), (5, &images)] {
        let line = format!("train {} --json --admit-count {n} {place}", data.display());
        let done = run(&line).json();
        let rows = counts.values().filter(|&&count| count >= n).count();
        let waited: u64 = counts.values().map(|&count| count.min(n - 1)).sum();
        assert!(rows > 100 && rows < counts.len(), "{rows} of {} keys: the test shows nothing", counts.len());
        assert_eq!(
            (done["rows"].as_u64(), done["not_admitted"].as_u64()),
            (Some(rows as u64), Some(waited)),
            "{line}"
        );
    }
    let text = run(&format!("train {} --admit-count 3", data.display())).out;
    assert!(text.contains("not admitted"), "{text}");
}

#[test]
fn draws_are_the_same_over_servers() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 5_000, 1);
    let served = Served::start(gannet("server --listen 127.0.0.1:0 --threads 2"));
    let job = format!(
        "--ps-hosts {} --worker-hosts 127.0.0.1:9 --job-name worker --tasks off --batch 256",
        served.addr
    );
    let line = format!("train {} --json --admit-probability 0.3", data.display());
    let (all, alone) = (run(&format!("train {} --json", data.display())).json(), run(&line).json());
    let (rows, every) = (alone["rows"].as_u64().unwrap(), all["rows"].as_u64().unwrap());
    assert!(rows > every / 10 && rows < every, "{rows} of {every}");
    assert_eq!(all["not_admitted"], 0);
    let over = run(&format!("{line} {job}")).json();
    assert_eq!((&over["rows"], &over["not_admitted"]), (&alone["rows"], &alone["not_admitted"]));
}

#[test]
fn admission_out_of_range_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("a.svm"), 10, 1);
    for (flags, expected) in [
        ("--admit-count 0", "1..=256"),
        ("--admit-count 257", "1..=256"),
        ("--admit-probability 0", "above 0"),
        ("--admit-probability 1.5", "'--admit-probability <P>': a number above 0 and at most 1"),
        ("--admit-probability nan", "above 0"),
        ("--admit-count 2 --admit-probability 0.5", "cannot be used with"),
        ("--admit-count 2 --admit-sketch 2000", "1..=1024"),
    ] {
        let done = run(&format!("train {} {flags}", data.display()));
        assert_eq!(done.code, Some(2), "{flags}: {done:?}");
        assert!(done.err.contains(expected), "{flags}: {expected} in {done:?}");
    }
}

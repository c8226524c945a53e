//! Jobs whose workers cache rows: fewer bytes, the same loss, and what cannot be combined with a cache.

use crate::harness;

use harness::*;
use std::path::Path;

fn line(data: &Path, addr: &str, index: usize, flags: &str) -> String {
    format!(
        "train {} --ps-hosts {addr} --worker-hosts 127.0.0.1:9,127.0.0.1:10 --job-name worker --task-index {index} --json \
         --l1 0.1 --batch 200 --tasks off --transport tcp {flags}",
        data.display()
    )
}

/// Trains with two workers. Returns the test log loss, the bytes over the network, and what the caches did.
fn job(train: &Path, test: &Path, flags: &str) -> (f64, u64, [u64; 4]) {
    let served = Served::start(gannet("server --listen 127.0.0.1:0 --threads 2"));
    let other = Process::start(gannet(&line(train, &served.addr, 1, flags)));
    let chief = run(&format!("{} --test {}", line(train, &served.addr, 0, flags), test.display()));
    let all = [chief, other.wait()];
    all.iter().for_each(|done| assert_eq!(done.code, Some(0), "{flags}: {done:?}"));
    let (mut bytes, mut rows) = (0, [0; 4]);
    for done in &all {
        let json = done.json();
        let wire = |name: &str| json["wire"][name].as_u64().unwrap();
        bytes += wire("sent_bytes") + wire("received_bytes");
        for (sum, name) in rows.iter_mut().zip(["had", "same", "sent", "refreshed"]) {
            *sum += json["cache"][name].as_u64().unwrap_or(0);
        }
    }
    (all[0].json()["test_logloss"].as_f64().unwrap(), bytes, rows)
}

#[test]
fn a_cache_saves_bytes_at_the_same_loss() {
    let folder = tempfile::tempdir().unwrap();
    let train = clicks(&folder.path().join("train.svm"), 20_000, 1);
    let test = clicks(&folder.path().join("test.svm"), 5_000, 2);
    let (plain, bytes, none) = job(&train, &test, "");
    assert_eq!(none, [0; 4]);
    // Whether the workers go past the cache here is a matter of time.
    let (loss, _, rows) = job(&train, &test, "--cache-bytes 8MB");
    assert!((loss / plain - 1.0).abs() < 0.01 && rows[0] > 0, "{loss}, without a cache {plain}; {rows:?}");
    for flags in [
        "--cache-bytes 8MB --cache-use always",
        "--cache-bytes 8MB --cache-use always --sync ssp:8 --sync-rows full",
        "--cache-bytes 2MB --cache-use always --cache-staleness 200ms",
        // All rows change all the time, so changes that the server sends unrequested cost more bytes than they save.
        "--cache-bytes 8MB --active-pull 5",
    ] {
        let (loss, less, rows) = job(&train, &test, flags);
        assert!((loss / plain - 1.0).abs() < 0.01, "{flags}: {loss}, without a cache {plain}");
        assert!(rows[0] > 10_000 && rows[2] > 1_000, "{flags}: {less} of {bytes} bytes, {rows:?}");
        let active = flags.contains("active");
        assert!(less < bytes || active, "{flags}: {less} of {bytes} bytes, {rows:?}");
        assert_eq!(rows[3] > 0, active, "{flags}: {rows:?}");
    }
}

#[test]
fn flags_that_exclude_a_cache_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 100, 1);
    let alone = |flags: &str| run(&format!("train {} {flags}", data.display()));
    let worker = |flags: &str| run(&line(&data, "127.0.0.1:9", 0, flags));
    for (done, words) in [
        (alone("--cache-bytes 2MB"), "--cache-bytes: works only in a worker"),
        (worker("--cache-bytes 2MB --optimizer lbfgs"), "not with --optimizer lbfgs"),
        (worker("--cache-bytes 2MB --model fm"), "with --model lr"),
        (worker("--active-pull 20"), "--active-pull: works only with a cache"),
        (worker("--cache-use always"), "--cache-use: works only with a cache"),
        (worker("--cache-bytes 2MB --cache-use never"), "[possible values: auto, always]"),
        (worker("--cache-staleness 4"), "--cache-staleness: works only with a cache"),
        (worker("--cache-bytes 0 --sync-rows full"), "--sync-rows: works only with a cache"),
        (worker("--cache-bytes 2MB --deterministic"), "--deterministic"),
        (worker("--cache-bytes 2MB --sync bsp"), "--sync bsp"),
        (worker("--cache-bytes 2MB --push gradient"), "--push"),
        (worker("--cache-bytes 2MB --admit-count 2"), "--admit-count"),
        (worker("--cache-bytes 100"), "--cache-bytes 100: at least 1048576 bytes are needed"),
        (worker("--cache-bytes lots"), "a size like 4GiB"),
        (worker("--cache-bytes 2MB --cache-staleness 5d"), "250ms"),
        (worker("--cache-bytes 2MB --cache-staleness 90000s"), "up to a day"),
    ] {
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(done.err.contains(words), "{words}: {done:?}");
    }
}

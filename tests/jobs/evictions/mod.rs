//! Rows that die, from outside: what bounds the memory of a table, what it costs, and what refuses the flags.

use crate::harness;

use harness::*;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Examples of a range of keys that moves: each has 4 of 200 frequent keys, and 6 of 500 keys that are soon over.
fn moving(path: &Path, from: u64, lines: u64) -> String {
    let mut text = String::new();
    for line in from..from + lines {
        let draw = |n: u64| gannet::table::mix(line * 16 + n);
        let mut keys: Vec<u64> = (0..4).map(|n| 1 + draw(n) % 200).collect();
        keys.extend((4..10).map(|n| 1000 + line / 2 + draw(n) % 500));
        keys.sort_unstable();
        keys.dedup();
        let margin: f64 = keys.iter().map(|key| (gannet::table::mix(*key) % 1000) as f64 / 500.0 - 1.0).sum();
        let label = u8::from((draw(11) % 1000) as f64 / 1000.0 < 1.0 / (1.0 + (-margin).exp()));
        write!(text, "{label}").unwrap();
        keys.iter().for_each(|key| write!(text, " {key}:1").unwrap());
        text.push('\n');
    }
    write(path.parent().unwrap(), path.file_name().unwrap().to_str().unwrap(), &text);
    text
}

/// The number behind a name in the report of a job.
fn number(report: &str, name: &str) -> f64 {
    let line =
        report.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {report}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_moving_range_of_keys_stays_within_the_capacity_and_learns_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("moving.svm");
    moving(&data, 0, 60_000);
    for mode in ["", "--sync ssp:2", "--sync bsp", "--model fm", "--damping on"] {
        let [all, some] = ["", "--capacity 3000"].map(|flags| {
            let out = folder.path().join(format!("model{flags}{mode}").replace([' ', ':'], "_"));
            let job = format!("launch --servers 2 --workers 2 -- train {} --batch 1000", data.display());
            let done = ok(&format!("{job} {mode} {flags} --out {}", out.display()));
            let rows = model_rows(&out).len();
            let scored = ok(&format!("predict --model {} {}", out.display(), data.display()));
            assert_eq!(scored.out.lines().count(), 60_000);
            (number(&done.out, "progressive log loss"), rows)
        });
        assert!(all.1 > 30_000, "{mode}: {} rows without a capacity", all.1);
        // Each of 64 shards has its share, and a sixteenth of it is free.
        assert!((1_500..3_500).contains(&some.1), "{mode}: {} rows", some.1);
        assert!(some.0 < all.0 * 1.03, "{mode}: log loss {} and {}", some.0, all.0);
    }
}

/// A pause of the data makes all rows old. Half of them may die in this hour, and the floor stays.
#[test]
fn after_a_pause_old_rows_die_down_to_half_of_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let (before, after) = (folder.path().join("before.svm"), folder.path().join("after.svm"));
    // So much that the process does not wait for more before it learns the first part.
    let (before, after) = (moving(&before, 0, 40_000), moving(&after, 1_000_000, 4_000));
    for floor in [0, 17_000] {
        let mut command =
            gannet(&format!("train - --batch 100 --evict-after 1s --evict-floor {floor} --json"));
        command.stdin(Stdio::piped());
        let mut process = Process::start(command);
        let mut pipe = process.child.0.stdin.take().unwrap();
        pipe.write_all(before.as_bytes()).unwrap();
        pipe.flush().unwrap();
        std::thread::sleep(Duration::from_millis(2_500));
        pipe.write_all(after.as_bytes()).unwrap();
        drop(pipe);
        let done = process.wait();
        assert_eq!(done.code, Some(0), "{done:?}");
        let report = done.json();
        let (rows, evicted) = (report["rows"].as_u64().unwrap(), report["evicted"].as_u64().unwrap());
        assert!((1_000..=(rows + evicted) / 2).contains(&evicted), "{evicted} have died, {rows} have not");
        assert!(rows >= floor && rows + evicted > 20_000, "{rows} rows of a floor of {floor}");
    }
}

#[test]
fn flags_without_sense_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 100, 1);
    let data = data.display();
    let worker = "--ps-hosts 127.0.0.1:1 --worker-hosts 127.0.0.1:9 --job-name worker";
    for (flags, why) in [
        ("--capacity 0", "a number of rows, or bytes such as 4GiB"),
        ("--capacity 10KiB", "use at least"),
        ("--evict-after 0", "a time such as 3600, 15m, 12h or 30d"),
        ("--evict-after 5y", "a time such as 3600, 15m, 12h or 30d"),
        ("--evict-below 0", "finite number above 0"),
        ("--evict-floor 10", "name an age or a norm"),
        ("--evict-after 1d --capacity 5 --evict-floor 10", "below the floor of 10"),
        ("--evict-after 1d --model lda", "--model lda counts the words"),
        ("--capacity 10 --optimizer lbfgs", "L-BFGS needs the rows of all features"),
        (&format!("{worker} --capacity 10 --deterministic"), "when a row dies depends on the time"),
        (&format!("{worker} --capacity 10 --cache-bytes 1MiB"), "leave --cache-bytes out"),
    ] {
        let done = run(&format!("train {data} {flags}"));
        assert!(done.code == Some(2) && done.err.contains(why), "{flags}: {done:?}");
    }
}

//! Replay by several workers of the real binary. It is damped by default with three workers or more, over tcp and
//! shared memory, with splits that are handed out. Saved models look like those of any table. Flags that make no sense
//! are refused with a message.

use crate::harness;

use harness::*;
use std::path::Path;

fn line(data: &Path, addr: &str, workers: usize, index: usize, flags: &str) -> String {
    let hosts: Vec<String> = (0..workers).map(|i| format!("127.0.0.1:{}", 9 + i)).collect();
    format!(
        "train {} --ps-hosts {addr} --worker-hosts {} --job-name worker --task-index {index} --json --alpha 0.5 {flags}",
        data.display(),
        hosts.join(",")
    )
}

#[test]
fn a_damped_job_saves_what_it_tested() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 12_000, 1);
    let test = clicks(&folder.path().join("test.svm"), 3_000, 2);
    let out = folder.path().join("model");
    for flags in ["--transport tcp", "", "--tasks on --task-bytes 64KiB"] {
        let _ = std::fs::remove_dir_all(&out);
        let served = Served::start(gannet("server --listen 127.0.0.1:0 --threads 2"));
        let more = format!("{flags} --test {} --out {}", test.display(), out.display());
        let start = |index| Process::start(gannet(&line(&data, &served.addr, 4, index, &more)));
        let workers: Vec<Process> = (0..4).map(start).collect();
        let reports: Vec<Done> = workers.into_iter().map(Process::wait).collect();
        reports.iter().for_each(|done| assert_eq!(done.code, Some(0), "{flags}: {done:?}"));
        let examples = |done: &Done| done.json()["examples"].as_u64().unwrap();
        assert_eq!(reports.iter().map(examples).sum::<u64>(), 12_000, "{flags}");
        // With splits any worker may be the one that tests and saves, for example when worker 0 comes late.
        let chiefs: Vec<&Done> =
            reports.iter().filter(|done| done.json()["test_logloss"].is_number()).collect();
        let [chief] = chiefs[..] else { panic!("{flags}: one worker tests: {reports:?}") };
        let scored = run(&format!("predict {} --model {} --json", test.display(), out.display())).json();
        let (got, want) =
            (scored["logloss"].as_f64().unwrap(), chief.json()["test_logloss"].as_f64().unwrap());
        assert!((got - want).abs() < 1e-6, "{flags}: {scored} {chief:?}");
        let model = gannet::storage::Checkpoint::open(&out).unwrap();
        assert_eq!((model.schema().floats(), model.schema().more.len()), (2, 0));
        // A worker whose rows do not count pushes has another schema, so the table does not fit.
        let other = run(&line(&data, &served.addr, 1, 0, "--continue"));
        assert!(other.code != Some(0) && other.err.contains("lr"), "{other:?}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 50, 1);
    for (flags, says) in [
        ("--damping on --push gradient", "--damping on: only changes of state are damped"),
        ("--damping on --sync bsp --push replay", "--damping on cannot be combined with bsp"),
        ("--damping on --model fm", "--damping: works only with --model lr"),
        ("--damping maybe", "maybe"),
        ("--cache-bytes 1MiB", "--cache-bytes cannot be combined with damped replay"),
    ] {
        let flags = format!("{flags} --peer-timeout 2");
        let done = run(&line(&data, "127.0.0.1:9", 3, 0, &flags));
        assert!(done.code == Some(2) && done.err.contains(says), "{flags}: {done:?}");
    }
    let alone = run(&format!("train {} --damping on", data.display()));
    assert!(
        alone.code == Some(2) && alone.err.contains("--damping: works only in a process of a job"),
        "{alone:?}"
    );
}

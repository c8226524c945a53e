//! `--memory-limit`, tested from outside: what it refuses, with which message, and that the tables continue to work.

use crate::harness;

use harness::*;

#[test]
fn a_table_in_one_process_keeps_to_its_limit() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 20_000, 1);
    let line = format!("train {} --json", data.display());
    assert_eq!(run(&format!("{line} --memory-limit 64MiB")).code, Some(0));
    let done = run(&format!("{line} --memory-limit 100kB"));
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("--memory-limit") && done.err.contains("100000"), "{done:?}");
    let images = folder.path().join("images");
    let done = run(&format!("{line} --memory-limit 2000kB --data-dir {}", images.display()));
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("--memory-limit") && done.err.contains("2000000"), "{done:?}");
}

#[test]
fn a_server_at_its_limit_refuses_new_rows_and_serves_on() {
    let folder = tempfile::tempdir().unwrap();
    let many = folder.path().join("many.svm");
    let examples: String =
        (0u64..60_000).map(|i| format!("{} {}:1 {}:1\n", i % 2, 2 * i + 1, 2 * i + 2)).collect();
    std::fs::write(&many, examples).unwrap();
    let few = clicks(&folder.path().join("few.svm"), 200, 1);
    let served = Served::start(gannet("server --listen 127.0.0.1:0 --threads 2 --memory-limit 4MiB"));
    let worker = |data: &std::path::Path, run_name: &str| {
        run(&format!(
            "train {} --ps-hosts {} --worker-hosts 127.0.0.1:9 --job-name worker --json --peer-timeout 30 \
             --run {run_name} --continue",
            data.display(),
            served.addr
        ))
    };
    let first = worker(&few, "few");
    assert_eq!(first.code, Some(0), "{first:?}");
    let done = worker(&many, "many");
    assert_eq!(done.code, Some(3), "{done:?}");
    for needed in ["--memory-limit", "4194304", "no new rows in shard", served.addr.as_str()] {
        assert!(done.err.contains(needed), "{needed}: {done:?}");
    }
    // Existing rows are read and changed as before.
    let again = worker(&few, "few");
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_eq!(again.json()["rows"], first.json()["rows"]);
}

#[test]
fn a_limit_that_is_no_size_is_a_bad_flag() {
    for bad in ["much", "0", "-4", "4 parsecs", ""] {
        let mut command = gannet("server --listen 127.0.0.1:0");
        command.arg(format!("--memory-limit={bad}"));
        let done = Process::start(command).wait();
        assert_eq!(done.code, Some(2), "{bad}: {done:?}");
        assert!(done.err.contains("4GiB"), "{bad}: {done:?}");
    }
}

#[test]
fn a_limit_of_what_a_process_does_not_have_is_a_bad_flag() {
    let worker = "train x --ps-hosts 127.0.0.1:1 --worker-hosts 127.0.0.1:2 --job-name worker";
    for (line, says) in [
        (format!("{worker} --memory-limit 1GiB"), "--memory-limit: works only in a process that has tables"),
        (format!("{worker} --session-memory 1GiB"), "--session-memory: works only in a ps"),
        ("train x --credit-requests 9".into(), "--credit-requests: works only in a ps"),
        ("train x --insecure".into(), "--insecure: works only in a process of a job"),
    ] {
        let done = run(&line);
        assert!(done.code == Some(2) && done.err.contains(says), "{line}: {done:?}");
    }
}

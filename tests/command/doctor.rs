//! `gannet doctor`, tested from outside: its findings agree with the system, each problem has a remedy, and the exit
//! code says whether something is wrong.

use crate::harness;

use gannet::transport::{Io, Tcp};
use harness::*;
use rustix::process::{Resource, getrlimit};
use serde_json::Value;
use std::process::Command;

#[cfg(target_arch = "x86_64")]
const MEMFD_CREATE: i64 = 319;
#[cfg(not(target_arch = "x86_64"))]
const MEMFD_CREATE: i64 = 279;

/// The findings of an area.
fn of<'a>(report: &'a Value, area: &str) -> Vec<&'a Value> {
    report["findings"].as_array().unwrap().iter().filter(|finding| finding["area"] == area).collect()
}

/// The JSON report, after checking that it agrees with itself.
fn report(done: &Done) -> Value {
    let report = done.json();
    let findings = report["findings"].as_array().unwrap();
    let count = |level: &str| findings.iter().filter(|finding| finding["level"] == level).count();
    assert_eq!(count("ok") + count("note") + count("problem"), findings.len(), "{report}");
    assert_eq!((&report["notes"], &report["problems"]), (&count("note").into(), &count("problem").into()));
    assert_eq!(done.code == Some(0), count("problem") == 0, "{done:?}");
    for area in ["system", "memory", "io_uring", "storage", "shm", "rdma"] {
        assert!(!of(&report, area).is_empty(), "{area}: {report}");
    }
    report
}

#[test]
fn what_it_says_agrees_with_the_system() {
    let done = run("doctor --json");
    let doctor_report = report(&done);
    let limit = getrlimit(Resource::Memlock).current;
    assert_eq!(doctor_report["memlock_bytes"], limit.map_or(Value::Null, Value::from));
    let uring = if Tcp::new().with_io(Io::Uring).io() == "io_uring" { "ok" } else { "note" };
    assert_eq!(of(&doctor_report, "io_uring")[0]["level"], uring);
    let names = |folder: &str| std::fs::read_dir(folder).into_iter().flatten().count();
    assert_eq!(doctor_report["devices"].as_array().unwrap().len(), names("/sys/class/infiniband"));
    let built = cfg!(any(feature = "rdma", feature = "rdma-dlopen"));
    assert_eq!(doctor_report["rdma"].is_string(), built, "{doctor_report}");
    if !built {
        let text = doctor_report["findings"].to_string();
        assert!(text.contains("built without RDMA") && text.contains("--features rdma"), "{text}");
    }

    // The text output agrees: one line for each finding, and one for each remedy.
    let words = run("doctor");
    assert_eq!(words.code, done.code);
    for finding in doctor_report["findings"].as_array().unwrap() {
        let level = finding["level"].as_str().unwrap();
        if finding["area"] != "system" {
            let text = finding["text"].as_str().unwrap();
            assert!(words.out.lines().any(|line| line.starts_with(level) && line.ends_with(text)), "{text}");
        }
        if let Some(remedy) = finding["remedy"].as_str() {
            assert!(words.out.contains(&format!("-> {remedy}")), "{}", words.out);
        }
    }
}

/// Images in such a folder could end their server in the middle of a row. Once, no message warned of it.
#[test]
fn the_filesystem_of_the_data_folder_is_named() {
    for (flags, folder) in [("", "."), ("--data-dir /dev/shm/not/there", "/dev/shm/not/there")] {
        let doctor_report = report(&run(&format!("doctor --json {flags}")));
        let text = of(&doctor_report, "storage")[0]["text"].as_str().unwrap();
        assert!(text.starts_with(&format!("{folder} is on ")), "{text}");
        assert!(folder == "." || text.contains("is on tmpfs"), "{text}");
    }
    // The kernel reports the type of /proc; no image is safe there.
    let proc = report(&run("doctor --json --data-dir /proc"));
    let storage = of(&proc, "storage")[0];
    assert!(storage["level"] == "note" && storage["remedy"].as_str().unwrap().contains("ext4"), "{storage}");
}

#[test]
fn a_low_limit_of_locked_memory_is_reported_exactly() {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -l 64; exec \"$0\" doctor --json", env!("CARGO_BIN_EXE_gannet")]);
    let doctor_report = report(&Process::start(command).wait());
    assert_eq!(doctor_report["memlock_bytes"], 65_536);
    assert!(
        of(&doctor_report, "memory").iter().any(|f| f["text"].as_str().unwrap().contains("65536 bytes")),
        "{doctor_report}"
    );
}

#[test]
fn what_a_filter_forbids_is_named_with_a_remedy() {
    let doctor_report = report(&without(IO_URING_SETUP, EPERM, || run("doctor --json")));
    let uring = of(&doctor_report, "io_uring")[0];
    assert!(uring["level"] == "note" && uring["text"].as_str().unwrap().contains("seccomp"), "{uring}");
    assert!(uring["remedy"].as_str().unwrap().contains("epoll"), "{uring}");

    let done = without(MEMFD_CREATE, EPERM, || run("doctor --json"));
    let doctor_report = report(&done);
    assert_eq!(done.code, Some(1), "{done:?}");
    let shm = of(&doctor_report, "shm")[0];
    assert!(shm["level"] == "problem" && shm["text"].as_str().unwrap().contains("memfd_create"), "{shm}");
    assert!(shm["remedy"].as_str().unwrap().contains("seccomp"), "{shm}");
    assert!(done.err.contains("problem"), "{done:?}");
}

#[test]
fn peers_are_greeted_and_left_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "0123456789abcdef-the-right-one\n").unwrap();
    let wrong = folder.path().join("wrong");
    std::fs::write(&wrong, "0123456789abcdef-the-wrong-one\n").unwrap();
    for file in [&token, &wrong] {
        let only_mine = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(file, only_mine).unwrap();
    }
    let open = Served::start(gannet("server --listen 127.0.0.1:0 --threads 3"));
    let line = format!("server --listen 127.0.0.1:0 --threads 1 --token-file {}", token.display());
    let closed = Served::start(gannet(&line));
    let doctor = |rest: &str| run(&format!("doctor --json --peer-timeout 5 {rest}"));

    let done = doctor(&format!("--peer {}", open.addr));
    let doctor_report = report(&done);
    let answers = |over: &str| {
        of(&doctor_report, &open.addr).iter().any(|f| f["text"].as_str().unwrap().contains(over))
    };
    for over in ["auto reaches it over shm (3 threads", "answers over shm (3", "answers over tcp (3"] {
        assert!(answers(over), "{over}: {doctor_report}");
    }
    // No device has RDMA on loopback, and the message says why.
    assert!(answers("not over verbs: "), "{doctor_report}");
    assert_eq!(done.code, Some(0), "{done:?}");

    let with =
        |file: &std::path::Path| doctor(&format!("--peer {} --token-file {}", closed.addr, file.display()));
    assert_eq!(with(&token).code, Some(0));
    for done in [with(&wrong), doctor(&format!("--peer {}", closed.addr))] {
        assert_eq!(done.code, Some(3), "{done:?}");
        let doctor_report = report(&done);
        assert!(
            of(&doctor_report, &closed.addr)[0]["text"].as_str().unwrap().contains("token"),
            "{doctor_report}"
        );
    }

    // A peer that does not answer does not hide one that does.
    let done = run(&format!("doctor --json --peer-timeout 1 --peer {NOBODY} --peer {}", open.addr));
    let doctor_report = report(&done);
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(
        of(&doctor_report, NOBODY).iter().any(|f| f["level"] == "problem" && f["remedy"].is_string()),
        "{doctor_report}"
    );
    assert!(of(&doctor_report, &open.addr).iter().any(|f| f["level"] == "ok"), "{doctor_report}");
    assert!(open.stop().contains("0 rows"));
    closed.stop();

    let done = run("doctor --peer 10.1.2.3:7700");
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("--token-file") && done.err.contains("--insecure"), "{done:?}");
}

/// Nobody could tell which features a program has.
#[test]
fn neither_the_doctor_nor_the_version_named_the_features() {
    let all = [
        ("cloud", cfg!(feature = "cloud")),
        ("etcd", cfg!(feature = "etcd")),
        ("kafka", cfg!(feature = "kafka")),
        ("parquet", cfg!(feature = "parquet")),
        ("rdma", cfg!(feature = "rdma")),
        ("rdma-dlopen", cfg!(feature = "rdma-dlopen")),
    ];
    let built: Vec<&str> = all.iter().filter(|(_, is_built)| *is_built).map(|(name, _)| *name).collect();
    let version = ok("--version").out;
    let first = format!(
        "gannet {}\nbuilt with the features {}; without ",
        env!("CARGO_PKG_VERSION"),
        built.join(", ")
    );
    assert!(version.starts_with(&first), "{version}");
    let doctor = report(&run("doctor --json"));
    assert_eq!(doctor["features"], serde_json::json!(built));
    let words = of(&doctor, "features")[0]["text"].as_str().unwrap();
    assert_eq!(version.lines().nth(1), Some(words));
    let (_, lacking) = words.split_once("; without ").unwrap();
    assert_eq!(lacking.contains("etcd"), !cfg!(feature = "etcd"), "{words}");
}

//! `--io`: a job trains the same model over either driver. If the system refuses io_uring (here by a seccomp
//! filter), one line of the log says so and gives the reason, and the job runs over epoll.

use crate::harness;

use gannet::transport::{Io, Tcp};
use harness::*;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The report of a job's worker, and its server's standard error.
fn job(folder: &Path, data: &Path, io: &str) -> (Done, String) {
    let log: PathBuf = folder.join("server.log");
    let mut command = gannet(&format!("server --listen 127.0.0.1:0 --threads 2 {io}"));
    command.stderr(File::create(&log).unwrap());
    let served = Served::start(command);
    let done = run(&format!(
        "train {} --ps-hosts {} --worker-hosts 127.0.0.1:9 --job-name worker --json --peer-timeout 20 {io}",
        data.display(),
        served.addr
    ));
    served.stop();
    (done, std::fs::read_to_string(log).unwrap())
}

fn refusals(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.contains("io_uring is refused")).collect()
}

#[test]
fn a_job_learns_the_same_over_either_driver_and_without_io_uring() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 6_000, 1);
    let alone = run(&format!("train {} --json", data.display())).json();
    let agrees = |done: &Done| {
        let got = done.json();
        let loss = got["logloss"].as_f64().unwrap() - alone["logloss"].as_f64().unwrap();
        assert!(loss.abs() < 1e-5 && got["rows"] == alone["rows"], "{got} {alone}");
    };
    let refused_here = Tcp::new().with_io(Io::Uring).io() == "epoll";
    for (io, moves) in
        [("", "epoll"), ("--io auto", "epoll"), ("--io uring", "io_uring"), ("--io epoll", "epoll")]
    {
        let (done, log) = job(folder.path(), &data, &format!("{io} --log info"));
        agrees(&done);
        if !refused_here {
            assert_eq!(refusals(&log), [""; 0], "{io}");
            for text in [&done.err, &log] {
                assert!(
                    text.lines().any(|line| line.contains("chose the driver of tcp") && line.contains(moves)),
                    "{io}: {text}"
                );
            }
        }
    }
    for (errno, why) in [(EPERM, "seccomp"), (ENOSYS, "no io_uring, or a seccomp filter hides it")] {
        let (done, log) = without(IO_URING_SETUP, errno, || job(folder.path(), &data, "--io uring"));
        agrees(&done);
        for text in [&done.err, &log] {
            let lines = refusals(text);
            assert!(lines.len() == 1 && lines[0].contains("WARN"), "one line: {text}");
            assert!(lines[0].contains(why) && lines[0].contains("epoll"), "{text}");
        }
        let (done, log) = without(IO_URING_SETUP, errno, || job(folder.path(), &data, "--io epoll"));
        agrees(&done);
        assert_eq!((refusals(&log), refusals(&done.err)), (Vec::new(), Vec::new()), "epoll was requested");
    }
}

#[test]
fn an_unknown_driver_is_refused_by_name() {
    let done = run("server --listen 127.0.0.1:0 --io rdma");
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("rdma") && done.err.contains("uring"), "{}", done.err);
}

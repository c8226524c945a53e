//! Who may talk to a server, tried from outside: tokens, files that are no tokens, addresses beyond loopback.

mod harness;

use harness::*;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const SECRET: &str = "5ecre7-0f-th1s-j0b-4nd-n0-0ther-w0rld";

fn secret_file(folder: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}

fn served(flags: &str) -> Served {
    Served::start(gannet(&format!("server --listen 127.0.0.1:0 --threads 2 {flags}")))
}

/// A worker of a job of one, logging all that there is to log.
fn worker(data: &Path, hosts: &str, flags: &str) -> Command {
    let mut command = gannet(&format!(
        "train {} --ps-hosts {hosts} --worker-hosts 127.0.0.1:9 --job-name worker --json --peer-timeout 20 {flags}",
        data.display()
    ));
    command.env("GANNET_LOG", "trace");
    command
}

/// One line of error that says all of this, and no secret anywhere.
fn fails(done: &Done, code: i32, says: &[&str]) {
    assert_eq!(done.code, Some(code), "{done:?}");
    let errors: Vec<_> = done.err.lines().filter(|line| line.starts_with("gannet:")).collect();
    assert_eq!(errors.len(), 1, "{done:?}");
    for word in says {
        assert!(errors[0].contains(word), "{word:?} is not in {:?}", errors[0]);
    }
    assert!(!done.err.contains(SECRET) && !done.out.contains(SECRET), "{done:?}");
}

#[test]
fn a_job_with_a_token_learns_and_others_are_told_why_not() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 2_000, 1);
    let right = secret_file(folder.path(), "right", &format!("{SECRET}\n"), 0o600);
    let wrong = secret_file(folder.path(), "wrong", "0f-an0ther-j0b-altogether", 0o600);
    let (right, wrong) =
        (format!("--token-file {}", right.display()), format!("--token-file {}", wrong.display()));
    let mut command = gannet(&format!("server --listen 127.0.0.1:0 --threads 2 {right}"));
    let log = std::fs::File::create(folder.path().join("log")).unwrap();
    command.env("GANNET_LOG", "trace").stderr(log);
    let server = Served::start(command);

    let done = Process::start(worker(&data, &server.addr, &right)).wait();
    assert_eq!(done.json()["examples"], 2_000, "{done:?}");
    assert!(!done.err.contains(SECRET), "{}", done.err);
    let addr = server.addr.clone();
    let done = Process::start(worker(&data, &addr, &wrong)).wait();
    fails(&done, 3, &[&addr, "token is not this server's", "--token-file"]);
    let done = Process::start(worker(&data, &addr, "")).wait();
    fails(&done, 3, &[&addr, "asks for a token", "--token-file"]);
    let open = served("");
    let done = Process::start(worker(&data, &open.addr, &right)).wait();
    fails(&done, 3, &[&open.addr, "has no token", "--token-file"]);
    let stopped = server.stop();
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(log.contains("a connection was refused") && log.contains("peer=127.0.0.1:"), "{log}");
    assert!(!log.contains(SECRET) && !stopped.contains(SECRET), "{log}");
}

#[test]
fn files_that_are_no_tokens_are_refused_before_anything_else() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 10, 1);
    let file = |name: &str, text: &str, mode| secret_file(folder.path(), name, text, mode);
    for (path, says) in [
        (folder.path().join("missing"), "No such file"),
        (folder.path().to_owned(), "no regular file"),
        (file("empty", "\n", 0o600), "0 bytes; 16 to 4096 are allowed"),
        (file("short", "0123456789", 0o600), "10 bytes"),
        (file("lines", &format!("{SECRET}\n{SECRET}\n"), 0o600), "more than one line"),
        (file("group", SECRET, 0o640), "chmod 600"),
        (file("world", SECRET, 0o644), "its mode is 0644"),
    ] {
        let flag = format!("--token-file {}", path.display());
        let name = path.display().to_string();
        fails(&run(&format!("server --listen 127.0.0.1:0 {flag}")), 2, &[says, &name]);
        fails(&Process::start(worker(&data, "127.0.0.1:9", &flag)).wait(), 2, &[says, &name]);
    }
}

#[test]
fn beyond_loopback_nothing_is_served_or_asked_for_unprotected_unless_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 2_000, 1);
    let token = secret_file(folder.path(), "token", SECRET, 0o600);
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.org:0"] {
        fails(
            &run(&format!("server --listen {listen}")),
            2,
            &[listen, "loopback", "--token-file", "--insecure"],
        );
    }
    let done = Process::start(worker(&data, "192.0.2.1:7700", "")).wait();
    fails(&done, 2, &["192.0.2.1:7700", "--insecure"]);

    let log = folder.path().join("log");
    let mut command =
        gannet(&format!("server --listen 0.0.0.0:0 --insecure --token-file {}", token.display()));
    command.stderr(std::fs::File::create(&log).unwrap());
    let server = Served::start(command);
    let port = server.addr.rsplit_once(':').unwrap().1.to_owned();
    let flags = format!("--token-file {}", token.display());
    let done = Process::start(worker(&data, &format!("127.0.0.1:{port}"), &flags)).wait();
    assert_eq!(done.json()["examples"], 2_000, "{done:?}");
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("WARN") && log.contains("--insecure"), "{log}");
}

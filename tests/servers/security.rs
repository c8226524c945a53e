//! Which peers may use a server, tested from outside: tokens, TLS, invalid files, addresses beyond loopback.

use crate::harness;

use harness::authority::Authority;
use harness::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

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

/// A worker of a job of one, over tcp (TLS protects only tcp), with the most verbose log.
fn worker(data: &Path, hosts: &str, flags: &str) -> Command {
    patient_worker(data, hosts, flags, 20)
}

/// As [`worker`], with another time limit. A refusal that comes at once does not wait for the limit.
fn patient_worker(data: &Path, hosts: &str, flags: &str, peer_timeout: u32) -> Command {
    let mut command = gannet(&format!(
        "train {} --ps-hosts {hosts} --worker-hosts 127.0.0.1:9 --job-name worker --transport tcp --json --continue \
         --peer-timeout {peer_timeout} {flags}",
        data.display()
    ));
    command.env("GANNET_LOG", "trace");
    command
}

/// Checks for one line of error with all of these texts, and that no secret is printed.
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
fn a_job_with_a_token_learns_and_others_get_the_reason() {
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

/// This works in every build: the flags are checked before a device is.
#[test]
fn rdma_beyond_loopback_ran_in_the_clear_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 10, 1);
    let token = secret_file(folder.path(), "token", SECRET, 0o600);
    let token = format!("--token-file {}", token.display());
    let authority = Authority::new("one");
    let all = format!("{token} {}", authority.shows("server", "192.0.2.1", 2999));
    let says = ["192.0.2.1:7700", "--transport verbs", "RDMA", "--insecure", "--transport tcp"];
    for flags in [&all, &token, ""] {
        let server = format!("server --listen 192.0.2.1:7700 --transport verbs {flags}");
        fails(&run(&server), 2, &says);
    }
    let train = format!(
        "train {} --ps-hosts 192.0.2.1:7700 --worker-hosts 127.0.0.1:9 --job-name worker --transport verbs",
        data.display()
    );
    let believed = authority.believed();
    fails(&run(&format!("{train} {token} {believed}")), 2, &says);
    fails(&run(&format!("status --ps-hosts 192.0.2.1:7700 --transport verbs {token} {believed}")), 2, &says);
    // On a network where all users are trusted it is allowed, and a message says what that means.
    let done = run(&format!("server --listen 192.0.2.1:7700 --transport verbs --insecure {all} --log warn"));
    assert_ne!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("what is sent can be read and changed on the way"), "{done:?}");
}

/// Forwards connections to `server`, and records the bytes. Returns its address and the recorded bytes.
fn relay(server: &str) -> (String, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (addr, recorded) = (listener.local_addr().unwrap().to_string(), Arc::<Mutex<Vec<u8>>>::default());
    let (server, keep) = (server.to_owned(), recorded.clone());
    std::thread::spawn(move || {
        for near in listener.incoming() {
            let (near, far) = (near.unwrap(), TcpStream::connect(&server).unwrap());
            for (mut from, mut to) in [
                (near.try_clone().unwrap(), far.try_clone().unwrap()),
                (far.try_clone().unwrap(), near.try_clone().unwrap()),
            ] {
                let keep = keep.clone();
                std::thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(got @ 1..) = from.read(&mut bytes) {
                        keep.lock().unwrap().extend(&bytes[..got]);
                        if to.write_all(&bytes[..got]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    (addr, recorded)
}

#[test]
fn a_job_over_tls_learns_and_shows_nothing_on_the_way_or_in_its_logs() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 2_000, 1);
    let token = secret_file(folder.path(), "token", SECRET, 0o600);
    let token = format!("--token-file {}", token.display());
    let authority = Authority::new("one");
    let shown = authority.shows("server", "127.0.0.1", 2999);
    let log = folder.path().join("log");
    let mut command = gannet(&format!("server --listen 127.0.0.1:0 --threads 2 {token} {shown}"));
    command.env("GANNET_LOG", "trace").stderr(std::fs::File::create(&log).unwrap());
    let server = Served::start(command);
    let (addr, recorded) = relay(&server.addr);
    let done = Process::start(worker(&data, &addr, &format!("{token} {}", authority.believed()))).wait();
    let report = done.json();
    assert_eq!((&report["examples"], &report["transport"]), (&2_000.into(), &"tcp+tls".into()), "{done:?}");
    let said = server.stop();
    let recorded = recorded.lock().unwrap();
    let has = |what: &[u8]| recorded.windows(what.len()).any(|window| window == what);
    assert!(recorded.len() > 100_000 && recorded[0] == 0x16);
    assert!(!has(b"GN\x02\0\x01\0") && !has(SECRET.as_bytes()), "a plain frame on the way");
    let key = std::fs::read_to_string(authority.path("server.key")).unwrap();
    let log = std::fs::read_to_string(log).unwrap() + &said + &done.err + &done.out;
    for secret in key.lines().filter(|line| !line.starts_with('-')).chain([SECRET]) {
        assert!(!log.contains(secret), "a secret in the log");
    }

    // Both sides present certificates.
    let shown = format!("{shown} --tls-client-ca {}", authority.path("ca.pem"));
    let server = served(&shown);
    let own = authority.shows("worker", "worker-0", 2999);
    let done = Process::start(worker(&data, &server.addr, &format!("{own} {}", authority.believed()))).wait();
    assert_eq!(done.json()["examples"], 2_000, "{done:?}");
    let done = Process::start(worker(&data, &server.addr, &authority.believed())).wait();
    fails(&done, 3, &[&server.addr, "requires a certificate: give --tls-cert FILE and --tls-key FILE"]);
}

#[test]
fn what_keeps_tls_from_working_is_said_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 100, 1);
    let (authority, other) = (Authority::new("one"), Authority::new("other"));
    let good = served(&authority.shows("good", "127.0.0.1", 2999));
    let expired = served(&authority.shows("expired", "127.0.0.1", 2020));
    let named = served(&authority.shows("named", "ps.example.org", 2999));
    let plain = served("");
    let believed = authority.believed();
    let fails_at = |server: &Served, flags: &str, says: &[&str]| {
        // If another attempt cannot help, there is none: with this time-out the test would exceed its own limit.
        let done = Process::start(patient_worker(&data, &server.addr, flags, 600)).wait();
        fails(&done, 3, &[says, &[server.addr.as_str()]].concat());
    };
    fails_at(&expired, &believed, &["expired", "days ago", "renew the server's --tls-cert"]);
    fails_at(&named, &believed, &["not made for \"127.0.0.1\"", "ps.example.org", "--tls-name"]);
    fails_at(&good, &other.believed(), &["no authority in --tls-ca has signed it"]);
    fails_at(&good, "", &["the server speaks TLS: give the worker --tls-ca"]);
    fails_at(&plain, &believed, &["does not speak TLS: start it with --tls-cert"]);
    let flags = format!("{believed} --tls-name ps.example.org");
    let done = Process::start(worker(&data, &named.addr, &flags)).wait();
    assert_eq!(done.json()["examples"], 100, "{done:?}");
}

#[test]
fn tls_files_that_cannot_be_used_are_named_before_anything_else() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 10, 1);
    let authority = Authority::new("one");
    let shown = authority.shows("server", "127.0.0.1", 2999);
    let (cert, key, ca) =
        (authority.path("server.pem"), authority.path("server.key"), authority.path("ca.pem"));
    authority.shows("other", "127.0.0.1", 2999);
    let other = authority.path("other.key");
    for (flags, says) in [
        (format!("--tls-cert /none --tls-key {key}"), "--tls-cert /none: No such file"),
        (format!("--tls-cert {key} --tls-key {key}"), "BEGIN CERTIFICATE"),
        (format!("--tls-cert {cert} --tls-key {cert}"), "BEGIN PRIVATE KEY"),
        (format!("--tls-cert {cert} --tls-key {other}"), "is not the key of the first certificate"),
        (format!("{shown} --tls-client-ca {key}"), "--tls-client-ca"),
    ] {
        fails(&run(&format!("server --listen 127.0.0.1:0 {flags}")), 2, &[says]);
    }
    for (flags, says) in [
        (format!("--tls-ca {key}"), "--tls-ca"),
        (format!("--tls-ca {ca} --tls-name ###"), "--tls-name \"###\""),
        (format!("--tls-cert {cert} --tls-key {key}"), "give --tls-ca too"),
        (format!("{shown} --tls-ca {ca} --tls-client-ca {ca}"), "--tls-client-ca: works only in a ps"),
    ] {
        fails(&Process::start(worker(&data, "127.0.0.1:9", &flags)).wait(), 2, &[says]);
    }
    let alone = format!("train {} --token-file /none", data.display());
    fails(&run(&alone), 2, &["--job-name"]);
    assert_eq!(run(&format!("server --tls-cert {cert}")).code, Some(2), "a certificate without its key");
}

#[test]
fn an_unfinished_handshake_delays_no_other_peer() {
    let authority = Authority::new("one");
    let server = served(&authority.shows("server", "127.0.0.1", 2999));
    let mut half = TcpStream::connect(&server.addr).unwrap();
    half.set_read_timeout(Some(LIMIT)).unwrap();
    half.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 100, 1);
    let done = Process::start(worker(&data, &server.addr, &authority.believed())).wait();
    assert_eq!(done.json()["examples"], 100, "{done:?}");
    assert_eq!(half.read_to_end(&mut Vec::new()).unwrap(), 0);
}

/// Two network namespaces joined by a virtual cable. They are removed with the value.
struct Networks(String);

impl Networks {
    fn new() -> Result<Networks, String> {
        let networks = Networks(format!("gannet{}", std::process::id()));
        let (a, b) = (networks.name(1), networks.name(2));
        let (va, vb) = (format!("ga{}", std::process::id()), format!("gb{}", std::process::id()));
        for line in [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("link add {va} netns {a} type veth peer name {vb} netns {b}"),
            format!("-n {a} addr add 10.77.0.1/24 dev {va}"),
            format!("-n {b} addr add 10.77.0.2/24 dev {vb}"),
            format!("-n {a} link set {va} up"),
            format!("-n {b} link set {vb} up"),
        ] {
            let done = Command::new("ip").args(line.split(' ')).output();
            match done {
                Ok(done) if done.status.success() => {}
                Ok(done) => {
                    return Err(format!("ip {line}: {}", String::from_utf8_lossy(&done.stderr).trim()));
                }
                Err(error) => return Err(format!("ip: {error}")),
            }
        }
        Ok(networks)
    }

    fn name(&self, side: u8) -> String {
        format!("{}-{side}", self.0)
    }

    /// The same command in the namespace of one side.
    fn on(&self, side: u8, command: &Command) -> Command {
        let mut on = Command::new("ip");
        on.args(["netns", "exec", &self.name(side)]).arg(command.get_program()).args(command.get_args());
        on.envs(command.get_envs().filter_map(|(name, value)| value.map(|value| (name, value))));
        on
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        for side in [1, 2] {
            let _ = Command::new("ip").args(["netns", "del", &self.name(side)]).output();
        }
    }
}

#[test]
fn between_machines_a_token_and_tls_are_enough_and_nothing_less_is() {
    let networks = match Networks::new() {
        Ok(networks) => networks,
        Err(why) => return eprintln!("not tried between network namespaces: {why}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 2_000, 1);
    let token = secret_file(folder.path(), "token", SECRET, 0o600);
    let token = format!("--token-file {}", token.display());
    let authority = Authority::new("one");
    let shown = authority.shows("server", "10.77.0.1", 2999);
    let listen = "server --listen 10.77.0.1:0 --threads 2";
    for (flags, missing) in [
        (String::new(), "give --token-file FILE and --tls-cert FILE with --tls-key FILE,"),
        (token.clone(), "give --tls-cert FILE with --tls-key FILE,"),
        (shown.clone(), "give --token-file FILE,"),
    ] {
        fails(&Process::start(networks.on(1, &gannet(&format!("{listen} {flags}")))).wait(), 2, &[missing]);
    }
    let server = Served::start(networks.on(1, &gannet(&format!("{listen} {token} {shown}"))));
    let from_afar =
        |flags: &str| Process::start(networks.on(2, &patient_worker(&data, &server.addr, flags, 600))).wait();
    let done = from_afar(&format!("{token} {}", authority.believed()));
    assert_eq!(done.json()["examples"], 2_000, "{done:?}");
    fails(&from_afar(&token), 2, &[&server.addr, "give --tls-ca FILE,"]);
    fails(&from_afar(&format!("{token} --insecure")), 3, &[&server.addr, "the server speaks TLS"]);
    fails(
        &from_afar(&format!("{} --insecure", authority.believed())),
        3,
        &[&server.addr, "asks for a token"],
    );
}

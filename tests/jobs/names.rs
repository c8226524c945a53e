//! Servers that are named: a name server that is slow, and a name whose address changes in the middle of a job. The
//! processes are in a network namespace of their own, which has a name server of the test.

use crate::harness;

use harness::*;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const LINES: u64 = 20_000;

/// Answers with the address of a name after a delay, as a file of JSON says: `{name: [address, seconds]}`.
const NAME_SERVER: &str = r#"
import json, socket, struct, sys, threading, time
port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
port.bind(("127.0.0.1", 53))
def answer(query, peer):
    at, labels = 12, []
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode())
        at += 1 + query[at]
    kind = struct.unpack(">H", query[at + 1:at + 3])[0]
    known = json.load(open(sys.argv[1])).get(".".join(labels).lower())
    if known:
        time.sleep(known[1])
    found = known and kind == 1
    head = query[:2] + struct.pack(">HHHHH", 0x8180 if known else 0x8183, 1, 1 if found else 0, 0, 0)
    record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + socket.inet_aton(known[0]) if found else b""
    port.sendto(head + query[12:at + 5] + record, peer)
print("ready", flush=True)
while True:
    query, peer = port.recvfrom(512)
    threading.Thread(target=answer, args=(query, peer), daemon=True).start()
"#;

/// A network namespace with a name server.
struct Namespace {
    name: String,
    names: PathBuf,
    _server: Process,
}

fn ip(line: &str) {
    let done = Command::new("ip").args(line.split(' ')).output().expect("ip (iproute2) is installed");
    assert!(done.status.success(), "ip {line}: {done:?}");
}

impl Namespace {
    fn new(folder: &Path) -> Namespace {
        let name = format!("gannet-names-{}", std::process::id());
        ip(&format!("netns add {name}"));
        ip(&format!("-n {name} link set lo up"));
        let etc = Path::new("/etc/netns").join(&name);
        std::fs::create_dir_all(&etc).unwrap();
        std::fs::write(etc.join("resolv.conf"), "nameserver 127.0.0.1\noptions timeout:20 attempts:1\n")
            .unwrap();
        let names = folder.join("names.json");
        std::fs::write(&names, "{}").unwrap();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &name, "python3", "-c", NAME_SERVER]).arg(&names);
        command.stdin(std::process::Stdio::null());
        Namespace { name, names, _server: Process::start(command) }
    }

    /// From now on names have these addresses, which come after so many seconds.
    fn say(&self, names: &[(&str, &str, f64)]) {
        let all: serde_json::Map<String, serde_json::Value> =
            names.iter().map(|(name, at, delay)| ((*name).into(), serde_json::json!([at, delay]))).collect();
        let new = self.names.with_extension("new");
        std::fs::write(&new, serde_json::to_vec(&all).unwrap()).unwrap();
        std::fs::rename(new, &self.names).unwrap();
    }

    fn gannet(&self, line: &str) -> Command {
        let of = gannet(line);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(of.get_program()).args(of.get_args());
        command.stdin(std::process::Stdio::null());
        command
    }

    /// On a busy machine a worker takes seconds to find its servers.
    fn wait_until_both_train(&self) {
        let begun = Instant::now();
        let trains =
            |worker: &serde_json::Value| worker["batches"].as_u64().is_some_and(|batches| batches > 20);
        loop {
            let line = format!("status --ps-hosts {HOSTS} --json --insecure");
            let done = Process::start(self.gannet(&line)).wait();
            let status: serde_json::Value = serde_json::from_str(done.out.trim()).unwrap_or_default();
            let workers = status["runs"][0]["workers"].as_array().cloned().unwrap_or_default();
            if workers.len() == 2 && workers.iter().all(trains) {
                return;
            }
            assert!(begun.elapsed() < limit(), "the workers do not train: {done:?}");
        }
    }

    fn server(&self, folder: &Path, index: u32, at: &str) -> Served {
        let data_dir = folder.join(format!("ps-{index}"));
        let line = format!(
            "train --job-name ps --task-index {index} --ps-hosts {HOSTS} --worker-hosts w:0,w:1 --listen {at} \
             --data-dir {}",
            data_dir.display()
        );
        Served::start(self.gannet(&line))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
        let _ = std::fs::remove_dir_all(Path::new("/etc/netns").join(&self.name));
    }
}

const HOSTS: &str = "ps-a.test:2200,ps-b.test:2200";

/// A server comes back at another address, and the name server takes 8 s to say so. Once the thread of all links waited
/// for it: the worker was silent at the other server for longer than `--worker-timeout`, and lost its place.
#[test]
fn a_server_that_moves_is_found_by_its_name_and_a_slow_name_server_delays_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), LINES, 1);
    let world = Namespace::new(folder.path());
    world.say(&[("ps-a.test", "127.0.0.1", 0.0), ("ps-b.test", "127.0.0.2", 0.0)]);
    let first = world.server(folder.path(), 0, "127.0.0.1:2200");
    let second = world.server(folder.path(), 1, "127.0.0.2:2200");
    let worker = |index: u32| {
        let line = format!(
            "train {} --job-name worker --task-index {index} --ps-hosts {HOSTS} --worker-hosts w:0,w:1 --sync ssp:4 \
             --tasks off --batch 64 --epochs 60 --worker-timeout 4 --peer-timeout 60 --json --transport tcp --insecure",
            data.display()
        );
        Process::start(world.gannet(&line))
    };
    let workers = [worker(0), worker(1)];
    world.wait_until_both_train();
    world.say(&[("ps-a.test", "127.0.0.1", 8.0), ("ps-b.test", "127.0.0.3", 8.0)]);
    second.child.signal(Signal::KILL);
    drop(second);
    let begun = Instant::now();
    let moved = world.server(folder.path(), 1, "127.0.0.3:2200");
    let done = workers.map(Process::wait);
    for done in &done {
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(done.err.contains("a name has other addresses now"), "{done:?}");
    }
    assert!(begun.elapsed() > Duration::from_secs(8), "the job ended before the name server had answered");
    let examples: u64 = done.iter().map(|done| done.json()["examples"].as_u64().unwrap()).sum();
    assert_eq!(examples, 60 * LINES, "{done:?}");
    drop((first, moved));
}

#[test]
fn a_name_that_nobody_knows_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 100, 1);
    let line = format!(
        "train {} --job-name worker --ps-hosts no-such-host.invalid:1 --worker-hosts w:0 --peer-timeout 2 --insecure",
        data.display()
    );
    let done = run(&line);
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.err.contains("no-such-host.invalid:1"), "{done:?}");
}

//! Checkpoints in a bucket. The object store is moto, a server of the S3 protocol in Python; a proxy before it cuts
//! connections. scripts/test_cloud.sh installs moto, names its program in MOTO_SERVER, and runs these tests.

#[path = "harness/mod.rs"]
mod harness;

use harness::ports::free_addr;
use harness::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const WHY: &str = "needs an object store: scripts/test_cloud.sh";

/// Makes the bucket `models`. Returns the server's answer.
fn make_bucket(addr: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(addr)?;
    let make = "PUT /models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    stream.write_all(make.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// An object store with the bucket `models`, and a proxy before it.
struct ObjectStore {
    _server: Owned,
    endpoint: String,
    /// Bytes to the store that the proxy lets pass. Without any it cuts each connection.
    left: Arc<AtomicI64>,
    cut: Arc<AtomicUsize>,
}

impl ObjectStore {
    /// `free`: requests that need no valid credentials.
    fn start(free: Option<u32>) -> ObjectStore {
        let addr = free_addr();
        let (host, port) = addr.rsplit_once(':').unwrap();
        let program = std::env::var("MOTO_SERVER").expect(WHY);
        let mut command = Command::new(program);
        command.args(["-H", host, "-p", port]).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(free) = free {
            command.env("INITIAL_NO_AUTH_ACTION_COUNT", free.to_string());
        }
        let server = Owned(command.spawn().unwrap());
        let start = Instant::now();
        let answer = loop {
            // While it starts, the server may refuse a connection, or end it without an answer.
            match make_bucket(&addr) {
                Ok(answer) => break answer,
                Err(error) => assert!(start.elapsed() < limit(), "the object store is not there: {error}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        assert!(answer.contains("200 OK"), "{answer}");
        let (left, cut) = (Arc::new(AtomicI64::new(i64::MAX)), Arc::new(AtomicUsize::new(0)));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (here, cuts) = (left.clone(), cut.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (addr, left, cut) = (addr.clone(), here.clone(), cuts.clone());
                std::thread::spawn(move || proxy(client, &addr, &left, &cut));
            }
        });
        ObjectStore { _server: server, endpoint, left, cut }
    }

    /// A command that reaches the store.
    fn gannet(&self, line: &str) -> Command {
        let mut command = gannet(line);
        command.env("AWS_ENDPOINT", &self.endpoint).env("AWS_ALLOW_HTTP", "true");
        command.env("AWS_ACCESS_KEY_ID", "one").env("AWS_SECRET_ACCESS_KEY", "two");
        command.env("AWS_REGION", "us-east-1");
        command
    }

    fn run(&self, line: &str) -> Done {
        Process::start(self.gannet(line)).wait()
    }

    fn ok(&self, line: &str) -> Done {
        let done = self.run(line);
        assert_eq!(done.code, Some(0), "{line}: {done:?}");
        done
    }

    /// The numbers of the valid checkpoints of a directory.
    fn valid(&self, url: &str) -> Vec<u64> {
        let all = self.ok(&format!("checkpoint ls {url} --json")).json();
        let all = all["checkpoints"].as_array().unwrap().iter();
        all.filter(|c| c["state"] == "valid").map(|c| c["number"].as_u64().unwrap()).collect()
    }
}

/// Moves bytes both ways, until no more may pass.
fn proxy(client: TcpStream, addr: &str, left: &AtomicI64, cut: &AtomicUsize) {
    let Ok(server) = TcpStream::connect(addr) else { return };
    let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let back = std::thread::spawn(move || std::io::copy(&mut from, &mut to));
    let (mut from, mut to, mut bytes) = (&client, &server, vec![0; 1 << 16]);
    while let Ok(some @ 1..) = from.read(&mut bytes) {
        if left.fetch_sub(some as i64, SeqCst) < some as i64 {
            cut.fetch_add(1, SeqCst);
            break;
        }
        if to.write_all(&bytes[..some]).is_err() {
            break;
        }
    }
    let _ = client.shutdown(std::net::Shutdown::Both);
    let _ = server.shutdown(std::net::Shutdown::Both);
    let _ = back.join();
}

/// A server with a trained table, and the line that saves its checkpoints.
fn trained(store: &ObjectStore, url: &str, folder: &std::path::Path) -> (Served, String) {
    let data = clicks(&folder.join("train.svm"), 4000, 5);
    let served =
        Served::start(store.gannet(&format!("server --listen 127.0.0.1:0 --threads 2 --checkpoint {url}")));
    let (addr, data) = (&served.addr, data.display());
    let out = folder.join("model");
    let train = format!(
        "train {data} --job-name worker --worker-hosts 127.0.0.1:9 --ps-hosts {addr} --out {}",
        out.display()
    );
    store.ok(&train);
    let save = format!("checkpoint save {url} --ps-hosts {addr}");
    (served, save)
}

#[test]
#[ignore = "needs an object store: scripts/test_cloud.sh"]
fn every_command_works_on_a_bucket() {
    let (store, folder) = (ObjectStore::start(None), tempfile::tempdir().unwrap());
    let url = "s3://models/ctr/daily";
    let (served, save) = trained(&store, url, folder.path());
    assert_eq!(store.valid(url), [] as [u64; 0]);
    assert!(store.ok(&save).out.starts_with("checkpoint 1 (full)"));
    let increment = store.ok(&format!("{save} --increment"));
    assert!(increment.out.starts_with("checkpoint 2"), "{increment:?}");
    for number in 3..=4 {
        assert!(store.ok(&save).out.starts_with(&format!("checkpoint {number} (full)")));
    }
    assert_eq!(store.valid(url), [1, 2, 3, 4]);
    assert!(store.ok(&format!("checkpoint verify {url} 2")).out.contains("checkpoint 2 is good"));
    let same = store.ok(&format!("checkpoint diff {url} 1 4"));
    assert!(same.out.contains(": 0 rows added, 0 removed, 0 changed, "), "{same:?}");
    let pruned = store.ok(&format!("checkpoint prune {url} --keep 2"));
    assert!(pruned.out.contains("kept: 3, 4"), "{pruned:?}");
    assert_eq!(store.valid(url), [3, 4]);
    let rows = folder.path().join("server");
    let restored = store.ok(&format!("checkpoint restore {url} --data-dir {}", rows.display()));
    assert!(restored.out.contains("checkpoint 4 of s3://models/ctr/daily is restored"), "{restored:?}");
    drop(served);
    let again = Served::start(
        store
            .gannet(&format!("server --listen 127.0.0.1:0 --threads 2 --restore {url}@3 --checkpoint {url}")),
    );
    let saved = store.ok(&format!("checkpoint save {url} --ps-hosts {}", again.addr));
    assert!(saved.out.starts_with("checkpoint 5 (full)"), "{saved:?}");
    let same = store.ok(&format!("checkpoint diff {url} 4 5"));
    assert!(same.out.contains(": 0 rows added, 0 removed, 0 changed, "), "{same:?}");
}

#[test]
#[ignore = "needs an object store: scripts/test_cloud.sh"]
fn a_bucket_that_cannot_be_used_is_named() {
    let store = ObjectStore::start(None);
    let folder = tempfile::tempdir().unwrap();
    let absent = store.run("checkpoint ls s3://absent/job");
    assert!(absent.code != Some(0) && absent.err.contains("there is no such bucket"), "{absent:?}");
    let scheme = store.run("checkpoint ls ftp://models/job");
    assert!(scheme.code == Some(2) && scheme.err.contains("ftp://models/job"), "{scheme:?}");
    let empty = store.run("checkpoint verify s3://models/nothing");
    assert!(empty.code == Some(2) && empty.err.contains("s3://models/nothing"), "{empty:?}");
    let (_served, save) = trained(&store, "s3://models/a", folder.path());
    let other = store.run(&save.replace("s3://models/a", "s3://models/b"));
    assert!(other.code != Some(0) && other.err.contains("cannot reach the folder"), "{other:?}");

    let strict = ObjectStore::start(Some(1));
    let wrong = strict.run("checkpoint ls s3://models/job");
    assert!(wrong.code == Some(1) && wrong.err.contains("AWS_ACCESS_KEY_ID"), "{wrong:?}");
}

/// A save that loses its store fails by name and leaves nothing that passes for a checkpoint. The next one works.
#[test]
#[ignore = "needs an object store: scripts/test_cloud.sh"]
fn a_store_that_is_lost_in_the_middle_of_a_save_costs_only_that_save() {
    let (store, folder) = (ObjectStore::start(None), tempfile::tempdir().unwrap());
    let url = "s3://models/job";
    let (_served, save) = trained(&store, url, folder.path());
    store.ok(&save);
    let bytes = i64::MAX - store.left.load(SeqCst);
    let mut failed = 0;
    for part in 1..4 {
        store.left.store(bytes * part / 5, SeqCst);
        let done = store.run(&save);
        store.left.store(i64::MAX, SeqCst);
        if done.code != Some(0) {
            failed += 1;
            assert!(done.err.contains(url), "{done:?}");
        }
        let before = store.valid(url);
        assert_eq!(before[0], 1);
        store.ok(&save);
        assert_eq!(store.valid(url).len(), before.len() + 1);
    }
    assert!(failed > 0 && store.cut.load(SeqCst) > 0, "no save was cut");
}

#[test]
#[ignore = "needs an object store: scripts/test_cloud.sh"]
fn a_job_that_was_killed_goes_on_from_the_bucket() {
    let (store, folder) = (ObjectStore::start(None), tempfile::tempdir().unwrap());
    let url = "s3://models/killed";
    let data = clicks(&folder.path().join("train.svm"), 20_480, 5);
    let hosts = format!("--ps-hosts {} --worker-hosts w:0 --checkpoint {url}", free_addr());
    let start = || {
        let ps = store.gannet(&format!("train --job-name ps --task-index 0 {hosts} --threads 2"));
        let server = Served::start(ps);
        let worker = store.gannet(&format!(
            "train {} --job-name worker --task-index 0 {hosts} --checkpoint-secs 1 --epochs 60 --batch 32 --json \
             --peer-timeout 30 --out {}",
            data.display(),
            folder.path().join("model").display()
        ));
        (server, Process::start(worker))
    };
    let (server, mut worker) = start();
    let begun = Instant::now();
    while store.valid(url).is_empty() {
        assert!(begun.elapsed() < limit(), "no checkpoint");
    }
    assert!(worker.child.0.try_wait().unwrap().is_none(), "the job was over before it was killed");
    drop(worker);
    server.kill();
    let (_server, worker) = start();
    let done = worker.wait();
    assert_eq!(done.code, Some(0), "{done:?}");
    // With tasks, the scheduler's state of the checkpoint says which records are trained already.
    let trained = done.json()["examples"].as_u64().unwrap();
    assert!(trained > 0 && trained < 20_480 * 60, "{done:?}");
}

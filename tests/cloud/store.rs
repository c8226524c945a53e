//! An object store in a process of its own, and a proxy before it.

use crate::harness::ports::free_addr;
use crate::harness::*;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const WHY: &str = "needs an object store: scripts/test_cloud.sh";

/// Puts bytes at a path. Without bytes and a slash it makes a bucket. Returns the server's answer.
fn put(addr: &str, path: &str, bytes: &[u8]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(addr)?;
    let length = bytes.len();
    let head = format!(
        "PUT /{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(bytes)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// An object store with the bucket `models`, and a proxy before it.
pub struct ObjectStore {
    _server: Owned,
    /// Without the proxy.
    addr: String,
    pub endpoint: String,
    /// Bytes to the store that the proxy lets pass. Without any it cuts each connection.
    pub left: Arc<AtomicI64>,
    pub cut: Arc<AtomicUsize>,
    /// How its answers fail.
    pub faults: Arc<Faults>,
}

/// How the proxy spoils answers.
#[derive(Default)]
pub struct Faults {
    /// The bytes of answers after which it cuts a connection. 0: never.
    pub cut_after: AtomicU64,
    /// It answers so many connections with 503, and lets so many wait for ever.
    pub busy: AtomicI64,
    pub silent: AtomicI64,
}

impl ObjectStore {
    /// `free`: requests that need no valid credentials.
    pub fn start(free: Option<u32>) -> ObjectStore {
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
            match put(&addr, "models", b"") {
                Ok(answer) => break answer,
                Err(error) => assert!(start.elapsed() < limit(), "the object store is not there: {error}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        assert!(answer.contains("200 OK"), "{answer}");
        let (left, cut) = (Arc::new(AtomicI64::new(i64::MAX)), Arc::new(AtomicUsize::new(0)));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let faults = Arc::<Faults>::default();
        let (here, cuts, spoilt, to) = (left.clone(), cut.clone(), faults.clone(), addr.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (to, left, cut, faults) = (to.clone(), here.clone(), cuts.clone(), spoilt.clone());
                std::thread::spawn(move || proxy(client, &to, (&left, &cut), &faults));
            }
        });
        ObjectStore { _server: server, addr, endpoint, left, cut, faults }
    }

    /// Puts an object into the bucket.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let answer = put(&self.addr, &format!("models/{name}"), bytes).unwrap();
        assert!(answer.contains("200 OK"), "{answer}");
    }

    /// A command that reaches the store.
    pub fn gannet(&self, line: &str) -> Command {
        let mut command = gannet(line);
        command.env("AWS_ENDPOINT", &self.endpoint).env("AWS_ALLOW_HTTP", "true");
        command.env("AWS_ACCESS_KEY_ID", "one").env("AWS_SECRET_ACCESS_KEY", "two");
        command.env("AWS_REGION", "us-east-1");
        command
    }

    pub fn run(&self, line: &str) -> Done {
        Process::start(self.gannet(line)).wait()
    }

    pub fn ok(&self, line: &str) -> Done {
        let done = self.run(line);
        assert_eq!(done.code, Some(0), "{line}: {done:?}");
        done
    }

    /// The numbers of the valid checkpoints of a directory.
    pub fn valid(&self, url: &str) -> Vec<u64> {
        let all = self.ok(&format!("checkpoint ls {url} --json")).json();
        let all = all["checkpoints"].as_array().unwrap().iter();
        all.filter(|c| c["state"] == "valid").map(|c| c["number"].as_u64().unwrap()).collect()
    }
}

/// Moves bytes both ways, until no more may pass.
fn proxy(client: TcpStream, addr: &str, (left, cut): (&AtomicI64, &AtomicUsize), faults: &Arc<Faults>) {
    let busy = faults.busy.fetch_sub(1, SeqCst);
    if busy > 0 {
        if busy % 2 == 0 {
            // Otherwise the connection is reset: it ends before its request is read.
            let _ = (&client).read(&mut [0; 4096]);
        }
        let busy = "HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let _ = (&client).write_all(busy.as_bytes());
        return;
    }
    if faults.silent.fetch_sub(1, SeqCst) > 0 {
        // The client gives up at some time.
        let _ = std::io::copy(&mut &client, &mut std::io::sink());
        return;
    }
    let Ok(server) = TcpStream::connect(addr) else { return };
    let (back_from, back_to, spoilt) =
        (server.try_clone().unwrap(), client.try_clone().unwrap(), faults.clone());
    let back = std::thread::spawn(move || answers(&back_from, &back_to, &spoilt));
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
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
    let _ = back.join();
}

/// Moves answers, up to the bytes at which the connection is cut.
fn answers(mut from: &TcpStream, mut to: &TcpStream, faults: &Faults) {
    let (mut moved, mut bytes) = (0, vec![0; 1 << 16]);
    while let Ok(some @ 1..) = from.read(&mut bytes) {
        moved += some as u64;
        let most = faults.cut_after.load(SeqCst);
        if (most > 0 && moved > most) || to.write_all(&bytes[..some]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

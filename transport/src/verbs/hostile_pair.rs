//! A peer on another machine that knows our format and violates it (scripts/test_rdma.sh, two guests). Wrong
//! keys and invalid immediates end its session, and the sessions beside it continue.

use super::Verbs;
use super::connect::Flow;
use super::hostile::{LIMIT, PAUSE, end_of, message, post};
use super::stream::VerbsStream;
use super::window::Credit;
use crate::remote::{ReadRequest, Registrar};
use crate::stream::Stream;
use crate::verbs::resources::datapath::RemoteRing;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Instant;

const PORT: u16 = 18_900;

/// Messages as files in a folder that both machines have.
struct FolderWords(PathBuf);

impl FolderWords {
    fn send(&self, name: &str, text: &str) {
        let new = self.0.join(format!("hostile.{name}.new"));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.0.join(format!("hostile.{name}"))).unwrap();
    }

    fn message(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.0.join(format!("hostile.{name}"))).ok()
    }

    fn wait_for(&self, name: &str) -> String {
        let started = Instant::now();
        loop {
            if let Some(text) = self.message(name) {
                return text;
            }
            assert!(started.elapsed() < 3 * LIMIT, "the other machine has not sent {name}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// Echoes received bytes on every session until the other machine has finished. Returns the errors of the
/// sessions that ended.
fn serve(verbs: &Verbs, ip: IpAddr, words: &FolderWords) -> String {
    let memory = vec![7u8; 4096];
    let region = Registrar::register(verbs, memory.as_ptr() as usize, memory.len()).unwrap();
    let mut listener = verbs.listen(SocketAddr::new(ip, PORT)).unwrap();
    words.send("region", &format!("{} {}", region.addr, region.rkey));
    let (mut sessions, mut ends, started) = (Vec::<VerbsStream>::new(), Vec::new(), Instant::now());
    let mut buffer = vec![0; 64 << 10];
    while words.message("over").is_none() {
        assert!(started.elapsed() < 3 * LIMIT, "the other machine does not end");
        std::thread::sleep(PAUSE);
        if let Some(mut stream) = listener.accept().unwrap() {
            assert!(stream.allow_reads().unwrap());
            sessions.push(stream);
        }
        sessions.retain_mut(|stream| match echo(stream, &mut buffer) {
            Ok(()) => true,
            Err(error) => {
                ends.push(error.to_string());
                false
            }
        });
    }
    ends.join("\n")
}

fn echo(stream: &mut VerbsStream, buffer: &mut [u8]) -> io::Result<()> {
    if let Some(bytes) = stream.recv(&mut [IoSliceMut::new(buffer)])? {
        assert_eq!(stream.send(&[IoSlice::new(&buffer[..bytes])])?, Some(bytes));
    }
    Ok(())
}

fn connect(verbs: &Verbs, ip: IpAddr) -> VerbsStream {
    let mut stream = verbs.begin_connect(SocketAddr::new(ip, PORT), "the server").unwrap();
    let started = Instant::now();
    while !stream.is_open() {
        assert!(started.elapsed() < LIMIT);
        assert_eq!(stream.recv(&mut []).unwrap(), None);
        std::thread::sleep(PAUSE);
    }
    stream
}

/// Waits until the peer has echoed a message. It allows READs before that, and refuses earlier ones as invalid.
fn exchange(stream: &mut VerbsStream) {
    assert_eq!(stream.send(&[IoSlice::new(b"still here")]).unwrap(), Some(10));
    let (started, mut buffer) = (Instant::now(), [0; 64]);
    while stream.recv(&mut [IoSliceMut::new(&mut buffer)]).unwrap() != Some(10) {
        assert!(started.elapsed() < LIMIT);
        std::thread::sleep(PAUSE);
    }
    assert_eq!(&buffer[..10], b"still here");
}

/// Checks that the peer echoes what it receives, and that the memory that it registered can be read.
fn still_works(stream: &mut VerbsStream, want: ReadRequest) {
    exchange(stream);
    let reader = stream.reader().unwrap();
    reader.landing(64).unwrap();
    reader.read(&[want], LIMIT).unwrap();
    assert_eq!(&reader.landed()[..64], &[7; 64]);
}

/// Whether a session ended by the peer's refusal of an access. On a busy machine the peer has closed the connection
/// before this side has seen the refusal.
fn is_access_error(end: &str) -> bool {
    end.contains("remote access error (status 10") || end.contains("the other side closed the connection")
}

fn attack(verbs: &Verbs, server: IpAddr, words: &FolderWords) {
    let region = words.wait_for("region");
    let (addr, rkey) = region.split_once(' ').unwrap();
    let want = ReadRequest { addr: addr.parse().unwrap(), rkey: rkey.parse().unwrap(), bytes: 64, at: 0 };
    let mut good = connect(verbs, server);
    still_works(&mut good, want);

    // A READ with a key that no process has registered.
    let mut bad = connect(verbs, server);
    exchange(&mut bad); // The peer allows READs only now.
    let reader = bad.reader().unwrap();
    reader.landing(64).unwrap();
    let refused =
        reader.read(&[ReadRequest { rkey: want.rkey ^ 0x55, ..want }], LIMIT).unwrap_err().to_string();
    assert!(is_access_error(&refused), "{refused}");
    drop(bad);
    still_works(&mut good, want);

    // WRITEs with such a key, and with the key of the other session's ring.
    let others = good.shared().lock().flow.as_ref().unwrap().to;
    let wrong = |flow: &Flow| RemoteRing { key: flow.to.key ^ 0x55, ..flow.to };
    let keys: [&dyn Fn(&Flow) -> RemoteRing; 2] = [&wrong, &|_| others];
    for to in keys {
        let mut bad = connect(verbs, server);
        let mut write = message(64, Credit::default());
        write.signalled = true;
        post(&bad, to, &[write]);
        let end = end_of(&mut bad).to_string();
        assert!(is_access_error(&end), "{end}");
        drop(bad);
        still_works(&mut good, want);
    }

    // An immediate that acknowledges bytes that were never sent.
    let mut bad = connect(verbs, server);
    post(&bad, |flow| flow.to, &[message(8, Credit { bytes: 0xf_ffff, messages: 0xfff })]);
    end_of(&mut bad);
    drop(bad);
    still_works(&mut good, want);
}

#[test]
fn wrong_keys_and_garbage_from_another_machine_end_one_session_each() {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (Some(folder), Some(rank)) = (variable("GANNET_PAIR_DIR"), variable("NODE_RANK")) else { return };
    let (words, verbs) = (FolderWords(folder.into()), Verbs::open().expect("two machines have devices"));
    let ip = |name| variable(name).unwrap().parse::<IpAddr>().unwrap();
    if rank == "0" {
        let ends = serve(&verbs, ip("NODE_IP"), &words);
        words.send("ends", &ends);
        return;
    }
    attack(&verbs, ip("PEER_IP"), &words);
    words.send("over", "");
    let ends = words.wait_for("ends");
    assert!(ends.lines().count() >= 4, "{ends}");
    assert!(ends.contains("credit for 1048575 bytes and 4095 messages"), "{ends}");
}

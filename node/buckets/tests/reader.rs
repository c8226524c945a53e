//! A reader of an object asks only so far ahead, whatever the object's length.

#[path = "../../../tests/harness/web_server.rs"]
mod web_server;

use gannet_buckets::{ObjectReader, ReadAhead};
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use web_server::WebServer;

const AHEAD: ReadAhead = ReadAhead { bytes: 256 << 10, at_once: 3 };
/// The first range.
const FIRST: usize = 64 << 10;

fn text() -> Vec<u8> {
    (0..8 << 20).map(|at: u32| (at.wrapping_mul(0x9E37_79B9) >> 24) as u8).collect()
}

fn open(url: &str) -> ObjectReader {
    ObjectReader::open(url, 0..u64::MAX, AHEAD, Arc::default()).unwrap()
}

#[test]
fn a_reader_asks_only_so_far_ahead() {
    let (server, bytes) = (WebServer::start(), text());
    let mut reader = open(&server.put("long", &bytes, "1"));
    let mut read = vec![0; 1];
    reader.read_exact(&mut read).unwrap();
    let sent = || server.state.sent.load(SeqCst);
    assert!(sent() <= FIRST + 1, "{} bytes for the first one", sent());
    while read.len() < bytes.len() {
        let mut more = vec![0; 10_000];
        let n = reader.read(&mut more).unwrap();
        read.extend_from_slice(&more[..n]);
        let most = read.len() + (AHEAD.at_once + 1) * AHEAD.bytes as usize;
        assert!(sent() <= most, "{} bytes sent for {} read", sent(), read.len());
    }
    assert!(read == bytes);
    let at_once = server.state.at_once_max.load(SeqCst);
    assert!(at_once <= AHEAD.at_once, "{at_once} requests at a time");
}

#[test]
fn a_reader_jumps_and_steps_back() {
    let (server, bytes) = (WebServer::start(), text());
    let mut reader = open(&server.put("long", &bytes, "1"));
    for at in [7 << 20, 10, (7 << 20) + 100, 0, (8 << 20) - 5, 300_000, 290_000] {
        let mut out = vec![0; 400_000.min(bytes.len() - at)];
        reader.seek(SeekFrom::Start(at as u64)).unwrap();
        reader.read_exact(&mut out).unwrap();
        assert!(out == bytes[at..at + out.len()], "at {at}");
    }
    reader.seek(SeekFrom::End(0)).unwrap();
    assert_eq!(reader.read(&mut [0; 9]).unwrap(), 0);
}

#[test]
fn a_step_back_within_the_last_ranges_needs_no_request() {
    let server = WebServer::start();
    let mut reader = open(&server.put("long", &text(), "1"));
    reader.seek(SeekFrom::Start(1000)).unwrap();
    reader.read_exact(&mut [0; 2000]).unwrap();
    let before = server.state.requests.load(SeqCst);
    reader.seek(SeekFrom::Start(1500)).unwrap();
    reader.read_exact(&mut [0; 100]).unwrap();
    assert_eq!(server.state.requests.load(SeqCst), before);
}

#[test]
fn a_stop_ends_the_wait_for_a_server_that_is_silent() {
    let web = WebServer::start();
    let url = web.put("long", &text(), "1");
    let stop = Arc::new(AtomicBool::new(false));
    let mut reader = ObjectReader::open(&url, 0..u64::MAX, AHEAD, stop.clone()).unwrap();
    web.state.busy.store(i64::MAX, SeqCst);
    let waits = std::thread::spawn(move || reader.read(&mut [0; 8]).unwrap_err().to_string());
    while web.state.requests.load(SeqCst) < 2 {
        std::thread::yield_now();
    }
    stop.store(true, SeqCst);
    assert_eq!(waits.join().unwrap(), "stop requested");
}

//! What is too large, too much or too slow is refused by its status, and the rest is answered meanwhile.

use crate::client::{Connection, ask, get, post, served, table, trained};
use crate::harness::limit;
use rustix::process::Signal;
use std::io::{BufRead, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

const PREDICT: &str = "POST /v1/predict HTTP/1.1";

#[test]
fn large_bodies_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (model, _) = trained(folder.path(), "a.csv", &table(100, 20), "");
    let served = served(&format!("--model {model} --request-bytes 64KiB"));
    assert_eq!(post(&served, "/v1/predict", table(1000, 20).as_bytes()).status, 200);
    let large = vec![b' '; 70 << 10];
    let answer = post(&served, "/v1/predict", &large);
    assert!(answer.status == 413 && answer.text().contains("--request-bytes"), "{answer:?}");
    assert_eq!(answer.header("connection"), Some("close"));
    // One that unpacks to more, and one that does not say its length.
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(&vec![b' '; 4 << 20]).unwrap();
    let packed = packer.finish().unwrap();
    assert!(packed.len() < 60 << 10);
    assert_eq!(ask(&served, &format!("{PREDICT}\r\nContent-Encoding: gzip"), &packed).status, 413);
    let damaged = ask(&served, &format!("{PREDICT}\r\nContent-Encoding: gzip"), &packed[..12]);
    assert!(damaged.status == 400 && damaged.text().contains("damaged"), "{damaged:?}");
    let other = ask(&served, &format!("{PREDICT}\r\nContent-Encoding: br"), b"{}");
    assert!(other.status == 415 && other.text().contains("gzip"), "{other:?}");
    let mut stream = TcpStream::connect(&served.addr).unwrap();
    write!(stream, "{PREDICT}\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    for _ in 0..80 {
        let _ = write!(stream, "400\r\n{}\r\n", " ".repeat(1024));
    }
    let _ = write!(stream, "0\r\n\r\n");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

/// A client that sends nothing holds a place until its time is over. Meanwhile others get 503 and when to come again.
#[test]
fn too_many_requests_are_told_to_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let (model, _) = trained(folder.path(), "a.csv", &table(100, 21), "");
    let served = served(&format!("--model {model} --requests 1 --request-time 2"));
    let mut slow = TcpStream::connect(&served.addr).unwrap();
    slow.set_read_timeout(Some(limit())).unwrap();
    write!(slow, "{PREDICT}\r\nHost: x\r\nContent-Length: 10\r\n\r\n{{").unwrap();
    let start = Instant::now();
    while !get(&served, "/metrics").text().contains("\ngannet_serve_requests_in_progress 1\n") {
        assert!(start.elapsed() < limit());
    }
    let refused = loop {
        let answer = post(&served, "/v1/predict", b"{}");
        if answer.status != 200 || start.elapsed() > limit() {
            break answer;
        }
    };
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{refused:?}");
    // So do requests with bodies that nobody wants, and their connection goes on.
    let mut refused = Connection::open(&served);
    for path in ["/v1/predict", "/v2/models/default/infer"] {
        let answer = refused.ask(&format!("POST {path} HTTP/1.1"), &vec![b' '; 1 << 20]);
        assert_eq!((answer.status, answer.header("connection")), (503, None), "{answer:?}");
    }
    // Health is not a request of this kind.
    assert_eq!(get(&served, "/healthz").status, 200);
    let mut answer = [0; 12];
    slow.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 504");
    let again = loop {
        let answer = post(&served, "/v1/predict", b"{}");
        if answer.status == 200 || start.elapsed() > limit() {
            break answer;
        }
    };
    assert_eq!(again.status, 200);
}

#[test]
fn too_many_connections_are_told_to_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let (model, _) = trained(folder.path(), "a.csv", &table(100, 22), "");
    let served = served(&format!("--model {model} --connections 2"));
    let mut held = [Connection::open(&served), Connection::open(&served)];
    held.iter_mut().for_each(|of| assert_eq!(of.ask("GET /healthz HTTP/1.1", b"").status, 200));
    let mut answer = String::new();
    let mut third = TcpStream::connect(&served.addr).unwrap();
    let _ = third.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("Retry-After: 1"), "{answer}");
    drop(held);
    let start = Instant::now();
    loop {
        let mut stream = TcpStream::connect(&served.addr).unwrap();
        let (mut begin, _) = ([0; 12], write!(stream, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"));
        if stream.read_exact(&mut begin).is_ok() && &begin == b"HTTP/1.1 200" {
            break;
        }
        assert!(start.elapsed() < limit());
    }
}

/// SIGTERM: a request that has begun is answered, and then the process ends well.
#[test]
fn a_request_that_has_begun_is_answered_before_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let (model, _) = trained(folder.path(), "a.csv", &table(100, 23), "");
    let mut served = served(&format!("--model {model}"));
    // One that has said nothing does not hold up the end.
    let _idle = TcpStream::connect(&served.addr).unwrap();
    let mut stream = TcpStream::connect(&served.addr).unwrap();
    write!(stream, "{PREDICT}\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{").unwrap();
    let start = Instant::now();
    while !get(&served, "/metrics").text().contains("\ngannet_serve_requests_in_progress 1\n") {
        assert!(start.elapsed() < limit());
    }
    served.process.signal(Signal::TERM);
    // It has heard of it when it accepts no more.
    while TcpStream::connect(&served.addr).is_ok() {
        assert!(start.elapsed() < limit());
    }
    write!(stream, "}}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(served.process.ended().code(), Some(0));
    let mut last = String::new();
    served.out.read_line(&mut last).unwrap();
    assert_eq!(last, "gannet serve stopped\n");
}

/// A client that does not read its answer holds a place, until it is cut off.
#[test]
fn an_answer_that_nobody_reads_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    // Each example has 200 predictions, so the answer takes little time and is larger than the buffers between both.
    let lines: String = (0..200).map(|class| format!("{class} 1:1\n")).collect();
    let (model, _) = trained(folder.path(), "a.svm", &lines, "--model softmax --classes 200");
    let served = served(&format!("--model {model} --requests 1 --request-time 10"));
    let mut stream = TcpStream::connect(&served.addr).unwrap();
    let lines = vec!["1 1:1"; 5000];
    let input = serde_json::json!([{"name": "line", "shape": [5000], "datatype": "BYTES", "data": lines}]);
    let body = serde_json::json!({"inputs": input}).to_string();
    let head = "POST /v2/models/default/infer HTTP/1.1\r\nHost: x";
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let start = Instant::now();
    let mut refused = false;
    while !refused || post(&served, "/v1/predict", b"1 1:1\n").status != 200 {
        refused |= post(&served, "/v1/predict", b"1 1:1\n").status == 503;
        assert!(start.elapsed() < limit());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer);
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    assert!(answer.len() < length.unwrap().parse().unwrap(), "{} bytes", answer.len());
}

/// Small requests that would take much: each is refused, and the process goes on.
#[test]
fn small_requests_do_not_take_much() {
    let folder = tempfile::tempdir().unwrap();
    let (model, _) = trained(folder.path(), "a.csv", &table(100, 25), "");
    let served = served(&format!("--model {model}"));
    let deep = |open: &str, close: &str| open.repeat(100_000) + &close.repeat(100_000);
    let infer = "/v2/models/default/infer";
    let shaped = |n: u64| {
        format!(
            "{{\"inputs\":[{{\"name\":\"ids\",\"shape\":[{n},0],\"datatype\":\"INT64\",\"data\":[]}},{{\"name\":\
             \"values\",\"shape\":[{n},0],\"datatype\":\"FP32\",\"data\":[]}}]}}"
        )
    };
    for (path, body) in [
        ("/v1/predict", deep("[", "]")),
        ("/v1/predict", format!("[{{\"age\":{}}}]", deep("[", "]"))),
        ("/v1/predict", format!("{{\"age\":{}}}", deep("{\"a\":", "}"))),
        (infer, format!("{{\"x\":{},\"inputs\":[]}}", deep("[", "]"))),
        (infer, format!("{{\"inputs\":{}}}", deep("[", "]"))),
        (infer, shaped(1 << 36)),
        (infer, shaped(1 << 62)),
        (infer, shaped(1 << 20)),
    ] {
        let answer = post(&served, path, body.as_bytes());
        assert_eq!(answer.status, 400, "{path} {:?}", answer.error());
        assert_eq!(post(&served, "/v1/predict", b"{}").status, 200, "{path}");
    }
}

/// Bytes that are no requests change nothing.
#[test]
fn garbage_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let (model, _) = trained(folder.path(), "a.csv", &table(100, 24), "");
    let served = served(&format!("--model {model}"));
    for garbage in
        [&b"\x16\x03\x01\x02\x00"[..], b"GET\r\n\r\n", b"POST /v1/predict HTTP/9.9\r\n\r\n", &[0; 100_000]]
    {
        let mut stream = TcpStream::connect(&served.addr).unwrap();
        let _ = stream.write_all(garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
        assert_eq!(post(&served, "/v1/predict", b"{}").status, 200);
    }
}

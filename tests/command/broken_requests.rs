//! Commands that meet a server which greets and then breaks every request. They end, and name it.

use crate::harness;

use gannet_transport::Head;
use gannet_transport::limits::HEAD_BYTES;
use harness::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Frames of docs/wire.md.
const HELLO: u16 = 1;
const WELCOME: u16 = 2;
const ROWS: u16 = 6;

/// A frame with a payload, as it is on the wire.
fn frame(head: Head, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEAD_BYTES];
    Head { len: payload.len() as u32, ..head }.encode(&mut bytes);
    [&bytes, payload].concat()
}

/// Greets, and then ends the connection at the first request or answers it with nonsense.
fn serve(mut stream: TcpStream, closes: bool) -> std::io::Result<()> {
    loop {
        let mut head = [0; HEAD_BYTES];
        stream.read_exact(&mut head)?;
        let head = Head::decode(&head).map_err(std::io::Error::other)?;
        stream.read_exact(&mut vec![0; head.len as usize])?;
        if head.kind == HELLO {
            // A message of version 1 with 16 bytes: incarnation 7, session 1, 1 thread.
            let welcome: Vec<u8> =
                [1u32, 16, 7, 0, 1, 1].iter().flat_map(|word| word.to_le_bytes()).collect();
            stream
                .write_all(&frame(Head::new(WELCOME, 0, head.id, [1024, 1 << 26, 300_000, 0]), &welcome))?;
        } else if closes {
            return Ok(());
        } else {
            stream.write_all(&frame(Head::new(ROWS, 0, 1, [0; 4]), &[0; 64]))?;
        }
    }
}

/// The address of such a server. It ends with the test.
fn broken_server(closes: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream, closes));
        }
    });
    addr
}

#[test]
fn a_server_that_greets_and_breaks_every_request_kept_commands_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let data = clicks(&folder.path().join("train.svm"), 100, 1).display().to_string();
    let checkpoints = folder.path().join("checkpoints").display().to_string();
    for closes in [true, false] {
        let addr = broken_server(closes);
        let to = format!("--ps-hosts {addr} --transport tcp --peer-timeout 4");
        let lines = [
            format!("train {data} {to} --worker-hosts a:1 --job-name worker"),
            format!("train {data} {to} --worker-hosts a:1 --job-name worker --tasks off"),
            format!("checkpoint save {checkpoints} {to}"),
            format!("status {to}"),
        ];
        let started: Vec<Process> = lines.iter().map(|line| Process::start(gannet(line))).collect();
        for (line, process) in lines.iter().zip(started) {
            let done = process.wait();
            assert_eq!(done.code, Some(3), "{line}: {done:?}");
            let said = format!("{}{}", done.out, done.err);
            let why = if line.starts_with("status") { "does not answer" } else { "completes no request" };
            assert!(said.contains(&addr) && said.contains(why), "{line}: {done:?}");
        }
    }
}

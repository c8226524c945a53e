//! A client of HTTP, and servers of models for tests.

use crate::harness::{Owned, first_line, gannet, limit, ok};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{ChildStdout, Stdio};

/// A running `gannet serve`.
pub struct Served {
    pub process: Owned,
    pub addr: String,
    /// Held, so that what it says later finds a reader.
    pub out: BufReader<ChildStdout>,
}

/// Starts it with these flags on a port of its own.
pub fn served(flags: &str) -> Served {
    let mut command = gannet(&format!("serve --listen 127.0.0.1:0 {flags}"));
    let mut process = Owned(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let (line, out) = first_line(process.0.stdout.take().unwrap());
    let addr = line.trim().rsplit("://").next().unwrap().to_owned();
    assert!(line.contains(" listening on "), "{line}");
    Served { process, addr, out }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Why a request was refused.
    pub fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_else(|| panic!("{self:?}")).to_owned()
    }
}

/// One connection, which carries one request after another.
pub struct Connection<S: Read + Write = TcpStream> {
    stream: BufReader<S>,
}

impl Connection {
    pub fn open(served: &Served) -> Connection {
        let stream = TcpStream::connect(&served.addr).unwrap();
        stream.set_read_timeout(Some(limit())).unwrap();
        Connection { stream: BufReader::new(stream) }
    }
}

impl<S: Read + Write> Connection<S> {
    pub fn over(stream: S) -> Connection<S> {
        Connection { stream: BufReader::new(stream) }
    }

    pub fn send(&mut self, head: &str, body: &[u8]) {
        let head = format!("{head}\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
        let stream = self.stream.get_mut();
        // In one write. A server that refuses a body may close before it has all of it.
        let _ = stream.write_all(&[head.as_bytes(), body].concat());
        let _ = stream.flush();
    }

    pub fn answer(&mut self) -> Answer {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("no answer: {line:?}")).parse().unwrap();
        let mut headers = Vec::new();
        loop {
            line.clear();
            self.stream.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim().split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let mut answer = Answer { status, headers, body: Vec::new() };
        let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
        answer.body.resize(length, 0);
        self.stream.read_exact(&mut answer.body).unwrap();
        answer
    }

    /// Asks with these lines of a head: the first one, and headers.
    pub fn ask(&mut self, head: &str, body: &[u8]) -> Answer {
        self.send(head, body);
        self.answer()
    }
}

/// Asks over a connection of its own.
pub fn ask(served: &Served, head: &str, body: &[u8]) -> Answer {
    Connection::open(served).ask(head, body)
}

pub fn get(served: &Served, path: &str) -> Answer {
    ask(served, &format!("GET {path} HTTP/1.1"), b"")
}

pub fn post(served: &Served, path: &str, body: &[u8]) -> Answer {
    ask(served, &format!("POST {path} HTTP/1.1"), body)
}

/// Trains a model on these lines. Returns its folder, and the file of the lines.
pub fn trained(folder: &Path, file: &str, lines: &str, flags: &str) -> (String, String) {
    let data = crate::harness::write(folder, file, lines.as_bytes());
    let model = folder.join(format!("{file}.model")).display().to_string();
    ok(&format!("train {data} --out {model} {flags}"));
    (model, data)
}

/// Rows of a table: a city, an age, and a click that depends on both.
pub fn table(rows: usize, seed: usize) -> String {
    let mut text = String::from("label,city,age,plan\n");
    for row in 0..rows {
        let mixed = (row + seed).wrapping_mul(2_654_435_761) >> 7;
        let (city, age, plan) = (mixed % 7, 18 + mixed / 7 % 60, mixed % 3);
        let label = u8::from((city * 13 + age + plan * 20 + mixed % 17) % 60 > 30);
        text.push_str(&format!("{label},town {city},{age}.5,p{plan}\n"));
    }
    text
}

/// The objects of such rows, without labels.
pub fn objects(table: &str) -> Vec<serde_json::Value> {
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        serde_json::json!({"city": fields[1], "age": fields[2].parse::<f64>().unwrap(), "plan": fields[3]})
    };
    table.lines().skip(1).map(row).collect()
}

/// What `gannet predict` prints.
pub fn predicted(model: &str, data: &str) -> String {
    ok(&format!("predict --model {model} {data}")).out
}

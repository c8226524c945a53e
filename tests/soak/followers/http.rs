//! A client of HTTP whose connection may break: the server is killed now and then.

use std::io::{BufRead, BufReader, Error, Read, Result, Write};
use std::net::TcpStream;

/// An answer.
pub struct Answer {
    pub status: u16,
    /// The header `gannet-version`.
    pub version: String,
    pub text: String,
}

/// A connection that is made again after an error.
pub struct Client {
    addr: String,
    stream: Option<BufReader<TcpStream>>,
}

impl Client {
    pub fn new(addr: &str) -> Client {
        Client { addr: addr.to_owned(), stream: None }
    }

    pub fn get(&mut self, path: &str) -> Result<Answer> {
        self.ask(&format!("GET {path} HTTP/1.1"), "")
    }

    pub fn predict(&mut self, lines: &str) -> Result<Answer> {
        self.ask("POST /v1/predict HTTP/1.1\r\nContent-Type: text/plain", lines)
    }

    fn ask(&mut self, head: &str, body: &str) -> Result<Answer> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(&self.addr)?;
                stream.set_read_timeout(Some(crate::harness::limit()))?;
                stream.set_nodelay(true)?;
                BufReader::new(stream)
            }
        };
        let request = format!("{head}\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        stream.get_mut().write_all(request.as_bytes())?;
        let answer = answer(&mut stream)?;
        self.stream = Some(stream);
        Ok(answer)
    }
}

fn answer(stream: &mut BufReader<TcpStream>) -> Result<Answer> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| Error::other(format!("no answer: {line:?}")))?;
    let (mut version, mut length) = (String::new(), 0);
    loop {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Err(Error::other("the head ends early"));
        }
        let Some((name, value)) = line.trim().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "gannet-version" => version = value.to_owned(),
            "content-length" => length = value.parse().map_err(Error::other)?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Answer { status, version, text: String::from_utf8(body).map_err(Error::other)? })
}

//! A small web server whose answers fail as tests tell it to.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// The server. Its thread ends with the process.
pub struct WebServer {
    pub url: String,
    pub state: Arc<WebState>,
}

#[derive(Default)]
pub struct WebState {
    /// The files and their versions, by name. Without a version the head has no ETag.
    pub files: Mutex<HashMap<String, (Vec<u8>, String)>>,
    /// It ignores the header Range.
    pub whole_only: AtomicBool,
    /// Parts behind the first byte begin so many bytes too early, and their heads say so.
    pub early: AtomicUsize,
    /// The bytes of a body after which the connection is cut. 0: never.
    pub cut_after: AtomicUsize,
    /// Bodies that were cut.
    pub cuts: AtomicUsize,
    /// How many requests are answered with 503.
    pub busy: AtomicI64,
    /// Requests, and bytes of bodies that were sent.
    pub requests: AtomicUsize,
    pub sent: AtomicUsize,
    /// Answers on their way, and the most at a time.
    pub at_once: AtomicUsize,
    pub at_once_max: AtomicUsize,
}

impl WebServer {
    pub fn start() -> WebServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::<WebState>::default();
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = shared.clone();
                // A client may go away at any time.
                std::thread::spawn(move || drop(state.answer(&client)));
            }
        });
        WebServer { url, state }
    }

    /// Puts a file there. Returns its URL.
    pub fn put(&self, name: &str, bytes: &[u8], version: &str) -> String {
        self.state.files.lock().unwrap().insert(format!("/{name}"), (bytes.to_vec(), version.to_owned()));
        format!("{}/{name}", self.url)
    }
}

impl WebState {
    fn answer(&self, mut client: &TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(client).lines();
        let first = lines.next().unwrap_or(Ok(String::new()))?;
        let mut range = None;
        for line in lines {
            let line = line?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some((from, to)) = line.strip_prefix("range: bytes=").and_then(|text| text.split_once('-'))
            {
                range = Some((from.parse::<usize>().unwrap(), to.parse::<usize>().unwrap()));
            }
        }
        self.requests.fetch_add(1, SeqCst);
        if self.busy.fetch_sub(1, SeqCst) > 0 {
            let busy = "HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            return client.write_all(busy.as_bytes());
        }
        let name = first.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default();
        let Some((bytes, version)) = self.files.lock().unwrap().get(name).cloned() else {
            let status = if name.contains("secret") { "403 Forbidden" } else { "404 Not Found" };
            let none = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            return client.write_all(none.as_bytes());
        };
        let mut head = match version.as_str() {
            "" => String::new(),
            version => format!("ETag: \"{version}\"\r\n"),
        };
        let (status, part) = match range.filter(|_| !self.whole_only.load(SeqCst)) {
            Some((from, _)) if from >= bytes.len() => ("416 Range Not Satisfiable", 0..0),
            Some((from, to)) => {
                let from = from.saturating_sub(self.early.load(SeqCst));
                let part = from..bytes.len().min(to + 1);
                head += &format!("Content-Range: bytes {from}-{}/{}\r\n", part.end - 1, bytes.len());
                ("206 Partial Content", part)
            }
            None => ("200 OK", 0..bytes.len()),
        };
        let bytes = &bytes[part];
        let cut = Some(self.cut_after.load(SeqCst)).filter(|cut| (1..bytes.len()).contains(cut));
        self.at_once_max.fetch_max(self.at_once.fetch_add(1, SeqCst) + 1, SeqCst);
        let head = format!(
            "HTTP/1.1 {status}\r\n{head}Content-Length: {}\r\nConnection: close\r\n\r\n",
            bytes.len()
        );
        let body = &bytes[..cut.unwrap_or(bytes.len())];
        self.cuts.fetch_add(usize::from(cut.is_some()), SeqCst);
        self.sent.fetch_add(body.len(), SeqCst);
        let sent = client.write_all(head.as_bytes()).and_then(|()| client.write_all(body));
        self.at_once.fetch_sub(1, SeqCst);
        sent
    }
}

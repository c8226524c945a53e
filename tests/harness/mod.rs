//! Runs the real binary: commands with a time limit, servers that are stopped by their process id, small data sets.
#![allow(dead_code)] // each test file uses its part

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Nothing that a test waits for takes longer.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A command line of the binary, split at blanks.
pub fn gannet(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gannet"));
    command.args(line.split_whitespace()).stdin(Stdio::null());
    command
}

/// What a finished command left.
#[derive(Debug)]
pub struct Done {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Done {
    /// Standard output as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(self.out.trim()).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// A child that does not outlive the test.
pub struct Process {
    pub child: Child,
    out: Option<std::thread::JoinHandle<String>>,
    err: Option<std::thread::JoinHandle<String>>,
}

fn drain(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Process {
    pub fn start(mut command: Command) -> Process {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = child.stdout.take().map(drain);
        let err = child.stderr.take().map(drain);
        Process { child, out, err }
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for the end.
    pub fn wait(mut self) -> Done {
        let status = self.status();
        let text =
            |h: Option<std::thread::JoinHandle<String>>| h.map_or(String::new(), |h| h.join().unwrap());
        Done { code: status.code(), out: text(self.out.take()), err: text(self.err.take()) }
    }

    fn status(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < LIMIT, "a process hangs");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn run(line: &str) -> Done {
    Process::start(gannet(line)).wait()
}

/// A server process that has said where it listens.
pub struct Served {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    pub addr: String,
}

impl Served {
    pub fn start(mut command: Command) -> Served {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let addr = line.split_whitespace().nth(4).unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Served { child, out, addr }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// kill -9.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM; what it said at the end.
    pub fn stop(mut self) -> String {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        let mut text = String::new();
        self.out.read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address that was free a moment ago.
pub fn free_addr() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Click-like libsvm examples: `n` lines of 12 features out of skewed fields, labels from hidden weights.
pub fn clicks(path: &Path, n: u64, seed: u64) -> PathBuf {
    let mut text = String::new();
    let mix = |x: u64| {
        let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    };
    let unit = |x: u64| (mix(x) >> 11) as f64 / (1u64 << 53) as f64;
    for i in 0..n {
        let (mut margin, mut features) = (-0.8, String::new());
        for field in 0..12u64 {
            let u = unit(seed ^ (i * 12 + field).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let value = (u * u * u * 400.0) as u64;
            let id = 1 + field * 1000 + value;
            margin += (unit(id.wrapping_mul(77_777)) - 0.5) * 1.5;
            write!(features, " {id}:1").unwrap();
        }
        let p = 1.0 / (1.0 + (-margin).exp());
        let label = u8::from(unit(seed.wrapping_add(i).wrapping_mul(0xD6E8_FEB8_6659_FD93)) < p);
        writeln!(text, "{label}{features}").unwrap();
    }
    std::fs::write(path, text).unwrap();
    path.to_path_buf()
}

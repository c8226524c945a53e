//! Runs the real binary: commands with a time limit, servers that are stopped by their process id, small data sets.
#![allow(dead_code)] // each test file uses only some of it

pub mod authority;
pub mod pair;
pub mod ports;
pub mod sshd;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule, apply_filter};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The longest wait of any test.
pub const LIMIT: Duration = Duration::from_secs(300);

/// The longest wait on an emulated machine, which the two guests of a pair test share.
pub fn limit() -> Duration {
    if std::env::var_os("GANNET_PAIR_DIR").is_some() { LIMIT * 3 } else { LIMIT }
}

/// A command line of the binary, split at blanks.
pub fn gannet(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gannet"));
    command.args(line.split_whitespace()).stdin(Stdio::null());
    command
}

/// The result of a finished command.
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
pub struct Owned(pub Child);

impl Owned {
    /// Waits for its end.
    pub fn ended(&mut self) -> ExitStatus {
        self.ended_in_time().expect("a process hangs")
    }

    /// `None`: the process hangs.
    fn ended_in_time(&mut self) -> Option<ExitStatus> {
        let start = Instant::now();
        while start.elapsed() < limit() {
            if let Some(status) = self.0.try_wait().unwrap() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first line that is not a warning, and a reader for the rest.
pub fn first_line<R: Read + Send + 'static>(from: R) -> (String, BufReader<R>) {
    let (say, said) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut from, mut line) = (BufReader::new(from), String::new());
        while from.read_line(&mut line).unwrap() > 0 && line.contains(" WARN ") {
            line.clear();
        }
        let _ = say.send((line, from));
    });
    said.recv_timeout(limit()).expect("a process says nothing")
}

/// Runs `work` on a thread for which this system call fails. It also fails for processes that the thread starts.
pub fn without<T: Send>(call: i64, errno: u32, work: impl FnOnce() -> T + Send) -> T {
    refusing(call, Vec::new(), errno, work)
}

/// Runs `work` on a thread for which this system call fails if one of these rules matches. Without rules it always
/// fails.
pub fn refusing<T: Send>(
    call: i64,
    rules: Vec<SeccompRule>,
    errno: u32,
    work: impl FnOnce() -> T + Send,
) -> T {
    let rules = BTreeMap::from([(call, rules)]);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), arch).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            apply_filter(&program).unwrap();
            work()
        });
        thread.join().unwrap()
    })
}

/// io_uring_setup, on every architecture that has it.
pub const IO_URING_SETUP: i64 = 425;
pub const EPERM: u32 = 1;
pub const ENOSYS: u32 = 38;

/// A process whose output is collected.
pub struct Process {
    pub child: Owned,
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
        let mut child = Owned(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let out = child.0.stdout.take().map(drain);
        let err = child.0.stderr.take().map(drain);
        Process { child, out, err }
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        self.child.signal(signal);
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.0.try_wait().unwrap().is_none()
    }

    /// Waits for the end. A process that hangs is killed, and its output is shown.
    pub fn wait(mut self) -> Done {
        let status = self.child.ended_in_time();
        if status.is_none() {
            self.child.0.kill().unwrap();
        }
        let text =
            |h: Option<std::thread::JoinHandle<String>>| h.map_or(String::new(), |h| h.join().unwrap());
        let (out, err) = (text(self.out.take()), text(self.err.take()));
        match status {
            Some(status) => Done { code: status.code(), out, err },
            None => panic!("a process hangs: it said {out:?} and {err:?}"),
        }
    }
}

pub fn run(line: &str) -> Done {
    Process::start(gannet(line)).wait()
}

/// Runs a command that must succeed.
pub fn ok(line: &str) -> Done {
    let done = run(line);
    assert_eq!(done.code, Some(0), "{line}: {done:?}");
    done
}

/// Checks that a command is refused with exit code 2 and a message that contains all of these words.
pub fn refused(line: &str, expected: &[&str]) {
    fails(line, 2, expected);
}

/// Checks that a command ends with this exit code and a message that contains all of these words.
pub fn fails(line: &str, code: i32, expected: &[&str]) {
    let done = run(line);
    assert_eq!(done.code, Some(code), "{line}: {done:?}");
    assert!(expected.iter().all(|e| done.err.contains(e)), "{line}: {expected:?} in {done:?}");
}

/// Writes a file, and makes its folders. Returns its name.
pub fn write(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, bytes).unwrap();
    path.display().to_string()
}

/// A server process that has printed its address.
pub struct Served {
    pub child: Owned,
    out: BufReader<std::process::ChildStdout>,
    pub addr: String,
}

impl Served {
    pub fn start(mut command: Command) -> Served {
        let mut child = Owned(command.stdout(Stdio::piped()).spawn().unwrap());
        let (line, out) = first_line(child.0.stdout.take().unwrap());
        let addr = line.split_whitespace().nth(4).unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Served { child, out, addr }
    }

    pub fn id(&self) -> u32 {
        self.child.0.id()
    }

    /// Sends SIGKILL.
    pub fn kill(self) {
        drop(self);
    }

    /// Sends SIGTERM. Returns the server's last output.
    pub fn stop(mut self) -> String {
        self.child.signal(rustix::process::Signal::TERM);
        assert!(self.child.ended().success());
        let mut text = String::new();
        self.out.read_to_string(&mut text).unwrap();
        text
    }
}

/// An address where no process listens, whatever other tests do. Only root may listen there, and the system
/// never chooses this port.
pub const NOBODY: &str = "127.0.0.1:1";

/// Click-like libsvm examples: `n` lines with 12 features from skewed fields, and labels from hidden weights.
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

/// The rows of a saved model, bit by bit.
pub fn model_rows(folder: &Path) -> Vec<(u64, Vec<u32>)> {
    let checkpoint = gannet::storage::Checkpoint::open(folder).unwrap();
    let floats = checkpoint.schema().floats();
    let mut all = Vec::new();
    let read = checkpoint.read(|keys, rows| {
        let rows = rows.chunks(floats).map(|row| row.iter().map(|value| value.to_bits()).collect());
        all.extend(keys.iter().copied().zip(rows));
    });
    read.unwrap();
    all.sort();
    all
}

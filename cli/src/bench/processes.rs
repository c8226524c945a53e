//! The processes of a benchmark: the server, and the workers that measure.

use crate::failure::{Failure, SYSTEM};
use crate::flags::{BenchArgs, LogArgs, TransportName};
use crate::launched;
use gannet::Schema;
use gannet::storage::own_files;
use gannet::table::RowType;
use gannet_bench::limit::Size;
use gannet_bench::served::{Target, sgd_schema};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};

pub fn system(what: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(SYSTEM, format!("{what}: {error}"))
}

/// The server at this address, with the transport that the flags choose.
pub fn target<'a>(addr: &'a str, args: &BenchArgs) -> Target<'a> {
    let (net, one_sided) = (args.transport.net(args.io), args.one_sided.choice());
    Target { net, addr, one_sided, wire: args.wire.choice(), process: args.server }
}

/// The table that a part measures.
pub fn schema(args: &BenchArgs) -> Result<Schema, Failure> {
    let dim = args.dims.first().copied().unwrap_or(1);
    sgd_schema(dim, args.row_type.choice()).map_err(|error| Failure::input(error.to_string()))
}

/// The table's rows and the keys of a batch.
pub fn size(args: &BenchArgs) -> Size {
    Size { rows: args.rows, batch: args.batch as usize }
}

/// Says that this part is ready, and waits until the command says "go". The command may have been killed instead: then
/// nobody reads what this part would measure.
pub fn wait_for_go() -> Result<(), Failure> {
    say!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(|e| system("waiting for the start", &e))?;
    match line.trim() {
        "go" => Ok(()),
        _ => Err(ended()),
    }
}

pub fn ended() -> Failure {
    Failure::new(SYSTEM, "the benchmark that started this part has ended")
}

/// Checks what the flags ask for.
pub fn check_processes(args: &BenchArgs) -> Result<(), Failure> {
    if let Some(&dim) = args.dims.iter().find(|&&dim| dim == 0 || dim > 1024) {
        return Err(Failure::input(format!("--dims {dim}: 1 to 1024 can be measured")));
    }
    let (packed, row_type) = (args.row_type.choice() != RowType::F32, args.row_type.name());
    if packed && args.grow.is_some() {
        return Err(Failure::input(format!(
            "--row-type {row_type}: --grow makes rows of one weight, which are always f32"
        )));
    }
    if packed && args.dims.contains(&1) {
        return Err(Failure::input(format!(
            "--row-type {row_type} saves nothing in rows of one weight: name other --dims, such as 16,64"
        )));
    }
    if u64::from(args.batch) * 2 > args.rows {
        let text = format!("--batch {} of --rows {}: at most half of the rows", args.batch, args.rows);
        return Err(Failure::input(text));
    }
    if !args.seconds.is_finite() || !(0.01..=600.0).contains(&args.seconds) {
        return Err(Failure::input(format!("--seconds {}: 0.01 to 600 can be measured", args.seconds)));
    }
    Ok(())
}

pub fn this() -> Result<std::path::PathBuf, Failure> {
    std::env::current_exe().map_err(|e| system("finding this program", &e))
}

/// Starts a process that ends with this one, also if this one is killed: its standard input is a pipe from here.
pub fn spawn(command: &mut Command) -> Result<Child, Failure> {
    command.env(launched::LAUNCHER, std::process::id().to_string());
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    spawned.map_err(|e| system("starting a process", &e))
}

/// A child process that is killed when this is dropped.
pub struct Guard(pub Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server that is being measured.
pub struct BenchServer {
    addr: String,
    process: u32,
}

/// Runs `work` with a server process. If `pinned`, the server runs on core 0 and the worker on core 1.
pub fn with_server(
    args: &BenchArgs,
    log: &LogArgs,
    threads: u32,
    pinned: bool,
    work: impl Fn(&BenchServer) -> Result<Value, Failure>,
) -> Result<Value, Failure> {
    let folder = args.data_dir.as_ref().map(|d| d.join(format!("bench-{}", std::process::id())));
    if let Some(folder) = &folder {
        let made = folder.parent().map_or(Ok(()), std::fs::create_dir_all);
        let made = made.and_then(|()| std::fs::create_dir(folder)); // it is gone at the end, so it must be new
        made.map_err(|error| system(&format!("making {}", folder.display()), &error))?;
    }
    let mut command = Command::new(this()?);
    let listen = listen_at(args.transport)?;
    command
        .args(["server", "--listen", &listen, "--threads", &threads.to_string()])
        .args([args.transport.flag(), args.io.flag()])
        .args(log.flags())
        .args(args.metrics.flags());
    if args.transport == TransportName::Verbs {
        command.arg("--insecure");
    }
    if let Some(folder) = &folder {
        command.arg("--data-dir").arg(folder);
    }
    let pins = pinned && std::thread::available_parallelism().is_ok_and(|n| n.get() > 1);
    let before = if pins { pin(Some(0)) } else { None };
    let mut server = Guard(spawn(&mut command)?);
    if pins {
        pin(Some(1));
    }
    let out = server.0.stdout.take().ok_or_else(|| system("starting the server", &"no output"))?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line).map_err(|e| system("starting the server", &e))?;
    let addr = line.split_whitespace().nth(4).ok_or_else(|| system("starting the server", &line))?;
    let result = work(&BenchServer { addr: addr.to_owned(), process: server.0.id() });
    if let Some(set) = before {
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
    drop(server);
    if let Some(folder) = folder {
        let _ = own_files::remove_own_folder(&folder);
    }
    result
}

/// The address for the server: on loopback, or for RDMA, whose devices have no loopback address, on the first active
/// device.
fn listen_at(transport: TransportName) -> Result<String, Failure> {
    if transport != TransportName::Verbs {
        return Ok("127.0.0.1:0".to_owned());
    }
    let devices = gannet::transport::verbs::devices();
    let ports = devices.iter().flat_map(|device| &device.ports).filter(|port| port.is_active());
    let addresses = ports.flat_map(|port| port.addresses());
    // Addresses that are valid on one link only would need the link's name too.
    let usable = |ip: &IpAddr| !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let mut usable: Vec<IpAddr> = addresses.filter(usable).collect();
    usable.sort_by_key(IpAddr::is_ipv6);
    let ip = usable.first().ok_or_else(|| {
        system("finding an RDMA device", &"there is none with an address; see gannet doctor")
    })?;
    Ok(SocketAddr::new(*ip, 0).to_string())
}

/// Pins this thread, and the processes that it starts, to one core. Returns the earlier set of cores.
fn pin(core: Option<usize>) -> Option<rustix::thread::CpuSet> {
    let before = rustix::thread::sched_getaffinity(None).ok()?;
    let mut set = rustix::thread::CpuSet::new();
    set.set(core?);
    rustix::thread::sched_setaffinity(None, &set).ok()?;
    Some(before)
}

/// A worker's process that is ready.
pub struct Worker {
    child: Guard,
    out: BufReader<std::process::ChildStdout>,
    what: String,
}

impl Worker {
    pub fn start(
        what: &str,
        server: &BenchServer,
        dim: u32,
        number: u32,
        args: &BenchArgs,
        log: &LogArgs,
    ) -> Result<Worker, Failure> {
        let mut command = Command::new(this()?);
        command.args(["bench", &format!("--part={what}={}", server.addr), "--dims", &dim.to_string()]);
        command.args(["--rows", &args.rows.to_string(), "--batch", &args.batch.to_string()]);
        if let Some(rows) = args.grow {
            command.args(["--grow", &rows.to_string()]);
        }
        if !args.sessions.is_empty() {
            let list = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            command.args(["--sessions", &list(&args.sessions), "--in-flight", &list(&args.in_flight)]);
            command.args(["--pull-keys", &args.pull_keys.to_string()]);
        }
        command.args(["--seconds", &args.seconds.to_string(), "--worker", &number.to_string()]);
        command
            .args(["--server", &server.process.to_string()])
            .args(args.one_sided.flag())
            .args(args.wire.flag())
            .args(args.row_type.flag());
        command.args([args.transport.flag(), args.io.flag()]).args(log.flags());
        let mut child = Guard(spawn(&mut command)?);
        let out = child.0.stdout.take().ok_or_else(|| system("starting a worker", &"no output"))?;
        let mut worker =
            Worker { child, out: BufReader::new(out), what: format!("{what} at dim {dim}, worker {number}") };
        match worker.line()?.trim() {
            "ready" => Ok(worker),
            _ => Err(system(&worker.what, &"the worker ended before it began")),
        }
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.out.read_line(&mut line).map_err(|e| system("reading a worker", &e))?;
        Ok(line)
    }

    pub fn go(&mut self) -> Result<(), Failure> {
        let stdin = self.child.0.stdin.as_mut().ok_or_else(|| system("starting a worker", &"no input"))?;
        stdin.write_all(b"go\n").map_err(|e| system(&self.what, &e))
    }

    pub fn answer(&mut self) -> Result<Value, Failure> {
        let line = self.line()?;
        serde_json::from_str(&line).map_err(|e| system(&format!("measuring {}", self.what), &e))
    }

    pub fn measure(mut self) -> Result<Value, Failure> {
        self.go()?;
        self.answer()
    }
}

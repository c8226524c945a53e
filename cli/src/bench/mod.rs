//! `gannet bench`: starts a server process and worker processes, measures the limit in the same run, and prints both.

pub mod growth;
pub mod small;

use crate::failure::{Failure, SYSTEM};
use crate::flags::{BenchArgs, LogArgs, TransportName};
use crate::launched;
use gannet::Schema;
use gannet::storage::own_files;
use gannet::table::RowType;
use gannet_bench::limit::{self, Limit, Size};
use gannet_bench::served::{Bench, Rate, Target, sgd_schema};
use serde_json::{Map, Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};

/// Runs the command, or the part of it that has its own process.
pub fn run(args: &BenchArgs, log: &LogArgs) -> Result<(), Failure> {
    if args.part.is_some() && !launched::end_with_launcher() {
        return Err(ended());
    }
    match args.part.as_deref().and_then(|part| part.split_once('=')) {
        Some(("loopback", addr)) => {
            limit::loopback_send(addr).map_err(|e| system("sending over loopback", &e))
        }
        Some(("grow", addr)) => growth::part(addr, args),
        Some(("small", addr)) => small::part(addr, args),
        Some(("throughput", addr)) => part(addr, args, |bench, seconds| {
            let rates = bench.rates(seconds)?;
            let mut all =
                json!({"bytes_per_row": rates.bytes_per_row, "idle_server_cores": rates.idle_server_cores});
            add_rate("pull", &rates.pull, &mut all);
            add_rate("push", &rates.push, &mut all);
            add_rate("cycle", &rates.cycle, &mut all);
            Ok(all)
        }),
        Some(("latency", addr)) => part(addr, args, |bench, seconds| {
            let l = bench.latency(seconds)?;
            Ok(json!({"pull64_us_p50": l.cold.0, "pull64_us_p99": l.cold.1,
                      "pull64_warm_us_p50": l.warm.0, "pull64_warm_us_p99": l.warm.1}))
        }),
        Some(_) => Err(Failure::input("--part is for the command's own use")),
        None if !args.sessions.is_empty() => small::run(args, log),
        None if args.grow.is_some() => growth::run(args, log),
        None => all(args, log),
    }
}

pub fn system(what: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(SYSTEM, format!("{what}: {error}"))
}

/// The kinds of work: the first words of the names of the JSON fields.
const WORKS: [&str; 3] = ["pull", "push", "cycle"];

fn add_rate(work: &str, rate: &Rate, all: &mut Value) {
    all[format!("{work}_keys_per_s")] = rate.keys_per_s.into();
    all[format!("{work}_server_cores")] = rate.server_cores.into();
    all[format!("{work}_worker_cores")] = rate.worker_cores.into();
    all[format!("{work}_bytes_per_key")] = rate.bytes_per_key.into();
    if work != "push" {
        all[format!("{work}_one_sided")] = rate.one_sided.into();
    }
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

fn ended() -> Failure {
    Failure::new(SYSTEM, "the benchmark that started this part has ended")
}

/// Runs in a worker's process and measures one thing at one dimension. It is ready when the table is filled and the
/// server has settled (the first worker fills it). Then it waits for its start, and prints a JSON object.
fn part(
    addr: &str,
    args: &BenchArgs,
    measure: impl Fn(&mut Bench, f64) -> Result<Value, gannet::worker::WorkerError>,
) -> Result<(), Failure> {
    let mut bench = Bench::start(target(addr, args), &schema(args)?, size(args), u64::from(args.worker))?;
    let settled = bench.settle()?;
    wait_for_go()?;
    let mut all = measure(&mut bench, args.seconds)?;
    all["settled_after_s"] = settled.into();
    say!("{all}");
    Ok(())
}

/// Checks what the flags ask for.
pub fn check(args: &BenchArgs) -> Result<(), Failure> {
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

fn all(args: &BenchArgs, log: &LogArgs) -> Result<(), Failure> {
    check(args)?;
    let (mut limits, mut rates) = (Map::new(), Map::new());
    for &dim in &args.dims {
        let loopback = loopback(log)?;
        let limit = limit::limit(dim as usize, size(args), loopback)
            .map_err(|e| system("measuring the limit", &e))?;
        let mut measured = with_server(args, log, args.threads, false, |server| {
            workers("throughput", server, dim, args, log)
        })?;
        let latency = with_server(args, log, 1, true, |server| {
            Worker::start("latency", server, dim, 0, args, log)?.measure()
        })?;
        if let (Some(all), Some(latency)) = (measured.as_object_mut(), latency.as_object()) {
            all.extend(latency.clone());
        }
        if !args.json {
            print_row(dim, &limit, &measured);
        }
        limits.insert(format!("dim{dim}"), limit_json(&limit));
        rates.insert(format!("dim{dim}"), measured);
    }
    if args.json {
        let work =
            json!({"rows": args.rows, "batch": args.batch, "workers": args.workers, "threads": args.threads});
        say!("{}", json!({"work": work, "limit": limits, (args.transport.name()): rates}));
    }
    Ok(())
}

fn limit_json(limit: &Limit) -> Value {
    json!({"gather_rows_per_s": limit.gather_rows_per_s, "scatter_rows_per_s": limit.scatter_rows_per_s,
           "loopback_bytes_per_s": limit.loopback_bytes_per_s,
           "tcp_pull_keys_per_s": limit.tcp_pull_keys_per_s, "tcp_push_keys_per_s": limit.tcp_push_keys_per_s})
}

fn print_row(dim: u32, limit: &Limit, measured: &Value) {
    let get = |name: &str| measured[name].as_f64().unwrap_or(f64::NAN);
    let rate = |work: &str| get(&format!("{work}_keys_per_s"));
    say!(
        "dim {dim}: M keys/s pull {:.1} ({:.2} of the limit {:.1}), push {:.1} ({:.2} of {:.1}), cycle {:.1}; \
         64-key pull p50 {:.1} us, p99 {:.1} us, of the same keys again {:.1} and {:.1} us; {:.1} bytes a row; \
         {:.0}% of the rows pulled without a request",
        rate("pull") / 1e6,
        rate("pull") / limit.tcp_pull_keys_per_s,
        limit.tcp_pull_keys_per_s / 1e6,
        rate("push") / 1e6,
        rate("push") / limit.tcp_push_keys_per_s,
        limit.tcp_push_keys_per_s / 1e6,
        rate("cycle") / 1e6,
        get("pull64_us_p50"),
        get("pull64_us_p99"),
        get("pull64_warm_us_p50"),
        get("pull64_warm_us_p99"),
        get("bytes_per_row"),
        get("pull_one_sided") * 100.0,
    );
    let cost = |work: &str| {
        let of = |process: &str| get(&format!("{work}_{process}_cpu_ms_per_million"));
        format!("{work} {:.0} + {:.0}", of("server"), of("worker"))
    };
    let settled = match measured["settled_after_s"].as_f64() {
        Some(seconds) => format!("the server was idle {seconds:.1} s after the fill"),
        None => "the server was still busy a minute after the fill".to_owned(),
    };
    say!("  CPU ms for a million keys, server + workers: {}; {settled}", WORKS.map(cost).join(", "));
}

/// Measures loopback bytes a second, with the sender in its own process.
fn loopback(log: &LogArgs) -> Result<f64, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| system("listening on loopback", &e))?;
    let addr = listener.local_addr().map_err(|e| system("listening on loopback", &e))?;
    let part = format!("--part=loopback={addr}");
    let mut sender = Guard(spawn(Command::new(this()?).args(["bench", &part]).args(log.flags()))?);
    let rate = limit::loopback_receive(&listener).map_err(|e| system("measuring loopback", &e))?;
    sender.0.wait().map_err(|e| system("waiting for the sender", &e))?;
    Ok(rate)
}

fn this() -> Result<std::path::PathBuf, Failure> {
    std::env::current_exe().map_err(|e| system("finding this program", &e))
}

/// Starts a process that ends with this one, also if this one is killed: its standard input is a pipe from here.
fn spawn(command: &mut Command) -> Result<Child, Failure> {
    command.env(launched::LAUNCHER, std::process::id().to_string());
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    spawned.map_err(|e| system("starting a process", &e))
}

/// A child process that is killed when this is dropped.
struct Guard(Child);

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

    fn go(&mut self) -> Result<(), Failure> {
        let stdin = self.child.0.stdin.as_mut().ok_or_else(|| system("starting a worker", &"no input"))?;
        stdin.write_all(b"go\n").map_err(|e| system(&self.what, &e))
    }

    fn answer(&mut self) -> Result<Value, Failure> {
        let line = self.line()?;
        serde_json::from_str(&line).map_err(|e| system(&format!("measuring {}", self.what), &e))
    }

    pub fn measure(mut self) -> Result<Value, Failure> {
        self.go()?;
        self.answer()
    }
}

/// Measures with all workers at once. Rates are added, the server's CPU time and the shares are averaged, and other
/// numbers are those of the first worker.
fn workers(
    what: &str,
    server: &BenchServer,
    dim: u32,
    args: &BenchArgs,
    log: &LogArgs,
) -> Result<Value, Failure> {
    // The first worker fills the table before the others start.
    let mut all = (0..args.workers)
        .map(|number| Worker::start(what, server, dim, number, args, log))
        .collect::<Result<Vec<_>, _>>()?;
    all.iter_mut().try_for_each(Worker::go)?;
    let answers = all.iter_mut().map(Worker::answer).collect::<Result<Vec<_>, _>>()?;
    let mut sum = answers.first().cloned().unwrap_or_default();
    let added = |name: &str| answers.iter().map(|answer| answer[name].as_f64()).sum::<Option<f64>>();
    let mean = |name: &str| added(name).map(|all| all / answers.len() as f64);
    for work in WORKS {
        let rate = added(&format!("{work}_keys_per_s"));
        sum[format!("{work}_keys_per_s")] = rate.into();
        // There is one server, which every worker has watched, and each worker has its own time.
        let server = mean(&format!("{work}_server_cores"));
        for (process, cores) in [("server", server), ("worker", added(&format!("{work}_worker_cores")))] {
            sum[format!("{work}_{process}_cores")] = cores.into();
            let cost = rate.zip(cores).map(|(rate, cores)| cores / rate * 1e9);
            sum[format!("{work}_{process}_cpu_ms_per_million")] = cost.into();
        }
        if work != "push" {
            let share = format!("{work}_one_sided");
            sum[&share] = mean(&share).into();
        }
    }
    Ok(sum)
}

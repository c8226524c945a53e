//! `gannet bench`: starts a server process and worker processes, measures the limit in the same run, and prints both.

pub mod growth;
pub mod processes;
pub mod small;

use crate::bench::processes::{
    BenchServer, Guard, Worker, check_processes, ended, schema, size, spawn, system, target, this,
    wait_for_go, with_server,
};
use crate::failure::Failure;
use crate::flags::{BenchArgs, LogArgs};
use crate::launched;
use gannet_bench::limit::{self, Limit};
use gannet_bench::served::{Bench, Rate};
use serde_json::{Map, Value, json};
use std::net::TcpListener;
use std::process::Command;

/// Runs the command, or the part of it that has its own process.
pub fn run_bench(args: &BenchArgs, log: &LogArgs) -> Result<(), Failure> {
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
        None if !args.sessions.is_empty() => small::run_small(args, log),
        None if args.grow.is_some() => growth::run_growth(args, log),
        None => all(args, log),
    }
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

/// Runs in a worker's process and measures one thing at one dimension. It is ready when the table is filled and the
/// server has settled (the first worker fills it). Then it waits for its start, and prints a JSON object.
pub fn part(
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

fn all(args: &BenchArgs, log: &LogArgs) -> Result<(), Failure> {
    check_processes(args)?;
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

//! `gannet bench --sessions`: pulls of a few keys from many sessions at once.

use crate::bench::processes::{Worker, check_processes, schema, size, target, wait_for_go, with_server};
use crate::failure::Failure;
use crate::flags::{BenchArgs, LogArgs};
use gannet_bench::served::Bench;
use gannet_bench::small_pulls::{SmallPulls, measure};
use serde_json::{Map, Value, json};

/// Runs in the worker's process: fills the table, waits for its start, and prints what it measured.
pub fn part(addr: &str, args: &BenchArgs) -> Result<(), Failure> {
    let schema = schema(args)?;
    let mut bench = Bench::start(target(addr, args), &schema, size(args), 0)?;
    bench.settle()?;
    wait_for_go()?;
    let mut all = Vec::new();
    for &sessions in &args.sessions {
        for &in_flight in &args.in_flight {
            let (keys, rows) = (args.pull_keys as usize, args.rows);
            let work = SmallPulls { sessions: sessions as usize, in_flight: in_flight as usize, keys, rows };
            let rates = measure(&target(addr, args), &schema, work, args.seconds)?;
            let cost = |cores: Option<f64>| cores.map(|cores| cores / rates.keys_per_s * 1e9);
            all.push(json!({
                "sessions": sessions, "in_flight": in_flight, "keys_per_s": rates.keys_per_s,
                "us_p50": rates.p50_us, "us_p99": rates.p99_us, "one_sided": rates.one_sided,
                "server_cpu_ms_per_million": cost(rates.server_cores),
                "worker_cpu_ms_per_million": cost(rates.worker_cores),
            }));
        }
    }
    say!("{}", Value::Array(all));
    Ok(())
}

/// Runs the command.
pub fn run_small(args: &BenchArgs, log: &LogArgs) -> Result<(), Failure> {
    check_processes(args)?;
    let mut dims = Map::new();
    for &dim in &args.dims {
        let measured = with_server(args, log, args.threads, false, |server| {
            Worker::start("small", server, dim, 0, args, log)?.measure()
        })?;
        for cell in measured.as_array().into_iter().flatten().filter(|_| !args.json) {
            let get = |name: &str| cell[name].as_f64().unwrap_or(f64::NAN);
            say!(
                "dim {dim}, {} keys a pull, {} sessions with {} in flight: {:.2} M keys/s, p50 {:.1} us, p99 {:.1} us; \
                 CPU ms for a million keys, server + workers: {:.0} + {:.0}; {:.0}% of the rows without a request",
                args.pull_keys,
                get("sessions"),
                get("in_flight"),
                get("keys_per_s") / 1e6,
                get("us_p50"),
                get("us_p99"),
                get("server_cpu_ms_per_million"),
                get("worker_cpu_ms_per_million"),
                get("one_sided") * 100.0,
            );
        }
        dims.insert(format!("dim{dim}"), measured);
    }
    if args.json {
        let work = json!({"rows": args.rows, "pull_keys": args.pull_keys, "threads": args.threads});
        say!("{}", json!({"work": work, (args.transport.name()): dims}));
    }
    Ok(())
}

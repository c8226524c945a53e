//! `gannet bench --grow`: grows an empty table to many rows, and prints what that cost the server, from its metrics.

use crate::bench::processes::{Worker, check_processes, system, target, wait_for_go, with_server};
use crate::failure::Failure;
use crate::flags::{BenchArgs, LogArgs};
use gannet_bench::served::Bench;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Seconds. A longer stretch of growth is reported.
const STRETCH: f64 = 0.005;

/// The most time for reading the server's metrics.
const SCRAPE_TIME: Duration = Duration::from_secs(10);

/// Longer than a tick of the server, so that its metrics include the end.
const SETTLED: Duration = Duration::from_millis(2500);

/// Runs in the worker's process: waits for its start, and grows the table.
pub fn part(addr: &str, args: &BenchArgs) -> Result<(), Failure> {
    let mut bench = Bench::empty(target(addr, args))?;
    wait_for_go()?;
    let seconds = bench.grow(args.grow.unwrap_or_default())?;
    say!("{}", json!({"seconds": seconds, "bytes_per_row": bench.bytes_per_row()?}));
    Ok(())
}

/// Runs the command.
pub fn run_growth(args: &BenchArgs, log: &LogArgs) -> Result<(), Failure> {
    check_processes(args)?;
    let mut args = args.clone();
    // The command must know the port, so it chooses one before the server starts.
    let metrics = match &args.metrics.addr {
        Some(addr) if !addr.ends_with(":0") => addr.clone(),
        _ => free_addr()?,
    };
    args.metrics.addr = Some(metrics.clone());
    let rows = args.grow.unwrap_or_default();
    let grown = with_server(&args, log, args.threads, false, |server| {
        let mut grown = Worker::start("grow", server, 1, 0, &args, log)?.measure()?;
        std::thread::sleep(SETTLED);
        let page = scrape(&metrics).map_err(|e| system(&format!("reading {metrics}"), &e))?;
        add_growth(&page, &mut grown);
        Ok(grown)
    })?;
    if args.json {
        say!("{}", json!({"rows": rows, "grow": grown}));
        return Ok(());
    }
    let number = |name: &str| grown[name].as_f64().unwrap_or(f64::NAN);
    say!(
        "{rows} rows in {:.1} s ({:.2} M rows/s), {:.1} bytes a row, the server's memory {:.2} GiB",
        number("seconds"),
        rows as f64 / number("seconds") / 1e6,
        number("bytes_per_row"),
        number("resident_bytes") / f64::from(1 << 30),
    );
    say!(
        "growth on serving threads: {} stretches, {:.1} ms in all, the longest {:.3} ms, {} longer than {} ms",
        number("stretches"),
        number("growth_seconds") * 1e3,
        number("longest_seconds") * 1e3,
        number("longer"),
        STRETCH * 1e3,
    );
    for row in grown["stretches_up_to_us"].as_array().into_iter().flatten() {
        say!(
            "  up to {:>9.0} us: {}",
            row[0].as_f64().unwrap_or_default(),
            row[1].as_f64().unwrap_or_default()
        );
    }
    Ok(())
}

fn free_addr() -> Result<String, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| system("choosing a port", &e))?;
    Ok(listener.local_addr().map_err(|e| system("choosing a port", &e))?.to_string())
}

/// The page at `http://addr/metrics`.
fn scrape(addr: &str) -> std::io::Result<String> {
    let first = addr.to_socket_addrs()?.next().ok_or(std::io::ErrorKind::AddrNotAvailable)?;
    let mut stream = TcpStream::connect_timeout(&first, SCRAPE_TIME)?;
    stream.set_read_timeout(Some(SCRAPE_TIME))?;
    stream.set_write_timeout(Some(SCRAPE_TIME))?;
    stream.write_all(
        format!("GET /metrics HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}

/// Adds the page's numbers about growth and memory.
fn add_growth(page: &str, grown: &mut Value) {
    let lines = || {
        page.lines()
            .filter_map(|line| line.rsplit_once(' '))
            .filter_map(|(name, value)| Some((name, value.parse::<f64>().ok()?)))
    };
    let all = |prefix: &'static str| {
        lines().filter(move |(name, _)| name.starts_with(prefix)).map(|(_, value)| value)
    };
    let longest = all("gannet_table_growth_longest_seconds").fold(0.0, f64::max);
    grown["longest_seconds"] = longest.into();
    grown["growth_seconds"] = all("gannet_table_growth_seconds_sum").sum::<f64>().into();
    grown["stretches"] = all("gannet_table_growth_seconds_count").sum::<f64>().into();
    grown["resident_bytes"] = all("process_resident_memory_bytes").sum::<f64>().into();
    let mut up_to = BTreeMap::<u64, f64>::new();
    for (name, value) in lines().filter(|(name, _)| name.starts_with("gannet_table_growth_seconds_bucket")) {
        let bound = name.split([',', '{']).find_map(|label| label.strip_prefix("le=\"")?.split('"').next());
        if let Some(bound) =
            bound.and_then(|bound| bound.parse::<f64>().ok()).filter(|bound| bound.is_finite())
        {
            *up_to.entry((bound * 1e9) as u64).or_default() += value;
        }
    }
    // Buckets are cumulative. The number of longer stretches is known at the end of a bucket, and from the longest
    // one.
    let within = up_to.iter().filter(|(bound, _)| **bound as f64 / 1e9 <= STRETCH).map(|(_, count)| *count);
    let longer = grown["stretches"].as_f64().unwrap_or_default() - within.fold(0.0, f64::max);
    grown["longer"] = if longest <= STRETCH { 0.0 } else { longer }.into();
    let mut below = 0.0;
    let rows = up_to.into_iter().filter_map(|(bound, count)| {
        let here = count - std::mem::replace(&mut below, count);
        (here > 0.0).then(|| json!([bound as f64 / 1e3, here]))
    });
    grown["stretches_up_to_us"] = Value::Array(rows.collect());
}

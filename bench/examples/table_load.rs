//! Load on the tables of running servers, for bench/runs/checkpoint.py. Rows are numbered from 0; the key of a row
//! is a hash of its number.
//!
//! `cargo run --release -p gannet-bench --example table_load -- HOSTS DIM WORKER WORK`, with WORK one of
//! - `fill ROWS`: pushes every row once;
//! - `touch ROWS COUNT uniform|zipf`: pushes COUNT distinct rows of ROWS;
//! - `train ROWS SECONDS uniform|zipf`: pulls and pushes batches; prints the keys of each half second;
//! - `pulls ROWS SECONDS`, `pushes ROWS SECONDS`: 64 keys, one request after the other; prints the slowest ones.
//!
//! Dim 1 has FTRL, others AdaGrad. Each WORKER number pushes under its own name.

use gannet::optim::{AdaGrad, Ftrl};
use gannet::table::{TableId, mix};
use gannet::transport::Transport;
use gannet::worker::{PullId, PushId, ShardedKeys};
use gannet::{Read, Rule, Schema, Transports, Worker, WorkerConfig, Write};
use gannet_bench::key;
use std::collections::{HashSet, VecDeque};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const BATCH: usize = 65_536;
const FEW: usize = 64;
const IN_FLIGHT: usize = 4;
/// Slowest requests that are printed.
const SLOWEST: usize = 10;

struct Load {
    worker: Worker<Transports>,
    table: TableId,
    dim: usize,
    pushes: VecDeque<PushId>,
    random: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: table_load HOSTS DIM WORKER fill|touch|train|pulls|pushes ROWS [...]";
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [hosts, dim, number, work, rows, more @ ..] = &arguments[..] else { return Err(usage.into()) };
    let (dim, number, rows): (u32, u32, u64) = (dim.parse()?, number.parse()?, rows.parse()?);
    let mut load = Load::connect(hosts, dim, number)?;
    match (work.as_str(), more) {
        ("fill", []) => load.push_all((0..rows).map(key)),
        ("touch", [count, how]) => {
            let rows = load.draw(rows, count.parse()?, how)?;
            load.push_all(rows.into_iter().map(key))
        }
        ("train", [seconds, how]) => load.train(rows, Duration::from_secs_f64(seconds.parse()?), how),
        ("pulls" | "pushes", [seconds]) => {
            load.few(work == "pushes", rows, Duration::from_secs_f64(seconds.parse()?))
        }
        _ => Err(usage.into()),
    }
}

impl Load {
    fn connect(hosts: &str, dim: u32, number: u32) -> Result<Load, Box<dyn Error>> {
        let rule = match dim {
            1 => Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 }),
            _ => Rule::AdaGrad(AdaGrad { lr: 0.01, eps: 1e-10, initial_accumulator: 0.1 }),
        };
        let schema = Schema { dim, ..Schema::scalar("load", rule) };
        // A later load under the same number is a newer life of the pusher.
        let incarnation = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() as u64;
        let config = WorkerConfig::builder(hosts.split(',')).worker(number).incarnation(incarnation).build();
        let mut worker = Worker::connect(Transports::new().with_transport(Transport::Tcp), config)?;
        let table = worker.open_table(&schema)?;
        let random = mix(incarnation);
        Ok(Load { worker, table, dim: dim as usize, pushes: VecDeque::new(), random })
    }

    fn next(&mut self) -> u64 {
        self.random = mix(self.random);
        self.random
    }

    /// Pushes a gradient to these rows that differs from row to row and from call to call.
    fn push(&mut self, cut: Arc<ShardedKeys>, keyset: Option<PullId>) -> Result<(), Box<dyn Error>> {
        if self.pushes.len() >= IN_FLIGHT
            && let Some(oldest) = self.pushes.pop_front()
        {
            self.worker.finish_push(oldest)?;
        }
        let mut values = self.worker.spare();
        values.clear();
        for _ in 0..cut.keys().len() * self.dim {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            values.push((self.random >> 40) as f32 / (1u64 << 24) as f32 - 0.5);
        }
        let seq = self.worker.next_seq(self.table);
        let push = self.worker.begin_push(self.table, cut, Write::Gradient, values, keyset, seq)?;
        self.pushes.push_back(push);
        Ok(())
    }

    fn push_all(&mut self, keys: impl Iterator<Item = u64>) -> Result<(), Box<dyn Error>> {
        let started = Instant::now();
        let (mut keys, mut count) = (keys.peekable(), 0);
        while keys.peek().is_some() {
            let batch: Vec<u64> = keys.by_ref().take(BATCH).collect();
            count += batch.len();
            let cut = Arc::new(self.worker.cut(self.table, &batch));
            self.push(cut, None)?;
        }
        self.pushes.clear();
        self.worker.drain()?;
        println!("{{\"rows\": {count}, \"seconds\": {:.3}}}", started.elapsed().as_secs_f64());
        Ok(())
    }

    /// A row: a uniform one, or by Zipf's law with exponent 1, by which row n is drawn as often as 1 / (n + 1).
    fn row(&mut self, rows: u64, how: &str) -> Result<u64, Box<dyn Error>> {
        let random = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        let row = match how {
            "uniform" => random * rows as f64,
            // The inverse of the distribution function ln(n + 1) / ln(rows + 1).
            "zipf" => (random * ((rows + 1) as f64).ln()).exp() - 1.0,
            _ => return Err("uniform or zipf".into()),
        };
        Ok((row as u64).min(rows - 1))
    }

    /// Distinct rows.
    fn draw(&mut self, rows: u64, count: usize, how: &str) -> Result<Vec<u64>, Box<dyn Error>> {
        if count as u64 > rows {
            return Err("COUNT is more than ROWS".into());
        }
        let (mut seen, mut all) = (HashSet::with_capacity(count), Vec::with_capacity(count));
        while all.len() < count {
            let row = self.row(rows, how)?;
            if seen.insert(row) {
                all.push(row);
            }
        }
        Ok(all)
    }

    fn train(&mut self, rows: u64, time: Duration, how: &str) -> Result<(), Box<dyn Error>> {
        let mut batches = Vec::new();
        for _ in 0..64 {
            let drawn: Result<Vec<u64>, _> = (0..BATCH).map(|_| Ok(key(self.row(rows, how)?))).collect();
            let mut keys = drawn.map_err(|error: Box<dyn Error>| error)?;
            keys.sort_unstable();
            keys.dedup();
            batches.push(keys);
        }
        let (started, mut in_flight, mut halves) = (Instant::now(), VecDeque::new(), Vec::<usize>::new());
        for batch in batches.iter().cycle() {
            let elapsed = started.elapsed();
            if elapsed >= time {
                break;
            }
            halves.resize((elapsed.as_millis() / 500) as usize + 1, 0);
            let cut = Arc::new(self.worker.cut(self.table, batch));
            let buffer = self.worker.spare();
            let pull = self.worker.begin_pull(self.table, cut.clone(), Read::Weights, buffer, true)?;
            in_flight.push_back((pull, cut));
            if in_flight.len() >= IN_FLIGHT
                && let Some((pull, cut)) = in_flight.pop_front()
            {
                let keys = cut.keys().len();
                self.worker.finish_pull(pull)?;
                self.push(cut, Some(pull))?;
                if let Some(last) = halves.last_mut() {
                    *last += keys;
                }
            }
        }
        self.pushes.clear();
        self.worker.drain()?;
        println!("{{\"keys_by_half_second\": {halves:?}}}");
        Ok(())
    }

    /// Requests of a few keys, one after the other.
    fn few(&mut self, pushes: bool, rows: u64, time: Duration) -> Result<(), Box<dyn Error>> {
        let (started, mut all, mut out) = (Instant::now(), Vec::new(), vec![0.0; FEW * self.dim]);
        while started.elapsed() < time {
            let keys: Vec<u64> = (0..FEW).map(|_| key(self.next() % rows)).collect();
            let (at, begun) = (started.elapsed(), Instant::now());
            if pushes {
                let cut = Arc::new(self.worker.cut(self.table, &keys));
                self.push(cut, None)?;
                if let Some(push) = self.pushes.pop_back() {
                    self.worker.finish_push(push)?;
                }
            } else {
                self.worker.pull(self.table, &keys, Read::Weights, &mut out)?;
            }
            all.push((begun.elapsed(), at));
        }
        all.sort_unstable_by(|a, b| b.cmp(a));
        let ms = |time: Duration| format!("{:.3}", time.as_secs_f64() * 1e3);
        let slowest: Vec<String> = all
            .iter()
            .take(SLOWEST)
            .map(|(took, at)| format!("[{}, {:.2}]", ms(*took), at.as_secs_f64()))
            .collect();
        let median = all.get(all.len() / 2).map_or_else(String::new, |(took, _)| ms(*took));
        println!(
            "{{\"requests\": {}, \"median_ms\": {median}, \"slowest_ms_at_s\": [{}]}}",
            all.len(),
            slowest.join(", ")
        );
        Ok(())
    }
}

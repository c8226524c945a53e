//! The worker's side of the canonical work, against a server in a process of its own.

use super::limit::Size;
use crate::{
    Cut, Ftrl, PullId, PushId, Read, Rule, Schema, Sgd, TableId, Wires, Worker, WorkerConfig, WorkerError,
    Write, mix,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

const IN_FLIGHT: usize = 4;
const LATENCY_KEYS: usize = 64;
const LATENCY_PULLS: usize = 20_000;

/// What was measured at one dimension.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// Keys a second pulled.
    pub pull_keys_per_s: f64,
    /// Keys a second pushed, with their keys.
    pub push_keys_per_s: f64,
    /// Keys a second through pull and push by the pull's keyset.
    pub cycle_keys_per_s: f64,
    /// Bytes a row on the server, at the end.
    pub bytes_per_row: f64,
}

/// Microseconds of pulls of 64 keys, one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latency {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// A worker with the table filled: every row pushed once.
pub struct Bench {
    worker: Worker<Wires>,
    table: TableId,
    dim: usize,
    batches: Vec<Vec<u64>>,
    cuts: Vec<Arc<Cut>>,
    buffers: Vec<Vec<f32>>,
    /// Pushes that are not acknowledged yet.
    pushes: VecDeque<PushId>,
}

/// What is done over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Pull weights.
    Pull,
    /// Push gradients with their keys.
    Push,
    /// Pull, then push by the keyset of the pull.
    Cycle,
}

impl Bench {
    /// Connects as worker `number` (from 0); the first one makes the table and fills it with `size.rows` rows.
    ///
    /// # Errors
    /// The server is gone or refuses.
    pub fn start(net: Wires, addr: &str, dim: u32, size: Size, number: u64) -> Result<Bench, WorkerError> {
        let rule = Rule::Sgd(Sgd { lr: 0.01 });
        let schema = Schema { dim, ..Schema::scalar(&format!("bench-{dim}"), rule) };
        let mut bench = Bench::connect(net, addr, &schema, number)?;
        bench.batches = batches(size, number);
        if number == 0 {
            bench.fill(size.rows)?;
        }
        Ok(bench)
    }

    /// A worker of an empty table of one weight a row with FTRL, for [`grow`](Self::grow).
    ///
    /// # Errors
    /// The server is gone or refuses.
    pub fn empty(net: Wires, addr: &str) -> Result<Bench, WorkerError> {
        let rule = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 });
        Bench::connect(net, addr, &Schema::scalar("bench-grow", rule), 0)
    }

    fn connect(net: Wires, addr: &str, schema: &Schema, number: u64) -> Result<Bench, WorkerError> {
        let life = u64::from(std::process::id());
        let mut worker = Worker::connect(net, WorkerConfig::new([addr], number + 1, life))?;
        let table = worker.open_table(schema)?;
        let (batches, cuts, buffers) = (Vec::new(), Vec::new(), Vec::new());
        let (dim, pushes) = (schema.dim as usize, VecDeque::new());
        Ok(Bench { worker, table, dim, batches, cuts, buffers, pushes })
    }

    /// Makes `rows` new rows; seconds.
    ///
    /// # Errors
    /// The server is gone or refuses.
    pub fn grow(&mut self, rows: u64) -> Result<f64, WorkerError> {
        let start = Instant::now();
        self.fill(rows)?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Pushes every row once.
    fn fill(&mut self, rows: u64) -> Result<(), WorkerError> {
        let mut keys = Vec::new();
        for from in (0..rows).step_by(Size::CANONICAL.batch) {
            keys.clear();
            keys.extend((from..rows.min(from + Size::CANONICAL.batch as u64)).map(key));
            let cut = self.cut(&keys);
            self.push(cut, None)?;
        }
        self.pushes.clear();
        self.worker.drain()
    }

    fn cut(&mut self, keys: &[u64]) -> Arc<Cut> {
        let free = self.cuts.iter().position(|cut| Arc::strong_count(cut) == 1);
        let mut cut = free.map_or_else(Arc::default, |at| self.cuts.swap_remove(at));
        match Arc::get_mut(&mut cut) {
            Some(own) => self.worker.cut_into(self.table, keys, own),
            None => cut = Arc::new(self.worker.cut(self.table, keys)),
        }
        self.cuts.push(cut.clone());
        cut
    }

    fn push(&mut self, cut: Arc<Cut>, keyset_of: Option<PullId>) -> Result<(), WorkerError> {
        if self.pushes.len() >= IN_FLIGHT
            && let Some(oldest) = self.pushes.pop_front()
        {
            self.worker.finish_push(oldest)?;
        }
        // The same gradients every time: making them is no part of the work.
        let mut values = self.worker.spare();
        values.resize(cut.keys().len() * self.dim, 1e-6);
        let seq = self.worker.next_seq(self.table);
        let push = self.worker.begin_push(self.table, cut, Write::Gradient, values, keyset_of, seq)?;
        self.pushes.push_back(push);
        Ok(())
    }

    /// Keys a second of `work` over about `seconds`.
    ///
    /// # Errors
    /// The server is gone or refuses.
    pub fn throughput(&mut self, work: Work, seconds: f64) -> Result<f64, WorkerError> {
        self.rounds(work, seconds / 5.0)?;
        let start = Instant::now();
        let keys = self.rounds(work, seconds)?;
        Ok(keys as f64 / start.elapsed().as_secs_f64())
    }

    fn rounds(&mut self, work: Work, seconds: f64) -> Result<usize, WorkerError> {
        let (start, mut done, mut next) = (Instant::now(), 0, 0);
        let mut flying: VecDeque<(PullId, Arc<Cut>)> = VecDeque::new();
        while start.elapsed().as_secs_f64() < seconds {
            let keys = std::mem::take(&mut self.batches[next]);
            let cut = self.cut(&keys);
            done += keys.len();
            self.batches[next] = keys;
            next = (next + 1) % self.batches.len();
            if work == Work::Push {
                self.push(cut, None)?;
                continue;
            }
            let buffer = self.buffers.pop().unwrap_or_default();
            let keep = work == Work::Cycle;
            let pull = self.worker.begin_pull(self.table, cut.clone(), Read::Weights, buffer, keep)?;
            flying.push_back((pull, cut));
            if flying.len() >= IN_FLIGHT {
                self.finish(work, &mut flying)?;
            }
        }
        while !flying.is_empty() {
            self.finish(work, &mut flying)?;
        }
        self.pushes.clear();
        self.worker.drain()?;
        Ok(done)
    }

    fn finish(&mut self, work: Work, flying: &mut VecDeque<(PullId, Arc<Cut>)>) -> Result<(), WorkerError> {
        let Some((pull, cut)) = flying.pop_front() else { return Ok(()) };
        let pulled = self.worker.finish_pull(pull)?;
        self.buffers.push(pulled.values);
        if work == Work::Cycle {
            self.push(cut, Some(pull))?;
        }
        Ok(())
    }

    /// Pulls of 64 keys, one after the other.
    ///
    /// # Errors
    /// The server is gone or refuses.
    pub fn latency(&mut self) -> Result<Latency, WorkerError> {
        let mut out = vec![0.0; LATENCY_KEYS * self.dim];
        let mut micros = Vec::with_capacity(LATENCY_PULLS);
        for i in 0..LATENCY_PULLS {
            let batch = &self.batches[i % self.batches.len()];
            let from = i / self.batches.len() * LATENCY_KEYS % (batch.len() - LATENCY_KEYS + 1);
            let keys = &batch[from..from + LATENCY_KEYS];
            let start = Instant::now();
            self.worker.pull(self.table, keys, Read::Weights, &mut out)?;
            micros.push(start.elapsed().as_secs_f64() * 1e6);
        }
        micros.sort_by(f64::total_cmp);
        Ok(Latency { p50: micros[micros.len() / 2], p99: micros[micros.len() * 99 / 100] })
    }

    /// Bytes a row on the server.
    ///
    /// # Errors
    /// The server is gone.
    pub fn bytes_per_row(&mut self) -> Result<f64, WorkerError> {
        let stats = self.worker.status(self.table)?.stats;
        Ok(stats.bytes as f64 / stats.rows.max(1) as f64)
    }

    /// Every throughput.
    ///
    /// # Errors
    /// The server is gone or refuses.
    pub fn rates(&mut self, seconds: f64) -> Result<Rates, WorkerError> {
        Ok(Rates {
            pull_keys_per_s: self.throughput(Work::Pull, seconds)?,
            push_keys_per_s: self.throughput(Work::Push, seconds)?,
            cycle_keys_per_s: self.throughput(Work::Cycle, seconds)?,
            bytes_per_row: self.bytes_per_row()?,
        })
    }
}

fn key(row: u64) -> u64 {
    mix(row ^ 0x1234_5678)
}

/// Batches of unique keys, uniform over the rows; other ones for each worker.
fn batches(size: Size, worker: u64) -> Vec<Vec<u64>> {
    let Size { rows, batch } = size;
    let keys = batch.min(rows as usize);
    let mut seen = vec![u32::MAX; rows as usize];
    let mut random = 1 + worker;
    (0..size.batches() as u32)
        .map(|batch| {
            let mut all = Vec::with_capacity(keys);
            while all.len() < keys {
                random = mix(random);
                let row = random % rows;
                if std::mem::replace(&mut seen[row as usize], batch) != batch {
                    all.push(key(row));
                }
            }
            all
        })
        .collect()
}

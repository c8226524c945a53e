//! The worker's side of the canonical work. The server is in another process.

use crate::cpu::cpu_seconds;
use crate::limit::Size;
use gannet::optim::{Ftrl, Sgd};
use gannet::table::{RowType, SchemaError, TableId, mix};
use gannet::worker::{Counters, OneSided, PullId, PushId, ShardedKeys, WireType, WorkerError};
use gannet::{Read, Rule, Schema, Transports, Worker, WorkerConfig, Write};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

const IN_FLIGHT: usize = 4;
const LATENCY_KEYS: usize = 64;
const LATENCY_PULLS: usize = 20_000;
/// Fewer pulls would not measure the slowest hundredth.
const LATENCY_PULLS_MIN: usize = 200;
/// The most time until the worker can read rows at all, and until it knows the places of nearly all rows.
const WARM_REACH: Duration = Duration::from_secs(10);
const WARM_READS: Duration = Duration::from_secs(60);

/// The server has settled when its process takes less than this share of a core, for so many looks one after another.
const SETTLED_CORES: f64 = 0.15;
const SETTLED_LOOKS: u32 = 3;
/// Between two looks: several of the ticks in which the system counts CPU time.
const SETTLED_EVERY: Duration = Duration::from_millis(100);
/// The most time until the server has settled.
const SETTLE_MAX: Duration = Duration::from_secs(60);

/// The rate of one kind of work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate {
    /// Keys a second.
    pub keys_per_s: f64,
    /// CPU seconds a second of the server's process, if its id is known.
    pub server_cores: Option<f64>,
    /// CPU seconds a second of the worker's process.
    pub worker_cores: Option<f64>,
    /// The share of the pulled rows that the worker read without a request.
    pub one_sided: f64,
    /// Bytes of the payloads for a key: of requests, and of rows.
    pub bytes_per_key: f64,
}

/// The rates at one dimension.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// Pulls of weights.
    pub pull: Rate,
    /// Pushes of gradients, with their keys.
    pub push: Rate,
    /// Pulls, each with a push by the pull's keyset.
    pub cycle: Rate,
    /// Bytes a row on the server at the end.
    pub bytes_per_row: f64,
    /// CPU seconds a second of the server's process while the worker is idle but keeps its links, after it has pulled
    /// rows.
    pub idle_server_cores: Option<f64>,
}

/// The server that a worker measures, and how the worker reaches it.
#[derive(Clone)]
pub struct Target<'a> {
    /// The transport.
    pub net: Transports,
    /// The server's address.
    pub addr: &'a str,
    /// When the worker reads rows without a request.
    pub one_sided: OneSided,
    /// How weights and gradients travel.
    pub wire: WireType,
    /// The server's process on this host, if its CPU time is measured too.
    pub process: Option<u32>,
}

/// Microseconds of pulls of 64 keys, one after the other: median and 99th percentile.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latency {
    /// Pulls of other keys each time.
    pub cold: (f64, f64),
    /// Pulls of the same keys each time.
    pub warm: (f64, f64),
}

/// A worker with a filled table: every row was pushed once.
pub struct Bench {
    worker: Worker<Transports>,
    table: TableId,
    dim: usize,
    wire: WireType,
    batches: Vec<Vec<u64>>,
    cuts: Vec<Arc<ShardedKeys>>,
    buffers: Vec<Vec<f32>>,
    /// Pushes that are not acknowledged yet.
    pushes: VecDeque<PushId>,
    server: Option<u32>,
    /// Whether the worker may read rows without a request.
    reads: bool,
}

/// The work to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchWork {
    /// Pull weights.
    Pull,
    /// Push gradients with their keys.
    Push,
    /// Pull, then push by the keyset of the pull.
    Cycle,
}

impl Bench {
    /// Waits until the server's process is idle: after a fill it still turns small pages into huge ones. Returns the
    /// seconds that it took; `None` if the server is still busy after a minute, or its process is not known.
    ///
    /// # Errors
    /// The server is gone.
    pub fn settle(&mut self) -> Result<Option<f64>, WorkerError> {
        let Some(server) = self.server else { return Ok(None) };
        let (start, mut quiet) = (Instant::now(), 0);
        while start.elapsed() < SETTLE_MAX {
            let (before, look) = (cpu_seconds(server).ok(), Instant::now());
            while look.elapsed() < SETTLED_EVERY {
                self.worker.poll()?;
                std::thread::sleep(Duration::from_millis(5));
            }
            // If the server's process ends, the worker's own error says more.
            let Some((before, after)) = before.zip(cpu_seconds(server).ok()) else { return Ok(None) };
            quiet = if after - before < SETTLED_CORES * look.elapsed().as_secs_f64() { quiet + 1 } else { 0 };
            if quiet == SETTLED_LOOKS {
                return Ok(Some(start.elapsed().as_secs_f64()));
            }
        }
        Ok(None)
    }

    /// Connects as worker `number` (from 0). Worker 0 creates the table and fills it with `size.rows` rows.
    ///
    /// # Errors
    /// The server is gone or refuses.
    pub fn start(target: Target<'_>, schema: &Schema, size: Size, number: u64) -> Result<Bench, WorkerError> {
        let mut bench = Bench::connect(target, schema, number)?;
        bench.batches = batches(size, number);
        if number == 0 {
            bench.fill(size.rows)?;
        }
        Ok(bench)
    }

    /// A worker with an empty table of one weight a row with FTRL, for [`grow`](Self::grow).
    ///
    /// # Errors
    /// The server is gone or refuses.
    pub fn empty(target: Target<'_>) -> Result<Bench, WorkerError> {
        let rule = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 });
        Bench::connect(target, &Schema::scalar("bench-grow", rule), 0)
    }

    fn connect(target: Target<'_>, schema: &Schema, number: u64) -> Result<Bench, WorkerError> {
        let incarnation = u64::from(std::process::id());
        let Target { net, addr, one_sided, wire, process: server } = target;
        let config = WorkerConfig::builder([addr])
            .worker(number as u32)
            .incarnation(incarnation)
            .one_sided(one_sided)
            .build();
        let reads = one_sided != OneSided::Never;
        let mut worker = Worker::connect(net, config)?;
        let table = worker.open_table(schema)?;
        worker.set_wire_type(table, wire)?;
        let (batches, cuts, buffers) = (Vec::new(), Vec::new(), Vec::new());
        let (dim, pushes) = (schema.dim as usize, VecDeque::new());
        Ok(Bench { worker, table, dim, wire, batches, cuts, buffers, pushes, server, reads })
    }

    /// Creates `rows` new rows. Returns the seconds it took.
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

    fn cut(&mut self, keys: &[u64]) -> Arc<ShardedKeys> {
        let free = self.cuts.iter().position(|cut| Arc::strong_count(cut) == 1);
        let mut cut = free.map_or_else(Arc::default, |at| self.cuts.swap_remove(at));
        match Arc::get_mut(&mut cut) {
            Some(own) => self.worker.cut_into(self.table, keys, own),
            None => cut = Arc::new(self.worker.cut(self.table, keys)),
        }
        self.cuts.push(cut.clone());
        cut
    }

    fn push(&mut self, cut: Arc<ShardedKeys>, keyset_of: Option<PullId>) -> Result<(), WorkerError> {
        if self.pushes.len() >= IN_FLIGHT
            && let Some(oldest) = self.pushes.pop_front()
        {
            self.worker.finish_push(oldest)?;
        }
        // The gradients are always the same: making them is not part of the work.
        let mut values = self.worker.spare();
        if self.wire == WireType::F16 {
            // The worker has rounded them in their memory.
            values.clear();
        }
        values.resize(cut.keys().len() * self.dim, 1e-6);
        let seq = self.worker.next_seq(self.table);
        let push = self.worker.begin_push(self.table, cut, Write::Gradient, values, keyset_of, seq)?;
        self.pushes.push_back(push);
        Ok(())
    }

    /// Measures the rate of `work` over about `seconds`.
    ///
    /// # Errors
    /// The server is gone or refuses.
    pub fn throughput(&mut self, work: BenchWork, seconds: f64) -> Result<Rate, WorkerError> {
        self.warm(work, seconds / 5.0)?;
        // If the server's process ends, there is no CPU time, and the worker's own error says more.
        let cpu = |process: Option<u32>| process.and_then(|process| cpu_seconds(process).ok());
        let (server, own) = (self.server, Some(std::process::id()));
        let (before, counted, start) = ((cpu(server), cpu(own)), self.worker.counters(), Instant::now());
        let keys = self.rounds(work, seconds, usize::MAX)?;
        let took = start.elapsed().as_secs_f64();
        let cores =
            |before: Option<f64>, after| before.zip(after).map(|(from, to): (f64, f64)| (to - from) / took);
        let (server_cores, worker_cores) = (cores(before.0, cpu(server)), cores(before.1, cpu(own)));
        let read = self.worker.counters().near_rows - counted.near_rows;
        let one_sided = if work == BenchWork::Push { 0.0 } else { read as f64 / keys as f64 };
        let bytes = |counters: Counters| counters.bytes_sent + counters.bytes_received;
        let bytes_per_key = (bytes(self.worker.counters()) - bytes(counted)) as f64 / keys as f64;
        Ok(Rate { keys_per_s: keys as f64 / took, server_cores, worker_cores, one_sided, bytes_per_key })
    }

    /// Measures the CPU time of the server's process while this worker is idle, but keeps its links and its lease.
    fn idle(&mut self, seconds: f64) -> Result<Option<f64>, WorkerError> {
        let cpu = |bench: &Bench| bench.server.and_then(|server| cpu_seconds(server).ok());
        let (before, start) = (cpu(self), Instant::now());
        while start.elapsed().as_secs_f64() < seconds {
            self.worker.poll()?;
            std::thread::sleep(Duration::from_millis(5));
        }
        let took = start.elapsed().as_secs_f64();
        Ok(before.zip(cpu(self)).map(|(before, after)| (after - before) / took))
    }

    /// Works until the speed is steady: at least this time, and every batch once. Where the worker may read rows
    /// without a request, also until it can, and has measured whether it should. If it reads all of them over RDMA, it
    /// must first have learned where nearly all rows are.
    fn warm(&mut self, work: BenchWork, seconds: f64) -> Result<(), WorkerError> {
        let start = Instant::now();
        let may_read = self.reads && work != BenchWork::Push && self.worker.transport() != "tcp";
        loop {
            let counted = self.worker.counters().near_rows;
            let keys = self.rounds(work, f64::INFINITY, self.batches.len())?;
            let read = (self.worker.counters().near_rows - counted) as f64;
            let path = self.worker.read_path_choice(self.table, work == BenchWork::Cycle);
            let patience = if path.readable { WARM_READS } else { WARM_REACH };
            let reads = path.readable && path.settled && read >= 0.95 * f64::from(path.share) * keys as f64;
            let waits = may_read && !reads && start.elapsed() < patience;
            if start.elapsed().as_secs_f64() >= seconds && !waits {
                return Ok(());
            }
        }
    }

    /// Works for so many seconds or batches. Returns the number of keys.
    fn rounds(&mut self, work: BenchWork, seconds: f64, mut batches: usize) -> Result<usize, WorkerError> {
        let (start, mut done, mut next) = (Instant::now(), 0, 0);
        let mut in_flight: VecDeque<(PullId, Arc<ShardedKeys>)> = VecDeque::new();
        while start.elapsed().as_secs_f64() < seconds && batches > 0 {
            batches -= 1;
            let keys = std::mem::take(&mut self.batches[next]);
            let cut = self.cut(&keys);
            done += keys.len();
            self.batches[next] = keys;
            next = (next + 1) % self.batches.len();
            if work == BenchWork::Push {
                self.push(cut, None)?;
                continue;
            }
            let buffer = self.buffers.pop().unwrap_or_default();
            let keep = work == BenchWork::Cycle;
            let pull = self.worker.begin_pull(self.table, cut.clone(), Read::Weights, buffer, keep)?;
            in_flight.push_back((pull, cut));
            if in_flight.len() >= IN_FLIGHT {
                self.finish(work, &mut in_flight)?;
            }
        }
        while !in_flight.is_empty() {
            self.finish(work, &mut in_flight)?;
        }
        self.pushes.clear();
        self.worker.drain()?;
        Ok(done)
    }

    fn finish(
        &mut self,
        work: BenchWork,
        in_flight: &mut VecDeque<(PullId, Arc<ShardedKeys>)>,
    ) -> Result<(), WorkerError> {
        let Some((pull, cut)) = in_flight.pop_front() else { return Ok(()) };
        let pulled = self.worker.finish_pull(pull)?;
        self.buffers.push(pulled.values);
        if work == BenchWork::Cycle {
            self.push(cut, Some(pull))?;
        }
        Ok(())
    }

    /// Measures pulls of 64 keys, one after the other, cold and warm, each for at most about `seconds`.
    ///
    /// # Errors
    /// The server is gone or refuses.
    pub fn latency(&mut self, seconds: f64) -> Result<Latency, WorkerError> {
        let batches = self.batches.len();
        let cold = self.pulls_of_few(seconds, |i| (i % batches, i / batches))?;
        Ok(Latency { cold, warm: self.pulls_of_few(seconds, |_| (0, 0))? })
    }

    /// `keys_of` returns the batch from which the `i`-th pull takes its keys, and which 64 of them.
    fn pulls_of_few(
        &mut self,
        seconds: f64,
        keys_of: impl Fn(usize) -> (usize, usize),
    ) -> Result<(f64, f64), WorkerError> {
        let mut out = vec![0.0; LATENCY_KEYS * self.dim];
        let mut micros = Vec::with_capacity(LATENCY_PULLS);
        let begun = Instant::now();
        for i in 0..LATENCY_PULLS {
            if i >= LATENCY_PULLS_MIN && begun.elapsed().as_secs_f64() >= seconds {
                break;
            }
            let (batch, nth) = keys_of(i);
            let batch = &self.batches[batch];
            let from = nth * LATENCY_KEYS % (batch.len() - LATENCY_KEYS + 1);
            let keys = &batch[from..from + LATENCY_KEYS];
            let start = Instant::now();
            self.worker.pull(self.table, keys, Read::Weights, &mut out)?;
            micros.push(start.elapsed().as_secs_f64() * 1e6);
        }
        micros.sort_by(f64::total_cmp);
        Ok((micros[micros.len() / 2], micros[micros.len() * 99 / 100]))
    }

    /// Bytes a row on the server.
    ///
    /// # Errors
    /// The server is gone.
    pub fn bytes_per_row(&mut self) -> Result<f64, WorkerError> {
        let stats = self.worker.status(self.table)?.stats;
        Ok(stats.bytes as f64 / stats.rows.max(1) as f64)
    }

    /// Measures all rates.
    ///
    /// # Errors
    /// The server is gone or refuses.
    pub fn rates(&mut self, seconds: f64) -> Result<Rates, WorkerError> {
        let pull = self.throughput(BenchWork::Pull, seconds)?;
        Ok(Rates {
            pull,
            idle_server_cores: self.idle(seconds)?,
            push: self.throughput(BenchWork::Push, seconds)?,
            cycle: self.throughput(BenchWork::Cycle, seconds)?,
            bytes_per_row: self.bytes_per_row()?,
        })
    }
}

/// The table of [`Bench::start`].
///
/// # Errors
/// Rows of one weight cannot have weights of 2 bytes.
pub fn sgd_schema(dim: u32, row_type: RowType) -> Result<Schema, SchemaError> {
    let rule = Rule::Sgd(Sgd { lr: 0.01 });
    Schema { dim, ..Schema::scalar(&format!("bench-{dim}"), rule) }.with_row_type(row_type)
}

/// The key of a row.
pub(crate) fn key(row: u64) -> u64 {
    mix(row ^ 0x1234_5678)
}

/// Batches of unique keys, uniform over the rows. Each worker has other batches.
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

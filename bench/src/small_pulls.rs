//! Pulls of a few keys from many sessions at once, as servers of predictions and online learners make them. Each
//! session is a worker of its own, on a thread of its own.

use crate::cpu::cpu_seconds;
use crate::served::{Target, key};
use gannet::table::{TableId, mix};
use gannet::worker::{OneSided, PullId, ShardedKeys, WorkerError};
use gannet::{Read, Schema, Transports, Worker, WorkerConfig};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Sessions begin when all of them are connected. They look so often.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// The most time until a session can read rows without a request.
const WARM_REACH: Duration = Duration::from_secs(2);
/// So many buckets of the histogram double the time.
const BUCKETS_PER_DOUBLING: f64 = 128.0;
const BUCKETS: usize = 40 * BUCKETS_PER_DOUBLING as usize;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallPulls {
    /// Sessions at once.
    pub sessions: usize,
    /// Pulls that each session has in flight.
    pub in_flight: usize,
    /// Keys of a pull.
    pub keys: usize,
    /// Rows of the table, from which the keys are drawn.
    pub rows: u64,
}

/// What was measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct SmallPullRates {
    /// Keys a second of all sessions.
    pub keys_per_s: f64,
    /// Median and 99th percentile of the time from the begin of a pull to its rows, microseconds.
    pub p50_us: f64,
    /// See `p50_us`.
    pub p99_us: f64,
    /// CPU seconds a second of the server's process, if its id is known.
    pub server_cores: Option<f64>,
    /// CPU seconds a second of this process.
    pub worker_cores: Option<f64>,
    /// The share of the rows that the sessions read without a request.
    pub one_sided: f64,
}

/// How often pulls took how long.
struct Histogram(Vec<u64>);

impl Histogram {
    fn add(&mut self, took: Duration) {
        let bucket = (took.as_nanos().max(1) as f64).log2() * BUCKETS_PER_DOUBLING;
        self.0[(bucket as usize).min(BUCKETS - 1)] += 1;
    }

    /// Microseconds that this share of the pulls took at most.
    fn quantile(&self, share: f64) -> f64 {
        let all: u64 = self.0.iter().sum();
        let mut below = (share * all as f64) as u64;
        let bucket = self.0.iter().position(|&count| {
            let here = below < count;
            below = below.saturating_sub(count);
            here
        });
        bucket.map_or(f64::NAN, |bucket| 2f64.powf((bucket as f64 + 0.5) / BUCKETS_PER_DOUBLING) / 1e3)
    }
}

/// Where the sessions are in their common work.
struct Stage {
    sessions: usize,
    connected: AtomicUsize,
    measures: AtomicBool,
    ended: AtomicBool,
}

/// A session: a worker that pulls.
struct Session {
    worker: Worker<Transports>,
    table: TableId,
    dim: usize,
    work: SmallPulls,
    random: u64,
    keys: Vec<u64>,
    out: Vec<f32>,
    pulls: VecDeque<(PullId, Arc<ShardedKeys>, Instant)>,
    cuts: Vec<Arc<ShardedKeys>>,
    buffers: Vec<Vec<f32>>,
}

impl Session {
    fn connect(
        target: &Target<'_>,
        schema: &Schema,
        work: SmallPulls,
        number: usize,
    ) -> Result<Session, WorkerError> {
        let config = WorkerConfig { one_sided: target.one_sided, ..WorkerConfig::reader([target.addr]) };
        let mut worker = Worker::connect(target.net.clone(), config)?;
        let table = worker.open_table(schema)?;
        worker.set_wire_type(table, target.wire)?;
        let dim = schema.dim as usize;
        Ok(Session {
            worker,
            table,
            dim,
            work,
            random: mix(1 + number as u64),
            keys: Vec::new(),
            out: vec![0.0; work.keys * dim],
            pulls: VecDeque::new(),
            cuts: Vec::new(),
            buffers: Vec::new(),
        })
    }

    /// Draws the keys of the next pull.
    fn draw(&mut self) {
        self.keys.clear();
        for _ in 0..self.work.keys {
            self.random = mix(self.random);
            self.keys.push(key(self.random % self.work.rows));
        }
    }

    /// Begins a pull, and finishes the oldest one if enough are in flight. Returns how long that one took.
    fn pull(&mut self) -> Result<Option<Duration>, WorkerError> {
        self.draw();
        let begun = Instant::now();
        if self.work.in_flight == 1 {
            self.worker.pull(self.table, &self.keys, Read::Weights, &mut self.out)?;
            return Ok(Some(begun.elapsed()));
        }
        let mut cut = self.cuts.pop().unwrap_or_default();
        match Arc::get_mut(&mut cut) {
            Some(own) => self.worker.cut_into(self.table, &self.keys, own),
            None => cut = Arc::new(self.worker.cut(self.table, &self.keys)),
        }
        let buffer = self.buffers.pop().unwrap_or_default();
        let pull = self.worker.begin_pull(self.table, cut.clone(), Read::Weights, buffer, false)?;
        self.pulls.push_back((pull, cut, begun));
        if self.pulls.len() < self.work.in_flight { Ok(None) } else { self.finish() }
    }

    /// Finishes the oldest pull: its rows are put into the order of the keys. Returns how long it took.
    fn finish(&mut self) -> Result<Option<Duration>, WorkerError> {
        let Some((pull, cut, begun)) = self.pulls.pop_front() else { return Ok(None) };
        let pulled = self.worker.finish_pull(pull)?;
        cut.rows_as_given(&pulled.values, self.dim, &mut self.out);
        let took = begun.elapsed();
        self.buffers.push(pulled.values);
        self.cuts.push(cut);
        Ok(Some(took))
    }

    /// Pulls until the worker can read rows without a request, if it ever does.
    fn warm(&mut self, one_sided: OneSided) -> Result<(), WorkerError> {
        let (begun, may_read) =
            (Instant::now(), one_sided != OneSided::Never && self.worker.transport() != "tcp");
        while may_read
            && !self.worker.read_path_choice(self.table, false).readable
            && begun.elapsed() < WARM_REACH
        {
            self.pull()?;
        }
        Ok(())
    }

    /// Pulls until the stage has ended. Only the time in which the stage measures counts.
    fn run(mut self, stage: &Stage) -> Result<Pulled, WorkerError> {
        let mut times = Histogram(vec![0; BUCKETS]);
        let (mut begun, mut read_before) = (0, None);
        while !stage.ended.load(Relaxed) {
            // The count before the first pull that is measured, whose rows are read when it begins.
            let read = read_before.unwrap_or_else(|| self.worker.counters().near_rows);
            let took = self.pull()?;
            if stage.measures.load(Relaxed) {
                read_before = Some(read);
                begun += 1;
                took.into_iter().for_each(|took| times.add(took));
            }
        }
        let read = self.worker.counters().near_rows;
        while self.finish()?.is_some() {}
        Ok(Pulled { times, begun, read: read - read_before.unwrap_or(read) })
    }
}

/// What a session pulled while it was measured: the times of pulls that ended, how many began, and how many rows of
/// these it read without a request.
struct Pulled {
    times: Histogram,
    begun: u64,
    read: u64,
}

/// Measures pulls of this dimension for about `seconds`, after a fifth of that. The table is that of
/// [`Bench::start`](crate::served::Bench::start), and was filled.
///
/// # Errors
/// The server is gone or refuses.
///
/// # Panics
/// A session's thread panics.
pub fn measure(
    target: &Target<'_>,
    schema: &Schema,
    work: SmallPulls,
    seconds: f64,
) -> Result<SmallPullRates, WorkerError> {
    let stage = Stage {
        sessions: work.sessions,
        connected: AtomicUsize::new(0),
        measures: AtomicBool::new(false),
        ended: AtomicBool::new(false),
    };
    let session = |number: usize| {
        let session = Session::connect(target, schema, work, number);
        if session.is_err() {
            stage.ended.store(true, Relaxed);
        }
        let mut session = session?;
        session.warm(target.one_sided).inspect_err(|_| stage.ended.store(true, Relaxed))?;
        stage.connected.fetch_add(1, Relaxed);
        let ran = session.run(&stage);
        stage.ended.store(true, Relaxed);
        ran
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..work.sessions).map(|number| scope.spawn(move || session(number))).collect();
        let (took, server_cores, worker_cores) = watch(target, &stage, seconds);
        let mut all = Histogram(vec![0; BUCKETS]);
        let (mut begun, mut read) = (0, 0);
        for thread in threads {
            let pulled = thread.join().expect("a session's thread")?;
            all.0.iter_mut().zip(pulled.times.0).for_each(|(all, count)| *all += count);
            begun += pulled.begun;
            read += pulled.read;
        }
        let keys = all.0.iter().sum::<u64>() as f64 * work.keys as f64;
        Ok(SmallPullRates {
            keys_per_s: keys / took,
            p50_us: all.quantile(0.5),
            p99_us: all.quantile(0.99),
            server_cores,
            worker_cores,
            one_sided: read as f64 / (begun * work.keys as u64) as f64,
        })
    })
}

/// Waits until all sessions are connected, lets them warm up, and measures. Returns the seconds of the measurement and
/// the CPU seconds a second of the server and of this process.
fn watch(target: &Target<'_>, stage: &Stage, seconds: f64) -> (f64, Option<f64>, Option<f64>) {
    let ended = || stage.ended.load(Relaxed);
    while stage.connected.load(Relaxed) < stage.sessions && !ended() {
        std::thread::sleep(LOOK_EVERY);
    }
    let rest = |seconds: f64| {
        let begun = Instant::now();
        while begun.elapsed().as_secs_f64() < seconds && !ended() {
            std::thread::sleep(LOOK_EVERY);
        }
    };
    rest(seconds / 5.0);
    let cpu = |process: Option<u32>| process.and_then(|process| cpu_seconds(process).ok());
    let processes = [target.process, Some(std::process::id())];
    let (before, begun) = (processes.map(cpu), Instant::now());
    stage.measures.store(true, Relaxed);
    rest(seconds);
    let took = begun.elapsed().as_secs_f64();
    let after = processes.map(cpu);
    stage.ended.store(true, Relaxed);
    let cores = |at: usize| before[at].zip(after[at]).map(|(from, to)| (to - from) / took);
    (took, cores(0), cores(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_percent() {
        let mut times = Histogram(vec![0; BUCKETS]);
        (1..=10_000).for_each(|micros| times.add(Duration::from_micros(micros)));
        for (share, want) in [(0.5, 5_000.0), (0.99, 9_900.0), (0.0, 1.0)] {
            let got = times.quantile(share);
            assert!((got / want - 1.0).abs() < 0.01, "{share}: {got}");
        }
        assert!(Histogram(vec![0; BUCKETS]).quantile(0.5).is_nan());
        times.add(Duration::ZERO);
        times.add(Duration::MAX);
    }
}

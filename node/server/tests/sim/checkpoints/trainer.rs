//! Workers that push without ever blocking, also while a checkpoint is saved. They stop in the middle of a push, die,
//! and come back.

use super::history::{History, Pushed, Pushers, data_pusher};
use gannet_core::Schema;
use gannet_sim::Sim;
use gannet_transport::Prng;
use gannet_worker::{DataName, PushId, TableId, Worker, WorkerConfig};
use std::sync::Arc;
use std::time::Duration;

/// The number of the job in named pushes.
pub const JOB: u64 = 7;

/// A push that is not acknowledged.
struct Flight {
    table: usize,
    seq: u64,
    id: PushId,
}

/// A worker.
pub struct Trainer {
    pub rank: u64,
    pub incarnation: u64,
    /// Its pushes have the names of training data, so another process can send them again.
    pub named: bool,
    /// It may begin a push before the one before is acknowledged.
    pub pipelines: bool,
    worker: Option<Worker<Sim>>,
    ids: Vec<TableId>,
    /// The next push to each table.
    next: Vec<u64>,
    flights: Vec<Flight>,
    stalled_until: Duration,
    /// The mean time between two pushes.
    pace: Duration,
    next_push: Duration,
    prng: Prng,
}

impl Trainer {
    pub fn new(rank: u64, named: bool, pace: Duration, seed: u64) -> Trainer {
        let (ids, next, flights) = (Vec::new(), Vec::new(), Vec::new());
        let (stalled_until, next_push) = (Duration::ZERO, Duration::ZERO);
        let prng = Prng::new(seed ^ (rank + 1) << 40);
        Trainer {
            rank,
            incarnation: 0,
            named,
            pipelines: true,
            worker: None,
            ids,
            next,
            flights,
            stalled_until,
            pace,
            next_push,
            prng,
        }
    }

    /// The pusher and the incarnation in the names of its pushes.
    pub fn name(&self) -> (u64, u64) {
        match self.named {
            true => (data_pusher(self.rank), JOB),
            false => (self.rank, self.incarnation),
        }
    }

    pub fn is_alive(&self) -> bool {
        self.worker.is_some()
    }

    /// As a kill: its connections break, and what it has not sent is lost.
    pub fn kill(&mut self) {
        self.worker = None;
        self.flights.clear();
    }

    pub fn stall(&mut self, until: Duration) {
        self.stalled_until = until;
    }

    /// Starts the next incarnation. It sends named pushes again that were not acknowledged, and some that were.
    pub fn start(&mut self, sim: &Sim, addrs: &[String], history: &mut History) {
        self.incarnation += 1;
        let config = WorkerConfig {
            peer_timeout: Duration::from_secs(120),
            ..WorkerConfig::new(addrs.to_vec(), self.rank, self.incarnation)
        };
        let mut worker = Worker::connect(sim.clone(), config).unwrap();
        let open = |schema: &Schema| worker.open_table(schema).unwrap();
        self.ids = history.tables.iter().map(|table| &table.schema).map(open).collect();
        let (pusher, incarnation) = self.name();
        self.next = (0..history.tables.len())
            .map(|table| {
                let acked = history.line(table, pusher, incarnation).acked;
                (acked + 1).saturating_sub(self.prng.below(3)).max(1)
            })
            .collect();
        self.worker = Some(worker);
    }

    /// Does what it can without waiting.
    pub fn turn(&mut self, now: Duration, history: &mut History) {
        let (pusher, incarnation) = self.name();
        let Some(worker) = self.worker.as_mut().filter(|_| now >= self.stalled_until) else { return };
        if let Err(error) = worker.poll() {
            panic!("worker {}: {error}", self.rank);
        }
        self.flights.retain(|flight| {
            let line = history.line(flight.table, pusher, incarnation);
            let acked = worker.is_acked(flight.id);
            if acked {
                line.acked = line.acked.max(flight.seq);
            }
            !acked
        });
        if now >= self.next_push {
            self.next_push = now + Duration::from_micros(self.prng.below(2 * self.pace.as_micros() as u64));
            self.push(history);
        }
    }

    /// Whether a push to this table would not wait for earlier ones: there are none, or it has rows on every link.
    /// While somebody follows, servers come back with other threads between two of its turns: then there must be none.
    fn may_push(&self, table: usize, schema: &Schema) -> bool {
        let begun = self.flights.iter().filter(|flight| flight.table == table).count();
        begun == 0 || (self.pipelines && schema.shards >= 16 && begun < 4)
    }

    fn push(&mut self, history: &mut History) {
        let table = self.prng.below(history.tables.len() as u64) as usize;
        let of = history.tables[table].clone();
        let own = !matches!(of.pushers, Pushers::One(rank) if rank != self.rank);
        if !own || !self.may_push(table, &of.schema) {
            return;
        }
        let ((pusher, incarnation), seq) = (self.name(), self.next[table]);
        let known = history.line(table, pusher, incarnation).pushes.iter().find(|push| push.seq == seq);
        let push = known.cloned().unwrap_or_else(|| self.draw(&of, seq));
        let begun = self.flights.iter().any(|flight| flight.table == table);
        let Some(worker) = &mut self.worker else { return };
        let cut = Arc::new(worker.cut(self.ids[table], &push.keys));
        if begun && !has_all_shards(&push.keys, of.schema.shards) {
            return;
        }
        // The values follow the keys into the order of the shards.
        let each = of.schema.write_floats(push.write);
        let row = |key: &u64| {
            let at = push.keys.iter().position(|known| known == key).unwrap();
            push.values[at * each..][..each].iter().copied()
        };
        let values: Vec<f32> = cut.keys().iter().flat_map(row).collect();
        let own_seq = worker.next_seq(self.ids[table]);
        let name = DataName { pusher, incarnation, seq, clock: seq };
        let (own_seq, name) = if self.named { (own_seq, Some(name)) } else { (seq, None) };
        let id = worker
            .begin_push_named(self.ids[table], cut, push.write, values, None, (own_seq, name))
            .unwrap_or_else(|error| panic!("worker {}: {error}", self.rank));
        let line = history.line(table, pusher, incarnation);
        if line.pushes.last().is_none_or(|last| last.seq < seq) {
            line.pushes.push(push);
        }
        self.next[table] = seq + 1;
        self.flights.push(Flight { table, seq, id });
    }

    fn draw(&mut self, of: &super::history::JobTable, seq: u64) -> Pushed {
        let (write, keys, values) = of.draw_push(&mut self.prng, self.rank);
        Pushed { seq, write, keys, values }
    }
}

fn has_all_shards(keys: &[u64], shards: u32) -> bool {
    let mut has = vec![false; shards as usize];
    keys.iter().for_each(|&key| has[gannet_core::shard_of(gannet_core::hash(key), shards) as usize] = true);
    has.into_iter().all(|has| has)
}

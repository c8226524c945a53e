//! What was pushed, and what a table must be after some of the pushes: the oracle of the simulation.

use crate::saved::{Rows, rows_of};
use gannet_core::{
    Admission, Cursor, DATA_PUSHERS, Init, PushName, PushOptions, Schema, Shards, Store, Write, hash,
    shard_of,
};
use gannet_optim::{AdaGrad, Adam, Add, Ftrl, Momentum, Rule, Sgd};
use gannet_server::open_whole;
use gannet_transport::Prng;
use std::collections::BTreeMap;

/// Who pushes to a table, so that the order across pushers makes no difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushers {
    /// All workers push to all keys, and the sums are exact in any order.
    Shared,
    /// Each worker has keys of its own.
    Own,
    /// Only this worker pushes: the counts of keys are one for all workers.
    One(u64),
}

/// A table of the job.
#[derive(Clone, Debug)]
pub struct JobTable {
    pub schema: Schema,
    pub pushers: Pushers,
}

impl JobTable {
    /// Draws a table for a job with so many workers.
    pub fn draw(prng: &mut Prng, number: usize, workers: u64) -> JobTable {
        let pushers = match prng.below(5) {
            0 | 1 => Pushers::Shared,
            2 => Pushers::One(prng.below(workers)),
            _ => Pushers::Own,
        };
        let rule = match prng.below(5) {
            _ if pushers == Pushers::Shared => Rule::Add(Add),
            0 => Rule::Sgd(Sgd { lr: 0.1 }),
            1 => Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 }),
            2 => Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.5, l2: 0.1 }),
            3 => Rule::Adam(Adam { lr: 0.01, beta1: 0.9, beta2: 0.999, eps: 1e-8, decay: 0.0 }),
            _ => Rule::Momentum(Momentum { lr: 0.1, momentum: 0.9, nesterov: false }),
        };
        let admission = match pushers {
            Pushers::One(_) => Admission::Count { pushes: 2 + prng.below(2) as u32, sketch_bytes: 4 << 10 },
            _ => Admission::All,
        };
        let init = match rule {
            Rule::Sgd(_) | Rule::AdaGrad(_) if prng.below(2) == 0 => Init::Uniform { low: -0.1, high: 0.1 },
            _ => Init::Zero,
        };
        let (dim, shards) = (1 + prng.below(3) as u32, [1, 2, 4, 16][prng.below(4) as usize]);
        let schema =
            Schema { dim, shards, admission, init, ..Schema::scalar(&format!("table-{number}"), rule) };
        JobTable { schema, pushers }
    }

    /// Draws a push of a worker: what it does, its keys and its values.
    pub fn draw_push(&self, prng: &mut Prng, worker: u64) -> (Write, Vec<u64>, Vec<f32>) {
        let most = [3, 40, 400][prng.below(3) as usize];
        let first = if self.pushers == Pushers::Own { worker << 32 } else { 0 };
        let mut keys: Vec<u64> = (0..1 + prng.below(most)).map(|_| first | prng.below(600)).collect();
        keys.sort_unstable();
        keys.dedup();
        let write = match prng.below(8) {
            0 if self.pushers != Pushers::Shared => Write::Delete,
            _ => Write::Gradient,
        };
        let count = keys.len() * self.schema.write_floats(write);
        (write, keys, (0..count).map(|_| prng.below(9) as f32 - 4.0).collect())
    }
}

/// A push. Its values are in the order of its keys.
#[derive(Clone, Debug)]
pub struct Pushed {
    pub seq: u64,
    pub write: Write,
    pub keys: Vec<u64>,
    pub values: Vec<f32>,
}

/// The pushes of one incarnation of a pusher to a table, in order, and the last acknowledged one.
#[derive(Clone, Debug, Default)]
pub struct Line {
    pub pushes: Vec<Pushed>,
    pub acked: u64,
}

/// Everything that was pushed, by table, pusher and incarnation.
pub struct History {
    pub tables: Vec<JobTable>,
    pub lines: BTreeMap<(usize, u64, u64), Line>,
}

/// The last acknowledged push of each pusher to each table.
pub type Acked = BTreeMap<(usize, u64), (u64, u64)>;

impl History {
    pub fn new(tables: Vec<JobTable>) -> History {
        History { tables, lines: BTreeMap::new() }
    }

    /// The pushes of a pusher's incarnation to a table.
    pub fn line(&mut self, table: usize, pusher: u64, incarnation: u64) -> &mut Line {
        self.lines.entry((table, pusher, incarnation)).or_default()
    }

    pub fn acked(&self) -> Acked {
        let of = |(&(table, pusher, incarnation), line): (&(usize, u64, u64), &Line)| {
            (line.acked > 0).then_some(((table, pusher), (incarnation, line.acked)))
        };
        // Later incarnations come later.
        self.lines.iter().filter_map(of).collect()
    }

    /// The table after exactly the pushes up to these cursors.
    pub fn replay(&self, table: usize, cursors: &[Cursor]) -> Shards {
        let JobTable { schema, pushers } = &self.tables[table];
        // Only counts of keys depend on the number of shards.
        let shards = if let Pushers::One(_) = pushers { schema.shards } else { 1 };
        let schema = Schema { shards, ..schema.clone() };
        let mut shards = open_whole(&Store::memory(), &schema).unwrap();
        for cursor in cursors {
            let of = (table, cursor.pusher, 0)..=(table, cursor.pusher, cursor.incarnation);
            for (&(_, _, incarnation), line) in self.lines.range(of) {
                let all = incarnation < cursor.incarnation;
                for push in line.pushes.iter().filter(|push| all || push.seq <= cursor.seq) {
                    apply(&mut shards, (cursor.pusher, incarnation), push);
                }
            }
        }
        shards
    }

    /// The rows of the table after exactly the pushes up to these cursors.
    pub fn rows(&self, table: usize, cursors: &[Cursor]) -> Rows {
        rows_of(&mut self.replay(table, cursors))
    }

    /// Forgets all pushes to a table above the cursors: the servers were restored from there.
    pub fn go_back(&mut self, table: usize, cursors: &[Cursor]) {
        for (_, line) in self.lines.iter_mut().filter(|((of, ..), _)| *of == table) {
            line.acked = 0;
        }
        self.lines.retain(|&(of, pusher, incarnation), line| {
            if of != table {
                return true;
            }
            let Some(cursor) = cursors.iter().find(|cursor| cursor.pusher == pusher) else { return false };
            if incarnation == cursor.incarnation {
                line.pushes.retain(|push| push.seq <= cursor.seq);
            }
            line.acked = line.pushes.last().map_or(0, |push| push.seq);
            incarnation <= cursor.incarnation
        });
    }
}

/// Applies a whole push to a whole table.
pub fn apply(shards: &mut Shards, (pusher, incarnation): (u64, u64), push: &Pushed) {
    let (count, each) = (shards.schema().shards, shards.schema().write_floats(push.write));
    let mut order: Vec<usize> = (0..push.keys.len()).collect();
    order.sort_by_key(|&at| shard_of(hash(push.keys[at]), count));
    let keys: Vec<u64> = order.iter().map(|&at| push.keys[at]).collect();
    let values: Vec<f32> = order.iter().flat_map(|&at| &push.values[at * each..][..each]).copied().collect();
    let name = PushName { pusher, incarnation, seq: push.seq, row: 0 };
    let options = PushOptions { clock: push.seq, total: keys.len() as u64, ..PushOptions::default() };
    shards.push_at(&name, options, push.write, &keys, None, &values).unwrap();
}

/// The pusher of a worker's named pushes.
pub fn data_pusher(worker: u64) -> u64 {
    DATA_PUSHERS | (100 + worker)
}

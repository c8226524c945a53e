//! Workers whose weights and gradients travel as f16, beside others. Links break and servers restart with another
//! number of threads. An oracle in plain arithmetic says what every row must be, bit by bit, and what every pull must
//! answer.

use crate::model::{schema, start, unique_keys};
use crate::simulated::{connect, far, faults};
use crate::stepping::Seed;

use gannet_core::{Read, Schema, Store, Write};
use gannet_optim::{Add, Rule, Sgd};
use gannet_sim::{Faults, Sim};
use gannet_transport::Prng;
use gannet_wire::{Merge, ShardedKeys, StepReduce, SyncConfig, SyncMode};
use gannet_worker::{PullId, PushRows, TableId, WireType, Worker};
use half::f16;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

const F16_MAX: f32 = 65_504.0;

/// SGD with rate 1: a row is the negative sum of what was pushed.
fn sums(name: &str, dim: u32, shards: u32) -> Schema {
    Schema { dim, shards, ..Schema::scalar(name, Rule::Sgd(Sgd { lr: 1.0 })) }
}

fn round(value: f32) -> f32 {
    if value.abs() <= F16_MAX { f16::from_f32_const(value).to_f32_const() } else { value }
}

type Push = (Write, Vec<u64>, Vec<f32>);

/// The rows after the pushes of one worker of f16, by one float after the other.
#[derive(Default, Clone)]
struct Oracle {
    rows: HashMap<(u64, usize), f32>,
    errors: HashMap<(u64, usize), f32>,
}

impl Oracle {
    fn push(&mut self, (write, keys, values): &Push) {
        let dim = values.len() / keys.len();
        let narrow = *write == Write::Gradient && values.iter().all(|value| value.abs() <= F16_MAX);
        for (&key, row) in keys.iter().zip(values.chunks_exact(dim)) {
            // The server drops such a row, and counts it.
            if row.iter().any(|value| !value.is_finite()) {
                continue;
            }
            for (at, &value) in row.iter().enumerate() {
                let mut sent = value;
                if narrow {
                    let error = self.errors.entry((key, at)).or_default();
                    sent = round((value + *error).clamp(-F16_MAX, F16_MAX));
                    *error = value + *error - sent;
                }
                let sum = self.rows.entry((key, at)).or_default();
                *sum += if *write == Write::Change { sent } else { -sent };
            }
        }
    }

    fn after(pushes: &[Push]) -> Oracle {
        let mut oracle = Oracle::default();
        pushes.iter().for_each(|push| oracle.push(push));
        oracle
    }

    fn rows(&self, keys: &[u64], dim: usize) -> Vec<f32> {
        let row = |key: &u64| (0..dim).map(|at| self.rows.get(&(*key, at)).copied().unwrap_or(0.0)).collect();
        keys.iter().flat_map(|key| -> Vec<f32> { row(key) }).collect()
    }
}

/// Gradients that are no f16, of all sizes. A few pushes have one that does not fit, or is not finite.
fn gradients(prng: &mut Prng, count: usize) -> Vec<f32> {
    let size = [1.0, 1e-3, 1e-7, 3e3][prng.below(4) as usize];
    let mut all: Vec<f32> = (0..count).map(|_| (prng.below(20_001) as f32 - 1e4) * 1e-4 * size).collect();
    let odd = [f32::NAN, f32::INFINITY, -70_000.0, 1e9];
    if prng.below(8) == 0 {
        all[prng.below(count as u64) as usize] = odd[prng.below(4) as usize];
    }
    all
}

fn stored(worker: &mut Worker<Sim>, table: TableId, dim: usize) -> HashMap<u64, Vec<f32>> {
    let mut all = HashMap::new();
    let page = &mut |keys: &[u64], rows: &[f32]| {
        all.extend(keys.iter().copied().zip(rows.chunks(dim).map(<[f32]>::to_vec)));
    };
    worker.scan(table, page).unwrap();
    all
}

/// A worker of f16 with pulls and pushes in flight.
struct Client {
    worker: Worker<Sim>,
    table: TableId,
    dim: usize,
    pushes: Vec<Push>,
    under_way: VecDeque<(PullId, Arc<ShardedKeys>, Read)>,
}

impl Client {
    fn begin_pull(&mut self, prng: &mut Prng) {
        let count = 1 + prng.below(300) as usize;
        let cut = Arc::new(self.worker.cut(self.table, &unique_keys(prng, count, 800)));
        let read = if prng.below(5) == 0 { Read::State } else { Read::Weights };
        let pull = self.worker.begin_pull(self.table, cut.clone(), read, Vec::new(), true).unwrap();
        self.under_way.push_back((pull, cut, read));
    }

    /// The pull must answer what the oracle has after exactly the pushes that it reports: rounded weights, or state as
    /// it is.
    fn finish_pull(&mut self) -> (PullId, Arc<ShardedKeys>) {
        let (pull, cut, read) = self.under_way.pop_front().unwrap();
        let pulled = self.worker.finish_pull(pull).unwrap();
        for seen in &pulled.saw {
            let range = seen.rows.start as usize..seen.rows.end as usize;
            let oracle = Oracle::after(&self.pushes[..seen.seq as usize]);
            let mut want = oracle.rows(&cut.keys()[range.clone()], self.dim);
            if read == Read::Weights {
                want.iter_mut().for_each(|weight| *weight = round(*weight));
            }
            let got = &pulled.values[range.start * self.dim..range.end * self.dim];
            assert!(got == want, "{:?} at {}, {read:?}", seen.rows, seen.seq);
        }
        (pull, cut)
    }

    fn push(&mut self, prng: &mut Prng, (pull, cut): (PullId, Arc<ShardedKeys>)) {
        let write = if prng.below(6) == 0 { Write::Change } else { Write::Gradient };
        let values = gradients(prng, cut.keys().len() * self.dim);
        self.pushes.push((write, cut.keys().to_vec(), values.clone()));
        let seq = self.pushes.len() as u64;
        let values = if prng.below(2) == 0 { values.into() } else { PushRows::lent(values) };
        self.worker.begin_push(self.table, cut, write, values, Some(pull), seq).unwrap();
    }
}

#[test]
fn every_row_has_the_bits_of_the_oracle_whatever_breaks() {
    rows_have_the_bits_of_the_oracle(Sim::new);
}

/// As above, with workers that read rows in the servers' images, where they are f32.
#[test]
fn so_it_has_on_one_host() {
    let near = rows_have_the_bits_of_the_oracle(|seed, faults| Sim::new(seed, faults).near());
    assert!(near > 3_000, "{near} rows read where they are: the test shows nothing");
}

#[test]
fn so_it_has_over_rdma() {
    let near = rows_have_the_bits_of_the_oracle(far);
    assert!(near > 1_000, "{near} rows read where they are: the test shows nothing");
}

fn rows_have_the_bits_of_the_oracle(world: impl Fn(u64, Faults) -> Sim) -> u64 {
    let (mut duplicate, mut wide, mut not_finite, mut near) = (0, 0, 0, 0);
    for seed in 700..712 {
        let _seed = Seed::begin(seed);
        let sim = world(seed, faults(seed));
        let mut prng = Prng::new(seed);
        let folder = crate::folder_in_memory();
        let store = Store::open_dir(folder.path()).unwrap();
        let (mut actor, addr) = start(&sim, "sim:0", &store, 1 + prng.below(4) as usize);
        let mut worker = connect(&sim, std::slice::from_ref(&addr), 3);
        let dim = [1, 3, 40][seed as usize % 3];
        let table = worker.open_table(&sums("t", dim, 8)).unwrap();
        worker.set_wire_type(table, WireType::F16).unwrap();
        let (pushes, under_way, dim) = (Vec::new(), VecDeque::new(), dim as usize);
        let mut client = Client { worker, table, dim, pushes, under_way };
        for _ in 0..30 {
            client.begin_pull(&mut prng);
            if prng.below(5) == 0 {
                sim.remove_actor(actor);
                sim.reset_all(&addr);
                actor = start(&sim, &addr, &store, 1 + prng.below(4) as usize).0;
                sim.run(Duration::from_micros(prng.below(3_000)));
            }
            if client.under_way.len() == 3 {
                let pulled = client.finish_pull();
                client.push(&mut prng, pulled);
            }
        }
        client.worker.drain().unwrap();
        let oracle = Oracle::after(&client.pushes);
        let stored = stored(&mut client.worker, table, dim);
        for (key, row) in &stored {
            assert!(*row == oracle.rows(&[*key], dim), "seed {seed}: key {key} has {row:?}");
        }
        assert!(oracle.rows.keys().all(|(key, _)| stored.contains_key(key)), "seed {seed}");
        let counters = client.worker.counters();
        (duplicate, wide) = (duplicate + counters.duplicate, wide + counters.wide_pushes);
        (not_finite, near) = (not_finite + counters.not_finite, near + counters.near_rows);
    }
    assert!(
        duplicate > 0 && wide > 10 && not_finite > 0,
        "{duplicate} duplicate, {not_finite} not finite, {wide} pushes of f32: the test shows nothing"
    );
    near
}

/// A worker of f32 sees exact rows, and its pushes are exact. What travels as f16 has half of the bytes.
#[test]
fn workers_of_both_types_share_a_table() {
    let sim = Sim::new(5, Faults::none());
    let addr = start(&sim, "sim:0", &Store::memory(), 2).1;
    let schema = sums("t", 16, 8);
    let [mut narrow, mut wide] = [1, 2].map(|pusher| connect(&sim, std::slice::from_ref(&addr), pusher));
    let table = narrow.open_table(&schema).unwrap();
    assert_eq!(wide.open_table(&schema).unwrap(), table);
    narrow.set_wire_type(table, WireType::F16).unwrap();
    let (mut prng, mut oracle) = (Prng::new(9), Oracle::default());
    let keys: Vec<u64> = (0..1000).collect();
    let before = (narrow.counters(), wide.counters());
    for _ in 0..10 {
        let values: Vec<f32> = (0..16 * keys.len()).map(|_| prng.below(1000) as f32 * 1e-3).collect();
        narrow.push(table, &keys, Write::Gradient, &values).unwrap();
        oracle.push(&(Write::Gradient, keys.clone(), values.clone()));
        wide.push(table, &keys, Write::Gradient, &values).unwrap();
        oracle.rows.iter_mut().for_each(|(&(key, at), sum)| *sum -= values[key as usize * 16 + at]);
        let [mut rounded, mut exact] = [vec![0.0; values.len()], vec![0.0; values.len()]];
        narrow.pull(table, &keys, Read::Weights, &mut rounded).unwrap();
        wide.pull(table, &keys, Read::Weights, &mut exact).unwrap();
        let want = oracle.rows(&keys, 16);
        assert!(exact == want);
        assert!(rounded == want.iter().map(|value| round(*value)).collect::<Vec<f32>>());
    }
    let bytes = 10 * 16 * keys.len() as u64;
    let (narrow, wide) = (narrow.counters(), wide.counters());
    assert_eq!(narrow.bytes_received - before.0.bytes_received, 2 * bytes);
    assert_eq!(wide.bytes_received - before.1.bytes_received, 4 * bytes);
    let saved = (wide.bytes_sent - before.1.bytes_sent) - (narrow.bytes_sent - before.0.bytes_sent);
    assert_eq!(saved, 2 * bytes, "the keys travel as they did");
}

/// Under bsp the server keeps a push until its step is applied, also in its folder while it restarts.
#[test]
fn synchronous_steps_have_the_bits_of_the_oracle() {
    for seed in 0..6 {
        let _seed = Seed::begin(seed);
        let sim = Sim::new(seed, faults(seed));
        let mut prng = Prng::new(seed);
        let folder = crate::folder_in_memory();
        let store = Store::open_dir(folder.path()).unwrap();
        let (mut actor, addr) = start(&sim, "sim:0", &store, 2);
        let mut worker = connect(&sim, std::slice::from_ref(&addr), 1);
        let table = worker.open_table(&sums("t", 2, 8)).unwrap();
        worker.set_wire_type(table, WireType::F16).unwrap();
        let mode = SyncMode::Bsp(StepReduce { aggregate: 1, merge: Merge::Sum });
        let worker_timeout = Duration::from_secs(3600);
        worker.join(table, SyncConfig { rank: 0, workers: 1, mode, worker_timeout, strict: false }).unwrap();
        let mut oracle = Oracle::default();
        for step in 1..25 {
            let cut = Arc::new(worker.cut(table, &unique_keys(&mut prng, 50, 200)));
            let pull = worker.begin_pull(table, cut.clone(), Read::Weights, Vec::new(), true).unwrap();
            let pulled = worker.finish_pull(pull).unwrap().values;
            let want: Vec<f32> = oracle.rows(cut.keys(), 2).into_iter().map(round).collect();
            assert!(pulled == want, "seed {seed}, step {step}");
            let values = gradients(&mut prng, 2 * cut.keys().len());
            let push = (Write::Gradient, cut.keys().to_vec(), values.clone());
            worker.begin_push(table, cut, Write::Gradient, values, Some(pull), step).unwrap();
            worker.tick(table).unwrap();
            oracle.push(&push);
            if prng.below(4) == 0 {
                sim.remove_actor(actor);
                sim.reset_all(&addr);
                actor = start(&sim, &addr, &store, 1 + prng.below(3) as usize).0;
            }
        }
        worker.leave(table).unwrap();
        for (key, row) in stored(&mut worker, table, 2) {
            assert!(row == oracle.rows(&[key], 2), "seed {seed}: key {key} has {row:?}");
        }
    }
}

/// What is added up must stay exact.
#[test]
fn tables_of_sums_refuse_f16() {
    let sim = Sim::new(6, Faults::none());
    let addr = start(&sim, "sim:0", &Store::memory(), 1).1;
    let mut worker = connect(&sim, &[addr], 1);
    let plain = worker.open_table(&schema("t", 1, 4)).unwrap();
    let error = worker.set_wire_type(plain, WireType::F16).unwrap_err().to_string();
    assert!(error.contains("table \"t\"") && error.contains("must stay exact"), "{error}");
    worker.set_wire_type(plain, WireType::F32).unwrap();
    // Also where only a later segment is one.
    let count =
        gannet_core::Segment { dim: 1, rule: Rule::Add(Add), ..sums("s", 1, 4).segments().next().unwrap() };
    let mixed = worker.open_table(&Schema { more: vec![count], ..sums("mixed", 4, 4) }).unwrap();
    worker.set_wire_type(mixed, WireType::F16).unwrap_err();
}

//! Rows deleted, saved and loaded: against a map, in a whole cluster from one seed. Links break, and servers are killed
//! and come back with other threads, limits and clocks.

use crate::model::{limits, random_values, schema, start, start_within, unique_keys};
use crate::simulated::faults;
use crate::stepping::Seed;

use gannet_core::{Read, Store, Write};
use gannet_optim::{Ftrl, Rule};
use gannet_sim::{Faults, Sim};
use gannet_transport::Prng;
use gannet_wire::{Merge, StepReduce, SyncConfig, SyncMode};
use gannet_worker::{OneSided, TableId, Worker, WorkerConfig, WorkerError};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn connect(sim: &Sim, servers: &[String], pusher: u64, incarnation: u64) -> Worker<Sim> {
    let config = WorkerConfig {
        one_sided: OneSided::Always,
        ..WorkerConfig::new(servers.to_vec(), pusher, incarnation)
    };
    Worker::connect(sim.clone(), config).unwrap()
}

pub(crate) type Rows = HashMap<u64, [f32; 2]>;

pub(crate) fn pull(worker: &mut Worker<Sim>, table: TableId, keys: &[u64]) -> Vec<f32> {
    let mut out = vec![7.0; keys.len() * 2];
    worker.pull(table, keys, Read::Weights, &mut out).unwrap();
    out
}

pub(crate) fn expected(rows: &Rows, keys: &[u64]) -> Vec<f32> {
    keys.iter().flat_map(|key| rows.get(key).copied().unwrap_or_default()).collect()
}

/// What a push does to the rows.
pub(crate) fn apply(rows: &mut Rows, write: Write, keys: &[u64], values: &[f32]) {
    for (n, &key) in keys.iter().enumerate() {
        let value = |at: usize| values[2 * n + at];
        match write {
            Write::Gradient => {
                let row = rows.entry(key).or_default();
                *row = [row[0] + value(0), row[1] + value(1)];
            }
            Write::Row => drop(rows.insert(key, [value(0), value(1)])),
            _ => drop(rows.remove(&key)),
        }
    }
}

/// Pushes, replaces or deletes random rows without waiting, and does the same to the map.
pub(crate) fn write(worker: &mut Worker<Sim>, table: TableId, rows: &mut Rows, prng: &mut Prng) {
    let count = 1 + prng.below(400) as usize;
    let cut = Arc::new(worker.cut(table, &unique_keys(prng, count, 600)));
    let write = [Write::Gradient, Write::Row, Write::Delete][prng.below(3) as usize];
    let floats = if write == Write::Delete { 0 } else { 2 };
    let values = random_values(prng, cut.keys().len() * floats);
    apply(rows, write, cut.keys(), &values);
    let seq = worker.next_seq(table);
    worker.begin_push(table, cut, write, values, None, seq).unwrap();
}

pub(crate) fn scanned(worker: &mut Worker<Sim>, table: TableId) -> Rows {
    let mut rows = Rows::new();
    worker
        .scan(table, |keys, floats| {
            for (&key, row) in keys.iter().zip(floats.chunks_exact(2)) {
                assert_eq!(rows.insert(key, [row[0], row[1]]), None, "key {key} came twice");
            }
        })
        .unwrap();
    rows
}

fn against_a_map(world: impl Fn(u64, Faults) -> Sim) {
    let (mut lost, mut duplicate) = (0, 0);
    for seed in 0..8 {
        let _seed = Seed::begin(seed);
        let sim = world(seed, faults(seed));
        let mut prng = Prng::new(seed);
        let folder = crate::folder_in_memory();
        let store = Store::open_dir(folder.path()).unwrap();
        let (mut actor, addr) = start(&sim, "sim:0", &store, 2);
        let other = start(&sim, "sim:0", &Store::memory(), 1).1;
        let servers = [addr.clone(), other];
        let mut worker = connect(&sim, &servers, 3, 1);
        let table = worker.open_table(&schema("t", 2, 16)).unwrap();
        let mut rows = Rows::new();
        for round in 0..36 {
            write(&mut worker, table, &mut rows, &mut prng);
            if prng.below(3) == 0 {
                let keys = unique_keys(&mut prng, 300, 600);
                assert_eq!(
                    pull(&mut worker, table, &keys),
                    expected(&rows, &keys),
                    "seed {seed} round {round}"
                );
            }
            sim.run(Duration::from_micros(prng.below(200)));
            if round % 6 == 5 {
                sim.remove_actor(actor);
                sim.reset_all(&addr);
                let (threads, limits) = (1 + prng.below(4) as usize, limits(prng.below(81)));
                let ahead = sim.ahead(Duration::from_secs(prng.below(7_200)));
                actor = start_within(&ahead, &addr, &store, threads, limits).0;
            }
        }
        worker.drain().unwrap();
        assert!(scanned(&mut worker, table) == rows, "seed {seed}: the rows are wrong");
        let counters = worker.counters();
        (lost, duplicate) = (lost + counters.links_lost, duplicate + counters.duplicate);
    }
    assert!(lost > 20 && duplicate > 0, "{lost} links lost, {duplicate} duplicates: the test shows nothing");
}

#[test]
fn rows_are_replaced_and_deleted_exactly_once() {
    against_a_map(Sim::new);
}

#[test]
fn so_are_rows_that_are_read_on_one_host() {
    against_a_map(|seed, faults| Sim::new(seed, faults).near());
}

#[test]
fn so_are_rows_that_are_read_over_rdma() {
    against_a_map(crate::simulated::far);
}

/// A checkpoint of one cluster is loaded into another one, which has other servers, threads and shards.
#[test]
fn a_saved_table_is_loaded_into_other_servers() {
    for seed in 0..4 {
        let _seed = Seed::begin(seed);
        let sim = Sim::new(seed, faults(seed));
        let mut prng = Prng::new(seed);
        let folder = crate::folder_in_memory();
        let start = |threads| start(&sim, "sim:0", &Store::memory(), threads).1;
        let mut worker = connect(&sim, &[start(1 + seed as usize % 3), start(1)], 1, 1);
        let table = worker.open_table(&schema("t", 2, 16)).unwrap();
        let mut rows = Rows::new();
        (0..20).for_each(|_| write(&mut worker, table, &mut rows, &mut prng));
        worker.drain().unwrap();
        assert_eq!(worker.save(table, folder.path()).unwrap(), rows.len() as u64);
        drop(worker);

        let mut other = connect(&sim, &[start(3), start(2), start(1)], 1, 1);
        let table = other.open_table(&schema("t", 2, 64)).unwrap();
        // A row that the checkpoint has is replaced, and a row that it does not have stays.
        let known = *rows.keys().next().unwrap();
        other.push(table, &[known, 5], Write::Gradient, &[9.0, 9.0, 3.0, 4.0]).unwrap();
        rows.insert(5, [3.0, 4.0]);
        other.load(table, folder.path()).unwrap();
        assert!(scanned(&mut other, table) == rows, "seed {seed}");
    }
}

#[test]
fn a_checkpoint_of_other_rows_is_refused_by_name() {
    let sim = Sim::new(1, Faults::none());
    let folder = crate::folder_in_memory();
    let mut worker = connect(&sim, &[start(&sim, "sim:0", &Store::memory(), 2).1], 1, 1);
    let missing = |error: WorkerError| error.to_string();
    let wide = worker.open_table(&schema("wide", 2, 4)).unwrap();
    let none = missing(worker.load(wide, folder.path()).unwrap_err());
    assert!(none.contains("no gannet checkpoint here"), "{none}");
    worker.push(wide, &[1], Write::Gradient, &[1.0, 2.0]).unwrap();
    worker.save(wide, folder.path()).unwrap();

    let narrow = worker.open_table(&schema("narrow", 1, 4)).unwrap();
    let error = worker.load(narrow, folder.path()).unwrap_err().to_string();
    assert!(error.contains("add of dim 2") && error.contains("add of dim 1"), "{error}");
    let ftrl = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 });
    let other = gannet_core::Schema { rule: ftrl, ..schema("ftrl", 2, 4) };
    let other = worker.open_table(&other).unwrap();
    let error = worker.load(other, folder.path()).unwrap_err().to_string();
    assert!(error.contains("add of dim 2") && error.contains("ftrl of dim 2"), "{error}");

    let mut file = std::fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.path());
    let rows = file.find(|path| !path.ends_with("MANIFEST")).unwrap();
    let mut bytes = std::fs::read(&rows).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&rows, bytes).unwrap();
    let error = worker.load(wide, folder.path()).unwrap_err().to_string();
    assert!(error.contains("damaged"), "{error}");
}

/// The sum of a synchronous step has no place for a row that is replaced or deleted.
#[test]
fn a_synchronous_step_refuses_a_deletion() {
    let sim = Sim::new(1, Faults::none());
    let addr = start(&sim, "sim:0", &Store::memory(), 2).1;
    let mut worker = connect(&sim, std::slice::from_ref(&addr), 1, 1);
    let table = worker.open_table(&schema("t", 2, 4)).unwrap();
    let config = SyncConfig {
        rank: 0,
        workers: 1,
        mode: SyncMode::Bsp(StepReduce { aggregate: 1, merge: Merge::Sum }),
        worker_timeout: Duration::from_secs(30),
        strict: false,
    };
    worker.push(table, &[1], Write::Gradient, &[1.0, 2.0]).unwrap();
    worker.join(table, config).unwrap();
    let error = worker.delete(table, &[1]).unwrap_err().to_string();
    assert!(error.contains("synchronous step") && error.contains("table \"t\""), "{error}");
    // A worker that has not joined may.
    let mut other = connect(&sim, &[addr], 2, 1);
    let table = other.open_table(&schema("t", 2, 4)).unwrap();
    other.delete(table, &[1]).unwrap();
    assert_eq!(pull(&mut other, table, &[1]), [0.0, 0.0]);
}

/// A load counted a row of another table that was not finite as its own.
#[test]
fn a_load_was_refused_for_a_bad_push_to_another_table() {
    let sim = Sim::new(1, Faults::none());
    let addr = start(&sim, "sim:0", &Store::memory(), 2).1;
    let folder = crate::folder_in_memory();
    let mut worker = connect(&sim, &[addr], 1, 1);
    let (one, two) =
        (worker.open_table(&schema("one", 2, 4)).unwrap(), worker.open_table(&schema("two", 2, 4)).unwrap());
    worker.push(one, &[1, 2], Write::Gradient, &[1.0; 4]).unwrap();
    worker.save(one, folder.path()).unwrap();
    let cut = Arc::new(worker.cut(two, &[5]));
    let seq = worker.next_seq(two);
    worker.begin_push(two, cut, Write::Gradient, vec![f32::NAN, 1.0], None, seq).unwrap();
    let loaded = worker.load(one, folder.path()).map_err(|error| error.to_string());
    assert_eq!(loaded, Ok(2));
}

/// A lost acknowledgement hides that rows of a load were not stored.
#[test]
fn a_lost_reply_hid_rows_that_a_load_did_not_store() {
    let mut silent = Vec::new();
    for seed in 0..40 {
        let _seed = Seed::begin(seed);
        let sim = Sim::new(seed, Faults { reset_per_million: 100_000, ..Faults::none() });
        let addr = start(&sim, "sim:0", &Store::memory(), 2).1;
        let folder = crate::folder_in_memory();
        let mut worker = connect(&sim, &[addr], 1, 1);
        let ftrl = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 });
        let of = gannet_core::Schema { rule: ftrl, ..schema("ftrl", 1, 4) };
        let table = worker.open_table(&of).unwrap();
        let mut writer = gannet_core::CheckpointWriter::create(folder.path(), &of).unwrap();
        let keys: Vec<u64> = (0..1).collect();
        // A negative sum of squares.
        let rows: Vec<f32> = keys.iter().flat_map(|_| [-1.0; 2]).collect();
        writer.add(&keys, &rows[..keys.len() * of.floats()]);
        writer.finish().unwrap();
        if let Ok(rows) = worker.load(table, folder.path()) {
            silent.push((seed, rows, scanned1(&mut worker, table)));
        }
    }
    assert!(silent.is_empty(), "seed, said to be loaded, there: {silent:?}");
}

fn scanned1(worker: &mut Worker<Sim>, table: TableId) -> usize {
    let mut count = 0;
    worker.scan(table, |keys, _| count += keys.len()).unwrap();
    count
}

/// One push carries a checkpoint of one shard with 40,000 rows.
#[test]
fn a_load_takes_large_pushes() {
    let sim = Sim::new(1, Faults::none());
    let addr = start(&sim, "sim:0", &Store::memory(), 1).1;
    let folder = crate::folder_in_memory();
    let mut worker = connect(&sim, &[addr], 1, 1);
    let table = worker.open_table(&schema("t", 2, 1)).unwrap();
    let keys: Vec<u64> = (0..40_000).collect();
    worker.push(table, &keys, Write::Gradient, &vec![1.0; 80_000]).unwrap();
    worker.save(table, folder.path()).unwrap();
    let before = worker.next_seq(table);
    worker.load(table, folder.path()).unwrap();
    assert_eq!(worker.next_seq(table) - before, 1, "pushes");
}

/// `shard` and `add` of one shard wrote one file twice.
#[test]
fn rows_added_to_a_shard_that_was_written_made_a_checkpoint_that_nobody_could_read() {
    let folder = crate::folder_in_memory();
    let of = schema("t", 2, 1);
    let mut writer = gannet_core::CheckpointWriter::create(folder.path(), &of).unwrap();
    writer.shard(0, &[1], &[1.0, 2.0]).unwrap();
    writer.add(&[2], &[3.0, 4.0]);
    assert_eq!(writer.finish().unwrap(), 2);
    let mut rows = 0;
    gannet_core::Checkpoint::open(folder.path()).unwrap().read(|keys, _| rows += keys.len()).unwrap();
    assert_eq!(rows, 2);
}

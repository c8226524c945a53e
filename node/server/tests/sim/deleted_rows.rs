//! Deleted rows in caches, subscriptions and keysets, in the simulation.

use crate::model::{limits, random_values, schema, start, start_within, unique_keys};
use crate::saved_rows::{Rows, apply, connect, expected, pull, scanned, write};
use crate::simulated::faults;
use crate::stepping::Seed;

use gannet_core::{Read, Store, Write};
use gannet_sim::{Faults, Sim};
use gannet_transport::Prng;
use gannet_worker::{CacheConfig, CacheUse, RowCache, Staleness, TableId, Worker};
use std::sync::Arc;
use std::time::Duration;

/// A worker that reads through a cache, and another one without a cache, with their numbers of one table.
struct Pair {
    reader: Worker<Sim>,
    here: TableId,
    writer: Worker<Sim>,
    there: TableId,
}

impl Pair {
    fn new(sim: &Sim, servers: &[String], config: CacheConfig) -> Pair {
        let (mut reader, mut writer) = (connect(sim, servers, 1, 1), connect(sim, servers, 2, 1));
        let schema = schema("t", 2, 8);
        let (here, there) = (reader.open_table(&schema).unwrap(), writer.open_table(&schema).unwrap());
        let rows = RowCache::new(&schema, Read::Weights, config).unwrap();
        reader.cache_rows(here, Arc::new(rows)).unwrap();
        Pair { reader, here, writer, there }
    }

    fn pull(&mut self, keys: &[u64]) -> Vec<f32> {
        pull(&mut self.reader, self.here, keys)
    }
}

/// Servers in memory, each with so many threads.
fn served(sim: &Sim, servers: usize, threads: usize) -> Vec<String> {
    (0..servers).map(|_| start(sim, "sim:0", &Store::memory(), threads).1).collect()
}

/// Another worker's cache learns that a row is gone: within its staleness, and at once for its own deletions.
#[test]
fn caches_see_deletions() {
    for seed in 0..6 {
        let _seed = Seed::begin(seed);
        let sim = Sim::new(seed, faults(seed));
        let (staleness, active) = (2, [None, Some(Duration::from_millis(1))][seed as usize % 2]);
        let config = CacheConfig {
            bytes: 1 << 20,
            when: CacheUse::Always,
            staleness: Staleness::Pulls(staleness),
            incremental: seed % 3 != 0,
            active,
        };
        let servers = served(&sim, 1 + seed as usize / 3, 1 + seed as usize % 3);
        let mut pair = Pair::new(&sim, &servers, config);
        let (here, there) = (pair.here, pair.there);
        let keys: Vec<u64> = (1..200).collect();
        let ones = vec![1.0; keys.len() * 2];
        for _ in 0..10 {
            pair.writer.push(there, &keys, Write::Gradient, &ones).unwrap();
            for _ in 0..=staleness {
                pair.pull(&keys);
            }
            assert_eq!(pair.pull(&keys), ones, "seed {seed}");
            pair.writer.delete(there, &keys).unwrap();
            for _ in 0..=staleness {
                pair.pull(&keys);
            }
            assert!(pair.pull(&keys).iter().all(|&x| x == 0.0), "seed {seed}: a row came back");
            // Its own deletion is in its next pull.
            pair.reader.push(here, &keys, Write::Gradient, &ones).unwrap();
            assert_eq!(pair.pull(&keys), ones, "seed {seed}");
            pair.reader.delete(here, &keys).unwrap();
            assert!(pair.pull(&keys).iter().all(|&x| x == 0.0), "seed {seed}: an own deletion");
        }
    }
}

/// Calls `case` for one and two servers with one to three threads each.
fn for_each_layout(case: impl Fn(&Sim, &[String], &str)) {
    for (servers, threads) in [(1, 1), (1, 2), (1, 3), (2, 1), (2, 3)] {
        let sim = Sim::new(1, Faults::none());
        let layout = format!("{servers} servers with {threads} threads");
        case(&sim, &served(&sim, servers, threads), &layout);
    }
}

/// A followed key without a row got one by an own push and lost it by another worker's deletion, all between two
/// sweeps. The server then reported nothing.
#[test]
fn a_row_that_came_and_went_between_two_sweeps_stayed_in_the_cache() {
    let active = Some(Duration::from_millis(20));
    let staleness = Staleness::Time(Duration::from_millis(200));
    let config = CacheConfig { bytes: 1 << 20, when: CacheUse::Always, staleness, incremental: true, active };
    for_each_layout(|sim, servers, layout| {
        let mut pair = Pair::new(sim, servers, config);
        let keys: Vec<u64> = (1..100).collect();
        // The reader learns that the keys have no rows, and subscribes.
        for _ in 0..20 {
            pair.pull(&keys);
            sim.run(Duration::from_millis(5));
        }
        assert!(pair.reader.counters().cache_refreshed > 0, "{layout}: no row is followed");
        pair.reader.push(pair.here, &keys, Write::Gradient, &vec![1.0; keys.len() * 2]).unwrap();
        pair.writer.delete(pair.there, &keys).unwrap();
        for _ in 0..400 {
            pair.pull(&keys);
            sim.run(Duration::from_millis(5));
        }
        let wrong = pair.pull(&keys).into_iter().filter(|&x| x != 0.0).count();
        assert_eq!(wrong, 0, "{layout}: 2 s and 400 pulls later, floats are of deleted rows");
    });
}

/// Two workers write at random, and one of them has a cache. At rest the cache must have the rows of the server.
#[test]
fn a_cache_at_rest_has_the_rows_that_are_there() {
    let mut wrong = Vec::new();
    for seed in 0..48 {
        let _seed = Seed::begin(seed);
        let sim = Sim::new(seed, faults(seed));
        let mut prng = Prng::new(seed);
        let folder = crate::folder_in_memory();
        let store = Store::open_dir(folder.path()).unwrap();
        let (mut actor, addr) = start(&sim, "sim:0", &store, 1 + seed as usize % 3);
        let active =
            [None, Some(Duration::from_millis(1)), Some(Duration::from_millis(20))][seed as usize / 2 % 3];
        let staleness = [2, 30][seed as usize / 6 % 2];
        let config = CacheConfig {
            bytes: 1 << 20,
            when: CacheUse::Always,
            staleness: Staleness::Pulls(staleness),
            incremental: seed % 4 != 0,
            active,
        };
        let Pair { mut reader, here, mut writer, there } =
            Pair::new(&sim, std::slice::from_ref(&addr), config);
        let mut rows = Rows::new();
        let all: Vec<u64> = (0..600u64).map(|k| k * 0x1_0000_0001).collect();
        for round in 0..30 {
            for _ in 0..prng.below(4) {
                if prng.below(2) == 0 {
                    write(&mut reader, here, &mut rows, &mut prng);
                    if prng.below(2) == 0 {
                        pull(&mut reader, here, &all);
                    }
                    reader.drain().unwrap();
                } else {
                    write(&mut writer, there, &mut rows, &mut prng);
                    writer.drain().unwrap();
                }
                if prng.below(3) == 0 {
                    pull(&mut reader, here, &all);
                }
                sim.run(Duration::from_millis(prng.below(30)));
            }
            for _ in 0..=staleness {
                pull(&mut reader, here, &all);
                sim.run(Duration::from_millis(prng.below(30)));
            }
            let (got, want) = (pull(&mut reader, here, &all), expected(&rows, &all));
            let bad = got.iter().zip(&want).filter(|(a, b)| a != b).count();
            if bad > 0 {
                wrong.push((seed, round, bad, active.is_some()));
                break;
            }
            if round % 7 == 6 {
                sim.remove_actor(actor);
                sim.reset_all(&addr);
                actor = start(&sim, &addr, &store, 1 + prng.below(4) as usize).0;
            }
        }
    }
    assert!(wrong.is_empty(), "seed, round, wrong floats, active: {wrong:?}");
}

/// Keysets of a pull name rows that are deleted and come again, over bad links and restarts. Some pushes are named by
/// their data.
#[test]
fn keysets_and_names_of_data_see_deletions() {
    for seed in 0..16 {
        let _seed = Seed::begin(seed);
        let sim = match seed % 3 {
            0 => Sim::new(seed, faults(seed)),
            1 => Sim::new(seed, faults(seed)).near(),
            _ => crate::simulated::far(seed, faults(seed)),
        };
        let mut prng = Prng::new(seed);
        let folder = crate::folder_in_memory();
        let store = Store::open_dir(folder.path()).unwrap();
        let (mut actor, addr) = start(&sim, "sim:0", &store, 2);
        let mut worker = connect(&sim, std::slice::from_ref(&addr), 3, 1);
        let table = worker.open_table(&schema("t", 2, 16)).unwrap();
        let mut rows = Rows::new();
        let mut data = 0;
        let (mut again, names) = (Vec::new(), seed % 2 == 1);
        for round in 0..40u64 {
            let keys = unique_keys(&mut prng, 300, 400);
            let cut = Arc::new(worker.cut(table, &keys));
            let id = worker.begin_pull(table, cut.clone(), Read::Weights, Vec::new(), true).unwrap();
            let pulled = worker.finish_pull(id).unwrap();
            assert_eq!(pulled.values, expected(&rows, cut.keys()), "seed {seed} round {round}");
            for _ in 0..1 + prng.below(3) {
                let kind = [Write::Gradient, Write::Row, Write::Delete][prng.below(3) as usize];
                let floats = if kind == Write::Delete { 0 } else { 2 };
                let values = random_values(&mut prng, cut.keys().len() * floats);
                apply(&mut rows, kind, cut.keys(), &values);
                let seq = worker.next_seq(table);
                let name = names.then(|| {
                    data += 1;
                    gannet_worker::DataName { pusher: 1 << 63 | 5, incarnation: 7, seq: data, clock: data }
                });
                again.push((cut.clone(), kind, values.clone(), name));
                worker
                    .begin_push_named(
                        table,
                        cut.clone(),
                        kind,
                        values,
                        (prng.below(3) > 0).then_some(id),
                        (seq, name),
                    )
                    .unwrap();
            }
            if names && prng.below(4) == 0 {
                // The same data once more: nothing of it is applied.
                let (cut, kind, values, name) = again[prng.below(again.len() as u64) as usize].clone();
                let seq = worker.next_seq(table);
                worker.begin_push_named(table, cut, kind, values, None, (seq, name)).unwrap();
            }
            sim.run(Duration::from_micros(prng.below(200)));
            if round % 8 == 7 {
                sim.remove_actor(actor);
                sim.reset_all(&addr);
                actor =
                    start_within(&sim, &addr, &store, 1 + prng.below(4) as usize, limits(prng.below(81))).0;
            }
        }
        worker.drain().unwrap();
        assert!(scanned(&mut worker, table) == rows, "seed {seed}: the rows are wrong");
    }
}

/// Another worker makes rows, the reader pulls them, and the other worker deletes them.
#[test]
fn followed_rows_that_another_worker_makes_and_deletes_are_gone() {
    let active = Some(Duration::from_millis(20));
    let config = CacheConfig {
        bytes: 1 << 20,
        when: CacheUse::Always,
        staleness: Staleness::Pulls(3),
        incremental: true,
        active,
    };
    for_each_layout(|sim, servers, layout| {
        let mut pair = Pair::new(sim, servers, config);
        let keys: Vec<u64> = (1..100).collect();
        for _ in 0..20 {
            pair.pull(&keys);
            sim.run(Duration::from_millis(30));
        }
        pair.writer.push(pair.there, &keys, Write::Gradient, &vec![1.0; keys.len() * 2]).unwrap();
        for _ in 0..9 {
            pair.pull(&keys);
        }
        assert!(
            pair.pull(&keys).iter().all(|&x| x == 1.0),
            "{layout}: the reader has not pulled the new rows"
        );
        pair.writer.delete(pair.there, &keys).unwrap();
        for _ in 0..60 {
            sim.run(Duration::from_millis(30));
            pair.pull(&keys);
        }
        let wrong = pair.pull(&keys).into_iter().filter(|&x| x != 0.0).count();
        assert_eq!(wrong, 0, "{layout}: 60 pulls later, floats are of deleted rows");
    });
}

//! Servers restart with another number of threads while a worker pulls and pushes. A pull must answer exactly
//! the pushes that it reports to have seen.

use crate::model;
use crate::simulated::{connect, far, faults};
use crate::stepping::Seed;

use gannet_core::{Read, Schema, Store, Write};
use gannet_sim::{Faults, Sim};
use gannet_transport::Prng;
use gannet_wire::ShardedKeys;
use gannet_worker::{Pulled, SeenPushes};
use model::{Model, random_values, schema, start, unique_keys};
use std::sync::Arc;
use std::time::Duration;

/// Servers restart with another number of threads, some of them twice in succession.
#[test]
fn pulls_name_what_they_saw_also_where_threads_change() {
    threads_change_under_pulls_and_pushes(Sim::new);
}

#[test]
fn so_do_pulls_where_threads_change_on_one_host() {
    let near = threads_change_under_pulls_and_pushes(|seed, faults| Sim::new(seed, faults).near());
    assert!(near > 3_000, "{near} rows read where they are: the test shows nothing");
}

#[test]
fn so_do_pulls_where_threads_change_over_rdma() {
    let near = threads_change_under_pulls_and_pushes(far);
    assert!(near > 1_000, "{near} rows read where they are: the test shows nothing");
}

/// Fewer faults, because frames of 256 KiB would never arrive through faults that are frequent enough for small
/// frames.
fn faults_for_large_frames(seed: u64) -> Faults {
    match seed % 2 {
        0 => Faults { reset_per_million: 10_000, ..faults(seed) },
        _ => Faults { reset_per_million: 0, stall_per_million: 0, piece_bytes_max: 20_000, ..faults(seed) },
    }
}

/// A server that restarts with another number of threads.
struct Host {
    actor: u64,
    addr: String,
    store: Store,
    _folder: tempfile::TempDir,
}

impl Host {
    fn start(sim: &Sim, prng: &mut Prng) -> Host {
        let folder = crate::folder_in_memory();
        let store = Store::open_dir(folder.path()).unwrap();
        let (actor, addr) = start(sim, "sim:0", &store, 1 + prng.below(4) as usize);
        Host { actor, addr, store, _folder: folder }
    }

    fn restart(&mut self, sim: &Sim, prng: &mut Prng) {
        sim.remove_actor(self.actor);
        sim.reset_all(&self.addr);
        self.actor = start(sim, &self.addr, &self.store, 1 + prng.below(4) as usize).0;
    }
}

/// The rows after these pushes.
fn model_of(schema: &Schema, pushes: &[(Vec<u64>, Vec<f32>)]) -> Model {
    let mut model = Model::new(schema.clone());
    pushes.iter().for_each(|(keys, values)| model.push(keys, values));
    model
}

/// Compares the pulled rows with the model after the pushes that the pull reports to have seen.
fn assert_agrees(pulled: &Pulled, cut: &ShardedKeys, schema: &Schema, pushes: &[(Vec<u64>, Vec<f32>)]) {
    let floats = schema.floats();
    for SeenPushes { rows, seq } in &pulled.saw {
        let range = rows.start as usize..rows.end as usize;
        let expected = model_of(schema, &pushes[..*seq as usize]);
        let got = &pulled.values[range.start * floats..range.end * floats];
        assert!(got == expected.pull(&cut.keys()[range]), "{rows:?} at {seq}");
    }
}

/// Returns how many rows were read without a request.
fn threads_change_under_pulls_and_pushes(world: impl Fn(u64, Faults) -> Sim) -> u64 {
    let (mut duplicate, mut near, mut restarts) = (0, 0, 0);
    for seed in 300..312 {
        let _seed = Seed::begin(seed);
        let faults = faults_for_large_frames(seed);
        let sim = world(seed, faults);
        let mut prng = Prng::new(seed);
        // Keys in more chunks than there are links, and fewer keys than shards.
        let (dim, space) = ([1, 300][seed as usize % 2], [500, 40][seed as usize / 2 % 2]);
        let schema = schema("t", dim, 8);
        let mut servers: Vec<_> = (0..1 + seed / 4 % 2).map(|_| Host::start(&sim, &mut prng)).collect();
        let addrs: Vec<String> = servers.iter().map(|host| host.addr.clone()).collect();
        let mut worker = connect(&sim, &addrs, 3);
        let table = worker.open_table(&schema).unwrap();
        let mut pushes: Vec<(Vec<u64>, Vec<f32>)> = Vec::new();
        let mut under_way = std::collections::VecDeque::new();
        let mut held = None;
        for round in 0..40u64 {
            let count = 1 + prng.below(space / 2) as usize;
            let keys = unique_keys(&mut prng, count, space);
            // Sharded keys from before the change may be used after it.
            let cut = held.take().unwrap_or_else(|| Arc::new(worker.cut(table, &keys)));
            let pull = worker.begin_pull(table, cut.clone(), Read::State, Vec::new(), true).unwrap();
            under_way.push_back((pull, cut, pushes.len()));
            if prng.below(4) == 0 {
                let at = prng.below(servers.len() as u64) as usize;
                for _ in 0..1 + prng.below(2) {
                    servers[at].restart(&sim, &mut prng);
                    restarts += 1;
                    sim.run(Duration::from_micros(prng.below(3_000)));
                }
                held = Some(Arc::new(worker.cut(table, &unique_keys(&mut prng, count, space))));
            }
            if under_way.len() < 3 {
                continue;
            }
            let (id, cut, before) = under_way.pop_front().unwrap();
            let pulled =
                worker.finish_pull(id).unwrap_or_else(|error| panic!("seed {seed} round {round}: {error}"));
            let floats = dim as usize;
            assert!(pulled.saw.iter().all(|seen| seen.seq >= before as u64));
            assert_agrees(&pulled, &cut, &schema, &pushes);
            let values = random_values(&mut prng, cut.keys().len() * floats);
            pushes.push((cut.keys().to_vec(), values.clone()));
            let seq = pushes.len() as u64;
            worker.begin_push(table, cut, Write::Change, values, Some(id), seq).unwrap();
        }
        worker.drain().unwrap();
        let model = model_of(&schema, &pushes);
        let mut scanned = Vec::new();
        worker
            .scan(table, |keys, rows| {
                let rows = rows.chunks(dim as usize).map(<[f32]>::to_vec);
                scanned.extend(keys.iter().copied().zip(rows));
            })
            .unwrap();
        scanned.sort_by_key(|row| row.0);
        assert!(scanned == model.sorted(), "seed {seed}");
        assert_eq!(worker.status(table).unwrap().stats.rows, model.rows() as u64, "seed {seed}");
        let counters = worker.counters();
        (duplicate, near) = (duplicate + counters.duplicate, near + counters.near_rows);
    }
    assert!(
        restarts > 60 && duplicate > 0,
        "{restarts} restarts, {duplicate} doubled: the test shows nothing"
    );
    near
}

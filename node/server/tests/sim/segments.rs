//! Rows of two segments over links that break: the servers must have the same bits as shards that are called
//! directly.

use crate::model;
use crate::stepping::Seed;

use gannet_core::{Init, PushName, Read, Schema, Segment, Segments, Shards, Store, Write};
use gannet_optim::{AdaGrad, Ftrl, GradientTransform, Rule};
use gannet_server::{LocalServer, ServerConfig};
use gannet_sim::{Faults, Sim};
use gannet_transport::Prng;
use gannet_worker::{TableId, Worker, WorkerConfig, WorkerError};
use model::{random_values, unique_keys};
use std::sync::Arc;

#[test]
fn two_segments_travel_and_are_learned_as_in_one_process() {
    let ftrl = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.1, l2: 0.0 });
    let factors = Segment {
        dim: 5,
        rule: Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 }),
        shaping: GradientTransform::NONE,
        init: Init::Normal { mean: 0.0, deviation: 0.1 },
    };
    let schema = Schema { shards: 8, seed: 3, more: vec![factors], ..Schema::scalar("fm", ftrl) };
    assert_eq!((schema.weights(), schema.floats()), (6, 12));
    let mut lost = 0;
    for seed in 0..8 {
        let _seed = Seed::begin(seed);
        let faults = Faults { reset_per_million: 20_000, piece_bytes_max: 5_000, ..Faults::none() };
        let (sim, mut prng) = (Sim::new(seed, faults), Prng::new(seed));
        let addrs: Vec<String> = (0..2)
            .map(|_| {
                let config = ServerConfig { threads: 2, ..ServerConfig::new("sim:0") };
                let mut server = LocalServer::new(sim.clone(), config).unwrap();
                let addr = server.addr().to_owned();
                sim.add_actor(move || server.run().unwrap());
                addr
            })
            .collect();
        let mut worker = Worker::connect(sim.clone(), WorkerConfig::new(addrs, 3, 1)).unwrap();
        let table = worker.open_table(&schema).unwrap();
        let mut local = Shards::open(&Store::memory(), &schema, 0..schema.shards).unwrap();
        for seq in 1..20 {
            let keys = unique_keys(&mut prng, 300, 800);
            let cut = Arc::new(worker.cut(table, &keys));
            let write = if seq % 3 == 0 { Write::Change } else { Write::Gradient };
            // A sum of squares never falls.
            let values: Vec<f32> = random_values(&mut prng, keys.len() * schema.write_floats(write))
                .iter()
                .map(|v| v.abs())
                .collect();
            let name = PushName { pusher: 3, incarnation: 1, seq, row: 0 };
            local.push(&name, write, cut.keys(), None, &values).unwrap();
            let pull = worker.begin_pull(table, cut.clone(), Read::Weights, Vec::new(), true).unwrap();
            worker.finish_pull(pull).unwrap();
            worker.begin_push(table, cut, write, values, Some(pull), seq).unwrap();
        }
        worker.drain().unwrap();
        compare(seed, &mut prng, (&mut worker, table), &mut local);
        lost += worker.counters().links_lost;
    }
    assert!(lost > 10, "{lost} links lost: the test shows nothing");
}

/// Compares the servers with `local`, in each segment and in all.
fn compare(seed: u64, prng: &mut Prng, (worker, table): (&mut Worker<Sim>, TableId), local: &mut Shards) {
    let (weights, state) = (local.schema().weights(), local.schema().floats());
    let keys = unique_keys(prng, 1_000, 1_000);
    let cut = worker.cut(table, &keys);
    for (read, floats) in [(Read::Weights, weights), (Read::State, state)] {
        let (mut over, mut here) = (vec![0.0; keys.len() * floats], vec![0.0; keys.len() * floats]);
        worker.pull(table, cut.keys(), read, &mut over).unwrap();
        local.pull(cut.keys(), read, &mut here, None).unwrap();
        assert!(over == here, "seed {seed}: {read:?}");
        let own = if read == Read::Weights { [1, 5] } else { [2, 10] };
        for (n, floats_of) in own.into_iter().enumerate() {
            let mut chosen = vec![0.0; keys.len() * floats_of];
            worker.pull_segments(table, cut.keys(), read, Segments::only(&[n]), &mut chosen).unwrap();
            let from = n * own[0];
            let rows = here.chunks(floats).flat_map(|row| &row[from..from + floats_of]);
            assert!(chosen.iter().eq(rows), "seed {seed}: {read:?} of segment {n}");
        }
    }
    let third = worker.pull_segments(table, cut.keys(), Read::Weights, Segments::only(&[2]), &mut []);
    assert!(matches!(third, Err(WorkerError::Call(_))), "{third:?}");
    let mut rows = 0;
    worker
        .scan(table, |keys, floats| {
            assert_eq!(floats.len(), keys.len() * state);
            rows += keys.len() as u64;
        })
        .unwrap();
    assert_eq!(rows, local.stats().rows);
}

#[test]
fn segments_that_are_not_requested_are_not_sent() {
    let add = Rule::Add(gannet_optim::Add);
    let deep = Segment { dim: 31, rule: add, shaping: GradientTransform::NONE, init: Init::Zero };
    let schema = Schema { shards: 4, more: vec![deep], ..Schema::scalar("wide", add) };
    let sim = Sim::new(1, Faults::none());
    let mut server = LocalServer::new(sim.clone(), ServerConfig::new("sim:0")).unwrap();
    let addr = server.addr().to_owned();
    sim.add_actor(move || server.run().unwrap());
    let mut worker = Worker::connect(sim, WorkerConfig::new([addr], 1, 1)).unwrap();
    let table = worker.open_table(&schema).unwrap();
    let keys: Vec<u64> = (0..4_000).collect();
    let mut received = |segments, floats: usize| {
        let before = worker.counters().bytes_received;
        let mut out = vec![1.0; keys.len() * floats];
        worker.pull_segments(table, &keys, Read::Weights, segments, &mut out).unwrap();
        (out.iter().all(|&x| x == 0.0), worker.counters().bytes_received - before)
    };
    assert_eq!(received(Segments::ALL, 32), (true, 4_000 * 32 * 4));
    let (zero, bytes) = received(Segments::only(&[0]), 1);
    // The rows of a chunk are padded to 8 bytes.
    assert!(zero && (4_000 * 4..4_000 * 4 + 100).contains(&bytes), "{bytes} bytes");
}

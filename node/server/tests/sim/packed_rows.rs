//! Rows whose weights have 16 bits, on servers that restart with another number of threads, over links that break. Each
//! step is rounded by chance, which follows from the key and the push's name. So the servers must have the same bits as
//! shards of one process, however the table is divided and whoever sends a push again.

use crate::model::{random_values, start, unique_keys};
use crate::simulated::{connect, far, faults};
use crate::stepping::Seed;

use gannet_core::{Init, PushName, Read, RowType, Schema, Segment, Shards, Store, Write};
use gannet_optim::{AdaGrad, Adam, GradientTransform, RowAdaGrad, Rule, Sgd};
use gannet_sim::{Faults, Sim};
use gannet_transport::Prng;
use gannet_wire::{Merge, StepReduce, SyncConfig, SyncMode};
use gannet_worker::{TableId, WireType, Worker};
use std::sync::Arc;
use std::time::Duration;

/// A table of one of four rules, with weights in bf16 (draws 0 to 3, 8 to 11, and so on) or f16 (the others).
fn schema(draw: u64) -> Schema {
    let (init, shaping) = (Init::Uniform { low: -1.0, high: 1.0 }, GradientTransform::NONE);
    let adagrad = Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 });
    let row_adagrad = Rule::RowAdaGrad(RowAdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 });
    let adam = Rule::Adam(Adam { lr: 0.1, beta1: 0.9, beta2: 0.99, eps: 1e-8, decay: 0.01 });
    // With SGD a gradient has twice the floats of a stored row.
    let (dim, rule) =
        [(2, adagrad), (40, Rule::Sgd(Sgd { lr: 0.1 })), (17, row_adagrad), (16, adam)][draw as usize % 4];
    let schema = Schema { dim, shards: 8, init, seed: 3, ..Schema::scalar("t", rule) };
    let shaping = GradientTransform { clip_value: Some(0.5), l2: 0.01, ..shaping };
    let more = if draw.is_multiple_of(3) {
        vec![Segment { dim: 5, rule: adagrad, shaping, init }]
    } else {
        Vec::new()
    };
    let row_type = [RowType::Bf16, RowType::F16][draw as usize / 4 % 2];
    Schema { more, ..schema }.with_row_type(row_type).unwrap()
}

fn bits(rows: &[f32]) -> Vec<u32> {
    rows.iter().map(|float| float.to_bits()).collect()
}

/// Compares weights and state of all keys with the shards of this process, bit by bit.
fn compare(seed: u64, keys: u64, (worker, table): (&mut Worker<Sim>, TableId), local: &mut Shards) {
    let keys: Vec<u64> = (0..keys).collect();
    let cut = worker.cut(table, &keys);
    for read in [Read::Weights, Read::State] {
        let floats = local.schema().read_floats(read);
        let (mut over, mut here) = (vec![0.0; keys.len() * floats], vec![0.0; keys.len() * floats]);
        worker.pull(table, cut.keys(), read, &mut over).unwrap();
        local.pull(cut.keys(), read, &mut here, None).unwrap();
        assert!(bits(&over) == bits(&here), "seed {seed}: {read:?}");
    }
}

#[test]
fn servers_round_as_one_process_does_whatever_breaks() {
    servers_round_as_one_process_does(Sim::new);
}

/// As above, with workers that read rows in the servers' images.
#[test]
fn so_they_do_on_one_host() {
    let near = servers_round_as_one_process_does(|seed, faults| Sim::new(seed, faults).near());
    assert!(near > 3_000, "{near} rows read where they are: the test shows nothing");
}

#[test]
fn so_they_do_over_rdma() {
    let near = servers_round_as_one_process_does(far);
    assert!(near > 1_000, "{near} rows read where they are: the test shows nothing");
}

fn servers_round_as_one_process_does(world: impl Fn(u64, Faults) -> Sim) -> u64 {
    let (mut near, mut duplicate, mut restarts) = (0, 0, 0);
    for seed in 900..912 {
        let _seed = Seed::begin(seed);
        let (sim, mut prng) = (world(seed, faults(seed)), Prng::new(seed));
        let folders: Vec<_> = (0..1 + seed % 3).map(|_| crate::folder_in_memory()).collect();
        let stores: Vec<Store> =
            folders.iter().map(|folder| Store::open_dir(folder.path()).unwrap()).collect();
        let mut servers: Vec<(u64, String)> =
            stores.iter().map(|store| start(&sim, "sim:0", store, 1 + prng.below(4) as usize)).collect();
        let addrs: Vec<String> = servers.iter().map(|server| server.1.clone()).collect();
        let schema = schema(seed);
        let mut workers: Vec<_> = [3, 4].map(|pusher| connect(&sim, &addrs, pusher)).into();
        let table = workers[0].open_table(&schema).unwrap();
        assert_eq!(workers[1].open_table(&schema).unwrap(), table);
        let mut local = Shards::open(&Store::memory(), &schema, 0..8).unwrap();
        for seq in 1..25u64 {
            // One worker after the other: sums in floats depend on the order.
            for (worker, pusher) in workers.iter_mut().zip([3, 4]) {
                let count = 1 + prng.below(200) as usize;
                let cut = Arc::new(worker.cut(table, &unique_keys(&mut prng, count, 400)));
                let values = random_values(&mut prng, cut.keys().len() * schema.weights());
                let name = PushName { pusher, incarnation: 1, seq, row: 0 };
                local.push(&name, Write::Gradient, cut.keys(), None, &values).unwrap();
                let pull = worker.begin_pull(table, cut.clone(), Read::Weights, Vec::new(), true).unwrap();
                if prng.below(8) == 0 {
                    let at = prng.below(servers.len() as u64) as usize;
                    sim.remove_actor(servers[at].0);
                    sim.reset_all(&servers[at].1);
                    let threads = 1 + prng.below(4) as usize;
                    servers[at].0 = start(&sim, &addrs[at], &stores[at], threads).0;
                    restarts += 1;
                    sim.run(Duration::from_micros(prng.below(3_000)));
                }
                worker.finish_pull(pull).unwrap();
                worker.begin_push(table, cut, Write::Gradient, values, Some(pull), seq).unwrap();
                worker.drain().unwrap();
            }
            if seq % 6 == 0 {
                compare(seed, 450, (&mut workers[seq as usize / 6 % 2], table), &mut local);
            }
        }
        for counters in workers.iter().map(Worker::counters) {
            (near, duplicate) = (near + counters.near_rows, duplicate + counters.duplicate);
        }
    }
    assert!(
        restarts > 30 && duplicate > 0,
        "{restarts} restarts, {duplicate} doubled: the test shows nothing"
    );
    near
}

/// Under bsp the rows of a step are rounded together. They have the same bits on one server and on three, with any
/// number of threads, and if a worker's weights travel as f16.
#[test]
fn synchronous_steps_round_alike_on_any_servers() {
    for schema in [schema(0), schema(6)] {
        synchronous_steps_round_alike(&schema);
    }
}

fn synchronous_steps_round_alike(schema: &Schema) {
    let mut first = Vec::new();
    for (run, (servers, threads)) in [(1, 1), (3, 2), (2, 4)].into_iter().enumerate() {
        let _seed = Seed::begin(run as u64);
        let sim = Sim::new(run as u64, faults(run as u64));
        let mut prng = Prng::new(77);
        let addrs: Vec<String> =
            (0..servers).map(|_| start(&sim, "sim:0", &Store::memory(), threads).1).collect();
        let mut worker = connect(&sim, &addrs, 1);
        let table = worker.open_table(schema).unwrap();
        worker.set_wire_type(table, WireType::F16).unwrap();
        let mode = SyncMode::Bsp(StepReduce { aggregate: 1, merge: Merge::Sum });
        let worker_timeout = Duration::from_secs(3600);
        worker.join(table, SyncConfig { rank: 0, workers: 1, mode, worker_timeout, strict: true }).unwrap();
        for step in 1..15 {
            let cut = Arc::new(worker.cut(table, &unique_keys(&mut prng, 50, 200)));
            let values = random_values(&mut prng, schema.weights() * cut.keys().len());
            worker.begin_push(table, cut, Write::Gradient, values, None, step).unwrap();
            worker.tick(table).unwrap();
        }
        worker.leave(table).unwrap();
        let keys: Vec<u64> = (0..200).collect();
        let mut rows = vec![0.0; keys.len() * schema.floats()];
        worker.pull(table, &keys, Read::State, &mut rows).unwrap();
        first.push(bits(&rows));
        assert!(first[run] == first[0], "{servers} servers with {threads} threads");
    }
}

/// Saved rows are loaded into a table of another row type: with their state, and with the nearest weights.
#[test]
fn saved_rows_change_their_type() {
    let rule = Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 });
    let sgd = Rule::Sgd(Sgd { lr: 0.1 });
    // Half of the distance between two bf16 is at most a 256th of them, and with f16 a 2,048th.
    let types =
        [(8, rule, RowType::Bf16, 256.0), (5, rule, RowType::F16, 2048.0), (6, sgd, RowType::F16, 2048.0)];
    for (dim, rule, row_type, part) in types {
        let (sim, folder) = (Sim::new(1, Faults::none()), crate::folder_in_memory());
        let init = Init::Uniform { low: -1.0, high: 1.0 };
        let wide = Schema { dim, init, shards: 8, ..Schema::scalar("t", rule) };
        let small = wide.with_row_type(row_type).unwrap();
        let keys: Vec<u64> = (0..300).collect();
        let table_of = |schema: &Schema| {
            let addr = start(&sim, "sim:0", &Store::memory(), 2).1;
            let mut worker = connect(&sim, &[addr], 1);
            let table = worker.open_table(schema).unwrap();
            (worker, table)
        };
        let state = |(worker, table): &mut (Worker<Sim>, TableId), schema: &Schema| {
            let mut rows = vec![0.0; keys.len() * schema.floats()];
            worker.pull(*table, &keys, Read::State, &mut rows).unwrap();
            let mut all = Vec::new();
            rows.chunks_exact(schema.floats()).for_each(|row| schema.put_f32_row(row, &mut all));
            all
        };
        let (mut first, mut second, mut third) = (table_of(&wide), table_of(&small), table_of(&wide));
        let values = random_values(&mut Prng::new(3), keys.len() * dim as usize);
        first.0.push(first.1, &keys, Write::Gradient, &values).unwrap();
        assert_eq!(first.0.save(first.1, &folder.path().join("wide")).unwrap(), 300);
        assert_eq!(second.0.load(second.1, &folder.path().join("wide")).unwrap(), 300);
        let (before, after) = (state(&mut first, &wide), state(&mut second, &small));
        for (before, after) in before.chunks(wide.floats()).zip(after.chunks(wide.floats())) {
            assert_eq!(before[dim as usize..], after[dim as usize..], "the state stays");
            for (before, after) in before.iter().zip(after).take(dim as usize) {
                assert!((before - after).abs() <= before.abs() / part, "{before} became {after}");
            }
        }
        assert_ne!(before, after);
        second.0.save(second.1, &folder.path().join("small")).unwrap();
        assert_eq!(third.0.load(third.1, &folder.path().join("small")).unwrap(), 300);
        assert_eq!(bits(&state(&mut third, &wide)), bits(&after), "f32 has all numbers of 16 bits");
    }
}

/// A saved weight that an f16 cannot store is refused, and the table stays as it was.
#[test]
fn saved_weights_beyond_f16_are_refused() {
    let (sim, folder) = (Sim::new(1, Faults::none()), crate::folder_in_memory());
    let wide = Schema { dim: 4, shards: 8, ..Schema::scalar("t", Rule::Sgd(Sgd { lr: 1.0 })) };
    let small = wide.with_row_type(RowType::F16).unwrap();
    let addr = start(&sim, "sim:0", &Store::memory(), 2).1;
    let mut worker = connect(&sim, &[addr], 1);
    let table = worker.open_table(&wide).unwrap();
    worker.push(table, &[7, 8], Write::Gradient, &[[-1.0; 4], [-65_505.0; 4]].concat()).unwrap();
    worker.save(table, folder.path()).unwrap();
    let addr = start(&sim, "sim:1", &Store::memory(), 2).1;
    let mut worker = connect(&sim, &[addr], 1);
    let table = worker.open_table(&small).unwrap();
    let error = worker.load(table, folder.path()).unwrap_err().to_string();
    assert!(error.contains("1 of 2 rows have values that rule sgd cannot make in rows of f16"), "{error}");
    // A push that would take a weight there drops its row, and says so.
    worker.push(table, &[7, 8], Write::Gradient, &[[-65_504.0; 4], [-65_505.0; 4]].concat()).unwrap();
    let mut weights = [0.0; 8];
    worker.pull(table, &[7, 8], Read::Weights, &mut weights).unwrap();
    assert_eq!(weights, [65_504.0, 65_504.0, 65_504.0, 65_504.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(worker.counters().not_finite, 1);
}

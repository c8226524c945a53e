//! Admission by count over links that break and a server that dies. Each push must be counted once, so that
//! exactly the right rows exist, with exactly the right sums.

use crate::model;
use crate::stepping::Seed;

use gannet_core::{Admission, Read, Store, Write};
use gannet_sim::{Faults, Sim};
use gannet_transport::Prng;
use gannet_worker::{Worker, WorkerConfig};
use model::{random_values, schema, start, unique_keys};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const PUSHES: u32 = 3;

#[test]
fn each_push_is_counted_once_whatever_breaks() {
    let (mut lost, mut not_admitted) = (0, 0);
    for seed in 0..12 {
        let _seed = Seed::begin(seed);
        let faults = Faults {
            reset_per_million: [0, 20_000][seed as usize % 2],
            piece_bytes_max: [0, 100, 5_000][seed as usize % 3],
            window_bytes: 50_000,
            ..Faults::none()
        };
        let (sim, mut prng) = (Sim::new(seed, faults), Prng::new(seed));
        let folder = crate::folder_in_memory();
        let store = Store::open_dir(folder.path()).unwrap();
        let (mut actor, addr) = start(&sim, "sim:0", &store, 2);
        let config = WorkerConfig::new([addr.clone()], 3, 1);
        let mut worker = Worker::connect(sim.clone(), config).unwrap();
        let mut schema = schema("t", 2, 4);
        schema.admission = Admission::Count { pushes: PUSHES, sketch_bytes: 64 << 10 };
        let table = worker.open_table(&schema).unwrap();
        let (mut rows, mut counts) = (HashMap::<u64, [f32; 2]>::new(), HashMap::<u64, u32>::new());
        for round in 0..24 {
            let keys = unique_keys(&mut prng, 300, 1_500);
            let cut = Arc::new(worker.cut(table, &keys));
            let values = random_values(&mut prng, cut.keys().len() * 2);
            for (&key, value) in cut.keys().iter().zip(values.chunks(2)) {
                let count = counts.entry(key).or_default();
                *count += 1;
                if *count >= PUSHES {
                    rows.entry(key).or_default().iter_mut().zip(value).for_each(|(sum, v)| *sum += v);
                }
            }
            worker.begin_push(table, cut, Write::Gradient, values, None, round + 1).unwrap();
            sim.run(Duration::from_micros(prng.below(200)));
            if round % 6 == 5 {
                // As after a kill: the images stay as they are, and connections break.
                sim.remove_actor(actor);
                sim.reset_all(&addr);
                actor = start(&sim, &addr, &store, 2).0;
            }
        }
        worker.drain().unwrap();
        assert_eq!(worker.status(table).unwrap().stats.rows as usize, rows.len(), "seed {seed}");
        let keys: Vec<u64> = counts.keys().copied().collect();
        let mut out = vec![0.0; keys.len() * 2];
        worker.pull(table, &keys, Read::Weights, &mut out).unwrap();
        for (key, row) in keys.iter().zip(out.chunks(2)) {
            assert_eq!(row, rows.get(key).copied().unwrap_or_default(), "seed {seed} key {key}");
        }
        lost += worker.counters().links_lost;
        not_admitted += worker.counters().not_admitted;
    }
    assert!(lost > 40 && not_admitted > 1_000, "{lost} links lost, {not_admitted} rows not admitted");
}

//! Small pulls of a link that has unanswered requests: the worker sends several of them together.

use crate::model::{Model, random_values, schema, start, unique_keys};
use crate::simulated::connect;

use gannet_core::{Read, Store, Write};
use gannet_sim::{Faults, Sim};
use gannet_transport::Prng;
use std::sync::Arc;

/// Small pulls of a busy link wait for each other. Each is answered, in whatever order they are finished, and a push
/// does not wait.
#[test]
fn small_pulls_travel_together() {
    for threads in [1, 3] {
        let sim = Sim::new(4 + threads as u64, Faults::none());
        let addr = start(&sim, "sim:0", &Store::memory(), threads).1;
        let mut worker = connect(&sim, &[addr], 1);
        let mut model = Model::new(schema("t", 2, 16));
        let table = worker.open_table(&model.schema).unwrap();
        let mut prng = Prng::new(3);
        let mut held = 0;
        for round in 1..20 {
            let mut pulls: Vec<_> = (0..30)
                .map(|_| {
                    let before = worker.counters().frames_sent;
                    let cut = Arc::new(worker.cut(table, &unique_keys(&mut prng, 40, 300)));
                    let pull =
                        worker.begin_pull(table, cut.clone(), Read::Weights, Vec::new(), false).unwrap();
                    held += u32::from(worker.counters().frames_sent == before);
                    (pull, model.pull(cut.keys()))
                })
                .collect();
            let cut = Arc::new(worker.cut(table, &unique_keys(&mut prng, 40, 300)));
            let values = random_values(&mut prng, 2 * cut.keys().len());
            let before = worker.counters().frames_sent;
            worker.begin_push(table, cut.clone(), Write::Gradient, values.clone(), None, round).unwrap();
            assert!(worker.counters().frames_sent > before, "the push is sent at once");
            if round % 2 == 0 {
                pulls.reverse();
            }
            for (pull, want) in pulls {
                assert!(worker.finish_pull(pull).unwrap().values == want, "{threads} threads, round {round}");
            }
            worker.drain().unwrap();
            model.push(cut.keys(), &values);
        }
        assert!(held > 100, "{held} pulls waited: the test shows nothing");
    }
}

//! Clients without an index that are killed: a server forgets them when a table remembers too many pushers. None of
//! their pushes is applied twice, also when they come back after a restart.

use crate::model;
use crate::stepping::Seed;

use gannet_core::{CLIENTS, Read, Store, Write};
use gannet_server::limits::{CLIENT_FORGOTTEN_AFTER, PUSHERS_KEPT};
use gannet_sim::{Faults, Sim};
use gannet_transport::Net;
use gannet_wire::Refusal;
use gannet_worker::{Worker, WorkerConfig, WorkerError, known_tables};
use model::{schema, start};
use std::sync::Arc;
use std::time::Duration;

const KEYS: [u64; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

/// One row to each key, as the push of this number.
fn push(worker: &mut Worker<Sim>, seq: u64) -> Result<(), WorkerError> {
    let table = worker.open_table(&schema("t", 1, 4))?;
    let cut = Arc::new(worker.cut(table, &KEYS));
    worker.begin_push(table, cut, Write::Gradient, vec![1.0; KEYS.len()], None, seq)?;
    worker.drain()
}

fn client(sim: &Sim, addr: &str, number: u64) -> Worker<Sim> {
    Worker::connect(sim.clone(), WorkerConfig::new([addr], CLIENTS + number, number)).unwrap()
}

#[test]
fn killed_clients_stayed_in_a_table_for_good() {
    let _seed = Seed::begin(1);
    let many = PUSHERS_KEPT as u64 + 50;
    let folder = crate::folder_in_memory();
    let store = Store::open_dir(folder.path()).unwrap();
    let sim = Sim::new(1, Faults::none());
    let (mut actor, addr) = start(&sim, "sim:0", &store, 2);
    let known = |sim: &Sim| {
        let tables = known_tables(sim.clone(), &WorkerConfig::reader([addr.as_str()])).unwrap();
        tables[0].pushers as u64
    };
    let mut alive = client(&sim, &addr, 1);
    push(&mut alive, 1).unwrap();
    for number in 2..=many {
        push(&mut client(&sim, &addr, number), 1).unwrap();
    }
    assert_eq!(known(&sim), many);
    // They are remembered for a while: they may come back.
    let mut back = client(&sim, &addr, many);
    push(&mut back, 1).unwrap();
    assert_eq!(back.counters().duplicate, KEYS.len() as u64);
    drop(back);
    let until = sim.now() + CLIENT_FORGOTTEN_AFTER + Duration::from_secs(5);
    while sim.now() < until {
        sim.run(Duration::from_secs(30));
        alive.poll().unwrap();
    }
    assert!(known(&sim) < PUSHERS_KEPT as u64, "{} pushers are still remembered", known(&sim));
    for is_restarted in [false, true] {
        if is_restarted {
            sim.remove_actor(actor);
            sim.reset_all(&addr);
            actor = start(&sim, &addr, &store, 3).0;
        }
        for number in [2, 3, 20] {
            for seq in [1, 2] {
                let refused = push(&mut client(&sim, &addr, number), seq).unwrap_err();
                assert!(
                    matches!(refused, WorkerError::Refused { refusal: Refusal::Fenced, .. }),
                    "client {number}: {refused}"
                );
            }
        }
        // The one that lives, and those that were killed last, are known.
        for mut known in [client(&sim, &addr, 1), client(&sim, &addr, many)] {
            push(&mut known, 1).unwrap();
            assert_eq!(known.counters().duplicate, KEYS.len() as u64);
        }
    }
    let mut new = client(&sim, &addr, many + 1);
    push(&mut new, 1).unwrap();
    let table = new.open_table(&schema("t", 1, 4)).unwrap();
    let mut sums = [0.0; KEYS.len()];
    new.pull(table, &KEYS, Read::Weights, &mut sums).unwrap();
    assert_eq!(sums, [many as f32 + 1.0; KEYS.len()]);
}

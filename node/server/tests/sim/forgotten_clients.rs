//! Clients without an index that are killed: a server forgets them when a table remembers too many pushers. None of
//! their pushes is applied twice, also when they come back after a restart.

use crate::model;
use crate::stepping::Seed;

use gannet_core::{CLIENTS, Read, Store, Write};
use gannet_server::limits::{CLIENT_FORGOTTEN_AFTER, CLIENT_FORGOTTEN_ON_REQUEST_AFTER, PUSHERS_KEPT};
use gannet_sim::{Faults, Sim};
use gannet_transport::Net;
use gannet_wire::Refusal;
use gannet_worker::{Worker, WorkerConfig, WorkerError, forget_clients, known_tables};
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

/// Once a table was full of clients that had just been killed, and nobody could make room for ten minutes.
#[test]
fn no_command_made_room_of_killed_clients() {
    for seed in 0..3 {
        let _seed = Seed::begin(seed);
        let sim = Sim::new(seed, Faults::none());
        let servers: Vec<String> =
            (0..1 + seed % 2).map(|_| start(&sim, "sim:0", &Store::memory(), 1 + seed as usize).1).collect();
        let of =
            |number: u64| Worker::connect(sim.clone(), WorkerConfig::new(&servers, CLIENTS + number, number));
        let config = WorkerConfig { incarnation: 1 << 40, ..WorkerConfig::reader(&servers) };
        let use_of = || known_tables(sim.clone(), &config).unwrap()[0].clone();
        let mut alive = of(7).unwrap();
        push(&mut alive, 1).unwrap();
        for number in (1..=40).filter(|number| *number != 7) {
            push(&mut of(number).unwrap(), 1).unwrap();
        }
        // A client that has just lost its session may come back.
        let (clients, pushers) = forget_clients(sim.clone(), &config).unwrap();
        assert_eq!((clients, pushers), (0, 40), "seed {seed}");
        assert_eq!((use_of().pushers, use_of().clients_gone), (40, 0));
        let until = sim.now() + CLIENT_FORGOTTEN_ON_REQUEST_AFTER + Duration::from_secs(5);
        while sim.now() < until {
            sim.run(Duration::from_secs(5));
            alive.poll().unwrap();
        }
        let mut late = of(41).unwrap();
        push(&mut late, 1).unwrap();
        drop(late);
        assert_eq!((use_of().pushers, use_of().clients_gone), (41, 39));
        // Of the three that stay, one says which clients are forgotten.
        assert_eq!(forget_clients(sim.clone(), &config).unwrap(), (39, 3), "seed {seed}");
        assert_eq!((use_of().pushers, use_of().clients_gone), (3, 0));
        // No push of a forgotten client is applied again; those that are known have theirs once.
        for (number, seq) in [(1, 1), (40, 1), (40, 2)] {
            let refused = push(&mut of(number).unwrap(), seq).unwrap_err();
            let fenced = matches!(refused, WorkerError::Refused { refusal: Refusal::Fenced, .. });
            assert!(fenced, "client {number}: {refused}");
        }
        push(&mut of(7).unwrap(), 1).unwrap();
        push(&mut of(41).unwrap(), 1).unwrap();
        let table = alive.open_table(&schema("t", 1, 4)).unwrap();
        let mut sums = [0.0; KEYS.len()];
        alive.pull(table, &KEYS, Read::Weights, &mut sums).unwrap();
        assert_eq!(sums, [41.0; KEYS.len()], "seed {seed}");
    }
}

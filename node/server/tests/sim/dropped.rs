//! Tables that are dropped while their servers restart with another number of threads.

use crate::model;
use crate::stepping::Seed;

use gannet_core::{Store, Write};
use gannet_server::{LocalServer, ServerConfig};
use gannet_sim::{Faults, Sim};
use gannet_transport::{Net, Prng};
use gannet_worker::{Worker, WorkerConfig};
use model::schema;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// A server of two threads that is killed at the time `at`, and restarts a moment later with another number of
/// threads.
fn killed_at(sim: &Sim, store: &Store, at: Rc<Cell<Duration>>, threads: usize) -> String {
    let config =
        |threads, addr: &str| ServerConfig { threads, store: store.clone(), ..ServerConfig::new(addr) };
    let mut server = Some(LocalServer::new(sim.clone(), config(2, "sim:0")).unwrap());
    let addr = server.as_ref().unwrap().addr().to_owned();
    let (own, world, store, mut killed) = (addr.clone(), sim.clone(), store.clone(), false);
    sim.add_actor(move || {
        if !killed && world.now() >= at.get() {
            killed = true;
            server = None;
            world.reset_all(&own);
        }
        if server.is_none() && world.now() >= at.get().saturating_add(Duration::from_millis(2)) {
            let config = ServerConfig { threads, store: store.clone(), ..ServerConfig::new(&own) };
            server = Some(LocalServer::new(world.clone(), config).unwrap());
        }
        if let Some(server) = &mut server {
            server.run().unwrap();
        }
    });
    addr
}

/// Once, the request over the links to new threads was empty: the server refused a message of 0 bytes, and the
/// run ended.
#[test]
fn a_table_was_not_dropped_at_a_server_that_came_back_with_other_threads() {
    let mut under_way = 0;
    for seed in 0..40 {
        let _seed = Seed::begin(seed);
        let sim = Sim::new(seed, Faults::none());
        let mut prng = Prng::new(seed);
        let folder = crate::folder_in_memory();
        let store = Store::open_dir(folder.path()).unwrap();
        let at = Rc::new(Cell::new(Duration::MAX));
        let threads = [1, 3, 4][seed as usize % 3];
        let addr = killed_at(&sim, &store, at.clone(), threads);
        let connect = |pusher| Worker::connect(sim.clone(), WorkerConfig::new([&addr], pusher, 1)).unwrap();
        let mut worker = connect(3);
        let schema = schema("t", 2, 4);
        let table = worker.open_table(&schema).unwrap();
        worker.push(table, &[1, 2, 3], Write::Gradient, &[1.0; 6]).unwrap();
        drop(worker);
        // A worker that begins a run again does the same: it has no table open.
        let mut dropper = connect(4);
        at.set(sim.now() + Duration::from_micros(prng.below(60)));
        let before = sim.resets();
        dropper.drop_table("t").unwrap();
        under_way += sim.resets() - before;
        sim.run(Duration::from_millis(5));
        let mut other = connect(5);
        let table = other.open_table(&schema).unwrap();
        assert_eq!(other.status(table).unwrap().stats.rows, 0, "seed {seed}");
    }
    assert!(under_way > 8, "{under_way} links were lost meanwhile: the test shows nothing");
}

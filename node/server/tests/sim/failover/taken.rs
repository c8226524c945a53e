//! A server dies while it takes the place of another one. Before it was ready, the other backups could take the place,
//! so it must have left their copies alone.

use crate::cluster::Cluster;
use crate::model::schema;
use gannet_core::{Read, Write};
use gannet_sim::{Faults, Sim};
use gannet_worker::{Places, Worker, WorkerConfig};
use std::time::Duration;

const FLOATS: u32 = 16;
const KEYS: u64 = 4_000;
/// Three servers that are all backups of each other, and a coordinator that always answers.
const SEEDS: [u64; 6] = [21, 57, 93, 129, 165, 201];

/// Runs the simulation until something is so.
fn until(sim: &Sim, what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        sim.run(Duration::from_millis(1));
    }
    panic!("{what}: not in a minute");
}

/// Kills an owner, and so long after another server has begun to take its place also that one.
fn die_while_taking(seed: u64, after: Duration) -> bool {
    let sim = Sim::new(seed, Faults::none());
    let mut cluster = Cluster::new(&sim, seed);
    if (cluster.places, cluster.backups) != (3, 2) {
        return false;
    }
    cluster.heal();
    let (places, servers) = (Places { coordinator: cluster.reach(), job: "job".into() }, cluster.servers());
    let (of, config) =
        (sim.clone(), WorkerConfig { places: Some(places.clone()), ..WorkerConfig::new(servers, 1, 1) });
    let (ones, keys): (Vec<f32>, Vec<u64>) =
        (vec![1.0; FLOATS as usize * KEYS as usize], (0..KEYS).collect());
    let (told, pushed) = (ones.clone(), keys.clone());
    let writer = sim.spawn(move || {
        let mut worker = Worker::connect(of, config).unwrap();
        let table = worker.open_table(&schema("t", FLOATS, 8)).unwrap();
        worker.push(table, &pushed, Write::Gradient, &told).unwrap();
    });
    until(&sim, "a push", || writer.has_ended());
    let first = cluster.members[0].host().to_owned();
    cluster.kill(0);
    let place = || gannet_server::place_status(&*places.coordinator, "job", 0).unwrap().unwrap();
    until(&sim, "a server that takes the place", || place().owner != first);
    assert!(!place().ready, "seed {seed}: it is ready at once");
    let taker = (0..3).find(|at| cluster.members[*at].host() == place().owner).unwrap();
    // It cannot say that it is ready.
    cluster.cut_off(taker);
    sim.run(after);
    cluster.kill(taker);
    until(&sim, "an owner of each place", || (0..3).all(|place| cluster.has_owner(place)));
    let (of, servers) = (sim.clone(), cluster.servers());
    let reader = sim.spawn(move || {
        let config = WorkerConfig { places: Some(places), ..WorkerConfig::reader(servers) };
        let mut worker = Worker::connect(of, config).unwrap();
        let table = worker.open_table(&schema("t", FLOATS, 8)).unwrap();
        let mut rows = vec![0.0; ones.len()];
        worker.pull(table, &keys, Read::Weights, &mut rows).unwrap();
        assert!(rows == ones, "seed {seed}, {after:?}: acknowledged rows are gone");
    });
    until(&sim, "a pull", || reader.has_ended());
    true
}

#[test]
fn a_server_that_dies_while_it_takes_a_place_leaves_the_copies_of_other_backups() {
    let mut ran = 0;
    for seed in SEEDS {
        for millis in 0..20 {
            ran += u64::from(die_while_taking(seed, Duration::from_millis(millis)));
        }
    }
    assert!(ran >= 40, "the test shows nothing");
}

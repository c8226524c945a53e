//! Leases, where the clocks of the processes differ in speed by as much as they may. The coordinator, which ends a
//! lease, has the fastest. The owner and the reader, which believe in it, have the slowest.

use crate::cluster::{Clocks, Cluster, LEASE};
use crate::model::schema;
use crate::stepping::Seed;

use gannet_core::{Read, Write};
use gannet_server::ReplicationMode;
use gannet_sim::{Faults, Sim};
use gannet_transport::{Net, Poll};
use gannet_worker::{OneSided, Places, Worker, WorkerConfig};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const KEYS: [u64; 2] = [3, 7];

/// What the reader has read so far.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// Rows that it read without a request.
    near: u64,
    /// When it began the last pull that read such rows.
    near_at: Duration,
    /// When it began the last pull that was answered.
    at: Duration,
}

/// A reader that pulls at once again, and how long it takes by the clock of the world.
fn read(world: Sim, host: Sim, config: WorkerConfig, seen: &Cell<Seen>) {
    let mut reader = Worker::connect(host.clone(), config).unwrap();
    let table = reader.open_table(&schema("t", 1, 8)).unwrap();
    let mut poll = host.poll().unwrap();
    loop {
        let at = world.now();
        reader.pull(table, &KEYS, Read::Weights, &mut [0.0; KEYS.len()]).unwrap();
        let (before, near) = (seen.get(), reader.counters().near_rows);
        let near_at = if near > before.near { at } else { before.near_at };
        seen.set(Seen { near, near_at, at });
        poll.wait(Duration::from_micros(500), &mut Vec::new()).unwrap();
    }
}

/// The owner of a place is cut off from the coordinator, and the reader still reaches it. Returns when the lease ended,
/// and what the reader had seen when the lease had ended for some time.
fn outlive(sim: &Sim, seed: u64) -> (Duration, Seen) {
    let mut cluster = Cluster::empty_with_clocks(sim, seed, ReplicationMode::Sync, Clocks::Apart);
    cluster.start_ring(1, 0);
    let places = Some(Places { coordinator: cluster.reach(), job: "job".into() });
    let config = WorkerConfig { places, spin: Duration::ZERO, ..WorkerConfig::new(cluster.servers(), 1, 1) };
    let mut writer = Worker::connect(sim.clone(), config.clone()).unwrap();
    let table = writer.open_table(&schema("t", 1, 8)).unwrap();
    writer.push(table, &KEYS, Write::Gradient, &[1.0; KEYS.len()]).unwrap();
    let (host, seen) = (cluster.host("reader"), Rc::<Cell<Seen>>::default());
    let reader = WorkerConfig {
        places: config.places,
        one_sided: OneSided::Always,
        ..WorkerConfig::reader(cluster.servers())
    };
    let (world, told) = (sim.clone(), seen.clone());
    let _reader = sim.spawn(move || read(world, host, reader, &told));
    // With each seed in another part of a lease.
    sim.run(2 * LEASE + Duration::from_millis(37 * seed));
    cluster.cut_off(0);
    while cluster.has_lease(0) {
        sim.run(Duration::from_millis(1));
    }
    let ended = sim.now();
    sim.run(LEASE);
    (ended, seen.get())
}

/// With an eighth of a lease for what a reader believes, clocks could differ by 1/15 only.
#[test]
fn rows_of_an_owner_were_believed_behind_its_lease_when_clocks_differed_by_a_tenth() {
    let worlds = [Sim::near as fn(Sim) -> Sim, Sim::far_lines];
    for (seed, world) in (0..8).flat_map(|seed| worlds.map(|world| (3 * seed, world))) {
        let _seed = Seed::begin(seed);
        let sim = world(Sim::new(seed, Faults::none()));
        let (ended, seen) = outlive(&sim, seed);
        assert!(seen.near > 1_000, "{seen:?}: the test shows nothing");
        assert!(
            seen.near_at < ended && seen.at < ended,
            "seed {seed}: the lease ended at {ended:?}: {seen:?}"
        );
    }
}

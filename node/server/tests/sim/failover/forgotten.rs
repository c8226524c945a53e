//! What a coordinator knows of a job that has no servers any more.

use crate::cluster::Cluster;
use crate::stepping::{Seed, seeds_from};
use gannet_server::{PlacesForgotten, ReplicationMode};
use gannet_sim::{Faults, Sim};
use gannet_transport::Net;
use std::time::Duration;

/// Short, so that servers live for several of it.
const KEPT: Duration = Duration::from_secs(60);

/// Runs until all places have an owner and a backup.
fn until_served(sim: &Sim, cluster: &mut Cluster) {
    let until = sim.now() + Duration::from_secs(900);
    while !cluster.serves(1) {
        cluster.mend();
        sim.run(Duration::from_millis(100));
        assert!(sim.now() < until, "{}", cluster.state());
    }
}

/// A job with backups, whose servers have lived for several times of `KEPT`. The server that had begun the job dies
/// meanwhile, and another one has its place.
fn lived(seed: u64, sim: &Sim, mut cluster: Cluster) -> Cluster {
    cluster.keep_for(KEPT);
    cluster.start_ring(2 + seed as u32 % 2, 1);
    until_served(sim, &mut cluster);
    cluster.kill(0);
    sim.run(KEPT);
    cluster.restart(None);
    until_served(sim, &mut cluster);
    for _ in 0..30 {
        sim.run(KEPT / 8);
        cluster.mend();
    }
    until_served(sim, &mut cluster);
    let epochs: u64 = (0..cluster.places).map(|place| cluster.epoch(place)).sum();
    assert!(
        epochs > u64::from(cluster.places),
        "the coordinator forgot a job that lives: {}",
        cluster.state()
    );
    cluster
}

fn kill_all(cluster: &mut Cluster) {
    for at in 0..cluster.size() {
        if !*cluster.members[at].life().borrow() {
            cluster.kill(at);
        }
    }
}

/// Three keys for each run: after about 1,000 names a coordinator was full for good.
#[test]
fn a_run_in_memory_left_its_keys_in_the_coordinator_for_good() {
    for seed in seeds_from(7_700, 6) {
        let _seed = Seed::begin(seed);
        let sim = Sim::new(seed, Faults::none());
        let replication = if seed % 4 < 2 { ReplicationMode::Sync } else { ReplicationMode::Async };
        let empty = Cluster::empty(&sim, seed, replication);
        let mut cluster = lived(seed, &sim, empty);
        kill_all(&mut cluster);
        sim.run(KEPT / 2);
        assert!(cluster.keys().contains(&"job/place/0".to_owned()), "{:?}", cluster.keys());
        sim.run(KEPT);
        assert_eq!(cluster.keys(), [""; 0]);
        // The same servers begin the job anew.
        cluster.restart(None);
        until_served(&sim, &mut cluster);
    }
}

/// Rows in data folders outlive their servers. Without these keys nobody would know whether they are the newest.
#[test]
fn a_run_with_data_folders_is_known_until_it_is_forgotten() {
    for seed in seeds_from(7_720, 4) {
        let _seed = Seed::begin(seed);
        let sim = Sim::new(seed, Faults::none());
        let empty = Cluster::empty_with_folders(&sim, seed, ReplicationMode::Sync);
        let mut cluster = lived(seed, &sim, empty);
        assert!(matches!(cluster.forget_job(), PlacesForgotten::Live(servers) if !servers.is_empty()));
        kill_all(&mut cluster);
        sim.run(4 * KEPT);
        let keys = cluster.keys();
        assert_eq!(keys.len(), 1 + cluster.places as usize, "{keys:?}");
        assert_eq!(cluster.forget_job(), PlacesForgotten::Removed(keys.len() as u64));
        assert_eq!((cluster.keys(), cluster.forget_job()), (Vec::new(), PlacesForgotten::Unknown));
    }
}

/// The first server of a job has its rows in memory, and the second one in a data folder.
#[test]
fn a_data_folder_was_forgotten_with_the_rows_in_memory() {
    for seed in seeds_from(7_740, 4) {
        // No call is lost with these seeds: otherwise the server in memory may take the other place, too.
        let seed = 3 * seed;
        let _seed = Seed::begin(seed);
        let sim = Sim::new(seed, Faults::none());
        let mut cluster = Cluster::empty(&sim, seed, ReplicationMode::Sync);
        cluster.keep_for(KEPT);
        cluster.start_in_memory_and_with_folder();
        until_served(&sim, &mut cluster);
        sim.run(2 * KEPT);
        kill_all(&mut cluster);
        sim.run(4 * KEPT);
        let keys = cluster.keys();
        assert!(["generation", "place/1"].iter().all(|key| keys.contains(&format!("job/{key}"))), "{keys:?}");
        cluster.restart(None);
        let until = sim.now() + Duration::from_secs(60);
        while !cluster.has_owner(1) {
            sim.run(Duration::from_millis(100));
            assert!(sim.now() < until, "{}", cluster.state());
        }
    }
}

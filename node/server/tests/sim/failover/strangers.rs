//! Servers of another job with the same name, as many places and the same coordinator.

use crate::cluster::{Cluster, Member};
use crate::stepping::{Seed, seeds_from};
use gannet_server::ReplicationMode;
use gannet_sim::{Faults, Sim};
use gannet_transport::Net;
use std::time::Duration;

const STEP: Duration = Duration::from_millis(100);

fn is_stranger(addr: &str) -> bool {
    addr.starts_with("sim:5")
}

/// Whether the servers at the other addresses have all places, each with a backup.
fn have_places(cluster: &Cluster) -> bool {
    let has = |place| {
        cluster.known(place).is_some_and(|(owner, backups)| is_stranger(&owner) && !backups.is_empty())
    };
    (0..cluster.places).all(has)
}

fn has_ended(server: &Member) -> bool {
    *server.life().borrow()
}

/// Runs until this holds. No server of another job is named meanwhile, if `alone`.
fn until(sim: &Sim, cluster: &mut Cluster, alone: bool, holds: impl Fn(&Cluster) -> bool) {
    let until = sim.now() + Duration::from_secs(900);
    while !holds(cluster) {
        sim.run(STEP);
        let strangers = cluster.named_servers().into_iter().find(|addr| is_stranger(addr));
        assert!(!alone || strangers.is_none(), "{strangers:?} joined: {}", cluster.state());
        assert!(sim.now() < until, "{}", cluster.state());
    }
}

fn until_served(sim: &Sim, cluster: &mut Cluster) {
    until(sim, cluster, true, |cluster| cluster.serves(1));
}

fn cluster_of(sim: &Sim, seed: u64) -> Cluster {
    let replication = if seed % 4 < 2 { ReplicationMode::Sync } else { ReplicationMode::Async };
    let mut cluster = Cluster::empty(sim, seed, replication);
    cluster.start_ring(2 + seed as u32 / 3 % 2, 1);
    until_served(sim, &mut cluster);
    cluster
}

fn kill_all(cluster: &mut Cluster) {
    for at in 0..cluster.size() {
        if !has_ended(&cluster.members[at]) {
            cluster.kill(at);
        }
    }
}

/// They joined as members without a word, and became backups of rows that were not theirs.
#[test]
fn servers_of_another_job_with_the_same_name_joined() {
    for seed in seeds_from(7_800, 6) {
        let _seed = Seed::begin(seed);
        let sim = Sim::new(seed, Faults::none());
        let mut cluster = cluster_of(&sim, seed);
        let strangers = cluster.start_strangers();
        // A server dies, and a backup is wanted.
        cluster.kill(0);
        until(&sim, &mut cluster, true, |_| strangers.iter().all(has_ended));
        let until_back = sim.now() + Duration::from_secs(900);
        while !cluster.serves(1) {
            cluster.mend();
            sim.run(STEP);
            assert!(sim.now() < until_back, "{}", cluster.state());
        }
        assert!(!cluster.named_servers().iter().any(|addr| is_stranger(addr)));
    }
}

/// Rows in memory are gone with their servers, and so the name is free.
#[test]
fn the_name_of_a_job_in_memory_is_free_when_its_servers_are_dead() {
    for seed in seeds_from(7_820, 6) {
        let _seed = Seed::begin(seed);
        let sim = Sim::new(seed, Faults::none());
        let mut cluster = cluster_of(&sim, seed);
        kill_all(&mut cluster);
        sim.run(Duration::from_secs(seed % 4));
        let strangers = cluster.start_strangers();
        until(&sim, &mut cluster, false, have_places);
        // Now the others are strangers.
        cluster.restart(None);
        until(&sim, &mut cluster, false, |cluster| cluster.members.iter().all(has_ended));
        assert!(cluster.named_servers().iter().all(|addr| is_stranger(addr)));
        assert!(!strangers.iter().any(has_ended));
    }
}

/// The rows of a job that is away are in data folders. They became former rows when servers of another job began its
/// places.
#[test]
fn servers_of_another_job_began_the_places_of_one_that_was_away() {
    for seed in seeds_from(7_840, 6) {
        let _seed = Seed::begin(seed);
        let sim = Sim::new(seed, Faults::none());
        let mut cluster = Cluster::empty_with_folders(&sim, seed, ReplicationMode::Sync);
        cluster.start_ring(2, 1);
        until_served(&sim, &mut cluster);
        kill_all(&mut cluster);
        let strangers = cluster.start_strangers();
        for _ in 0..300 {
            sim.run(STEP);
            assert!(!cluster.named_servers().iter().any(|addr| is_stranger(addr)), "{}", cluster.state());
        }
        // In one order or the other, and at once or not.
        let mut dead: Vec<usize> = (0..cluster.size()).collect();
        if seed % 2 == 1 {
            dead.reverse();
        }
        for at in dead {
            cluster.start_at(at);
            sim.run(Duration::from_secs(seed % 3));
        }
        // Each takes its own place again.
        until(&sim, &mut cluster, true, |cluster| (0..2).all(|place| cluster.epoch(place) > 1));
        until_served(&sim, &mut cluster);
        until(&sim, &mut cluster, true, |_| strangers.iter().all(has_ended));
        assert!((0..2).all(|place| !cluster.folder(place).join("former").exists()));
    }
}

/// Servers with data folders know their job by these, and may come at other addresses.
#[test]
fn a_job_with_data_folders_may_come_at_other_addresses() {
    for seed in seeds_from(7_860, 4) {
        let _seed = Seed::begin(seed);
        let sim = Sim::new(seed, Faults::none());
        let mut cluster = Cluster::empty_with_folders(&sim, seed, ReplicationMode::Sync);
        cluster.start_ring(2, 1);
        until_served(&sim, &mut cluster);
        kill_all(&mut cluster);
        let moved = cluster.start_moved(seed % 2 == 1);
        until(&sim, &mut cluster, false, have_places);
        assert!(!moved.iter().any(has_ended));
        assert!(
            (0..2).all(|place| cluster.epoch(place) > 1 && !cluster.folder(place).join("former").exists())
        );
    }
}

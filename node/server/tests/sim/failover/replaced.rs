//! Servers that die for good are replaced by new ones at other addresses, until none of the first servers is left.

use super::run;
use crate::cluster::Cluster;
use crate::model::schema;
use crate::reached::Reached;
use crate::stepping::{Seed, are_all, seeds_from};
use gannet_core::Write;
use gannet_server::ReplicationMode;
use gannet_sim::{Faults, Sim, SimProcess};
use gannet_worker::{Places, Worker, WorkerConfig};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

#[test]
fn all_servers_may_be_replaced_by_new_ones() {
    let mut failed = [0; 2];
    for seed in seeds_from(2_400, 24) {
        let _seed = Seed::begin(seed);
        let mode = if seed / 2 % 2 == 0 { ReplicationMode::Sync } else { ReplicationMode::Async };
        let of_this = run(seed, true, mode).failed;
        failed.iter_mut().zip(of_this).for_each(|(all, more)| *all += more);
    }
    assert!(!are_all() || failed.iter().all(|&count| count > 3), "{failed:?}: the test shows nothing");
}

/// Two servers that are backups of each other. One of them has both places, and the other is its backup.
fn one_for_two(sim: &Sim) -> Cluster {
    // A coordinator that always answers.
    let mut cluster = Cluster::new(sim, 9);
    assert_eq!((cluster.places, cluster.backups), (2, 1));
    cluster.heal();
    // The first server takes both places, and the second comes back as its backup.
    cluster.kill(1);
    cluster.heal();
    cluster
}

/// A worker that pushes to all shards of both places, one push after another.
fn push_on(sim: &Sim, cluster: &mut Cluster) -> (SimProcess, Rc<Cell<u64>>) {
    let (places, servers) = (Places { coordinator: cluster.reach(), job: "job".into() }, cluster.servers());
    let (step, of) = (Rc::new(Cell::new(0)), sim.clone());
    let told = step.clone();
    let worker = sim.spawn(move || {
        let config = WorkerConfig { places: Some(places), ..WorkerConfig::new(servers, 1, 1) };
        let mut worker = Worker::connect(of, config).unwrap();
        let table = worker.open_table(&schema("t", 1, 8)).unwrap();
        for number in 1.. {
            let keys: Vec<u64> = (0..200).collect();
            worker.push(table, &keys, Write::Gradient, &[1.0; 200]).unwrap();
            told.set(number);
        }
    });
    (worker, step)
}

fn until(sim: &Sim, done: impl Fn() -> bool) -> bool {
    (0..20_000).any(|_| {
        sim.run(Duration::from_millis(5));
        done()
    })
}

/// Once the owner took the backup out of one set, lost the coordinator, and the backup took the other place. Nobody
/// could take the first place then.
#[test]
fn an_owner_that_is_cut_off_while_its_backup_leaves_lost_a_place() {
    let sim = Sim::new(9, Faults::none());
    let mut cluster = one_for_two(&sim);
    let second = cluster.members[1].host().to_owned();
    let (worker, step) = push_on(&sim, &mut cluster);
    assert!(until(&sim, || step.get() > 3));
    // The owner reaches its backup no more, and the coordinator only until the backup begins to leave.
    sim.cut_off(&second, Duration::from_secs(20));
    cluster.members[0].coordinator.cut_off_behind_write.store(true, Relaxed);
    assert!(until(&sim, || cluster.members[0].coordinator.cut_off.load(Relaxed)), "no backup has left");
    // Longer than the leases of the owner, and than the backup is cut off.
    sim.run(Duration::from_secs(25));
    let before = step.get();
    cluster.heal();
    assert!(until(&sim, || step.get() > before + 3), "workers wait for ever: {}", cluster.state());
    sim.kill(&worker);
}

#[test]
fn a_lost_backup_leaves_the_sets_of_all_places_before_a_push_is_acknowledged() {
    let sim = Sim::new(9, Faults::none());
    let mut cluster = one_for_two(&sim);
    let second = cluster.members[1].host().to_owned();
    let sets = |cluster: &Cluster| [0, 1].map(|place| cluster.known(place).unwrap());
    let (first, both) = (cluster.servers()[0].clone(), vec![second.clone()]);
    assert_eq!(sets(&cluster), [(first.clone(), both.clone()), (first.clone(), both)]);
    let (worker, step) = push_on(&sim, &mut cluster);
    assert!(until(&sim, || step.get() > 3));
    // The owner does not reach its backup any more, which lives and reaches the coordinator.
    sim.cut_off(&second, Duration::from_secs(3_600));
    let before = step.get();
    // One push may have been under way, which the backup has.
    assert!(until(&sim, || step.get() > before + 2), "workers wait for ever");
    assert_eq!(sets(&cluster), [(first.clone(), Vec::new()), (first, Vec::new())]);
    sim.kill(&worker);
}

/// An owner that was cut off kept its place. Then a write came late with which a backup had begun to take the place.
/// The owner kept the lease for ever, and the place had another owner, who did not know it.
#[test]
fn a_late_write_of_a_backup_left_a_place_without_an_owner() {
    // One place, whose backups are two servers without a place.
    let sim = Sim::new(0, Faults::none());
    let mut cluster = Cluster::new(&sim, 0);
    assert_eq!((cluster.places, cluster.backups), (1, 2));
    cluster.heal();
    let [owner, first, second] = [0, 1, 2].map(|at| cluster.members[at].coordinator.clone());
    let cut_off = |of: &Reached, is_cut| of.cut_off.store(is_cut, Relaxed);
    // The owner is cut off from the coordinator, until a backup has begun to take its place.
    cut_off(&owner, true);
    cut_off(&second, true);
    first.late.store(6_000, Relaxed);
    assert!(until(&sim, || first.late.load(Relaxed) == 0), "the backup does not take the place");
    // Then the owner is there again, and the backup is not.
    cut_off(&owner, false);
    cut_off(&first, true);
    sim.run(Duration::from_secs(5));
    assert_eq!((cluster.epoch(0), cluster.has_owner(0)), (1, true), "the write was not late");
    cut_off(&first, false);
    cut_off(&second, false);
    sim.run(Duration::from_secs(10));
    assert!(cluster.has_owner(0), "{}", cluster.state());
    let places = Places { coordinator: cluster.reach(), job: "job".into() };
    let config = WorkerConfig { places: Some(places), ..WorkerConfig::new(cluster.servers(), 1, 1) };
    let mut worker = Worker::connect(sim.clone(), config).unwrap();
    let table = worker.open_table(&schema("t", 1, 8)).unwrap();
    worker.push(table, &[1, 2, 3], Write::Gradient, &[1.0; 3]).unwrap();
}

//! Servers that die for good are replaced by new ones at other addresses, until none of the first servers is left.

use super::run;
use crate::cluster::Cluster;
use crate::model::schema;
use crate::stepping::{Seed, are_all, seeds_from};
use gannet_core::Write;
use gannet_node::{Places, ReplicationMode, Worker, WorkerConfig};
use gannet_transport::sim::{Faults, Sim};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

#[test]
fn all_servers_may_be_replaced_by_new_ones() {
    let mut failed = [0; 2];
    for seed in seeds_from(2_400, 24) {
        let _named = Seed(seed);
        let mode = if seed / 2 % 2 == 0 { ReplicationMode::Sync } else { ReplicationMode::Async };
        let of_this = run(seed, true, mode);
        failed.iter_mut().zip(of_this).for_each(|(all, more)| *all += more);
    }
    assert!(!are_all() || failed.iter().all(|&count| count > 3), "{failed:?}: the test shows nothing");
}

#[test]
fn a_lost_backup_leaves_the_sets_of_all_places_before_a_push_is_acknowledged() {
    // Two servers that are backups of each other, and a coordinator that always answers.
    let sim = Sim::new(9, Faults::none());
    let mut cluster = Cluster::new(&sim, 9);
    assert_eq!((cluster.places, cluster.backups), (2, 1));
    cluster.heal();
    // The first server takes both places, and the second comes back as its backup.
    cluster.kill(1);
    cluster.heal();
    let second = cluster.members[1].host().to_owned();
    let sets = |cluster: &Cluster| [0, 1].map(|place| cluster.known(place).unwrap());
    let (first, both) = (cluster.servers()[0].clone(), vec![second.clone()]);
    assert_eq!(sets(&cluster), [(first.clone(), both.clone()), (first.clone(), both)]);
    let (places, servers) = (Places { coordinator: cluster.reach(), job: "job".into() }, cluster.servers());
    let (step, of) = (Rc::new(Cell::new(0)), sim.clone());
    let told = step.clone();
    let worker = sim.spawn(move || {
        let config = WorkerConfig { places: Some(places), ..WorkerConfig::new(servers, 1, 1) };
        let mut worker = Worker::connect(of, config).unwrap();
        let table = worker.open_table(&schema("t", 1, 8)).unwrap();
        for number in 1.. {
            // These keys are in all shards of both places.
            let keys: Vec<u64> = (0..200).collect();
            worker.push(table, &keys, Write::Gradient, &[1.0; 200]).unwrap();
            told.set(number);
        }
    });
    let until = |done: &dyn Fn() -> bool| {
        (0..20_000).any(|_| {
            sim.run(Duration::from_millis(5));
            done()
        })
    };
    assert!(until(&|| step.get() > 3));
    // The owner does not reach its backup any more, which lives and reaches the coordinator.
    sim.cut_off(&second, Duration::from_secs(3_600));
    let before = step.get();
    // One push may have been under way, which the backup has.
    assert!(until(&|| step.get() > before + 2), "workers wait for ever");
    assert_eq!(sets(&cluster), [(first.clone(), Vec::new()), (first, Vec::new())]);
    sim.kill(&worker);
}

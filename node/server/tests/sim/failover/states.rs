//! The states of place 0, which are not rows, and a backup that has not got them.

use crate::cluster::Cluster;
use gannet_server::ReplicationMode;
use gannet_sim::{Faults, Sim};
use gannet_transport::Net;
use gannet_worker::{Places, Worker, WorkerConfig};
use std::time::Duration;

/// A server that takes place 0 has a backup for its own place. That backup was in the set of place 0 before it had the
/// states of the scheduler. A server that takes place 0 without them ends.
#[test]
fn a_backup_was_in_the_set_of_place_0_without_its_states() {
    let sim = Sim::new(6, Faults::none());
    let mut cluster = Cluster::empty(&sim, 6, ReplicationMode::Sync);
    cluster.start_ring(3, 1);
    cluster.heal();
    let places = Places { coordinator: cluster.reach(), job: "job".into() };
    let config = WorkerConfig { places: Some(places), ..WorkerConfig::new(cluster.servers(), 1, 0) };
    let first = Worker::allocate_incarnation(sim.clone(), &config).unwrap();
    let [taker, backup] = [1, 2].map(|at| cluster.members[at].host().to_owned());
    cluster.kill(0);
    while cluster.epoch(0) == 1 {
        sim.run(Duration::from_micros(100));
    }
    assert_eq!(cluster.known(0), None, "the server that takes the place is ready at once");
    sim.cut(&taker, &backup, Duration::from_secs(1));
    for _ in 0..99 {
        sim.run(Duration::from_millis(10));
        assert_eq!(cluster.backups(0), [""; 0], "no state has come to the backup");
    }
    while cluster.backups(0) != [backup.as_str()] {
        sim.run(Duration::from_millis(100));
        assert!(sim.now() < Duration::from_secs(120), "{}", cluster.state());
    }
    cluster.kill(1);
    assert!(Worker::allocate_incarnation(sim.clone(), &config).unwrap() > first);
}

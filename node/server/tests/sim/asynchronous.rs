//! Asynchronous replication: rows are read at once, and acknowledgements wait for the backups.

use crate::cluster::Cluster;
use crate::model::schema;

use gannet_core::{Read, Write};
use gannet_server::ReplicationMode;
use gannet_sim::{Faults, Sim};
use gannet_transport::Net;
use gannet_worker::{Places, Worker, WorkerConfig};
use std::sync::Arc;
use std::time::Duration;

/// The worker of a cluster of two servers, which are backups of each other. One of them is then out of reach.
fn with_a_silent_backup(replication: ReplicationMode) -> (Sim, Cluster, Worker<Sim>) {
    let sim = Sim::new(3, Faults::none());
    let mut cluster = Cluster::empty(&sim, 3, replication);
    cluster.start_ring(2, 1);
    let places = Places { coordinator: cluster.reach(), job: "job".into() };
    let config = WorkerConfig { places: Some(places), ..WorkerConfig::new(cluster.servers(), 1, 1) };
    let mut worker = Worker::connect(sim.clone(), config).unwrap();
    worker.open_table(&schema("t", 1, 8)).unwrap();
    while (0..2).any(|place| cluster.backups(place).is_empty()) {
        worker.poll().unwrap();
        sim.run(Duration::from_millis(50));
    }
    (sim, cluster, worker)
}

/// Pushes to both servers, and pulls a row of the first one while it does not reach its backup. Returns how much time
/// goes by until the row is read, and whether any push to the first server was acknowledged by then.
fn read_behind_a_push(replication: ReplicationMode) -> (Duration, bool) {
    let (sim, cluster, mut worker) = with_a_silent_backup(replication);
    let table = worker.open_table(&schema("t", 1, 8)).unwrap();
    // A key of the first server: the others wait for a server out of reach.
    let peer_of = |key: u64| worker.cut(table, &[key]).chunks()[0].peer;
    let key = (1..).find(|key| peer_of(*key) == 0).unwrap();
    sim.cut_off(&Cluster::addr(1, 0), Duration::from_secs(60));
    let from = sim.now();
    let cut = Arc::new(worker.cut(table, &[key]));
    let seq = worker.next_seq(table);
    let push = worker.begin_push(table, cut, Write::Gradient, vec![1.0], None, seq).unwrap();
    let mut row = [0.0];
    worker.pull(table, &[key], Read::Weights, &mut row).unwrap();
    assert_eq!(row, [1.0], "a pull sees own pushes");
    let (took, is_acked) = (sim.now() - from, worker.is_acked(push));
    // The backup leaves the set, and the push is acknowledged.
    worker.finish_push(push).unwrap();
    assert!(cluster.backups(0).is_empty());
    (took, is_acked)
}

#[test]
fn rows_are_read_at_once_and_acknowledgements_wait() {
    let (took, is_acked) = read_behind_a_push(ReplicationMode::Async);
    assert!(took < Duration::from_millis(500) && !is_acked, "{took:?}, acknowledged: {is_acked}");
    let (took, is_acked) = read_behind_a_push(ReplicationMode::Sync);
    assert!(took > Duration::from_secs(1) && is_acked, "{took:?}, acknowledged: {is_acked}");
}

#[test]
fn a_server_that_replicates_in_another_way_ends() {
    let (sim, mut cluster, worker) = with_a_silent_backup(ReplicationMode::Async);
    drop(worker);
    for place in [1, 0] {
        cluster.kill(place as usize);
        cluster.start_again(place, ReplicationMode::Sync);
        sim.run(Duration::from_secs(1));
        assert!(cluster.has_ended(place), "{}", cluster.state());
        // The same way is accepted.
        cluster.start_again(place, ReplicationMode::Async);
        sim.run(Duration::from_secs(10));
        assert!(!cluster.has_ended(place), "{}", cluster.state());
        assert!((0..2).all(|place| cluster.backups(place).len() == 1), "{}", cluster.state());
    }
}

/// Of two servers that begin at the same time and differ, the one with the lower place goes on.
#[test]
fn one_of_two_servers_that_differ_goes_on() {
    let sim = Sim::new(3, Faults::none());
    let mut cluster = Cluster::empty(&sim, 3, ReplicationMode::Async);
    cluster.start_ring(2, 1);
    cluster.kill(1);
    cluster.start_again(1, ReplicationMode::Sync);
    sim.run(Duration::from_secs(2));
    assert!(!cluster.has_ended(0) && cluster.has_ended(1), "{}", cluster.state());
}

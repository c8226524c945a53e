//! A server that has taken the place of another one, and its backup, which is the backup of its own place already.

use crate::cluster::{Cluster, LEASE};
use crate::model::schema;

use gannet_core::{Read, Schema, Write, hash, shard_of};
use gannet_server::ReplicationMode;
use gannet_sim::{Faults, Sim};
use gannet_transport::Net;
use gannet_wire::PartitionMap;
use gannet_worker::{Places, TableId, Worker, WorkerConfig};
use std::sync::Arc;
use std::time::Duration;

const SERVERS: u32 = 3;
const SHARDS: u32 = 32;

/// Three servers, each of which is the backup of the one before it, and a worker.
struct Ring {
    sim: Sim,
    cluster: Cluster,
    worker: Worker<Sim>,
    table: TableId,
    schema: Schema,
}

impl Ring {
    /// `seed`: no call to the coordinator is lost if 3 divides it.
    fn new(seed: u64, dim: u32, faults: Faults) -> Ring {
        let sim = Sim::new(seed, faults);
        let mut cluster = Cluster::empty(&sim, seed, ReplicationMode::Sync);
        cluster.start_ring(SERVERS, 1);
        let places = Places { coordinator: cluster.reach(), job: "job".into() };
        let config = WorkerConfig { places: Some(places), ..WorkerConfig::new(cluster.servers(), 1, 1) };
        let mut worker = Worker::connect(sim.clone(), config).unwrap();
        let schema = schema("t", dim, SHARDS);
        let table = worker.open_table(&schema).unwrap();
        let mut ring = Ring { sim, cluster, worker, table, schema };
        ring.until(|cluster| (0..SERVERS).all(|place| cluster.backups(place) == [next(place)]));
        ring
    }

    /// Runs until the cluster is so.
    fn until(&mut self, is_so: impl Fn(&Cluster) -> bool) {
        let end = self.sim.now() + Duration::from_secs(60);
        while !is_so(&self.cluster) {
            assert!(self.sim.now() < end, "not within a minute: {}", self.cluster.state());
            self.worker.poll().unwrap();
            self.sim.run(Duration::from_millis(5));
        }
    }

    /// The first keys of a place.
    fn keys(&self, place: u32, count: usize) -> Vec<u64> {
        let shards = PartitionMap::of_job(SERVERS).shards(place, SHARDS);
        (1u64..).filter(|key| shards.contains(shard_of(hash(*key), SHARDS))).take(count).collect()
    }

    /// Adds 1 to all floats of some rows, and waits for the acknowledgement.
    fn push(&mut self, keys: &[u64]) {
        let cut = Arc::new(self.worker.cut(self.table, keys));
        let (seq, ones) =
            (self.worker.next_seq(self.table), vec![1.0; keys.len() * self.schema.dim as usize]);
        let push = self.worker.begin_push(self.table, cut, Write::Gradient, ones, None, seq).unwrap();
        self.worker.finish_push(push).unwrap();
    }

    /// The first float of a row.
    fn pull(&mut self, key: u64) -> f32 {
        let mut row = vec![0.0; self.schema.dim as usize];
        self.worker.pull(self.table, &[key], Read::Weights, &mut row).unwrap();
        row[0]
    }
}

/// The server behind that of a place.
fn next(place: u32) -> String {
    Cluster::addr((place + 1) % SERVERS, 0)
}

/// While a server filled its backup with the rows of a place that it had taken, it answered nothing, also not requests
/// for rows that the backup had. Now a request waits for the rows that are on their way: a small part of them.
#[test]
fn all_answers_waited_while_a_backup_was_filled_with_a_place_that_was_taken() {
    let mut ring = Ring::new(6, 256, Faults::none());
    let (taken, own) = (ring.keys(0, 24_000), ring.keys(1, 1)[0]);
    taken.chunks(1_000).for_each(|keys| ring.push(keys));
    ring.push(&[own]);
    ring.cluster.kill(0);
    // The fill takes seconds, and the membership looks at its end four times a second.
    let delay_max = Duration::from_millis(20);
    ring.sim.set_faults(Faults { window_bytes: 20_000, delay_max, ..Faults::none() });
    ring.until(|cluster| cluster.known(0).is_some_and(|(owner, _)| owner == next(0)));
    assert_eq!(ring.cluster.backups(1), [next(1)]);
    let (from, mut waits, mut pushes) = (ring.sim.now(), Vec::new(), 0);
    while ring.cluster.backups(0).is_empty() {
        let before = ring.sim.now();
        match waits.len() % 3 {
            0 => assert_eq!(ring.pull(own), 1.0 + pushes as f32),
            1 => ring.push(&[taken[0]]),
            _ => ring.push(&[own]),
        }
        pushes += u32::from(waits.len() % 3 == 2);
        waits.push(ring.sim.now() - before);
    }
    let (fill, longest) = (ring.sim.now() - from, waits.iter().max().unwrap());
    assert!(*longest * 4 < fill, "the fill took {fill:?}, and a request {longest:?} of that");
    // What was acknowledged meanwhile is there also when the backup must go on.
    ring.cluster.kill(1);
    assert_eq!(ring.pull(own), 1.0 + pushes as f32);
    assert_eq!(ring.pull(taken[0]), 1.0 + (waits.len() + 1).div_euclid(3) as f32);
    assert_eq!(ring.pull(taken[23_999]), 1.0);
}

/// A server had two places, with one backup of both. The backup was lost, and left the set of one place. The server
/// then acknowledged pushes that the backup did not have, while the backup could still take the other place.
#[test]
fn a_backup_that_was_lost_stayed_in_the_set_of_a_second_place() {
    for seed in [9, 10, 11, 12] {
        let mut ring = Ring::new(seed, 1, Faults::none());
        let keys: Vec<u64> = (0..2).map(|place| ring.keys(place, 1)[0]).collect();
        ring.push(&keys);
        ring.cluster.kill(0);
        ring.until(|cluster| (0..2).all(|place| cluster.backups(place) == [next(1)]));
        // The backup reaches the coordinator, and nobody reaches the backup.
        ring.sim.cut_off(&next(1), LEASE * 20);
        ring.push(&keys);
        let backups: Vec<_> = (0..2).map(|place| ring.cluster.backups(place)).collect();
        assert!(backups.iter().all(Vec::is_empty), "seed {seed}: {backups:?} lack an acknowledged push");
    }
}

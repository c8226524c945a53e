//! Workers that only read: while servers die, and at the end.

use crate::blocking::{Book, Pushes, SHARED};
use crate::cluster::{Cluster, patience};
use gannet_core::{Read, Schema, Write};
use gannet_sim::Sim;
use gannet_transport::{Net, Poll};
use gannet_worker::{Places, Worker, WorkerConfig};
use std::time::Duration;

/// A worker that only reads: no push of it makes an owner wait for its backups. It must see all pushes that were
/// acknowledged before its pull began, also if another server has acknowledged them.
pub(super) struct Reader {
    pub(super) sim: Sim,
    pub(super) servers: Vec<String>,
    pub(super) table: Schema,
    pub(super) book: Book,
    pub(super) places: Places,
    pub(super) seed: u64,
}

impl Reader {
    pub(super) fn run(self) {
        let (places, peer_timeout) = (Some(self.places), patience(self.seed));
        let config = WorkerConfig { places, peer_timeout, ..WorkerConfig::reader(self.servers) };
        let mut reader = Worker::connect(self.sim.clone(), config).unwrap();
        let table = reader.open_table(&self.table).unwrap();
        let mut row = vec![0.0; self.book.borrow().len()];
        loop {
            let before: Vec<u64> = self.book.borrow().iter().map(|pushes| pushes.acknowledged).collect();
            reader.pull(table, &[SHARED], Read::Weights, &mut row).unwrap();
            let counts: Vec<u64> = row.iter().map(|count| *count as u64).collect();
            let has_all = counts.iter().zip(&before).all(|(count, least)| count >= least);
            assert!(has_all, "seed {}: {counts:?}, acknowledged were {before:?}", self.seed);
            self.sim.poll().unwrap().wait(Duration::from_millis(40), &mut Vec::new()).unwrap();
        }
    }
}

/// Checks the rows at the end.
pub(super) fn check(
    cluster: &Cluster,
    schema: &Schema,
    workers: u32,
    book: &[Pushes],
    places: &Places,
    servers: &[String],
) {
    let (places, peer_timeout) = (Some(places.clone()), patience(cluster.seed));
    let config = WorkerConfig { places, peer_timeout, ..WorkerConfig::new(servers.to_vec(), 99, 1) };
    let mut reader = Worker::connect(cluster.sim.clone(), config).unwrap();
    let table = reader.open_table(schema).unwrap();
    let mut row = vec![0.0; workers as usize];
    reader.pull(table, &[SHARED], Read::Weights, &mut row).unwrap();
    let counts: Vec<u64> = row.iter().map(|count| *count as u64).collect();
    let pushes: Vec<u64> = book.iter().map(|pushes| pushes.begun).collect();
    assert_eq!(counts, pushes, "seed {}", cluster.seed);
    reader.push(table, &[SHARED], Write::Gradient, &row).unwrap();
}

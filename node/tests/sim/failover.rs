//! A server that dies for good, or whose lease ends, is replaced by one of its backups, while several workers call and
//! wait.

use crate::blocking::{Book, Program, Pushes, SHARED};
use crate::cluster::Cluster;
use crate::model::schema;
use crate::simulated::faults;
use crate::stepping::seeds;

use gannet_core::{Read, Schema, Write};
use gannet_node::{Merge, Places, ReplicationMode, StepReduce, SyncMode, Worker, WorkerConfig};
use gannet_transport::sim::{Sim, SimProcess};
use gannet_transport::{Net, Poll};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// Checks the rows at the end.
fn check(
    cluster: &Cluster,
    schema: &Schema,
    workers: u32,
    book: &[Pushes],
    places: &Places,
    servers: &[String],
) {
    let config = WorkerConfig { places: Some(places.clone()), ..WorkerConfig::new(servers.to_vec(), 99, 1) };
    let mut reader = Worker::connect(cluster.sim.clone(), config).unwrap();
    let table = reader.open_table(schema).unwrap();
    let mut row = vec![0.0; workers as usize];
    reader.pull(table, &[SHARED], Read::Weights, &mut row).unwrap();
    let counts: Vec<u64> = row.iter().map(|count| *count as u64).collect();
    let pushes: Vec<u64> = book.iter().map(|pushes| pushes.begun).collect();
    assert_eq!(counts, pushes, "seed {}", cluster.seed);
    reader.push(table, &[SHARED], Write::Gradient, &row).unwrap();
}

/// A worker that only reads: no push of it makes an owner wait for its backups. It must see all pushes that were
/// acknowledged before its pull began, also if another server has acknowledged them.
struct Reader {
    sim: Sim,
    servers: Vec<String>,
    table: Schema,
    book: Book,
    places: Places,
    seed: u64,
}

impl Reader {
    fn run(self) {
        let config = WorkerConfig { places: Some(self.places), ..WorkerConfig::reader(self.servers) };
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

#[test]
fn any_server_may_die_for_good() {
    run_seeds(900..900 + seeds(12), ReplicationMode::Sync);
}

/// Rows are read before the backups have them. What was acknowledged is there all the same, and what was not is sent
/// again: each push is in the sums once.
#[test]
fn any_server_may_die_for_good_whose_rows_are_read_at_once() {
    run_seeds(1_004..1_004 + seeds(12), ReplicationMode::Async);
}

fn run_seeds(all: Range<u64>, replication: ReplicationMode) {
    let mut failed = [0; 2];
    for seed in all {
        let _scattered = gannet_node::scatter_partitions(seed % 2 == 1);
        let sim = Sim::new(seed, faults(seed));
        let mut cluster = Cluster::replicated(&sim, seed, replication);
        // A push that an owner cannot acknowledge stops all its replies. With one writer, whose link breaks, nobody
        // pushes to an owner whose lease has ended: only its silence keeps the reader from old rows.
        let workers = if seed % 4 == 3 { 1 } else { 2 };
        let mode = match seed / 2 % 3 {
            0 => None,
            1 => Some(SyncMode::Ssp(seed as u32 % 4)),
            _ => Some(SyncMode::Bsp(StepReduce { aggregate: workers, merge: Merge::Sum })),
        };
        let book: Book = Rc::new(RefCell::new(vec![Pushes::default(); workers as usize]));
        let table = schema("t", workers, 8);
        let places = Places { coordinator: cluster.reach(), job: "job".into() };
        let servers = cluster.servers();
        // The workers come first, or when the servers have become backups of each other.
        if seed % 4 < 2 {
            sim.run(Duration::from_secs(1 + seed % 5));
        }
        let program = |rank| Program {
            sim: sim.clone(),
            servers: servers.clone(),
            table: table.clone(),
            rank,
            workers,
            incarnation: 1,
            mode,
            book: book.clone(),
            seed,
            places: Some(places.clone()),
        };
        let processes: Vec<SimProcess> = (0..workers)
            .map(|rank| {
                let program = program(rank);
                sim.spawn(move || program.run())
            })
            .collect();
        // In steps a push is acknowledged before it is applied.
        let reader = mode.is_none().then(|| {
            let (servers, table, places) = (servers.clone(), table.clone(), places.clone());
            let reader = Reader { sim: sim.clone(), servers, table, book: book.clone(), places, seed };
            sim.spawn(move || reader.run())
        });
        let of_this = cluster.run(|| processes.iter().any(|worker| !worker.has_ended()));
        failed.iter_mut().zip(of_this).for_each(|(all, more)| *all += more);
        reader.iter().for_each(|reader| sim.kill(reader));
        check(&cluster, &table, workers, &book.borrow(), &places, &servers);
    }
    assert!(failed.iter().all(|&count| count > 3), "{failed:?}: the test shows nothing");
}

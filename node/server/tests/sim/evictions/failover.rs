//! Servers die for good while rows die on them, and backups take their places.

use super::{Setter, make_rows};
use crate::cluster::{Cluster, patience};
use crate::simulated::faults;
use crate::stepping::{Seed, are_all, seeds_from};

use gannet_core::{Capacity, Eviction};
use gannet_sim::{Sim, SimProcess};
use gannet_transport::{Net, Poll, Prng};
use gannet_worker::{Places, WorkerConfig};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const CAPACITY: u64 = 160;

/// What the workers of some runs have seen.
#[derive(Default)]
struct Seen {
    refused: u64,
    died: u64,
    kept: u64,
    /// The most rows at the end of a run.
    rows: u64,
}

/// A worker: two set sums, and the third one fills the table.
struct Program {
    sim: Sim,
    config: WorkerConfig,
    eviction: Eviction,
    seed: u64,
    seen: Rc<RefCell<Seen>>,
}

impl Program {
    fn run(self) {
        let rank = self.config.pusher;
        let mut prng = Prng::new(self.seed ^ rank << 32);
        let mut setter = Setter::new(&self.sim, self.config.clone(), self.eviction);
        for round in 0..40 {
            match prng.below(4) {
                0 => {
                    let time = Duration::from_millis(prng.below(400));
                    self.sim.poll().unwrap().wait(time, &mut Vec::new()).unwrap();
                }
                _ if rank == 2 => make_rows(&mut setter, &mut prng),
                _ if setter.held.is_some() => setter.push(),
                _ => setter.pull(&mut prng, &format!("seed {}, round {round}", self.seed)),
            }
        }
        setter.push();
        setter.worker.drain().unwrap();
        // All keys that it has ever set: also those that nobody asked for after a failover.
        let mut keys: Vec<u64> = setter.set.keys().copied().collect();
        keys.sort_unstable();
        setter.pull_keys(&keys, &format!("seed {}, at the end", self.seed));
        let rows = setter.worker.status(setter.table).unwrap().stats.rows;
        let mut seen = self.seen.borrow_mut();
        seen.refused += setter.worker.counters().refused;
        seen.died += setter.died;
        seen.kept += setter.kept;
        seen.rows = seen.rows.max(rows);
    }
}

/// Runs a cluster whose servers die while workers push. Returns how many owners have failed.
fn run(seed: u64, seen: &Rc<RefCell<Seen>>) -> u64 {
    let sim = Sim::new(seed, faults(seed));
    let mut cluster = Cluster::new(&sim, seed);
    let after = (seed % 4 == 3).then_some(Duration::from_millis(200));
    let eviction = Eviction { capacity: Some(Capacity::Rows(CAPACITY)), after, ..Eviction::default() };
    let places = Places { coordinator: cluster.reach(), job: "job".into() };
    let processes: Vec<SimProcess> = (0..3)
        .map(|rank| {
            let config = WorkerConfig {
                places: Some(places.clone()),
                peer_timeout: patience(seed),
                ..WorkerConfig::new(cluster.servers(), rank, 1)
            };
            let sim = cluster.host(&format!("worker {rank}"));
            let program = Program { sim: sim.clone(), config, eviction, seed, seen: seen.clone() };
            sim.spawn(move || program.run())
        })
        .collect();
    cluster.run(|| processes.iter().any(|worker| !worker.has_ended()))[0]
}

/// A backup that takes a place knows which rows have died, and which changes are too late, whatever of it had come.
#[test]
fn rows_that_died_stay_dead_when_a_backup_takes_the_place() {
    let seen = Rc::new(RefCell::new(Seen::default()));
    let mut failed = 0;
    for seed in seeds_from(5_300, 12) {
        let _seed = Seed::begin(seed);
        failed += run(seed, &seen);
    }
    let seen = seen.borrow();
    let Seen { refused, died, kept, .. } = *seen;
    let shown = failed > 5 && refused > 100 && died > 100 && kept < refused / 4;
    assert!(
        !are_all() || shown,
        "{failed} owners failed, {refused} refused, {kept} of living rows, {died} died"
    );
    assert!(seen.rows <= CAPACITY + 100, "{} rows", seen.rows);
}

//! Rows die while workers compute changes of them, links break, and servers are killed and come back with other
//! threads.
//!
//! A worker pulls the sum of a key and pushes the change that makes it its next target. Only this worker has the key.
//! So each sum is 0 or the last target, unless a change that was computed from a row that died was added to the next
//! row, or a row that died is there again. A refused push leaves the sum before it.

mod failover;

use crate::model;
use crate::stepping::Seed;

use gannet_core::{Capacity, Eviction, Read, Schema, Store, Write};
use gannet_optim::{Add, Rule};
use gannet_sim::{Faults, Sim};
use gannet_transport::Prng;
use gannet_worker::{PullId, TableId, Worker, WorkerConfig};
use model::start;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Above all differences of targets.
const FIRST_TARGET: f32 = 100_000.0;

fn schema() -> Schema {
    Schema { shards: 4, ..Schema::scalar("t", Rule::Add(Add)) }
}

/// A worker that sets the sums of its own keys.
struct Setter {
    worker: Worker<Sim>,
    table: TableId,
    index: u64,
    held: Option<(PullId, Arc<gannet_wire::ShardedKeys>, Vec<f32>)>,
    pushes: u64,
    /// The target of the last push to each key, and the sum that it was computed from.
    set: HashMap<u64, [f32; 2]>,
    /// Sums that were 0 though the key had been set before.
    died: u64,
    /// Sums that a push was to change, and did not, although their rows live.
    kept: u64,
}

impl Setter {
    fn new(sim: &Sim, config: WorkerConfig, eviction: Eviction) -> Setter {
        let index = config.pusher;
        let mut worker = Worker::connect(sim.clone(), config).unwrap();
        worker.evict_rows("t", eviction).unwrap();
        let table = worker.open_table(&schema()).unwrap();
        Setter { worker, table, index, held: None, pushes: 0, set: HashMap::new(), kept: 0, died: 0 }
    }

    fn pull(&mut self, prng: &mut Prng, context: &str) {
        let mut keys: Vec<u64> = (0..80).map(|_| self.index * 1000 + prng.below(150)).collect();
        keys.sort_unstable();
        keys.dedup();
        self.pull_keys(&keys, context);
    }

    fn pull_keys(&mut self, keys: &[u64], context: &str) {
        let cut = Arc::new(self.worker.cut(self.table, keys));
        let pull = self.worker.begin_pull(self.table, cut.clone(), Read::State, Vec::new(), true).unwrap();
        let pulled = self.worker.finish_pull(pull).unwrap();
        for (key, sum) in cut.keys().iter().zip(&pulled.values) {
            let [target, before] = self.set.get(key).copied().unwrap_or_default();
            // A server that has other threads, or another one, refuses a change if it cannot know whether its row died.
            assert!([0.0, target, before].contains(sum), "{context}: key {key} has {sum}, not {target}");
            self.died += u64::from(*sum == 0.0 && target != 0.0);
            if ![0.0, target].contains(sum) {
                self.kept += 1;
                self.set.insert(*key, [*sum, 0.0]);
            }
        }
        let refused = self.worker.counters().refused;
        assert!(self.kept <= refused, "{context}: {} pushes are gone, {refused} were refused", self.kept);
        self.held = Some((pull, cut, pulled.values));
    }

    fn push(&mut self) {
        let Some((pull, cut, mut sums)) = self.held.take() else { return };
        self.pushes += 1;
        let target = FIRST_TARGET + self.pushes as f32;
        self.set.extend(cut.keys().iter().zip(&sums).map(|(key, sum)| (*key, [target, *sum])));
        sums.iter_mut().for_each(|sum| *sum = target - *sum);
        let seq = self.worker.next_seq(self.table);
        self.worker.begin_push(self.table, cut, Write::Change, sums, Some(pull), seq).unwrap();
    }
}

/// Pushes keys that come once, so that the table is full.
fn make_rows(other: &mut Setter, prng: &mut Prng) {
    let first = 1 << 40 | prng.below(1 << 30) << 8;
    let keys: Vec<u64> = (first..first + 20).collect();
    other.worker.push(other.table, &keys, Write::Gradient, &[1.0; 20]).unwrap();
}

#[test]
fn no_change_reaches_the_row_after_the_one_that_died() {
    let (mut refused, mut died, mut kept, mut lost) = (0, 0, 0, 0);
    for seed in 0..12 {
        let _seed = Seed::begin(seed);
        let faults = Faults {
            reset_per_million: [0, 20_000][seed as usize % 2],
            piece_bytes_max: [0, 100, 5_000][seed as usize % 3],
            window_bytes: 50_000,
            ..Faults::none()
        };
        let (sim, mut prng) = (Sim::new(seed, faults), Prng::new(seed));
        let folder = crate::folder_in_memory();
        let store = Store::open_dir(folder.path()).unwrap();
        let (mut actor, addr) = start(&sim, "sim:0", &store, 2);
        let after = (seed % 4 == 3).then_some(Duration::from_millis(20));
        let eviction = Eviction { capacity: Some(Capacity::Rows(160)), after, ..Eviction::default() };
        let setter = |rank| Setter::new(&sim, WorkerConfig::new([addr.clone()], rank, 1), eviction);
        let mut all: Vec<Setter> = (0..3).map(setter).collect();
        for round in 0..60 {
            let who = prng.below(2) as usize;
            match prng.below(4) {
                0 | 1 if all[who].held.is_none() => {
                    all[who].pull(&mut prng, &format!("seed {seed}, {round}"))
                }
                0 | 1 => all[who].push(),
                2 => make_rows(&mut all[2], &mut prng),
                _ => sim.run(Duration::from_micros(prng.below(3_000))),
            }
            if round % 20 == 19 && seed % 3 > 0 {
                // As after kill -9: the images stay as they are, and connections break.
                sim.remove_actor(actor);
                sim.reset_all(&addr);
                let threads = if seed % 3 == 1 { 2 } else { 1 + prng.below(4) as usize };
                actor = start(&sim, &addr, &store, threads).0;
            }
        }
        for setter in &mut all {
            setter.push();
            setter.worker.drain().unwrap();
            setter.pull(&mut prng, &format!("seed {seed}, at the end"));
            let counters = setter.worker.counters();
            (refused, lost) = (refused + counters.refused, lost + counters.links_lost);
            died += setter.died;
            kept += setter.kept;
            assert!(seed % 3 != 0 || setter.kept == 0, "seed {seed}: refused, and the row lives");
        }
        let Setter { worker, table, .. } = &mut all[0];
        let rows = worker.status(*table).unwrap().stats.rows;
        assert!(rows <= 160 + 100, "seed {seed}: {rows} rows");
    }
    let shown = refused > 300 && died > 1_000 && lost > 20 && kept < refused / 10;
    assert!(shown, "{refused} refused, {kept} of living rows, {died} died, {lost} links lost");
}

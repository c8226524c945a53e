//! A server takes the place of one that has died, and dies itself a moment later. A third server had every row all the
//! time, so nothing is lost and nobody waits for ever.

use crate::cluster::{Cluster, LEASE, patience};
use crate::model::schema;
use crate::simulated::faults;
use crate::stepping::{Seed, are_all, seeds_from};
use gannet_core::{Read, Write};
use gannet_server::ReplicationMode;
use gannet_sim::{Faults, Sim, SimProcess};
use gannet_transport::{Net, Poll, Prng};
use gannet_worker::{OneSided, Places, PushId, Worker, WorkerConfig};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const WRITERS: usize = 2;
const KEYS: u64 = 400;
/// Pushes that a writer has in flight: so the backups of an owner that dies differ in what nobody has acknowledged.
const IN_FLIGHT: usize = 6;
/// Rows that no push changes any more. So it takes a while to fill a backup.
const STILL: u64 = 20_000;
/// Every push has this key.
const SHARED: u64 = 7;

/// What the writers have begun, and what was acknowledged, all together.
#[derive(Default)]
struct Pushed {
    begun: u64,
    acknowledged: u64,
    over: bool,
}

fn still() -> Vec<u64> {
    (0..STILL).map(|n| 1_000_000 + n).collect()
}

pub(super) fn faults_of(seed: u64) -> Faults {
    if seed.is_multiple_of(4) { faults(seed) } else { Faults::none() }
}

struct Scene {
    sim: Sim,
    cluster: Cluster,
    places: Places,
    pushed: Rc<RefCell<Pushed>>,
    processes: Vec<SimProcess>,
    prng: Prng,
    seed: u64,
    replication: ReplicationMode,
}

impl Scene {
    fn new(seed: u64, replication: ReplicationMode) -> Scene {
        let sim = Sim::new(seed, faults_of(seed));
        let sim = if seed.is_multiple_of(2) { sim.near() } else { sim };
        let mut cluster = Cluster::empty(&sim, seed, replication);
        cluster.keep_memory();
        // Servers with places of their own, or one place and two servers without one.
        match seed / 2 % 2 {
            0 => cluster.start_ring(3, 2),
            _ => cluster.start_with_spares(1),
        }
        let places = Places { coordinator: cluster.reach(), job: "job".into() };
        let (pushed, processes) = (Rc::default(), Vec::new());
        let prng = Prng::new(seed ^ 0x2DEAD);
        let mut scene = Scene { sim, cluster, places, pushed, processes, prng, seed, replication };
        scene.cluster.heal();
        let writers = (0..WRITERS).map(|rank| scene.writer(rank)).collect::<Vec<_>>();
        scene.processes = writers;
        let reader = scene.reader();
        scene.processes.push(reader);
        scene
    }

    fn config(&self, config: WorkerConfig) -> WorkerConfig {
        let one_sided = if self.seed.is_multiple_of(2) { OneSided::Always } else { OneSided::Never };
        let places = Some(self.places.clone());
        WorkerConfig { places, one_sided, spin: Duration::ZERO, peer_timeout: patience(self.seed), ..config }
    }

    fn writer(&self, rank: usize) -> SimProcess {
        let config = self.config(WorkerConfig::new(self.cluster.servers(), rank as u64 + 1, 1));
        let (sim, pushed) = (self.sim.clone(), self.pushed.clone());
        let mut prng = Prng::new(self.seed << 8 | rank as u64);
        self.sim.spawn(move || {
            let mut worker = Worker::connect(sim.clone(), config).unwrap();
            let table = worker.open_table(&schema("t", 1, 8)).unwrap();
            let mut open: VecDeque<PushId> = VecDeque::new();
            worker.push(table, &still(), Write::Gradient, &[1.0; STILL as usize]).unwrap();
            while !pushed.borrow().over || !open.is_empty() {
                while open.len() > IN_FLIGHT || pushed.borrow().over && !open.is_empty() {
                    worker.finish_push(open.pop_front().unwrap()).unwrap();
                    pushed.borrow_mut().acknowledged += 1;
                }
                if pushed.borrow().over {
                    continue;
                }
                let first = prng.below(KEYS);
                let keys: Vec<u64> =
                    (0..KEYS / 8).map(|n| 100 + (first + n * 3) % KEYS).chain([SHARED]).collect();
                let cut = Arc::new(worker.cut(table, &keys));
                let ones = vec![1.0; cut.keys().len()];
                pushed.borrow_mut().begun += 1;
                let seq = worker.next_seq(table);
                open.push_back(worker.begin_push(table, cut, Write::Gradient, ones, None, seq).unwrap());
                let time = Duration::from_micros(prng.below(20_000));
                sim.poll().unwrap().wait(time, &mut Vec::new()).unwrap();
                worker.poll().unwrap();
            }
        })
    }

    /// A worker that only reads, with some seeds in the memory of servers. No death undoes what was acknowledged.
    fn reader(&self) -> SimProcess {
        let config = self.config(WorkerConfig::reader(self.cluster.servers()));
        let (sim, pushed, seed) = (self.sim.clone(), self.pushed.clone(), self.seed);
        let is_sync = self.replication == ReplicationMode::Sync;
        self.sim.spawn(move || {
            let mut worker = Worker::connect(sim.clone(), config).unwrap();
            let table = worker.open_table(&schema("t", 1, 8)).unwrap();
            let (mut row, mut seen) = ([0.0], 0);
            while !pushed.borrow().over {
                // Nor what was seen, unless rows are read at once.
                let least = pushed.borrow().acknowledged.max(if is_sync { seen } else { 0 });
                worker.pull(table, &[SHARED], Read::Weights, &mut row).unwrap();
                let (most, count) = (pushed.borrow().begun, row[0] as u64);
                seen = count;
                assert!(
                    least <= count && count <= most,
                    "seed {seed} at {:?}: {count} pushes, {least} were acknowledged or seen and {most} begun",
                    sim.now()
                );
                sim.poll().unwrap().wait(Duration::from_millis(7), &mut Vec::new()).unwrap();
            }
        })
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&Scene) -> bool) {
        let end = self.sim.now() + patience(self.seed);
        while !is_so(self) {
            assert!(self.sim.now() < end, "seed {}: {what}: {}", self.seed, self.cluster.state());
            self.sim.run(Duration::from_millis(1));
        }
    }

    /// Kills the owner of place 0. It has told one of its backups some pushes that the other has not.
    fn kill_owner(&mut self) -> usize {
        self.until("no backups", |of| of.cluster.known(0).is_some_and(|(_, backups)| !backups.is_empty()));
        let (owner, backups) = self.cluster.known(0).unwrap();
        let at = self.cluster.members.iter().position(|of| of.host() == owner).unwrap();
        let backup = &backups[self.prng.below(backups.len() as u64) as usize];
        self.sim.cut(&owner, backup, LEASE);
        let time = Duration::from_micros(self.prng.below(60_000));
        self.sim.run(time);
        self.cluster.kill(at);
        at
    }

    /// Kills the owner, and the next one so soon. Returns whether nothing was acknowledged in between.
    fn die_twice(&mut self) -> bool {
        let before = self.pushed.borrow().acknowledged;
        self.until("pushes", |of| of.pushed.borrow().acknowledged > before + 20);
        let (first, time) = (self.kill_owner(), Duration::from_micros(self.prng.below(200_000)));
        let delay_max = Duration::from_millis(20);
        self.sim.set_faults(Faults { window_bytes: 20_000, delay_max, ..Faults::none() });
        let dead = self.cluster.members[first].host().to_owned();
        let epoch = self.cluster.epoch(0);
        self.until("another owner", |of| {
            of.cluster.epoch(0) > epoch && of.cluster.known(0).is_some_and(|(owner, _)| owner != dead)
        });
        let acknowledged = self.pushed.borrow().acknowledged;
        self.sim.run(time);
        // The rows are on their way.
        let is_held = self.pushed.borrow().acknowledged == acknowledged;
        self.kill_owner();
        self.until("pushes of the third", |of| of.pushed.borrow().acknowledged > acknowledged + 20);
        self.sim.set_faults(faults_of(self.seed));
        is_held
    }

    fn check(&mut self) {
        self.pushed.borrow_mut().over = true;
        self.until("an end", |of| of.processes.iter().all(SimProcess::has_ended));
        let config = self.config(WorkerConfig::reader(self.cluster.servers()));
        let mut worker = Worker::connect(self.sim.clone(), config).unwrap();
        let table = worker.open_table(&schema("t", 1, 8)).unwrap();
        let mut row = [0.0];
        worker.pull(table, &[SHARED], Read::Weights, &mut row).unwrap();
        assert_eq!(row[0] as u64, self.pushed.borrow().begun, "seed {}", self.seed);
        let (still, mut rows) = (still(), vec![0.0; STILL as usize]);
        worker.pull(table, &still, Read::Weights, &mut rows).unwrap();
        assert!(rows.iter().all(|row| *row == WRITERS as f32), "seed {}: rows are gone", self.seed);
    }
}

fn run_seeds(seeds: Range<u64>, replication: ReplicationMode) {
    let mut held = 0;
    for seed in seeds {
        let _seed = Seed::begin(seed);
        let mut scene = Scene::new(seed, replication);
        for _ in 0..2 {
            held += u64::from(scene.die_twice());
            // Two servers come back, and have everything after a while.
            scene.sim.run(LEASE);
            scene.cluster.heal();
        }
        scene.check();
    }
    assert!(
        !are_all() || held > 0,
        "no owner died before it had filled the third server: the test shows nothing"
    );
}

/// The second owner had taken the third server out of the set, which had every row.
#[test]
fn a_place_was_silent_for_ever_when_two_owners_died_one_after_the_other() {
    run_seeds(seeds_from(5_100, 12), ReplicationMode::Sync);
}

/// As above. The third server may have pushes that the second has not, and nobody has acknowledged.
#[test]
fn so_it_was_when_rows_are_read_at_once() {
    run_seeds(seeds_from(5_200, 12), ReplicationMode::Async);
}

//! A worker is dead, and others wait for it. The server that decides which workers are dead dies meanwhile, and a
//! backup takes its place. The others go on once the new one has given the dead worker up.

use super::two_deaths::faults_of;
use crate::cluster::{Cluster, patience};
use crate::model::schema;
use crate::stepping::{Seed, are_all, seeds_from};
use gannet_core::{Read, Write};
use gannet_server::ReplicationMode;
use gannet_sim::{Sim, SimProcess};
use gannet_transport::{Net, Poll, Prng};
use gannet_wire::{Merge, Refusal, StepReduce, SyncConfig, SyncMode};
use gannet_worker::{Places, Worker, WorkerConfig, WorkerError};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const WORKERS: u32 = 3;
/// The worker that dies, after so many steps.
const DIES: u32 = 2;
const DIES_AFTER: u64 = 4;
const STEPS: u64 = 12;
/// Longer than a place is without an owner.
const WORKER_TIMEOUT: Duration = Duration::from_secs(10);
const KEYS: [u64; 4] = [1, 7, 30, 500];

struct Scene {
    sim: Sim,
    cluster: Cluster,
    places: Places,
    mode: SyncMode,
    seed: u64,
    /// The steps that each worker has made.
    made: Vec<Rc<Cell<u64>>>,
}

impl Scene {
    fn new(seed: u64, mode: SyncMode) -> Scene {
        let sim = Sim::new(seed, faults_of(seed));
        let mut cluster = Cluster::empty(&sim, seed, ReplicationMode::Sync);
        // Servers with places of their own, or one place and two servers without one.
        match seed / 2 % 2 {
            0 => cluster.start_ring(3, 2),
            _ => cluster.start_with_spares(1),
        }
        cluster.heal();
        let places = Places { coordinator: cluster.reach(), job: "job".into() };
        let made = (0..WORKERS).map(|_| Rc::default()).collect();
        Scene { sim, cluster, places, mode, seed, made }
    }

    fn config(&self, pusher: u64, incarnation: u64) -> WorkerConfig {
        let servers = self.cluster.servers();
        let places = Some(self.places.clone());
        let (peer_timeout, spin) = (patience(self.seed), Duration::ZERO);
        WorkerConfig { places, peer_timeout, spin, ..WorkerConfig::new(servers, pusher, incarnation) }
    }

    /// A worker that makes its steps and leaves. It is never still for long.
    fn worker(&mut self, rank: u32) -> SimProcess {
        let sim = self.cluster.host(&format!("worker {rank}"));
        let (config, mode, seed) = (self.config(u64::from(rank) + 1, 1), self.mode, self.seed);
        let made = self.made[rank as usize].clone();
        let member =
            SyncConfig { rank, workers: WORKERS, mode, worker_timeout: WORKER_TIMEOUT, strict: false };
        let mut prng = Prng::new(seed << 8 | u64::from(rank));
        self.sim.spawn(move || {
            let mut steps = || -> Result<(), WorkerError> {
                let mut worker = Worker::connect(sim.clone(), config.clone())?;
                let table = worker.open_table(&schema("t", 1, 8))?;
                worker.join(table, member)?;
                for _ in 0..STEPS {
                    let cut = Arc::new(worker.cut(table, &KEYS));
                    let pull = worker.begin_pull(table, cut.clone(), Read::Weights, Vec::new(), true)?;
                    worker.finish_pull(pull)?;
                    let (seq, ones) = (worker.next_seq(table), vec![1.0; KEYS.len()]);
                    worker.begin_push(table, cut, Write::Gradient, ones, Some(pull), seq)?;
                    worker.tick(table)?;
                    made.set(made.get() + 1);
                    sim.poll()?.wait(Duration::from_micros(prng.below(200_000)), &mut Vec::new())?;
                }
                worker.drain()?;
                worker.leave(table)
            };
            let done = steps();
            let now = sim.now();
            done.unwrap_or_else(|error| panic!("seed {seed} worker {rank} at {now:?}: {error}"));
        })
    }

    fn until(&self, what: &str, is_so: impl Fn(&Scene) -> bool) {
        let most = self.sim.now() + 2 * patience(self.seed) + 6 * WORKER_TIMEOUT;
        while !is_so(self) {
            let made: Vec<u64> = self.made.iter().map(|made| made.get()).collect();
            assert!(self.sim.now() < most, "seed {}: {what}: no end: {made:?}", self.seed);
            self.sim.run(Duration::from_millis(5));
        }
    }

    /// Returns whether the others waited when the deciding server died.
    fn play(&mut self) -> bool {
        let mut prng = Prng::new(self.seed ^ 0xDEC1DE);
        let workers: Vec<SimProcess> = (0..WORKERS).map(|rank| self.worker(rank)).collect();
        self.until("some steps", |of| of.made[DIES as usize].get() >= DIES_AFTER);
        self.sim.kill(&workers[DIES as usize]);
        // The dead one is not given up yet, or just now.
        self.sim.run(Duration::from_millis(prng.below(13_000)));
        let waited = !workers[0].has_ended() && !workers[1].has_ended();
        self.cluster.kill(0);
        self.until("the others", |_| workers[..DIES as usize].iter().all(SimProcess::has_ended));
        let most = self.made[DIES as usize].get();
        assert!(self.made[..DIES as usize].iter().all(|made| made.get() == STEPS), "seed {}", self.seed);
        // Where other servers knew it, it is fenced, at the new owner, too. Where none did, it counts as one that has
        // not come yet, and may come.
        let is_fenced = self.cluster.places > 1;
        self.cluster.heal();
        let (config, of, seed) = (self.config(u64::from(DIES) + 1, 1), self.sim.clone(), self.seed);
        let reader = self.config(99, 1);
        let checks = self.sim.spawn(move || {
            let mut reader = Worker::connect(of.clone(), reader).unwrap();
            let table = reader.open_table(&schema("t", 1, 8)).unwrap();
            let mut rows = [0.0; KEYS.len()];
            reader.pull(table, &KEYS, Read::Weights, &mut rows).unwrap();
            let least = (STEPS * u64::from(DIES)) as f32;
            for row in rows {
                // Its last step may have come, or not.
                assert!(row >= least && row <= least + most as f32, "seed {seed}: {rows:?}");
            }
            for key in KEYS.into_iter().filter(|_| is_fenced) {
                let mut dead = Worker::connect(of.clone(), config.clone()).unwrap();
                let open = dead.open_table(&schema("t", 1, 8));
                let refused = open.and_then(|table| dead.push(table, &[key], Write::Gradient, &[1.0]));
                let is_it = matches!(&refused, Err(WorkerError::Refused { refusal: Refusal::Fenced, .. }));
                assert!(is_it, "seed {seed} key {key}: {refused:?}");
            }
        });
        self.until("the checks", |_| checks.has_ended());
        waited
    }
}

fn go_on(mode: SyncMode, first: u64) {
    let (mut all, mut waited) = (0, 0);
    for seed in seeds_from(first, 12) {
        let _seed = Seed::begin(seed);
        all += 1;
        waited += u64::from(Scene::new(seed, mode).play());
    }
    assert!(!are_all() || waited * 2 > all, "{waited} of {all} waited: the test shows nothing");
}

#[test]
fn workers_go_on_when_the_server_dies_that_decides_which_worker_is_dead() {
    go_on(SyncMode::Bsp(StepReduce { aggregate: WORKERS, merge: Merge::Sum }), 4_600);
}

#[test]
fn so_do_workers_within_a_bound() {
    go_on(SyncMode::Ssp(1), 4_700);
}

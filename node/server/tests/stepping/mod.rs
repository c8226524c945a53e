//! Workers of different speeds that take steps in a simulated cluster without blocking, and servers that are
//! killed and restarted.
#![allow(dead_code, unused_imports, reason = "each test file uses what it needs")]

use crate::model::unique_keys;
use gannet_core::{Read, Schema, Segments, Store, Write};
use gannet_server::{LocalServer, ServerConfig};
use gannet_sim::{Faults, Sim};
use gannet_transport::{Net, Prng};
use gannet_wire::{Merge, ShardedKeys, StepReduce, SyncConfig, SyncMode};
use gannet_worker::{OneSided, PullId, PushId, TableId, Worker, WorkerConfig, WorkerError};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub fn faults(seed: u64) -> Faults {
    Faults {
        reset_per_million: [0, 3_000, 15_000][seed as usize % 3],
        refuse_per_million: 50_000,
        piece_bytes_max: [0, 100, 5_000][seed as usize % 3],
        window_bytes: [3_000, 50_000, 300_000][seed as usize % 3],
        ..Faults::none()
    }
}

pub fn start(sim: &Sim, addr: &str, store: &Store, threads: usize) -> (u64, String) {
    let config = ServerConfig { threads, store: store.clone(), ..ServerConfig::new(addr) };
    let mut server = LocalServer::new(sim.clone(), config).unwrap();
    let addr = server.addr().to_owned();
    (sim.add_actor(move || server.run().unwrap()), addr)
}

/// The simulation for a process of this name, with a clock of its own that the seed draws: up to two hours ahead of the
/// others, and up to a tenth too fast or too slow.
pub fn with_own_clock(sim: &Sim, name: &str, seed: u64) -> Sim {
    let name_drawn = name.bytes().fold(seed, |drawn, byte| drawn.wrapping_mul(257) ^ u64::from(byte));
    let mut prng = Prng::new(name_drawn);
    let ahead = Duration::from_secs(prng.below(7_200));
    sim.on(name, ahead, prng.below(200_001) as i32 - 100_000)
}

pub fn seeds(few: u64) -> u64 {
    number("SEEDS").unwrap_or(few)
}

/// The seeds of a test: a few from `first` on, as many as `SEEDS` says, or only the one that `SEED` names.
pub fn seeds_from(first: u64, few: u64) -> Range<u64> {
    number("SEED").map_or(first..first + seeds(few), |seed| seed..seed + 1)
}

/// All seeds of a test run, so together they show what it is about.
pub fn are_all() -> bool {
    number("SEED").is_none()
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|number| number.parse().ok())
}

/// The seed of a simulation, until it is dropped. What this thread draws comes from it, and the partitions of an odd
/// one are scattered. It says which seed failed, also where a process of the simulation has panicked. If `SEED` names
/// it, the log of all processes is printed.
pub struct Seed {
    seed: u64,
    _log: Option<tracing::subscriber::DefaultGuard>,
    _partitions: gannet_wire::ScatteredPartitions,
    _randomness: gannet_wire::SeededRandomness,
}

impl Seed {
    pub fn begin(seed: u64) -> Seed {
        let _partitions = gannet_wire::scatter_partitions(seed % 2 == 1);
        let _log = number("SEED").map(|_| crate::reached::log_here());
        Seed { seed, _log, _partitions, _randomness: gannet_wire::seed_randomness(seed) }
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "seed {} failed. SEED={} runs it alone, in a test that takes SEED",
                self.seed, self.seed
            );
        }
    }
}

/// What each worker pushed in each of its steps: rows with one float for each worker.
#[derive(Default)]
pub struct Pushed(pub BTreeMap<(u32, u64), KeyedRows>);

/// Keys, each with its row.
pub type KeyedRows = Vec<(u64, Vec<f32>)>;

impl Pushed {
    /// How often a worker has pushed to a key in its steps below `below`.
    pub fn count(&self, key: u64, rank: u32, below: u64) -> f32 {
        let steps = self.0.range((rank, 0)..(rank, below));
        steps.flat_map(|(_, rows)| rows).filter(|(own, _)| *own == key).count() as f32
    }
}

/// A worker that takes one step at a time and never blocks.
pub struct Stepper {
    pub worker: Worker<Sim>,
    pub table: TableId,
    pub member: SyncConfig,
    /// Steps to make, steps made, and pulls that have begun.
    pub steps: u64,
    pub made: u64,
    pub pulls_begun: u64,
    pub base: u64,
    pub pulls: VecDeque<(PullId, Arc<ShardedKeys>, u64)>,
    pub ahead: u64,
    pub keys_max: u64,
    pub last: Option<PushId>,
    pub done: bool,
}

impl Stepper {
    pub fn new(
        sim: &Sim,
        servers: &[String],
        schema: &Schema,
        member: SyncConfig,
        steps: u64,
        ahead: u64,
    ) -> Stepper {
        let pusher = u64::from(member.rank) + 1;
        let one_sided = OneSided::Always;
        let config = WorkerConfig { one_sided, ..WorkerConfig::new(servers.to_vec(), pusher, 1) };
        let own = with_own_clock(sim, &format!("worker {}", member.rank), member.workers.into());
        let mut worker = Worker::connect(own, config).unwrap();
        let table = worker.open_table(schema).unwrap();
        let base = worker.join(table, member).unwrap();
        let (made, pulls_begun, pulls, done) = (0, 0, VecDeque::new(), false);
        Stepper {
            worker,
            table,
            member,
            steps,
            made,
            pulls_begun,
            base,
            pulls,
            ahead,
            keys_max: 30,
            last: None,
            done,
        }
    }

    /// Begins pulls, and returns the rows of the oldest pull when they have arrived.
    pub fn turn(
        &mut self,
        prng: &mut Prng,
        space: u64,
    ) -> Result<Option<(Arc<ShardedKeys>, u64, Pull)>, WorkerError> {
        self.worker.poll()?;
        while self.pulls_begun < self.steps && self.pulls.len() as u64 <= self.ahead {
            let count = 1 + prng.below(self.keys_max) as usize;
            let cut = Arc::new(self.worker.cut(self.table, &unique_keys(prng, count, space)));
            let (read, ahead) = ((Read::Weights, Segments::ALL), self.pulls_begun - self.made);
            let id = self.worker.begin_pull_ahead(self.table, cut.clone(), read, Vec::new(), true, ahead)?;
            self.pulls.push_back((id, cut, self.base + self.pulls_begun));
            self.pulls_begun += 1;
        }
        let Some(&(id, ..)) = self.pulls.front().filter(|(id, ..)| self.worker.is_pulled(*id)) else {
            return Ok(None);
        };
        let Some((_, cut, clock)) = self.pulls.pop_front() else { return Ok(None) };
        let pulled = self.worker.finish_pull(id)?;
        Ok(Some((cut, clock, Pull { id, values: pulled.values, lowest: pulled.lowest })))
    }

    /// Pushes a step and ends it. After the last step the worker leaves.
    pub fn push(&mut self, cut: &Arc<ShardedKeys>, id: PullId, values: Vec<f32>) -> Result<(), WorkerError> {
        let seq = self.worker.next_seq(self.table);
        let push = self.worker.begin_push(self.table, cut.clone(), Write::Gradient, values, Some(id), seq)?;
        self.last = Some(push);
        self.worker.tick(self.table)?;
        self.made += 1;
        Ok(())
    }
}

impl Stepper {
    /// The worker's state, for messages.
    pub fn place(&self) -> (u64, u64, bool, bool, Option<gannet_worker::WaitingFor>) {
        (self.made, self.pulls_begun, self.done, self.is_acked(), self.worker.waiting_for())
    }

    pub fn is_acked(&self) -> bool {
        self.last.is_none_or(|last| self.worker.is_acked(last))
    }

    /// Leaving waits for the last step, for which the others must continue. So the worker leaves only after it
    /// was applied.
    pub fn leave_if_acked(&mut self) {
        if self.is_acked() {
            self.worker.leave(self.table).unwrap();
        }
    }
}

pub struct Pull {
    pub id: PullId,
    pub values: Vec<f32>,
    pub lowest: Option<u64>,
}

pub fn member(rank: u32, workers: u32, mode: SyncMode) -> SyncConfig {
    // Longer than a READ may take. The other workers of this thread do not run during a READ, and must not be
    // given up.
    SyncConfig { rank, workers, mode, worker_timeout: Duration::from_secs(40), strict: false }
}

/// Drops and restarts servers now and then. As after a kill, the images stay as they are.
pub struct Servers {
    pub running: Vec<(u64, String, Store, usize)>,
    kills: u64,
    _folders: Vec<tempfile::TempDir>,
}

impl Servers {
    pub fn new(sim: &Sim, count: u64, threads: usize) -> Servers {
        let (mut running, mut folders) = (Vec::new(), Vec::new());
        for number in 0..count {
            let folder = crate::folder_in_memory();
            let store = Store::open_dir(folder.path()).unwrap();
            let own = with_own_clock(sim, &format!("server {number}"), count);
            let (actor, addr) = start(&own, "sim:0", &store, threads);
            running.push((actor, addr, store, threads));
            folders.push(folder);
        }
        Servers { running, kills: 0, _folders: folders }
    }

    pub fn addrs(&self) -> Vec<String> {
        self.running.iter().map(|(_, addr, ..)| addr.clone()).collect()
    }

    /// Kills a server and restarts it with the same number of threads, or with `now` threads.
    pub fn kill_one(&mut self, sim: &Sim, which: usize, now: Option<usize>) {
        let at = which % self.running.len();
        let (actor, addr, store, threads) = &mut self.running[at];
        *threads = now.unwrap_or(*threads);
        sim.remove_actor(*actor);
        sim.reset_all(addr);
        // With each restart its clock goes forward or back.
        self.kills += 1;
        let own = with_own_clock(sim, &format!("server {at}"), self.kills);
        *actor = start(&own, addr, store, *threads).0;
    }
}

/// Lets each worker leave when its last step has been acknowledged. The others must continue for that.
pub fn leave_all(seed: u64, steppers: &mut [Stepper], sim: &Sim) {
    let mut turns = 0;
    while steppers.iter().any(|stepper| !stepper.is_acked()) {
        turns += 1;
        assert!(turns < 100_000, "seed {seed}: the last step is not acknowledged");
        sim.run(Duration::from_micros(200));
        for stepper in &mut *steppers {
            stepper.worker.poll().unwrap();
            stepper.leave_if_acked();
        }
    }
    steppers.iter_mut().for_each(Stepper::leave_if_acked);
}

pub struct Outcome {
    pub lost: u64,
    pub near: u64,
    /// Pulls by staleness.
    pub stale: Vec<u64>,
    pub late_rows: u64,
}

pub fn sum_up(steppers: &[Stepper]) -> Outcome {
    let mut all = Outcome { lost: 0, near: 0, stale: vec![0; 65], late_rows: 0 };
    for stepper in steppers {
        let counters = stepper.worker.counters();
        all.lost += counters.links_lost;
        all.near += counters.near_rows;
        all.late_rows += counters.late_rows;
        let pulls = stepper.worker.shared_counters().pulls_by_staleness();
        all.stale.iter_mut().zip(pulls).for_each(|(sum, pulls)| *sum += pulls);
    }
    all
}

/// Whether servers are killed and started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kills {
    None,
    /// With the same number of threads as before.
    Alike,
    /// With 1 to 4 threads.
    OtherThreads,
}

/// Runs workers of different speeds. `check` checks each pull and returns what to push.
pub fn run(
    seed: u64,
    sim: &Sim,
    servers: &mut Servers,
    steppers: &mut [Stepper],
    space: u64,
    kills: Kills,
    mut check: impl FnMut(u32, u64, &ShardedKeys, &Pull, &mut Prng) -> Vec<f32>,
) {
    let mut prng = Prng::new(seed ^ 0xABCD);
    let slow = prng.below(steppers.len() as u64) as usize;
    let mut turns = 0u64;
    while steppers.iter().any(|stepper| !stepper.done) {
        turns += 1;
        assert!(
            turns < 2_000_000,
            "seed {seed}: no end: {:?}",
            steppers.iter().map(Stepper::place).collect::<Vec<_>>()
        );
        let at = prng.below(steppers.len() as u64) as usize;
        if at == slow && !prng.below(4).is_multiple_of(4) {
            sim.run(Duration::from_micros(20));
            continue;
        }
        sim.run(Duration::from_micros(prng.below(100)));
        // Not without end: a worker that has just left is waited for until the time limit, which begins again
        // with each kill.
        if kills != Kills::None && turns < 30_000 && prng.below(600) == 0 {
            let threads = (kills == Kills::OtherThreads).then(|| 1 + prng.below(4) as usize);
            servers.kill_one(sim, turns as usize, threads);
        }
        let stepper = &mut steppers[at];
        if stepper.done {
            stepper.worker.poll().unwrap();
            stepper.leave_if_acked();
            continue;
        }
        let rank = stepper.member.rank;
        let got = stepper
            .turn(&mut prng, space)
            .unwrap_or_else(|error| panic!("seed {seed} worker {rank}: {error}"));
        if let Some((cut, clock, pull)) = got {
            let values = check(rank, clock, &cut, &pull, &mut prng);
            stepper.push(&cut, pull.id, values).unwrap();
            stepper.done = stepper.made == stepper.steps;
        }
    }
    leave_all(seed, steppers, sim);
}

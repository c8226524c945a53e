//! Workers as processes of the simulation: each of them calls and waits, as a program does, while the others go on.
//! Links break, servers are killed and come back with other threads, workers are killed and come back. Each process has
//! a clock of its own, and they differ in speed.

use crate::cluster::patience;
use crate::model::{schema, unique_keys};
use crate::simulated::faults;
use crate::stepping::{Seed, Servers, member, seeds, with_own_clock};

use gannet_core::{Read, Schema, Write};
use gannet_sim::{Faults, Sim, SimProcess};
use gannet_transport::{Net, Prng};
use gannet_wire::{Merge, StepReduce, SyncMode};
use gannet_worker::{OneSided, Places, Worker, WorkerConfig, WorkerError};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The key that every push has. Each worker counts its pushes in a float of its own.
pub(crate) const SHARED: u64 = 7;
const STEPS: u64 = 12;

/// The pushes of a worker to the shared key.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pushes {
    pub(crate) begun: u64,
    pub(crate) acknowledged: u64,
    /// Begun by incarnations that were killed: some may have been applied.
    in_doubt: u64,
}

pub(crate) type Book = Rc<RefCell<Vec<Pushes>>>;

/// A worker's program: it makes its steps and leaves.
pub(crate) struct Program {
    pub(crate) sim: Sim,
    pub(crate) servers: Vec<String>,
    pub(crate) table: Schema,
    pub(crate) rank: u32,
    pub(crate) workers: u32,
    pub(crate) incarnation: u64,
    /// `None`: asynchronous.
    pub(crate) mode: Option<SyncMode>,
    pub(crate) book: Book,
    pub(crate) seed: u64,
    pub(crate) places: Option<Places>,
    pub(crate) one_sided: OneSided,
}

impl Program {
    /// The result of a call, which must succeed.
    fn sure<T>(&self, result: Result<T, WorkerError>) -> T {
        let now = self.sim.now();
        result.unwrap_or_else(|error| panic!("seed {} worker {} at {now:?}: {error}", self.seed, self.rank))
    }

    pub(crate) fn run(self) {
        let Program { rank, workers, mode, seed, .. } = self;
        let config = WorkerConfig::new(self.servers.clone(), u64::from(rank) + 1, self.incarnation);
        let config = WorkerConfig {
            places: self.places.clone(),
            peer_timeout: patience(seed),
            one_sided: self.one_sided,
            ..config
        };
        let mut worker = self.sure(Worker::connect(self.sim.clone(), config));
        let table = self.sure(worker.open_table(&self.table));
        if let Some(mode) = mode {
            self.sure(worker.join(table, member(rank, workers, mode)));
        }
        let mut prng = Prng::new(seed << 8 | u64::from(rank) << 4 | self.incarnation);
        for step in 0..STEPS {
            let count = 1 + prng.below(30) as usize;
            let mut keys = unique_keys(&mut prng, count, 3_000);
            keys.retain(|key| *key != SHARED);
            keys.push(SHARED);
            let cut = Arc::new(worker.cut(table, &keys));
            let before = self.book.borrow().clone();
            let pull = self.sure(worker.begin_pull(table, cut.clone(), Read::Weights, Vec::new(), true));
            let rows = self.sure(worker.finish_pull(pull)).values;
            let at = cut.keys().iter().position(|key| *key == SHARED).unwrap();
            self.check(step, &rows[at * workers as usize..][..workers as usize], &before);
            let mut values = vec![0.0; rows.len()];
            values.chunks_mut(workers as usize).for_each(|row| row[rank as usize] = 1.0);
            self.book.borrow_mut()[rank as usize].begun += 1;
            let seq = worker.next_seq(table);
            let push = self.sure(worker.begin_push(table, cut, Write::Gradient, values, Some(pull), seq));
            if mode.is_some() {
                self.sure(worker.tick(table));
            } else {
                self.sure(worker.finish_push(push));
                self.book.borrow_mut()[rank as usize].acknowledged += 1;
            }
        }
        self.sure(worker.drain());
        if mode.is_some() {
            self.sure(worker.leave(table));
        }
        let own = &mut self.book.borrow_mut()[rank as usize];
        own.acknowledged = own.begun;
    }

    /// Checks the row of the shared key at a step, with what was known before the pull began.
    fn check(&self, step: u64, row: &[f32], before: &[Pushes]) {
        let now = self.book.borrow();
        for (of, &count) in row.iter().enumerate() {
            let (name, count) =
                (format!("seed {} worker {} step {step}: worker {of}", self.seed, self.rank), count as u64);
            let least = match self.mode {
                Some(SyncMode::Ssp(bound)) => step.saturating_sub(u64::from(bound)),
                Some(SyncMode::Bsp(_)) => step,
                _ => before[of].acknowledged,
            };
            let most = match self.mode {
                Some(SyncMode::Bsp(_)) => step,
                _ => now[of].begun + now[of].in_doubt,
            };
            assert!(least <= count && count <= most, "{name} has {count} pushes, not {least} to {most}");
            if of == self.rank as usize {
                let doubt = now[of].in_doubt;
                let own = now[of].begun;
                assert!(
                    own <= count && count <= own + doubt,
                    "{name}: {count} of {own} own pushes, {doubt} in doubt"
                );
            }
        }
    }
}

/// A cluster of one seed.
struct Cluster {
    sim: Sim,
    servers: Servers,
    table: Schema,
    mode: Option<SyncMode>,
    workers: u32,
    book: Book,
    seed: u64,
    processes: Vec<(SimProcess, u64)>,
}

impl Cluster {
    fn start(sim: Sim, seed: u64, mode: Option<SyncMode>) -> Cluster {
        let (servers, workers) =
            (Servers::new(&sim, 1 + seed % 2, 1 + seed as usize / 2 % 2), 2 + seed as u32 % 3);
        let book = Rc::new(RefCell::new(vec![Pushes::default(); workers as usize]));
        let table = schema("t", workers, 8);
        let mut cluster = Cluster { sim, servers, table, mode, workers, book, seed, processes: Vec::new() };
        for rank in 0..workers {
            let process = cluster.worker(rank, 1);
            cluster.processes.push((process, 1));
        }
        cluster
    }

    fn worker(&self, rank: u32, incarnation: u64) -> SimProcess {
        let Cluster { workers, mode, seed, .. } = *self;
        let sim = with_own_clock(&self.sim, &format!("worker {rank}"), seed << 8 | incarnation);
        let (servers, table, book) = (self.servers.addrs(), self.table.clone(), self.book.clone());
        let (places, one_sided) = (None, OneSided::Always);
        let program =
            Program { sim, servers, table, rank, workers, incarnation, mode, book, seed, places, one_sided };
        self.sim.spawn(move || program.run())
    }

    /// Kills a worker that has not ended, and starts it again.
    fn kill_worker(&mut self, rank: u32) {
        let (process, incarnation) = self.processes[rank as usize].clone();
        if process.has_ended() {
            return;
        }
        self.sim.kill(&process);
        let own = &mut self.book.borrow_mut()[rank as usize];
        // Pushes that were acknowledged are certain.
        own.in_doubt += own.begun - own.acknowledged;
        own.begun = own.acknowledged;
        self.processes[rank as usize] = (self.worker(rank, incarnation + 1), incarnation + 1);
    }

    /// Runs until all workers have ended. Returns how often a server and a worker were killed.
    fn run(&mut self) -> [u64; 2] {
        let mut prng = Prng::new(self.seed ^ 0xB10C);
        let (mut killed, end) = ([0; 2], Duration::from_secs(3600));
        let mut ran = Duration::ZERO;
        while self.processes.iter().any(|(process, _)| !process.has_ended()) {
            let time = Duration::from_micros(200 + prng.below(4_000));
            self.sim.run(time);
            ran += time;
            let going: Vec<u64> = self.processes.iter().map(|(_, incarnation)| *incarnation).collect();
            assert!(
                ran < end,
                "seed {}: no end: {:?}, incarnations {going:?}",
                self.seed,
                self.book.borrow()
            );
            if killed[0] < 6 && prng.below(15) == 0 {
                killed[0] += 1;
                let threads = (self.seed % 4 < 2).then(|| 1 + prng.below(4) as usize);
                self.servers.kill_one(&self.sim, prng.below(8) as usize, threads);
            }
            // A worker that comes back begins its steps anew, so the others would not be at its step.
            if self.mode.is_none() && killed[1] < 4 && prng.below(15) == 0 {
                killed[1] += 1;
                self.kill_worker(prng.below(u64::from(self.workers)) as u32);
            }
        }
        killed
    }

    /// Checks the rows at the end.
    fn check(&self) {
        let config = WorkerConfig::new(self.servers.addrs(), 99, 1);
        let mut reader = Worker::connect(self.sim.clone(), config).unwrap();
        let table = reader.open_table(&self.table).unwrap();
        let mut row = vec![0.0; self.workers as usize];
        reader.pull(table, &[SHARED], Read::Weights, &mut row).unwrap();
        for (of, (&count, pushes)) in row.iter().zip(&*self.book.borrow()).enumerate() {
            let (least, most) = (pushes.begun, pushes.begun + pushes.in_doubt);
            let count = count as u64;
            assert!(least <= count && count <= most, "seed {}: worker {of}: {count}, {pushes:?}", self.seed);
        }
    }
}

fn several_workers_wait_at_once(world: impl Fn(u64, Faults) -> Sim) {
    let mut killed = [0; 2];
    for seed in 500..500 + seeds(9) {
        let _seed = Seed::begin(seed);
        let mode = match seed % 3 {
            0 => None,
            1 => Some(SyncMode::Ssp(seed as u32 % 4)),
            _ => Some(SyncMode::Bsp(StepReduce { aggregate: 2 + seed as u32 % 3, merge: Merge::Sum })),
        };
        let mut cluster = Cluster::start(world(seed, faults(seed)), seed, mode);
        let of_this = cluster.run();
        killed.iter_mut().zip(of_this).for_each(|(all, more)| *all += more);
        cluster.check();
    }
    assert!(killed.iter().all(|&kills| kills > 3), "{killed:?}: the test shows nothing");
}

#[test]
fn workers_that_wait_at_once_lose_and_double_nothing() {
    several_workers_wait_at_once(Sim::new);
}

#[test]
fn nor_do_they_on_one_host() {
    several_workers_wait_at_once(|seed, faults| Sim::new(seed, faults).near());
}

#[test]
fn nor_do_they_over_rdma() {
    several_workers_wait_at_once(|seed, faults| Sim::new(seed, faults).far_lines());
}

//! Data tasks in the simulated world: workers are killed, fall asleep and wake up, servers and the scheduler among them are killed and
//! started again on their folders, links break. Every record of every pass is in the sums exactly once.

mod model;

use gannet_node::transport::Net;
use gannet_node::transport::sim::{Faults, Prng, Sim};
use gannet_node::{
    DataName, Given, JobStatus, Plan, PlanFile, Read, Schema, Seat, Store, TableId, Told, Worker,
    WorkerConfig, WorkerError, Write,
};
use model::{schema, start};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const WORKERS: u32 = 3;
const BATCHES: u64 = 5;
const KEYS: u64 = 400;
const TIMEOUT: Duration = Duration::from_secs(4);

fn plan(epochs: u32) -> Plan {
    let file = |i: u64| PlanFile { name: format!("part-{i}"), bytes: 700 + i, print: i, whole: i == 2 };
    Plan {
        workers: WORKERS,
        files: (0..3).map(file).collect(),
        task_bytes: 100,
        batch: 8,
        epochs,
        worker_timeout_ms: TIMEOUT.as_millis() as u64,
        settings: Vec::new(),
    }
}

/// The keys of a batch: those of its records.
fn keys_of(task: u32, batch: u64) -> Vec<u64> {
    let mut prng = Prng::new(u64::from(task) << 32 | batch);
    let count = 1 + prng.below(60) as usize;
    model::unique_keys(&mut prng, count, KEYS)
}

/// A worker: its seat, its links, and what it is at.
struct Trainer {
    seat: Seat<Sim>,
    worker: Worker<Sim>,
    table: TableId,
    started: u64,
    /// (index, task, epoch, the next batch).
    at: Option<(u64, u32, u32, u64)>,
    asleep_until: Duration,
    /// Steps that it makes before its next sign of life, when it has just woken: the thread that gives those is another.
    dazed: u64,
}

impl Trainer {
    fn start(
        sim: &Sim,
        servers: &[String],
        schema: &Schema,
        rank: u32,
        life: u64,
    ) -> Result<Trainer, WorkerError> {
        let pusher = u64::from(rank) + 1;
        let config = |servers: &[String]| WorkerConfig::new(servers.to_vec(), pusher, life);
        let seat = Seat::join(sim.clone(), config(&servers[..1]), rank, plan(2))?;
        let mut worker = Worker::connect(sim.clone(), config(servers))?;
        let table = worker.open_table(schema)?;
        let started = seat.joined().started;
        Ok(Trainer { seat, worker, table, started, at: None, asleep_until: Duration::ZERO, dazed: 0 })
    }

    /// Says that it lives, and fences whom it is told to.
    fn beat(&mut self) -> Result<(), WorkerError> {
        for dead in self.seat.beat(Told::default())?.fence {
            self.worker.fence(self.table, u64::from(dead.rank) + 1, dead.incarnation)?;
            self.seat.fenced(dead)?;
        }
        Ok(())
    }

    /// One thing: takes a task, pushes a batch, or ends a task. True: all is over.
    fn step(&mut self, prng: &mut Prng) -> Result<bool, WorkerError> {
        match self.dazed.checked_sub(1) {
            Some(left) => self.dazed = left,
            None => self.beat()?,
        }
        let Some((index, task, epoch, batch)) = self.at else {
            return Ok(match self.seat.take(&[])? {
                Given::Over => true,
                Given::Wait => false,
                Given::Task { index, task, from, .. } => {
                    self.at = Some((index, task.number, task.epoch, from));
                    false
                }
            });
        };
        let name = (1 << 63 | u64::from(epoch) << 32 | u64::from(task), self.started);
        if batch == BATCHES {
            self.worker.close_data(self.table, name.0, name.1)?;
            self.seat.done(index, BATCHES)?;
            self.at = None;
            return Ok(false);
        }
        let cut = Arc::new(self.worker.cut(self.table, &keys_of(task, batch)));
        let pulled = match prng.below(2) {
            0 => None,
            _ => {
                let pull = self.worker.begin_pull(self.table, cut.clone(), Read::State, Vec::new(), true)?;
                self.worker.finish_pull(pull)?;
                Some(pull)
            }
        };
        let name = DataName { pusher: name.0, incarnation: name.1, seq: batch + 1, clock: 0 };
        let (seq, ones) = (self.worker.next_seq(self.table), vec![1.0; cut.keys().len()]);
        let (table, write) = (self.table, Write::Gradient);
        self.worker.begin_push_named(table, cut, write, ones, pulled, (seq, Some(name)))?;
        self.at = Some((index, task, epoch, batch + 1));
        Ok(false)
    }
}

struct World {
    sim: Sim,
    stores: Vec<Store>,
    servers: Vec<(u64, String)>,
    _folders: Vec<tempfile::TempDir>,
}

impl World {
    fn new(seed: u64) -> World {
        let faults = Faults {
            reset_per_million: [0, 2_000, 10_000][seed as usize % 3],
            refuse_per_million: 50_000,
            window_bytes: 50_000,
            ..Faults::none()
        };
        let sim = Sim::new(seed, faults);
        let folders: Vec<_> = (0..1 + seed % 2).map(|_| tempfile::tempdir().unwrap()).collect();
        let stores: Vec<_> = folders.iter().map(|folder| Store::open_dir(folder.path()).unwrap()).collect();
        let servers = stores.iter().map(|store| start(&sim, "sim:0", store, 2)).collect();
        World { sim, stores, servers, _folders: folders }
    }

    fn addrs(&self) -> Vec<String> {
        self.servers.iter().map(|(_, addr)| addr.clone()).collect()
    }

    fn restart(&mut self, which: usize) {
        let (actor, addr) = self.servers[which].clone();
        self.sim.remove_actor(actor);
        self.sim.reset_all(&addr);
        self.servers[which] = start(&self.sim, &addr, &self.stores[which], 2);
    }
}

/// What the sums must be.
fn expected(plan: &Plan) -> HashMap<u64, f32> {
    let mut sums = HashMap::new();
    for index in 0..plan.tasks() {
        for batch in 0..BATCHES {
            for key in keys_of(plan.task(index).number, batch) {
                *sums.entry(key).or_default() += 1.0;
            }
        }
    }
    sums
}

#[test]
fn every_record_is_trained_once_a_pass_whoever_dies() {
    let (mut killed, mut woken, mut restarts, mut doubled) = (0, 0, 0, 0);
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(12);
    for seed in 0..seeds {
        let (mut world, mut prng) = (World::new(seed), Prng::new(seed));
        let (schema, plan) = (schema("t", 1, 8), plan(2));
        let mut workers: Vec<Option<Trainer>> = (0..WORKERS).map(|_| None).collect();
        let (mut life, mut over, mut asleep_once) = (1, false, Vec::new());
        for round in 0.. {
            assert!(round < 20_000, "seed {seed}: the job does not end");
            for (rank, place) in workers.iter_mut().enumerate() {
                let now = world.sim.now();
                let Some(trainer) = place else {
                    // There is always one to go on.
                    if rank == round % WORKERS as usize || prng.below(40) == 0 {
                        life += 1;
                        let addrs = world.addrs();
                        match Trainer::start(&world.sim, &addrs, &schema, rank as u32, life) {
                            Ok(trainer) => *place = Some(trainer),
                            Err(error) => assert!(
                                error.to_string().contains("two workers have the same"),
                                "seed {seed}: {error}"
                            ),
                        }
                    }
                    continue;
                };
                if trainer.asleep_until > now {
                    continue;
                }
                match trainer.step(&mut prng) {
                    Ok(ended) => over |= ended,
                    // It slept for too long, or another process took its place meanwhile.
                    Err(WorkerError::Refused { text, .. }) => {
                        assert!(
                            asleep_once.contains(&(rank, trainer.seat.life().incarnation)),
                            "seed {seed}: {text}"
                        );
                        woken += 1;
                        *place = None;
                    }
                    Err(error) => panic!("seed {seed} round {round}: {error}"),
                }
            }
            if over {
                break;
            }
            world.sim.run(Duration::from_millis(prng.below(300)));
            let victim = prng.below(u64::from(WORKERS)) as usize;
            match prng.below(60) {
                0 | 1 => {
                    killed += u32::from(workers[victim].take().is_some());
                }
                2..=4 => {
                    if let Some(trainer) = &mut workers[victim] {
                        trainer.asleep_until = world.sim.now() + Duration::from_secs(prng.below(15));
                        trainer.dazed = prng.below(6);
                        asleep_once.push((victim, trainer.seat.life().incarnation));
                    }
                }
                5 => {
                    let which = prng.below(world.servers.len() as u64) as usize;
                    world.restart(which);
                    restarts += 1;
                }
                _ => {}
            }
        }
        // Whoever still sleeps wakes up now, and goes on with what it was at.
        let now = world.sim.now();
        for trainer in workers.iter_mut().flatten().filter(|trainer| trainer.asleep_until > now) {
            trainer.dazed = 6;
            let gone = (0..6).map(|_| trainer.step(&mut prng)).find_map(Result::err);
            let gone = gone.or_else(|| trainer.worker.drain().err());
            assert!(gone.is_none_or(|error| matches!(error, WorkerError::Refused { .. })), "seed {seed}");
        }
        let mut last = workers.iter_mut().flatten().find(|t| t.asleep_until <= world.sim.now()).unwrap();
        let job =
            JobStatus::of(world.sim.clone(), WorkerConfig::new(&world.addrs()[..1], 99, 1)).unwrap().unwrap();
        assert_eq!((job.tasks_done, job.examples), (plan.tasks(), plan.tasks() * BATCHES), "seed {seed}");
        let sums = expected(&plan);
        let keys: Vec<u64> = (0..KEYS).collect();
        let mut out = vec![0.0; keys.len()];
        let trainer = &mut last;
        trainer.worker.pull(trainer.table, &keys, Read::Weights, &mut out).unwrap();
        for (key, sum) in keys.iter().zip(out) {
            assert_eq!(sum, sums.get(key).copied().unwrap_or_default(), "seed {seed}, key {key}");
        }
        doubled += workers.iter().flatten().map(|trainer| trainer.worker.counters().doubled).sum::<u64>();
    }
    assert!(
        killed > 10 && woken > 2 && restarts > 10 && doubled > 50,
        "{killed} killed, {woken} woken, {restarts} restarts, {doubled} doubled: the test shows nothing"
    );
}

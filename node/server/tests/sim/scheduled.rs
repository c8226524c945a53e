//! Splits of data in the simulation, asynchronous and in synchronous steps. Workers are killed, fall asleep and
//! wake up. Servers, including the one with the scheduler, are killed and restarted on their folders. Links
//! break. Every record of every pass must be in the sums exactly once.

use crate::members::{JobMember, fence};
use crate::model;
use crate::stepping::Seed;

use gannet_core::{Read, Schema, Store, Write};
use gannet_sim::{Faults, Sim};
use gannet_transport::{Net, Prng};
use gannet_wire::{
    Activity, JobPlan, Merge, PlanFile, RunId, ShardedKeys, SplitGrant, StepReduce, SyncConfig, SyncMode,
};
use gannet_worker::{
    DataName, JobClient, PullId, PushId, PushRows, TableId, Worker, WorkerConfig, WorkerError,
};
use model::{limits, schema, start, start_within};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const WORKERS: u32 = 3;
pub(crate) const BATCHES: u64 = 5;
pub(crate) const KEYS: u64 = 400;
const TIMEOUT: Duration = Duration::from_secs(4);

pub(crate) fn plan(epochs: u32) -> JobPlan {
    let file = |i: u64| PlanFile { name: format!("part-{i}"), bytes: 700 + i, print: i, whole: i == 2 };
    JobPlan {
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
pub(crate) fn keys_of(task: u32, batch: u64) -> Vec<u64> {
    let mut prng = Prng::new(u64::from(task) << 32 | batch);
    let count = 1 + prng.below(60) as usize;
    model::unique_keys(&mut prng, count, KEYS)
}

/// The state of a worker. It can be killed between any two of these states.
#[derive(Clone)]
enum At {
    Idle,
    /// Must train the next batch of a task.
    Batch(Task, u64),
    /// Has begun to pull the rows of that batch.
    Pulling(Task, u64, PullId, Arc<ShardedKeys>),
    /// The task is done, and must still be closed at the servers.
    Closing(Task),
}

#[derive(Clone, Copy)]
struct Task {
    index: u64,
    number: u32,
    epoch: u32,
}

/// A worker that never blocks: its scheduler client, its links, and its state.
struct Trainer {
    sim: Sim,
    config: WorkerConfig,
    client: JobMember,
    worker: Worker<Sim>,
    table: TableId,
    started: u64,
    /// How the worker keeps step, in synchronous modes.
    member: Option<SyncConfig>,
    joined: bool,
    at: At,
    /// Pushes that were not yet acknowledged at the last check. (Each shard applies steps by itself.)
    open: Vec<PushId>,
    asleep_until: Duration,
    /// Turns of its loop. Its heartbeat reports them as progress.
    turns: u64,
    /// Steps that it still makes without a heartbeat, after it has woken. In a real worker another thread sends
    /// heartbeats.
    steps_without_beat: u64,
}

impl Trainer {
    fn start(world: &World, schema: &Schema, rank: u32, number: u64) -> Result<Trainer, WorkerError> {
        let (sim, mut servers, pusher) = (world.sim.clone(), world.addrs(), u64::from(rank) + 1);
        // Successive incarnations list the servers in different orders.
        servers.rotate_left(number as usize % 2 % world.servers.len());
        let config = WorkerConfig::new(servers, pusher, number);
        let client = JobMember::join(&sim, &config, rank, plan(2))?;
        let mut worker = Worker::connect(sim.clone(), config.clone())?;
        let table = worker.open_table(schema)?;
        let started = client.job.joined().started;
        let (workers, worker_timeout) = (WORKERS, TIMEOUT);
        let member = world.mode.map(|mode| SyncConfig { rank, workers, mode, worker_timeout, strict: false });
        let (at, open, asleep_until) = (At::Idle, Vec::new(), Duration::ZERO);
        let (joined, steps_without_beat) = (false, 0);
        Ok(Trainer {
            sim,
            config,
            client,
            worker,
            table,
            started,
            member,
            joined,
            at,
            open,
            asleep_until,
            turns: 0,
            steps_without_beat,
        })
    }

    /// Sends a heartbeat, and fences the workers that the reply names. The fence has its own links, because
    /// those of the training may be waiting.
    fn beat(&mut self) -> Result<(), WorkerError> {
        let work = Activity { progress: self.turns, ..Activity::default() };
        let schema = self.worker.schema(self.table).clone();
        self.client
            .beat(work, |pusher, incarnation| fence(&self.sim, &self.config, &schema, (pusher, incarnation)))
    }

    fn name(&self, task: Task) -> (u64, u64) {
        (1 << 63 | u64::from(task.epoch) << 32 | u64::from(task.number), self.started)
    }

    /// Whether all its pushes are applied. A push that came too late for its step is not applied, and must not
    /// count as learned.
    fn is_applied(&mut self) -> Result<bool, WorkerError> {
        self.open.retain(|push| !self.worker.is_acked(*push));
        match self.worker.take_late(self.table).is_empty() {
            true => Ok(self.open.is_empty()),
            false => Err(WorkerError::Call("too late".into())),
        }
    }

    /// Leaves the steps, so that no other worker waits for this one.
    fn rest(&mut self) -> Result<(), WorkerError> {
        if std::mem::take(&mut self.joined) { self.worker.leave(self.table) } else { Ok(()) }
    }

    /// Makes one step: takes a task, pulls or pushes a batch, or ends a task. Returns true when all is trained.
    fn step(&mut self, prng: &mut Prng) -> Result<bool, WorkerError> {
        self.turns += 1;
        match self.steps_without_beat.checked_sub(1) {
            Some(left) => self.steps_without_beat = left,
            None => self.beat()?,
        }
        self.worker.poll()?;
        let applied = self.is_applied()?;
        self.at = match self.at.clone() {
            At::Idle => match if applied { self.client.job.take(&[])? } else { return Ok(false) } {
                SplitGrant::Over => return self.rest().map(|()| true),
                SplitGrant::Wait => self.rest().map(|()| At::Idle)?,
                SplitGrant::Grown { .. } => panic!("the data of this job does not grow"),
                SplitGrant::Task { index, task, from, .. } => {
                    if let Some(member) = self.member.filter(|_| !self.joined) {
                        self.worker.join(self.table, member)?;
                        self.joined = true;
                    }
                    At::Batch(Task { index, number: task.number, epoch: task.epoch }, from)
                }
            },
            At::Batch(task, BATCHES) if applied => {
                self.client.job.done(task.index, BATCHES)?;
                At::Closing(task)
            }
            waits @ At::Batch(_, BATCHES) => waits,
            At::Batch(task, batch) => {
                let cut = Arc::new(self.worker.cut(self.table, &keys_of(task.number, batch)));
                if self.member.is_none() && prng.below(2) == 0 {
                    self.push(task, batch, None, cut)?
                } else {
                    let pull =
                        self.worker.begin_pull(self.table, cut.clone(), Read::State, Vec::new(), true)?;
                    At::Pulling(task, batch, pull, cut)
                }
            }
            At::Pulling(task, batch, pull, cut) if self.worker.is_pulled(pull) => {
                self.worker.finish_pull(pull)?;
                self.push(task, batch, Some(pull), cut)?
            }
            waits @ At::Pulling(..) => waits,
            At::Closing(task) => {
                let (pusher, incarnation) = self.name(task);
                self.worker.close_data(self.table, pusher, incarnation)?;
                At::Idle
            }
        };
        Ok(false)
    }

    fn push(
        &mut self,
        task: Task,
        batch: u64,
        pulled: Option<PullId>,
        cut: Arc<ShardedKeys>,
    ) -> Result<At, WorkerError> {
        let (pusher, incarnation) = self.name(task);
        let name = DataName { pusher, incarnation, seq: batch + 1, clock: 0 };
        let (seq, ones) = (self.worker.next_seq(self.table), vec![1.0; cut.keys().len()]);
        let (table, write) = (self.table, Write::Gradient);
        let ones = if batch.is_multiple_of(2) { ones.into() } else { PushRows::lent(ones) };
        let push = self.worker.begin_push_named(table, cut, write, ones, pulled, (seq, Some(name)))?;
        self.open.push(push);
        if self.joined {
            self.worker.tick(table)?;
        }
        Ok(At::Batch(task, batch + 1))
    }
}

struct World {
    sim: Sim,
    mode: Option<SyncMode>,
    stores: Vec<Store>,
    servers: Vec<(u64, String)>,
    seed: u64,
    restarts: u64,
    /// When a server last restarted.
    restarted_at: Option<Duration>,
    _folders: Vec<tempfile::TempDir>,
}

impl World {
    fn new(seed: u64, mode: Option<SyncMode>) -> World {
        let faults = Faults {
            reset_per_million: [0, 2_000, 10_000][seed as usize % 3],
            refuse_per_million: 50_000,
            window_bytes: 50_000,
            ..Faults::none()
        };
        let sim = Sim::new(seed, faults);
        let folders: Vec<_> = (0..1 + seed % 2).map(|_| crate::folder_in_memory()).collect();
        let stores: Vec<_> = folders.iter().map(|folder| Store::open_dir(folder.path()).unwrap()).collect();
        let servers = stores.iter().map(|store| start(&sim, "sim:0", store, 2)).collect();
        World { sim, mode, stores, servers, seed, restarts: 0, restarted_at: None, _folders: folders }
    }

    fn addrs(&self) -> Vec<String> {
        self.servers.iter().map(|(_, addr)| addr.clone()).collect()
    }

    fn restart(&mut self, which: usize) {
        let (actor, addr) = self.servers[which].clone();
        self.sim.remove_actor(actor);
        self.sim.reset_all(&addr);
        self.restarts += 1;
        self.restarted_at = Some(self.sim.now());
        // With each restart its clock goes forward or back, and it has other threads and limits.
        let draw = Prng::new(self.restarts ^ self.seed << 32).below(7_200);
        let sim = self.sim.ahead(Duration::from_secs(draw));
        let (store, threads) = (&self.stores[which], 1 + draw as usize % 4);
        self.servers[which] = start_within(&sim, &addr, store, threads, limits(draw));
    }
}

/// The expected sums.
pub(crate) fn expected(plan: &JobPlan) -> HashMap<u64, f32> {
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

/// What happened in a run.
#[derive(Debug, Default)]
struct Seen {
    killed: u32,
    woken: u32,
    late: u32,
    restarts: u32,
    duplicate: u64,
}

/// Kills a worker, sends it to sleep, restarts a server, or does nothing. Returns the incarnation that sleeps,
/// if one does.
fn strike(world: &mut World, victim: &mut Option<Trainer>, prng: &mut Prng, seen: &mut Seen) -> Option<u64> {
    match prng.below(60) {
        0 | 1 => seen.killed += u32::from(victim.take().is_some()),
        2..=4 => {
            let trainer = victim.as_mut()?;
            trainer.asleep_until = world.sim.now() + Duration::from_secs(prng.below(15));
            trainer.steps_without_beat = prng.below(6);
            return Some(trainer.client.job.incarnation().incarnation);
        }
        5 => {
            let which = prng.below(world.servers.len() as u64) as usize;
            world.restart(which);
            seen.restarts += 1;
        }
        _ => {}
    }
    None
}

/// Wakes every worker that still sleeps. Each continues where it was.
fn wake_up(world: &World, workers: &mut [Option<Trainer>], prng: &mut Prng) {
    let seed = world.seed;
    let now = world.sim.now();
    for trainer in workers.iter_mut().flatten().filter(|trainer| trainer.asleep_until > now) {
        trainer.steps_without_beat = 20;
        let gone = (0..20).find_map(|_| {
            world.sim.run(Duration::from_millis(100));
            trainer.step(prng).err()
        });
        assert!(gone.is_none_or(|error| matches!(error, WorkerError::Refused { .. })), "seed {seed}");
    }
}

/// Checks that all splits are done, and that every record is in the sums once.
fn check_sums(world: &World, schema: &Schema, plan: &JobPlan) {
    let seed = world.seed;
    // The registry of runs is at the address that comes first, and the scheduler with it.
    let scheduler = world.addrs().into_iter().min();
    let run = RunId { name: "job".into(), generation: 1, rows_since: 1, birth: 0 };
    let status = WorkerConfig { run: Some(run), ..WorkerConfig::new(scheduler, 99, 1) };
    let job = JobClient::status_of(world.sim.clone(), status).unwrap().unwrap();
    assert_eq!((job.tasks_done, job.examples), (plan.tasks(), plan.tasks() * BATCHES), "seed {seed}");
    let sums = expected(plan);
    let keys: Vec<u64> = (0..KEYS).map(|n| n * 0x1_0000_0001).collect();
    let mut out = vec![0.0; keys.len()];
    // The reader does not belong to the job, because any of the job's workers may have been given up.
    let mut reader = Worker::connect(world.sim.clone(), WorkerConfig::new(world.addrs(), 99, 2)).unwrap();
    let table = reader.open_table(schema).unwrap();
    reader.pull(table, &keys, Read::Weights, &mut out).unwrap();
    for (key, sum) in keys.iter().zip(out) {
        assert_eq!(sum, sums.get(key).copied().unwrap_or_default(), "seed {seed}, key {key}");
    }
}

/// Runs a job of three workers, with faults, until all is trained.
fn run(seed: u64, mode: Option<SyncMode>, seen: &mut Seen) {
    let _seed = Seed::begin(seed);
    let (mut world, mut prng) = (World::new(seed, mode), Prng::new(seed));
    let (schema, plan) = (schema("t", 1, 8), plan(2));
    let mut workers: Vec<Option<Trainer>> = (0..WORKERS).map(|_| None).collect();
    let (mut number, mut over, mut asleep_once) = (1, false, Vec::new());
    for round in 0.. {
        assert!(round < 40_000, "seed {seed}: the job does not end");
        for (rank, place) in workers.iter_mut().enumerate() {
            let now = world.sim.now();
            let Some(trainer) = place else {
                // At least one worker always continues.
                if rank == round % WORKERS as usize || prng.below(40) == 0 {
                    number += 1;
                    match Trainer::start(&world, &schema, rank as u32, number) {
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
                // It slept for too long, or another process has taken its place.
                Err(WorkerError::Refused { text, .. }) => {
                    let number = trainer.client.job.incarnation().incarnation;
                    // Or its links to a restarted server broke again and again, until it was given up there.
                    let recent = |at: Duration| now.saturating_sub(at) < 3 * TIMEOUT;
                    let unlucky = world.restarted_at.is_some_and(recent);
                    assert!(asleep_once.contains(&(rank, number)) || unlucky, "seed {seed}: {text}");
                    seen.woken += 1;
                    *place = None;
                }
                Err(WorkerError::Call(text)) if text == "too late" => {
                    seen.late += 1;
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
        asleep_once
            .extend(strike(&mut world, &mut workers[victim], &mut prng, seen).map(|number| (victim, number)));
    }
    wake_up(&world, &mut workers, &mut prng);
    check_sums(&world, &schema, &plan);
    seen.duplicate +=
        workers.iter().flatten().map(|trainer| trainer.worker.counters().duplicate).sum::<u64>();
}

fn run_all(mode: Option<SyncMode>) -> Seen {
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(12);
    let mut seen = Seen::default();
    (0..seeds).for_each(|seed| run(seed, mode, &mut seen));
    assert!(seen.killed > 10 && seen.woken > 2 && seen.restarts > 10, "{seen:?}: the test shows nothing");
    seen
}

#[test]
fn every_record_is_trained_once_a_pass_whoever_dies() {
    let seen = run_all(None);
    assert!(seen.duplicate > 50 && seen.late == 0, "{seen:?}");
}

#[test]
fn also_in_steps_that_all_make_together() {
    run_all(Some(SyncMode::Bsp(StepReduce { aggregate: WORKERS, merge: Merge::Sum })));
}

#[test]
fn also_within_a_bound() {
    run_all(Some(SyncMode::Ssp(2)));
}

/// A worker in synchronous steps, which pushes ones.
struct Stepper {
    worker: Worker<Sim>,
    table: TableId,
    member: SyncConfig,
    open: Option<PushId>,
}

impl Stepper {
    fn new(world: &World, schema: &Schema, rank: u32) -> Stepper {
        let config = WorkerConfig::new(world.addrs(), u64::from(rank) + 1, 1);
        let mut worker = Worker::connect(world.sim.clone(), config).unwrap();
        let table = worker.open_table(schema).unwrap();
        let (mode, workers) = (world.mode.unwrap(), 2);
        let member = SyncConfig { rank, workers, mode, worker_timeout: TIMEOUT, strict: false };
        worker.join(table, member).unwrap();
        Stepper { worker, table, member, open: None }
    }

    /// Pushes batch `seq` of a split as its part of the next step.
    fn push(&mut self, split: u64, seq: u64, keys: &[u64]) {
        let name = DataName { pusher: 1 << 63 | split, incarnation: 1, seq, clock: seq };
        let (cut, own) = (Arc::new(self.worker.cut(self.table, keys)), self.worker.next_seq(self.table));
        let ones = vec![1.0; keys.len()];
        let push =
            self.worker.begin_push_named(self.table, cut, Write::Gradient, ones, None, (own, Some(name)));
        self.open = Some(push.unwrap());
        self.worker.tick(self.table).unwrap();
    }

    /// Whether its push is acknowledged, and whether some of its rows were late.
    fn is_acked(&mut self) -> Option<bool> {
        self.worker.poll().unwrap();
        let acked = self.open.is_none_or(|push| self.worker.is_acked(push));
        acked.then(|| !self.worker.take_late(self.table).is_empty())
    }
}

/// Runs all of them until their pushes are acknowledged. Returns whose pushes were late.
fn until_acked<const N: usize>(world: &World, mut all: [&mut Stepper; N]) -> [bool; N] {
    let mut late = [None; N];
    for _ in 0..2_000 {
        world.sim.run(Duration::from_millis(10));
        for (late, stepper) in late.iter_mut().zip(&mut all).filter(|(late, _)| late.is_none()) {
            *late = stepper.is_acked();
        }
        if late.iter().all(Option::is_some) {
            return late.map(Option::unwrap);
        }
    }
    panic!("a push is not acknowledged")
}

/// How a worker's batch becomes too late for its step, and how its name lets a later step apply it completely.
/// A worker leaves and comes back. The server is killed. The worker that reaches the new incarnation first
/// knows only that the other had left.
#[test]
fn a_worker_that_had_come_back_was_taken_for_one_that_had_left() {
    let mode = SyncMode::Bsp(StepReduce { aggregate: 2, merge: Merge::Sum });
    let (mut world, schema) = (World::new(0, Some(mode)), schema("t", 1, 8));
    let (mut first, mut second) = (Stepper::new(&world, &schema, 0), Stepper::new(&world, &schema, 1));
    let keys: Vec<u64> = (0..40).collect();
    first.push(1, 1, &keys);
    second.push(2, 1, &keys);
    assert_eq!(until_acked(&world, [&mut first, &mut second]), [false; 2]);
    // It has nothing to learn for a while, and the first worker learns that.
    second.worker.leave(second.table).unwrap();
    first.push(1, 2, &keys);
    assert_eq!(until_acked(&world, [&mut first]), [false]);
    second.worker.join(second.table, second.member).unwrap();
    second.push(2, 2, &keys);
    world.restart(0);
    first.push(1, 3, &keys);
    assert_eq!(until_acked(&world, [&mut first]), [false], "it waits for nobody");
    let late = until_acked(&world, [&mut second]);
    assert_eq!(late, [true], "the test shows nothing");
    // It continues. The batch is applied in a later step, and in no other, although it is sent twice.
    for seq in [4, 5] {
        second.push(2, 2, &keys);
        first.push(1, seq, &keys);
        assert_eq!(until_acked(&world, [&mut first, &mut second]), [false; 2]);
    }
    let mut sums = vec![0.0; keys.len()];
    let config = WorkerConfig::new(world.addrs(), 99, 2);
    let mut reader = Worker::connect(world.sim.clone(), config).unwrap();
    let table = reader.open_table(&schema).unwrap();
    reader.pull(table, &keys, Read::Weights, &mut sums).unwrap();
    assert_eq!(sums, vec![7.0; keys.len()], "five batches of the first and two of the second");
}

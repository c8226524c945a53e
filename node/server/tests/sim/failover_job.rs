//! A job whose scheduler dies for good. A backup goes on with its splits, and hands out incarnations that nobody has
//! had. Every record of every pass must be in the sums exactly once, whoever dies: servers and workers.

use crate::cluster::{Cluster, patience};
use crate::members::{JobMember, fence};
use crate::model::schema;
use crate::reached::Reached;
use crate::scheduled::{BATCHES, KEYS, expected, keys_of, plan};
use crate::simulated::faults;
use crate::stepping::{Seed, are_all, seeds_from};

use gannet_core::{Read, Schema, Write};
use gannet_server::ReplicationMode;
use gannet_sim::{Sim, SimProcess};
use gannet_transport::{Net, Poll, Prng};
use gannet_wire::{Activity, RunId, SplitGrant};
use gannet_worker::{DataName, JobClient, Places, TableId, Worker, WorkerConfig, WorkerError};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const WORKERS: u32 = 3;

/// What the workers of a job have done, all together.
#[derive(Default)]
struct Done {
    /// Incarnations that were handed out.
    incarnations: BTreeSet<u64>,
    /// Workers that the scheduler or a server had given up, and that came again.
    came_again: u64,
}

/// A worker's program: it trains splits until there are none.
struct Program {
    sim: Sim,
    servers: Vec<String>,
    places: Places,
    schema: Schema,
    rank: u32,
    seed: u64,
    done: Rc<RefCell<Done>>,
}

impl Program {
    fn run(self) {
        loop {
            match self.live() {
                Ok(()) => return,
                // It was silent for too long while it waited for a server, or its earlier self has its place still.
                Err(WorkerError::Refused { .. }) => self.done.borrow_mut().came_again += 1,
                Err(error) => panic!("seed {} worker {}: {error}", self.seed, self.rank),
            }
            self.pause(Duration::from_millis(300));
        }
    }

    fn pause(&self, time: Duration) {
        self.sim.poll().unwrap().wait(time, &mut Vec::new()).unwrap();
    }

    /// The life of one incarnation.
    fn live(&self) -> Result<(), WorkerError> {
        let pusher = u64::from(self.rank) + 1;
        let places = Some(self.places.clone());
        let config = WorkerConfig {
            places,
            peer_timeout: patience(self.seed),
            ..WorkerConfig::new(self.servers.clone(), pusher, 0)
        };
        let highest = self.done.borrow().incarnations.last().copied().unwrap_or(0);
        let incarnation = Worker::allocate_incarnation(self.sim.clone(), &config)?;
        let is_new = self.done.borrow_mut().incarnations.insert(incarnation);
        assert!(is_new && incarnation > highest, "seed {}: {incarnation} behind {highest}", self.seed);
        let config = WorkerConfig { incarnation, ..config };
        let mut client = JobMember::join(&self.sim, &config, self.rank, plan(2))?;
        let mut worker = Worker::connect(self.sim.clone(), config.clone())?;
        let table = worker.open_table(&self.schema)?;
        loop {
            self.beat(&mut client, &config)?;
            match client.job.take(&[])? {
                SplitGrant::Over => break,
                SplitGrant::Wait => self.pause(Duration::from_millis(100)),
                SplitGrant::Grown { .. } => panic!("the data of this job does not grow"),
                SplitGrant::Task { index, task, from } => {
                    let name = (1 << 63 | u64::from(task.epoch) << 32 | u64::from(task.number), &task.number);
                    let name = (name.0, client.job.joined().started, *name.1);
                    for batch in from..BATCHES {
                        self.push(&mut worker, table, name, batch)?;
                        self.beat(&mut client, &config)?;
                    }
                    client.job.done(index, BATCHES)?;
                    worker.close_data(table, name.0, name.1)?;
                }
            }
        }
        client.leave()
    }

    /// Sends a heartbeat, and fences those whom the answer names.
    fn beat(&self, client: &mut JobMember, config: &WorkerConfig) -> Result<(), WorkerError> {
        client.beat(Activity::default(), |pusher, incarnation| {
            fence(&self.sim, config, &self.schema, (pusher, incarnation))
        })
    }

    fn push(
        &self,
        worker: &mut Worker<Sim>,
        table: TableId,
        (pusher, incarnation, split): (u64, u64, u32),
        batch: u64,
    ) -> Result<(), WorkerError> {
        let cut = Arc::new(worker.cut(table, &keys_of(split, batch)));
        let name = DataName { pusher, incarnation, seq: batch + 1, clock: 0 };
        let (seq, ones) = (worker.next_seq(table), vec![1.0; cut.keys().len()]);
        let named = (seq, Some(name));
        let push = worker.begin_push_named(table, cut, Write::Gradient, ones, None, named)?;
        worker.finish_push(push)
    }
}

/// A job on a cluster.
struct Job {
    cluster: Cluster,
    /// The simulation ends with this one, not with its clones.
    sim: Sim,
    places: Places,
    schema: Schema,
    seed: u64,
    done: Rc<RefCell<Done>>,
}

impl Job {
    fn new(seed: u64, replication: ReplicationMode) -> Job {
        let sim = Sim::new(seed, faults(seed));
        let mut cluster = Cluster::replicated(&sim, seed, replication);
        let coordinator: Arc<Reached> = cluster.reach();
        let places = Places { coordinator, job: "job".into() };
        Job { cluster, sim, places, schema: schema("t", 1, 8), seed, done: Rc::default() }
    }

    fn worker(&mut self, rank: u32) -> SimProcess {
        let sim = self.cluster.host(&format!("worker {rank}"));
        let (servers, places, schema) = (self.cluster.servers(), self.places.clone(), self.schema.clone());
        let (seed, done) = (self.seed, self.done.clone());
        let program = Program { sim, servers, places, schema, rank, seed, done };
        self.sim.spawn(move || program.run())
    }

    /// Runs the job to its end. Returns how many owners, other servers, and workers were killed.
    fn run(&mut self) -> [u64; 3] {
        let mut prng = Prng::new(self.seed ^ 0x10B);
        let mut workers: Vec<SimProcess> = (0..WORKERS).map(|rank| self.worker(rank)).collect();
        let mut killed = 0;
        // The cluster is borrowed while it runs, so the job runs it in pieces.
        let mut failed = [0; 2];
        while workers.iter().any(|worker| !worker.has_ended()) {
            let mut turns = 0;
            let of_this = self.cluster.run(|| {
                turns += 1;
                turns < 20 && workers.iter().any(|worker| !worker.has_ended())
            });
            failed.iter_mut().zip(of_this).for_each(|(all, more)| *all += more);
            let rank = prng.below(u64::from(WORKERS)) as usize;
            if killed < 4 && prng.below(3) == 0 && !workers[rank].has_ended() {
                self.sim.kill(&workers[rank]);
                workers[rank] = self.worker(rank as u32);
                killed += 1;
            }
        }
        [failed[0], failed[1], killed]
    }

    /// Checks that all splits are done, and that every record is in the sums once.
    fn check(&mut self) {
        let (seed, plan) = (self.seed, plan(2));
        let places = Some(self.places.clone());
        let config = WorkerConfig {
            places,
            peer_timeout: patience(seed),
            ..WorkerConfig::new(self.cluster.servers(), 99, 1)
        };
        let run = Some(RunId { name: "job".into(), generation: 1, rows_since: 1, birth: 0 });
        let scheduler = WorkerConfig { servers: vec![config.servers[0].clone()], run, ..config.clone() };
        let status = JobClient::status_of(self.sim.clone(), scheduler).unwrap().unwrap();
        let trained = (status.tasks_done, status.examples);
        assert_eq!(trained, (plan.tasks(), plan.tasks() * BATCHES), "seed {seed}");
        let sums = expected(&plan);
        let keys: Vec<u64> = (0..KEYS).map(|n| n * 0x1_0000_0001).collect();
        let mut out = vec![0.0; keys.len()];
        let mut reader = Worker::connect(self.sim.clone(), config).unwrap();
        let table = reader.open_table(&self.schema).unwrap();
        reader.pull(table, &keys, Read::Weights, &mut out).unwrap();
        for (key, sum) in keys.iter().zip(out) {
            assert_eq!(sum, sums.get(key).copied().unwrap_or_default(), "seed {seed}, key {key}");
        }
    }
}

#[test]
fn a_job_goes_on_when_its_scheduler_dies_for_good() {
    run_seeds(seeds_from(1_700, 12), ReplicationMode::Sync);
}

/// A split is done when its pushes are acknowledged, and that waits for the backups. So no record is lost with the rows
/// that a server had and its backup had not.
#[test]
fn nor_does_it_lose_a_record_when_rows_are_read_at_once() {
    run_seeds(seeds_from(1_800, 12), ReplicationMode::Async);
}

fn run_seeds(all: Range<u64>, replication: ReplicationMode) {
    let (mut failed, mut came_again) = ([0; 3], 0);
    for seed in all {
        let _seed = Seed::begin(seed);
        let mut job = Job::new(seed, replication);
        let of_this = job.run();
        failed.iter_mut().zip(of_this).for_each(|(all, more)| *all += more);
        job.check();
        came_again += job.done.borrow().came_again;
    }
    assert!(
        !are_all() || failed.iter().all(|&count| count > 3),
        "{failed:?} {came_again}: the test shows nothing"
    );
}

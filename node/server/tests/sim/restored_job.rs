//! A job that hands out its data goes back to a checkpoint while a worker of the time behind it still runs. What that
//! worker reports of its splits is undone, too.

use crate::cluster::Cluster;
use crate::members::JobMember;
use crate::model::{Model, schema};
use crate::scheduled::{BATCHES, KEYS, keys_of, plan};

use gannet_core::{CheckpointDir, Read, Write};
use gannet_sim::{Faults, Sim};
use gannet_wire::{Activity, Progress, RunId, SplitGrant};
use gannet_worker::{
    CheckpointOptions, DataName, Places, TableId, Worker, WorkerConfig, WorkerError, save_checkpoint,
};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// What the worker reports behind the checkpoint.
#[derive(Clone, Copy, PartialEq)]
enum Report {
    Beat,
    Done,
}

/// A split that a worker holds.
#[derive(Clone, Copy)]
struct Held {
    index: u64,
    name: (u64, u64),
    number: u32,
}

fn held(client: &JobMember, grant: SplitGrant) -> Option<(Held, u64)> {
    let SplitGrant::Task { index, task, from } = grant else { return None };
    let pusher = 1 << 63 | u64::from(task.epoch) << 32 | u64::from(task.number);
    Some((Held { index, name: (pusher, client.job.joined().started), number: task.number }, from))
}

fn train(worker: &mut Worker<Sim>, table: TableId, of: Held, batches: std::ops::Range<u64>) {
    for batch in batches {
        let cut = Arc::new(worker.cut(table, &keys_of(of.number, batch)));
        let name = DataName { pusher: of.name.0, incarnation: of.name.1, seq: batch + 1, clock: 0 };
        let (seq, ones) = (worker.next_seq(table), vec![1.0; cut.keys().len()]);
        let push =
            worker.begin_push_named(table, cut, Write::Gradient, ones, None, (seq, Some(name))).unwrap();
        worker.finish_push(push).unwrap();
    }
}

/// A job of three servers whose coordinator always answers.
struct Job {
    sim: Sim,
    cluster: Cluster,
    places: Places,
    checkpoints: CheckpointDir,
}

impl Job {
    fn new(folder: &tempfile::TempDir) -> Job {
        let (seed, checkpoints) = (102, CheckpointDir::create(folder.path()).unwrap());
        let sim = Sim::new(seed, Faults::none());
        let mut cluster = Cluster::of(&sim, seed, Some(checkpoints.clone()));
        let places = Places { coordinator: cluster.reach(), job: "job".into() };
        until(&sim, "no backups", || cluster.serves(1));
        Job { sim, cluster, places, checkpoints }
    }

    fn config(&self, rank: u32, incarnation: u64) -> WorkerConfig {
        WorkerConfig {
            places: Some(self.places.clone()),
            run: Some(RunId { name: "job".into(), generation: 1, rows_since: 1, birth: 0 }),
            ..WorkerConfig::new(self.cluster.servers(), u64::from(rank) + 1, incarnation)
        }
    }

    fn join(&self, rank: u32, incarnation: u64) -> (JobMember, Worker<Sim>, TableId) {
        let own = self.config(rank, incarnation);
        let client = JobMember::join(&self.sim, &own, rank, plan(1)).unwrap();
        let mut worker = Worker::connect(self.sim.clone(), own).unwrap();
        let table = worker.open_table(&schema("job.t", 1, 8)).unwrap();
        (client, worker, table)
    }

    /// Trains two batches of a split, saves a checkpoint, and trains the others. Returns who holds the split.
    fn train_around_a_checkpoint(&self) -> (JobMember, Held) {
        let (mut client, mut worker, table) = self.join(0, 1);
        let grant = client.job.take(&[]).unwrap();
        let (split, _) = held(&client, grant).unwrap();
        train(&mut worker, table, split, 0..2);
        let options = CheckpointOptions { run: "job".into(), tries: 5, ..CheckpointOptions::default() };
        save_checkpoint(self.sim.clone(), &self.config(49, 1), &self.checkpoints, &options).unwrap();
        train(&mut worker, table, split, 2..BATCHES);
        (client, split)
    }

    /// All rows of a place are gone. Returns what a worker is told that reports then what it has done.
    fn go_back(&mut self, client: JobMember, split: Held, report: Report) -> Option<Result<(), WorkerError>> {
        self.cluster.lose(0, false);
        let answer = Rc::new(RefCell::new(None));
        let (into, mut client) = (answer.clone(), Box::new(client));
        let reporter = self.sim.spawn(move || {
            let acked = vec![(split.index, BATCHES)];
            let progress = Progress { acked, ..Progress::default() };
            *into.borrow_mut() = Some(match report {
                Report::Beat => client.job.report(progress, Activity::default()).map(drop),
                Report::Done => client.job.done(split.index, BATCHES),
            });
        });
        let mut turns = 0;
        while !reporter.has_ended() || !self.cluster.serves(0) || self.cluster.generation() == 0 {
            self.cluster.restart(None);
            self.sim.run(Duration::from_millis(100));
            turns += 1;
            assert!(turns < 3_000, "{}", self.cluster.state());
        }
        answer.take()
    }

    /// Another worker trains what is left. Returns the rows.
    fn train_the_rest(&self) -> Vec<f32> {
        let (mut client, mut worker, table) = self.join(1, 1 << 40);
        loop {
            let fence = |pusher, incarnation| worker.fence(table, pusher, incarnation);
            client.beat(Activity::default(), fence).unwrap();
            match client.job.take(&[]).unwrap() {
                SplitGrant::Over => break,
                SplitGrant::Wait => self.sim.run(Duration::from_millis(100)),
                grant => {
                    let (split, from) = held(&client, grant).unwrap();
                    train(&mut worker, table, split, from..BATCHES);
                    client.job.done(split.index, BATCHES).unwrap();
                }
            }
        }
        let mut rows = vec![0.0; KEYS as usize];
        worker.pull(table, &all_keys(), Read::Weights, &mut rows).unwrap();
        rows
    }
}

fn all_keys() -> Vec<u64> {
    (0..KEYS).map(|n| n * 0x1_0000_0001).collect()
}

fn run_with(report: Report) {
    let folder = crate::folder_in_memory();
    let mut job = Job::new(&folder);
    let (client, split) = job.train_around_a_checkpoint();
    let answer = job.go_back(client, split, report);
    let (rows, mut model) = (job.train_the_rest(), Model::new(schema("job.t", 1, 8)));
    for number in 0..plan(1).tasks() as u32 {
        for batch in 0..BATCHES {
            let keys = keys_of(number, batch);
            model.push(&keys, &vec![1.0; keys.len()]);
        }
    }
    let wanted = model.pull(&all_keys());
    let (has, of) = (rows.iter().sum::<f32>(), wanted.iter().sum::<f32>());
    assert!(rows == wanted, "{has} of {of} records; the old worker was told {answer:?}");
    assert!(matches!(answer, Some(Err(WorkerError::Refused { .. }))), "{answer:?}");
}

fn until(sim: &Sim, what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..3_000 {
        if is_so() {
            return;
        }
        sim.run(Duration::from_millis(50));
    }
    panic!("{what}: not in 150 s");
}

#[test]
fn a_beat_behind_the_checkpoint_lost_records() {
    run_with(Report::Beat);
}

#[test]
fn a_split_that_was_done_behind_the_checkpoint_lost_records() {
    run_with(Report::Done);
}

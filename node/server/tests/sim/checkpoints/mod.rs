//! Checkpoints of a whole cluster from one seed. Workers push to several tables, stop in the middle of a push, and die.
//! Servers are killed and come back with other threads and clocks. Links break. Coordinators are killed. Whatever
//! happens, a checkpoint is the tables after exactly the pushes up to its cursors, bit for bit, on any other cluster.

mod cluster;
mod followed;
mod history;
pub(crate) mod mortal;
mod restored;
mod trainer;

use crate::stepping::{Seed, are_all, seeds_from};
use cluster::{Cluster, Happened, Host, Trouble};
use followed::{Copying, Followed, cut_short, shown};
use gannet_core::{CheckpointDir, Schema, Write};
use gannet_memory_store::{Fault, MemoryStore, StoreCall};
use gannet_optim::{Add, Rule};
use gannet_server::RestoreSource;
use gannet_sim::{Faults, Sim};
use gannet_transport::{Net, Prng};
use gannet_worker::{CheckpointOptions, SavedCheckpoint, Worker, WorkerConfig, save_checkpoint};
use history::{Acked, History, JobTable, Pushers};
use mortal::Mortal;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use trainer::Trainer;

/// No save takes longer, whatever happens.
const SAVE_MAX: Duration = Duration::from_secs(600);

/// What the seeds have shown together.
#[derive(Debug, Default)]
struct Shown {
    saved: u64,
    increments: u64,
    failed: u64,
    /// Of them: pushes had waited for too long.
    given_up: u64,
    killed: u64,
    restored: u64,
    followed: Followed,
    happened: Happened,
}

/// A job in the simulation.
struct Job {
    sim: Sim,
    prng: Prng,
    cluster: Rc<RefCell<Cluster>>,
    actors: Vec<u64>,
    /// Followers of the servers that run now.
    copies: Vec<Copying>,
    directory: CheckpointDir,
    store: MemoryStore,
    durable: bool,
    shown: Shown,
}

fn faults(prng: &mut Prng) -> Faults {
    Faults {
        reset_per_million: [0, 0, 500, 5_000][prng.below(4) as usize],
        refuse_per_million: [0, 50_000][prng.below(2) as usize],
        stall_per_million: [0, 2_000][prng.below(2) as usize],
        stall_max: Duration::from_millis(500),
        piece_bytes_max: [0, 100, 5_000][prng.below(3) as usize],
        window_bytes: [1_000, 3_000, 300_000][prng.below(3) as usize],
        ..Faults::none()
    }
}

impl Job {
    fn new(seed: u64) -> Job {
        let mut prng = Prng::new(seed);
        let sim = Sim::new(seed, faults(&mut prng));
        let store = MemoryStore::default();
        let directory = CheckpointDir::with_store("the-store", Arc::new(store.clone()));
        let workers = 1 + prng.below(4);
        let tables = 1 + prng.below(3) as usize;
        let tables = (0..tables).map(|number| JobTable::draw(&mut prng, number, workers)).collect();
        let mut cluster = Cluster::new(History::new(tables), directory.clone(), seed);
        let pace = Duration::from_micros([200, 1_000, 5_000][prng.below(3) as usize]);
        let trainer = |rank| Trainer::new(rank, prng.below(2) == 0, pace, seed);
        cluster.trainers = (0..workers).map(trainer).collect();
        let (cluster, actors) = (Rc::new(RefCell::new(cluster)), Vec::new());
        let (durable, shown) = (prng.below(3) > 0, Shown::default());
        let copies = Vec::new();
        let mut job = Job { sim, prng, cluster, actors, copies, directory, store, durable, shown };
        job.start_servers(None);
        job.start_trainers();
        job
    }

    /// Starts servers, empty or from the newest checkpoint.
    fn start_servers(&mut self, restore: Option<Option<u32>>) {
        let count = 1 + self.prng.below(4) as u32;
        let mut hosts = Vec::new();
        for server in 0..count {
            let source =
                |shards| RestoreSource { shards, ..RestoreSource::new(&self.directory, server, count) };
            let threads = 1 + self.prng.below(3) as usize;
            let durable = self.durable;
            // With small slices rows change before they are read.
            let slice_bytes = [64, 500, 5_000, 1 << 17][self.prng.below(4) as usize];
            let restore = restore.map(source);
            let host = Host::start(&self.sim, threads, durable, &self.directory, restore, slice_bytes);
            hosts.push(Rc::new(RefCell::new(host)));
        }
        self.cluster.borrow_mut().hosts = hosts;
        self.actors = cluster::run(&self.sim, &self.cluster);
        let addrs = self.cluster.borrow().addrs();
        let followed =
            (0..[0, 1, 2][self.prng.below(3) as usize]).map(|_| Copying::new(&self.sim, addrs.clone()));
        self.copies = followed.collect();
        let pipelines = self.copies.is_empty();
        let trainers = &mut self.cluster.borrow_mut().trainers;
        trainers.iter_mut().for_each(|trainer| trainer.pipelines = pipelines);
    }

    /// Each follower takes some cuts, which may fail. Returns whether the last ones did not.
    fn follow(&mut self, prng: &mut Prng, checks: bool) -> bool {
        let mut all = true;
        if !self.copies.is_empty() && prng.below(3) == 0 {
            cut_short(Mortal::new(&self.sim, prng.below(60)), self.cluster.borrow().addrs());
        }
        for number in 0..self.copies.len() {
            for _ in 0..1 + prng.below(2) {
                self.run(20, prng);
                let acked = self.cluster.borrow().history.acked();
                let from = self.sim.now();
                let taken = self.copies[number].take();
                assert!(self.sim.now() - from < SAVE_MAX, "a cut took {:?}", self.sim.now() - from);
                all = taken.is_ok();
                match taken {
                    Ok(cut) => {
                        // The oracle takes its time.
                        if checks || prng.below(4) == 0 {
                            self.copies[number].check(&cut, &self.cluster.borrow().history, &acked);
                        }
                        self.shown.followed.add(shown(&cut));
                    }
                    Err(error) => {
                        named(&error.to_string());
                        self.shown.followed.failed += 1;
                    }
                }
            }
        }
        all
    }

    fn start_trainers(&mut self) {
        let mut cluster = self.cluster.borrow_mut();
        let addrs = cluster.addrs();
        let Cluster { trainers, history, .. } = &mut *cluster;
        for trainer in trainers.iter_mut().filter(|trainer| !trainer.is_alive()) {
            trainer.start(&self.sim, &addrs, history);
        }
    }

    fn run(&self, most_ms: u64, prng: &mut Prng) {
        self.sim.run(Duration::from_micros(prng.below(most_ms * 1000)));
    }

    /// One save, which may fail. Checks what it has saved.
    fn save(&mut self, increment: bool, waits: Option<u64>) -> Result<u64, String> {
        let (addrs, acked) = (self.cluster.borrow().addrs(), self.cluster.borrow().history.acked());
        let config = WorkerConfig {
            peer_timeout: Duration::from_secs(5),
            ..WorkerConfig::new(addrs, u64::from(u32::MAX), 0)
        };
        let options = CheckpointOptions {
            increment,
            freeze: Duration::from_millis(10 + self.prng.below(400)),
            tries: 1 + self.prng.below(4) as u32,
            level: self.prng.below(2) as i32,
            notes: vec![("step".into(), self.shown.saved.to_string())],
            ..CheckpointOptions::default()
        };
        let from = self.sim.now();
        let saved = match waits {
            None => save_checkpoint(self.sim.clone(), &config, &self.directory, &options),
            Some(waits) => {
                let net = Mortal::new(&self.sim, waits);
                let Some(saved) = mortal::run(|| save_checkpoint(net, &config, &self.directory, &options))
                else {
                    self.store.clear_faults();
                    self.shown.killed += 1;
                    return Err("the coordinator was killed".into());
                };
                saved
            }
        };
        self.store.clear_faults();
        let took = self.sim.now() - from;
        assert!(took < SAVE_MAX, "a save took {took:?}");
        match saved {
            Ok(saved) => Ok(self.check(&saved, &options, &acked)),
            Err(error) => {
                let why = named(&error.to_string());
                self.shown.failed += 1;
                self.shown.given_up += u64::from(why.contains("pushes were held back for"));
                Err(why)
            }
        }
    }

    fn check(&mut self, saved: &SavedCheckpoint, options: &CheckpointOptions, acked: &Acked) -> u64 {
        let manifest = &saved.manifest;
        self.shown.saved += 1;
        self.shown.increments += u64::from(manifest.parent.is_some());
        assert_eq!(manifest.notes, options.notes);
        let newest = self.directory.newest_valid().unwrap().map(|newest| newest.number);
        assert_eq!(newest, Some(manifest.number));
        let cluster = self.cluster.borrow();
        restored::check(&self.directory, manifest, &cluster.history, acked, &mut self.prng);
        manifest.number
    }

    /// All processes are gone. The job goes on from the newest checkpoint, on other servers.
    fn start_again(&mut self) {
        let Some(manifest) = self.directory.newest_valid().unwrap() else { return };
        self.shown.restored += 1;
        self.actors.drain(..).for_each(|actor| self.sim.remove_actor(actor));
        let mut cluster = self.cluster.borrow_mut();
        cluster.trainers.iter_mut().for_each(Trainer::kill);
        cluster.hosts.clear();
        // Counts of keys are those of the model only with the same shards.
        let counted = |table: &JobTable| matches!(table.pushers, Pushers::One(_));
        let same = cluster.history.tables.iter().any(counted);
        let shards = restored::draw_shards(&mut self.prng).filter(|_| !same);
        for number in 0..cluster.history.tables.len() {
            let name = cluster.history.tables[number].schema.name.clone();
            let (_, saved) = manifest.table(&name).unwrap();
            cluster.history.go_back(number, &saved.cursors);
            cluster.history.tables[number].schema.shards = shards.unwrap_or(saved.schema.shards);
        }
        drop(cluster);
        self.durable = self.prng.below(3) > 0;
        self.start_servers(Some(shards));
        self.start_trainers();
    }
}

/// Chooses what goes wrong in a call of the store.
type StoreFaults = Box<dyn FnMut(&StoreCall) -> Option<Fault> + Send>;

/// What goes wrong in the store during a save.
fn store_faults(prng: &mut Prng, mortal: bool, kill_now: Arc<AtomicBool>) -> StoreFaults {
    let all = [Fault::Fails, Fault::AnswerLost, Fault::Torn, Fault::Full];
    let fault = all[prng.below(4) as usize];
    let (mut left, mut own) = (prng.below(120), Prng::new(prng.next_u64()));
    match prng.below(10) {
        0 | 1 => Box::new(move |_| {
            left = left.wrapping_sub(1);
            (left == 0).then_some(fault)
        }),
        2 => Box::new(move |_| (own.below(30) == 0).then(|| all[own.below(4) as usize])),
        3 => Box::new(move |_| {
            left = left.saturating_sub(1);
            (left == 0).then_some(Fault::Full)
        }),
        4 => Box::new(|call| (call.method == "publish").then_some(Fault::AnswerLost)),
        5 if mortal => Box::new(|call| if call.method == "publish" { mortal::kill() } else { None }),
        6 => Box::new(move |call| {
            kill_now.store(call.method == "publish", Relaxed);
            None
        }),
        _ => Box::new(|_| None),
    }
}

/// A save that failed says what, where, and what to do.
fn named(text: &str) -> String {
    let known = [
        "pushes were held back for",
        "is not complete at the cut",
        "are in different steps of table",
        "begin again",
        "try again later",
        "has not answered for",
        "look at the disk",
        "could not write its part of the checkpoint",
        "was started again without the rows",
        "start the workers, or try again later",
        "name all servers of the job",
        // What the store says, and where.
        "the-store",
    ];
    assert!(known.iter().any(|known| text.contains(known)), "a save failed without a remedy: {text}");
    text.to_owned()
}

fn one(seed: u64) -> Shown {
    let _seed = Seed::begin(seed);
    let mut job = Job::new(seed);
    let mut prng = Prng::new(seed.wrapping_mul(77) + 3);
    let (every, kills, hangs) =
        ([4, 20, 100][prng.below(3) as usize], prng.below(2) == 0, prng.below(4) == 0);
    for _ in 0..3 + prng.below(5) {
        let trouble = if prng.below(3) == 0 { 0 } else { every };
        job.cluster.borrow_mut().trouble = Trouble { every: Duration::from_millis(trouble), kills, hangs };
        job.run(60, &mut prng);
        job.start_trainers();
        job.run(30, &mut prng);
        if prng.below(2) == 0 {
            let until = job.sim.now() + Duration::from_micros(prng.below(60_000));
            job.cluster.borrow_mut().hold_files(until);
        }
        job.follow(&mut prng, false);
        let waits = (prng.below(4) == 0).then(|| prng.below(60));
        let kill_now = job.cluster.borrow().kill_now.clone();
        job.store.set_faults(store_faults(&mut prng, waits.is_some(), kill_now));
        let _ = job.save(prng.below(3) > 0, waits);
        // Whatever has become of the save, there is a checkpoint that can be used, or none.
        if let Some(newest) = job.directory.newest_valid().unwrap() {
            job.directory.verify(newest.number).unwrap();
        }
        match prng.below(12) {
            0 => job.start_again(),
            1 | 2 => drop(job.directory.prune(1 + prng.below(3) as u32).unwrap()),
            _ => {}
        }
    }
    // The trouble ends. Then a save succeeds, also when workers push on.
    job.sim.set_faults(Faults::none());
    job.cluster.borrow_mut().mend();
    job.start_trainers();
    job.sim.run(Duration::from_secs(3));
    let last = (0..5).find_map(|_| job.save(prng.below(2) == 0, None).map_err(|why| eprintln!("{why}")).ok());
    assert!(last.is_some(), "no save succeeded after the trouble had ended");
    let followed = (0..5).any(|_| job.follow(&mut prng, true));
    assert!(followed, "no follower caught up after the trouble had ended");
    job.shown.happened = job.cluster.borrow().happened;
    std::mem::take(&mut job.shown)
}

#[test]
fn a_restore_equals_the_cut_whatever_breaks() {
    let mut all = Shown::default();
    for seed in seeds_from(0, 100) {
        let shown = one(seed);
        all.saved += shown.saved;
        all.increments += shown.increments;
        all.failed += shown.failed;
        all.given_up += shown.given_up;
        all.killed += shown.killed;
        all.restored += shown.restored;
        all.followed.add(shown.followed);
        all.happened.add(&shown.happened);
    }
    eprintln!("{all:?}");
    if are_all() {
        let Shown { increments, failed, given_up, killed, restored, happened, followed, .. } = &all;
        let Followed { full, deltas, deletions, failed: refused } = *followed;
        assert!(full.min(deltas).min(deletions).min(refused) > 1, "{followed:?}: the test shows nothing");
        let least = [*increments, *failed, *given_up, *killed, *restored, happened.kills, happened.deaths];
        assert!(least.into_iter().min() > Some(1), "{all:?}: the test shows nothing");
    }
}

/// A server that was killed after the manifest was there refused the last step of the cut. The coordinator then took
/// the try for one that had failed, and in the end removed its checkpoint, on which the next try had built.
#[test]
fn a_checkpoint_that_was_published_was_removed_by_its_own_save() {
    let (sim, store) = (Sim::new(1, Faults::none()), MemoryStore::default());
    let directory = CheckpointDir::with_store("the-store", Arc::new(store.clone()));
    let cluster = Rc::new(RefCell::new(Cluster::new(History::new(Vec::new()), directory.clone(), 1)));
    let host = Host::start(&sim, 2, true, &directory, None, 1 << 17);
    cluster.borrow_mut().hosts.push(Rc::new(RefCell::new(host)));
    cluster::run(&sim, &cluster);
    let addrs = cluster.borrow().addrs();
    let mut worker = Worker::connect(sim.clone(), WorkerConfig::new(addrs.clone(), 1, 1)).unwrap();
    let table = worker.open_table(&Schema::scalar("clicks", Rule::Add(Add))).unwrap();
    worker.push(table, &[7, 8], Write::Gradient, &[1.0, 2.0]).unwrap();
    let kill_now = cluster.borrow().kill_now.clone();
    store.set_faults(move |call| {
        if call.method == "publish" {
            kill_now.store(true, Relaxed);
        }
        None
    });
    let config = WorkerConfig::reader(addrs);
    let saved = save_checkpoint(sim.clone(), &config, &directory, &CheckpointOptions::default()).unwrap();
    store.clear_faults();
    sim.run(Duration::from_millis(50));
    assert_eq!(cluster.borrow().happened.kills, 1);
    let newest = directory.newest_valid().unwrap().map(|newest| newest.number);
    assert_eq!(newest, Some(saved.manifest.number));
}

//! A job whose rows are gone: the owner of a place and all its backups die. Its servers go back to the newest
//! checkpoint, which was saved while a worker pushed and while a server may have had several places.

use crate::cluster::{Cluster, patience};
use crate::model::{Model, schema, unique_keys};
use crate::simulated::faults;
use crate::stepping::{Seed, are_all, seeds, seeds_from};

use gannet_core::{CheckpointDir, JobManifest, Read, Schema, Write};
use gannet_server::ReplicationMode;
use gannet_sim::{Faults, Sim, SimProcess};
use gannet_transport::{Net, Prng};
use gannet_worker::{CheckpointOptions, Places, Worker, WorkerConfig, WorkerError, save_checkpoint};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// The key that every push has: its sum counts the pushes.
const SHARED: u64 = 7;
const KEYS: u64 = 400;

/// What the worker that pushes has done.
#[derive(Default)]
struct Pushed {
    /// The keys of each push.
    batches: Vec<Vec<u64>>,
    acknowledged: usize,
    /// How it ended, if it did.
    error: Option<WorkerError>,
}

/// A job on a cluster.
struct Job {
    cluster: Cluster,
    sim: Sim,
    table: Schema,
    checkpoints: CheckpointDir,
    seed: u64,
    prng: Prng,
    pushed: Rc<RefCell<Pushed>>,
}

impl Job {
    fn new(seed: u64, faults: Faults, checkpoints: CheckpointDir) -> Job {
        let sim = Sim::new(seed, faults);
        let cluster = Cluster::of(&sim, seed, Some(checkpoints.clone()));
        Job::on(sim, cluster, checkpoints)
    }

    /// The simulation ends with `sim`, not with its clones.
    fn on(sim: Sim, cluster: Cluster, checkpoints: CheckpointDir) -> Job {
        let seed = cluster.seed;
        let (table, prng) = (schema("job.t", 1, 8), Prng::new(seed ^ 0x0BAC));
        Job { cluster, sim, table, checkpoints, seed, prng, pushed: Rc::default() }
    }

    fn config(&mut self, pusher: u64, incarnation: u64) -> WorkerConfig {
        let places = Some(Places { coordinator: self.cluster.reach(), job: "job".into() });
        let peer_timeout = patience(self.seed);
        WorkerConfig {
            places,
            peer_timeout,
            ..WorkerConfig::new(self.cluster.servers(), pusher, incarnation)
        }
    }

    /// A worker that pushes until it cannot.
    fn pusher(&mut self) -> SimProcess {
        let (sim, table, pushed) = (self.sim.clone(), self.table.clone(), self.pushed.clone());
        let (config, mut prng) = (self.config(1, 1), Prng::new(self.seed));
        let run = move || -> Result<(), WorkerError> {
            let mut worker = Worker::connect(sim.clone(), config)?;
            let table = worker.open_table(&table)?;
            loop {
                let mut keys = unique_keys(&mut prng, 20, KEYS);
                keys.retain(|key| *key != SHARED);
                keys.push(SHARED);
                pushed.borrow_mut().batches.push(keys.clone());
                worker.push(table, &keys, Write::Gradient, &vec![1.0; keys.len()])?;
                pushed.borrow_mut().acknowledged += 1;
            }
        };
        let pushed = self.pushed.clone();
        self.sim.spawn(move || pushed.borrow_mut().error = run().err())
    }

    /// Runs until this holds.
    fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Job) -> bool) {
        let end = self.sim.now() + Duration::from_secs(900);
        while !holds(self) {
            assert!(self.sim.now() < end, "seed {}: {what} for 900 s: {}", self.seed, self.cluster.state());
            let time = 1 + self.prng.below(300);
            self.sim.run(Duration::from_millis(time));
        }
    }

    fn until_pushed(&mut self, more: usize) {
        let least = self.pushed.borrow().acknowledged + more;
        self.until("no pushes", |job| job.pushed.borrow().acknowledged >= least);
    }

    /// Saves a checkpoint. Returns between which numbers of pushes its cut is.
    fn save(&mut self) -> (usize, usize) {
        loop {
            let least = self.pushed.borrow().acknowledged;
            // It fails if a link breaks in the middle.
            if self.save_once(5).is_ok() {
                return (least, self.pushed.borrow().batches.len());
            }
        }
    }

    /// Saves a checkpoint in at most so many tries.
    fn save_once(&mut self, tries: u32) -> Result<(), WorkerError> {
        let (sim, directory, mut config) = (self.sim.clone(), self.checkpoints.clone(), self.config(50, 1));
        config.peer_timeout = Duration::from_secs(5);
        let options = CheckpointOptions { run: "job".into(), tries, ..CheckpointOptions::default() };
        let saved = Rc::new(RefCell::new(Ok(())));
        let into = saved.clone();
        let saver = self.sim.spawn(move || {
            *into.borrow_mut() = save_checkpoint(sim, &config, &directory, &options).map(drop);
        });
        self.until("no end of a save", |_| saver.has_ended());
        saved.replace(Ok(()))
    }

    /// Checks that the rows are those of a number of whole pushes in this range, and that the job goes on.
    fn check(&mut self, (least, most): (usize, usize), away: Option<usize>) {
        let mut config = self.config(2, 1 << 40);
        // A place may be begun by a server whose lease has ended again.
        config.peer_timeout = Duration::from_secs(900);
        let (sim, table, seed, pushed) =
            (self.sim.clone(), self.table.clone(), self.seed, self.pushed.clone());
        let reader = self.sim.spawn(move || {
            let mut worker =
                Worker::connect(sim, config).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let of = worker.open_table(&table).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let keys: Vec<u64> = (0..KEYS).map(|n| n * 0x1_0000_0001).chain([SHARED]).collect();
            let mut out = vec![0.0; keys.len()];
            worker.pull(of, &keys, Read::Weights, &mut out).unwrap();
            let count = *out.last().unwrap() as usize;
            assert!(least <= count && count <= most, "seed {seed}: {count} pushes, not {least} to {most}");
            let mut model = Model::new(table);
            let mut add = |keys: &[u64]| model.push(keys, &vec![1.0; keys.len()]);
            pushed.borrow().batches[..count].iter().for_each(|keys| add(keys));
            assert_eq!(out, model.pull(&keys), "seed {seed}: {count} pushes");
            worker.push(of, &keys, Write::Gradient, &out).unwrap();
        });
        self.until("no end of a check", |job| {
            job.cluster.restart(away);
            reader.has_ended()
        });
    }
}

#[test]
fn a_job_whose_rows_are_gone_goes_back_to_its_checkpoint() {
    let mut stays_away = 0;
    for seed in seeds_from(1_200, 8) {
        let _seed = Seed::begin(seed);
        let folder = crate::folder_in_memory();
        let mut job = Job::new(seed, faults(seed), CheckpointDir::create(folder.path()).unwrap());
        let pusher = job.pusher();
        job.until_pushed(1);
        job.until("no backups", |job| job.cluster.serves(1));
        if seed % 3 == 1 {
            // From now on a server has several places, or another server has one.
            job.cluster.fail();
            job.until("no owner", |job| job.cluster.serves(0));
        }
        job.until_pushed(1);
        let cut = job.save();
        job.until_pushed(1);
        // A late write could still name a server that has the rows, and lives.
        job.until("late writes", |job| !job.cluster.has_late_writes());
        let place = job.prng.below(u64::from(job.cluster.places)) as u32;
        let left = job.cluster.lose(place, seed % 2 == 0);
        // Some servers have other places, and end by themselves.
        let away = (left > 0 || seed % 4 == 1).then(|| job.prng.below(job.cluster.size() as u64) as usize);
        let away = away.filter(|_| seed % 4 != 2);
        stays_away += u64::from(away.is_some());
        let until = job.sim.now() + Duration::from_secs(5 + job.prng.below(100));
        job.until("nothing", |job| {
            job.cluster.restart(away);
            job.sim.now() > until
        });
        job.sim.kill(&pusher);
        job.until("no places", |job| {
            job.cluster.restart(away);
            job.cluster.serves(0)
        });
        job.check(cut, away);
    }
    assert!(!are_all() || stays_away > 0, "the test shows less than it should");
}

/// A push has rows in both places. A cut that let in its rows in only one of them would never be complete.
#[test]
fn a_server_with_two_places_lets_in_what_a_cut_needs() {
    // Rings of two servers whose coordinator always answers.
    for seed in (0..seeds(2)).map(|n| 18 + 36 * n) {
        let folder = crate::folder_in_memory();
        let mut job = Job::new(seed, Faults::none(), CheckpointDir::create(folder.path()).unwrap());
        let _pusher = job.pusher();
        job.until_pushed(1);
        job.until("no backups", |job| job.cluster.serves(1));
        job.cluster.kill(0);
        job.until("no owner", |job| job.cluster.serves(0));
        for _ in 0..6 {
            job.until_pushed(1);
            job.save_once(1).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}

/// A server that notices that rows are gone may have a place of its own. It sends the job back and ends, because its
/// rows are newer than those of the checkpoint. The server that goes on does not take the place for lost once more.
#[test]
fn a_job_goes_back_once_when_a_server_stays_away() {
    let mut shown = 0;
    // Rings of three servers whose coordinator always answers.
    for seed in (2..2 + seeds(1)).map(|n| 30 + 36 * n) {
        let folder = crate::folder_in_memory();
        let mut job = Job::new(seed, Faults::none(), CheckpointDir::create(folder.path()).unwrap());
        let pusher = job.pusher();
        job.until_pushed(1);
        job.until("no backups", |job| job.cluster.serves(1));
        let cut = job.save();
        job.until_pushed(9);
        let left = job.cluster.lose(0, false);
        shown += u64::from(left > 0);
        job.sim.kill(&pusher);
        let begun = job.pushed.borrow().batches.len() as u64;
        let away = Some(0);
        let quiet = |job: &mut Job, seconds| {
            let end = job.sim.now() + Duration::from_secs(seconds);
            job.until("nothing", |job| {
                job.cluster.restart(away);
                job.sim.now() > end
            });
        };
        quiet(&mut job, 100);
        let generation = job.cluster.generation();
        quiet(&mut job, 100);
        assert_eq!(job.cluster.generation(), generation, "seed {seed}: {}", job.cluster.state());
        // A shard that a server still had was in some of the pushes behind the cut, and in no more than all of them.
        let (undone, most) = (job.cluster.undone(), begun - cut.0 as u64);
        assert!((1..=most).contains(&undone) == (left > 0), "seed {seed}: {undone} undone, of {most} pushes");
        assert!(job.cluster.serves(0), "seed {seed}: {}", job.cluster.state());
        job.check(cut, away);
    }
    assert!(shown > 0, "no server has kept a place: the test shows nothing");
}

/// A saver has written its rows, and sleeps when a place is lost. It wakes when the job has gone back.
#[test]
fn a_save_that_had_begun_was_published_after_the_job_had_gone_back() {
    // Rings of three servers whose coordinator always answers.
    for seed in (2..2 + seeds(1)).map(|n| 30 + 36 * n) {
        let folder = crate::folder_in_memory();
        let mut job = Job::new(seed, Faults::none(), CheckpointDir::create(folder.path()).unwrap());
        let pusher = job.pusher();
        job.until_pushed(1);
        job.until("no backups", |job| job.cluster.serves(1));
        let cut = job.save();
        job.until_pushed(1);
        let newest = job.checkpoints.newest_valid().unwrap().unwrap().number;
        let draft = job.checkpoints.begin_as("job 0000000000000007").unwrap();
        let states = vec![draft.state("rows", b"of the generation that is undone").unwrap()];
        let late = JobManifest { states, ..JobManifest::new(draft.number(), "job") };
        job.cluster.lose(0, false);
        job.sim.kill(&pusher);
        job.until("no places", |job| {
            job.cluster.restart(None);
            job.cluster.generation() > 0 && job.cluster.serves(0)
        });
        draft.publish(&late).unwrap_err();
        let now = job.checkpoints.newest_valid().unwrap().unwrap().number;
        assert_eq!(now, newest, "seed {seed}: a checkpoint of a dead generation is taken for valid");
        job.check(cut, None);
    }
}

/// A disk is gone, and the job goes back to its checkpoint. The folders of the other servers have later rows, which are
/// former ones then. The rows of the checkpoint are in the folders afterwards.
#[test]
fn rows_in_folders_are_former_ones_when_the_job_has_gone_back() {
    for seed in seeds_from(3_200, 6) {
        let _seed = Seed::begin(seed);
        let folder = crate::folder_in_memory();
        let checkpoints = CheckpointDir::create(folder.path()).unwrap();
        let sim = Sim::new(seed, faults(seed));
        let kept = Some(checkpoints.clone());
        let cluster = Cluster::with_folders(&sim, seed, ReplicationMode::Sync, kept);
        let mut job = Job::on(sim, cluster, checkpoints);
        let pusher = job.pusher();
        job.until_pushed(1);
        let cut = job.save();
        job.until_pushed(2);
        // No place is in memory, so only the disk that is gone makes the job go back.
        assert!(job.cluster.are_all_in_folders(), "seed {seed}: {}", job.cluster.state());
        job.sim.kill(&pusher);
        (0..job.cluster.size()).for_each(|at| job.cluster.kill(at));
        let gone = job.prng.below(u64::from(job.cluster.places)) as u32;
        std::fs::remove_dir_all(job.cluster.folder(gone)).unwrap();
        job.until("no places", |job| {
            job.cluster.restart(None);
            job.cluster.generation() > 0 && job.cluster.serves(0)
        });
        // Once more, with the rows of the checkpoint.
        let generation = job.cluster.generation();
        (0..job.cluster.size()).for_each(|at| job.cluster.kill(at));
        job.until("no places again", |job| {
            job.cluster.restart(None);
            job.cluster.serves(0)
        });
        assert_eq!(job.cluster.generation(), generation, "seed {seed}: {}", job.cluster.state());
        job.check(cut, None);
    }
}

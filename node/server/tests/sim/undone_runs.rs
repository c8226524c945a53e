//! All servers die while a checkpoint is being saved, and its saver lives on. The run is begun anew on the servers that
//! come back. What the old saver writes is of no run any more, and must not stand in the way of the new one.

use crate::members::join_run;
use crate::model::schema;
use crate::stepping::{Seed, are_all, seeds_from};

use gannet_core::{CheckpointDir, Write};
use gannet_server::{LocalServer, ServerConfig};
use gannet_sim::{Faults, Sim};
use gannet_transport::{Net, Poll, Prng};
use gannet_worker::{
    CheckpointOptions, RunSession, SavedCheckpoint, Worker, WorkerConfig, WorkerError, save_checkpoint,
};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Servers without folders, which save checkpoints.
struct World {
    sim: Sim,
    threads: usize,
    servers: Vec<(u64, String)>,
    checkpoints: CheckpointDir,
    _folder: tempfile::TempDir,
}

impl World {
    fn new(seed: u64) -> World {
        let faults = Faults { reset_per_million: [0, 1_000][seed as usize % 2], ..Faults::none() };
        let (sim, folder) = (Sim::new(seed, faults), crate::folder_in_memory());
        let checkpoints = CheckpointDir::create(folder.path()).unwrap();
        let threads = 1 + seed as usize % 3;
        let mut world = World { sim, threads, servers: Vec::new(), checkpoints, _folder: folder };
        for _ in 0..1 + seed % 2 {
            let server = world.start("sim:0");
            world.servers.push(server);
        }
        world
    }

    fn start(&self, addr: &str) -> (u64, String) {
        let checkpoints = Some(self.checkpoints.clone());
        let config = ServerConfig { threads: self.threads, checkpoints, ..ServerConfig::new(addr) };
        let mut server = LocalServer::new(self.sim.clone(), config).unwrap();
        let addr = server.addr().to_owned();
        (self.sim.add_actor(move || server.run().unwrap()), addr)
    }

    /// All servers die. They come back at their addresses, empty.
    fn kill_all(&mut self) {
        for (actor, addr) in &self.servers {
            self.sim.remove_actor(*actor);
            self.sim.reset_all(addr);
        }
        self.servers = self.servers.iter().map(|(_, addr)| self.start(addr)).collect();
    }

    fn config(&self, incarnation: u64) -> WorkerConfig {
        let servers: Vec<String> = self.servers.iter().map(|(_, addr)| addr.clone()).collect();
        let peer_timeout = Duration::from_secs(600);
        WorkerConfig { peer_timeout, ..WorkerConfig::new(servers, 1, incarnation) }
    }

    /// A worker begins the run, and pushes so many rows.
    fn begin(&self, incarnation: u64, rows: u64) -> RunSession<Sim> {
        let config = self.config(incarnation);
        let run = join_run(self.sim.clone(), &config, 0, TIMEOUT).unwrap();
        let mut worker = Worker::connect(self.sim.clone(), config).unwrap();
        let table = worker.open_table(&schema("job.t", 1, 8)).unwrap();
        let keys: Vec<u64> = (0..rows).map(|row| row * 0x1_0000_0001).collect();
        worker.push(table, &keys, Write::Gradient, &vec![1.0; keys.len()]).unwrap();
        run
    }

    fn options(&self, run: &RunSession<Sim>) -> CheckpointOptions {
        let (name, birth) = ("job".to_owned(), run.id().birth);
        CheckpointOptions { run: name, birth, sole: true, tries: 1, ..CheckpointOptions::default() }
    }

    fn save(
        &self,
        run: &RunSession<Sim>,
        incarnation: u64,
    ) -> Rc<RefCell<Option<Result<SavedCheckpoint, WorkerError>>>> {
        let (saved, into) = (Rc::new(RefCell::new(None)), self.sim.clone());
        let (of, config, options) = (saved.clone(), self.config(incarnation), self.options(run));
        let checkpoints = self.checkpoints.clone();
        self.sim.spawn(move || {
            let save = || save_checkpoint(into.clone(), &config, &checkpoints, &options);
            // A job saves now and then, whatever became of the save before.
            let mut last = save();
            while last.as_ref().is_err_and(|error| !error.to_string().contains("was undone")) {
                into.poll().unwrap().wait(Duration::from_millis(200), &mut Vec::new()).unwrap();
                last = save();
            }
            *of.borrow_mut() = Some(last);
        });
        saved
    }

    fn until<T>(&self, seed: u64, what: &Rc<RefCell<Option<T>>>) -> T {
        for _ in 0..20_000 {
            if let Some(done) = what.take() {
                return done;
            }
            self.sim.run(Duration::from_millis(50));
        }
        panic!("seed {seed}: it does not end")
    }
}

#[test]
fn a_saver_of_an_undone_run_published_a_checkpoint_and_locked_the_new_run_out() {
    let (mut undone, mut early) = (0, 0);
    for seed in seeds_from(7_000, 24) {
        let _seed = Seed::begin(seed);
        let (mut world, mut prng) = (World::new(seed), Prng::new(seed));
        let run = world.begin(1, 500);
        let saving = world.save(&run, 1);
        world.sim.run(Duration::from_micros(prng.below(1_500)));
        let before = world.checkpoints.newest_manifest().unwrap();
        world.kill_all();
        drop(run);
        // The run is begun anew, sooner or later than the old saver finds the servers again.
        world.sim.run(Duration::from_millis(prng.below(3_000)));
        let next = world.begin(2, 300);
        let old = world.until(seed, &saving);
        if let Some(published) = before {
            // It was whole before the servers died: it is of the run that is undone, and stays.
            assert_eq!(world.checkpoints.newest_manifest().unwrap(), Some(published), "seed {seed}");
            early += 1;
            continue;
        }
        undone += 1;
        assert!(old.is_err(), "seed {seed}: a run that is undone has saved a checkpoint");
        let saved = world.until(seed, &world.save(&next, 2));
        let saved = saved.unwrap_or_else(|error| panic!("seed {seed}: the new run cannot save: {error}"));
        let birth = format!("{:016x}", next.id().birth);
        let newest = world.checkpoints.newest_valid().unwrap().unwrap();
        assert_eq!(
            (newest.run_birth(), newest.rows()),
            (Some(birth.as_str()), 300),
            "seed {seed}: {saved:?}"
        );
    }
    assert!(!are_all() || undone > 8, "{undone} undone, {early} early: the test shows nothing");
}

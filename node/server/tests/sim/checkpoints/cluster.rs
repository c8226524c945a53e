//! Servers that are killed and started again, sleep, and write slowly, and workers that push meanwhile. All of it
//! happens in the simulation's actors, so it goes on while a coordinator saves a checkpoint.

use super::history::History;
use super::trainer::Trainer;
use gannet_core::{CheckpointDir, Store};
use gannet_server::{LocalServer, RestoreSource, ServerConfig};
use gannet_sim::Sim;
use gannet_transport::{Net, Prng};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A host with a server.
pub struct Host {
    sim: Sim,
    pub addr: String,
    threads: usize,
    store: Store,
    checkpoints: CheckpointDir,
    restore: Option<RestoreSource>,
    server: Option<LocalServer<Sim>>,
    back_at: Duration,
    asleep_until: Duration,
    held_until: Duration,
    /// About how many bytes of rows a checkpoint reads in a turn.
    slice_bytes: usize,
    _folder: Option<tempfile::TempDir>,
}

impl Host {
    /// Starts a server, in memory or on a folder.
    pub fn start(
        sim: &Sim,
        threads: usize,
        durable: bool,
        checkpoints: &CheckpointDir,
        restore: Option<RestoreSource>,
        slice_bytes: usize,
    ) -> Host {
        let folder = durable.then(crate::folder_in_memory);
        let store = folder.as_ref().map_or_else(Store::memory, |at| Store::open_dir(at.path()).unwrap());
        let (never, addr) = (Duration::ZERO, "sim:0".to_owned());
        let mut host = Host {
            sim: sim.clone(),
            addr,
            threads,
            store,
            checkpoints: checkpoints.clone(),
            restore,
            server: None,
            back_at: never,
            asleep_until: never,
            held_until: never,
            slice_bytes,
            _folder: folder,
        };
        host.begin();
        host
    }

    fn begin(&mut self) {
        let config = ServerConfig {
            threads: self.threads,
            store: self.store.clone(),
            // Later starts go on from the data folder.
            restore: self.restore.take(),
            checkpoints: Some(self.checkpoints.clone()),
            ..ServerConfig::new(&self.addr)
        };
        let server = LocalServer::new(self.sim.clone(), config).unwrap();
        self.addr = server.addr().to_owned();
        server.slice_checkpoints(self.slice_bytes);
        self.server = Some(server);
    }

    fn is_durable(&self) -> bool {
        self.store.durable()
    }

    /// As a kill: the images stay as they are, and connections break.
    fn kill(&mut self, back_at: Duration) {
        self.server = None;
        self.sim.reset_all(&self.addr);
        self.back_at = back_at;
    }

    fn turn(&mut self) {
        let now = self.sim.now();
        if self.server.is_none() && now >= self.back_at {
            self.begin();
        }
        if let Some(server) = self.server.as_mut().filter(|_| now >= self.asleep_until) {
            server.hold_checkpoint_files(now < self.held_until);
            server.run().unwrap();
        }
    }
}

/// How much breaks.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    /// The mean time between two events; zero: nothing breaks.
    pub every: Duration,
    /// Whether servers are killed.
    pub kills: bool,
    /// Whether a disk may hang for longer than a coordinator waits.
    pub hangs: bool,
}

/// What happened, over all seeds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Happened {
    pub kills: u64,
    pub stalls: u64,
    pub deaths: u64,
    pub cut_off: u64,
    pub held: u64,
    pub slept: u64,
    pub pruned: u64,
}

impl Happened {
    pub fn add(&mut self, more: &Happened) {
        self.kills += more.kills;
        self.stalls += more.stalls;
        self.deaths += more.deaths;
        self.cut_off += more.cut_off;
        self.held += more.held;
        self.slept += more.slept;
        self.pruned += more.pruned;
    }
}

/// The job's processes. Actors run them.
pub struct Cluster {
    pub hosts: Vec<Rc<RefCell<Host>>>,
    pub trainers: Vec<Trainer>,
    pub history: History,
    pub trouble: Trouble,
    pub happened: Happened,
    pub checkpoints: CheckpointDir,
    /// Set: a server is killed now.
    pub kill_now: Arc<AtomicBool>,
    next_event: Duration,
    prng: Prng,
}

impl Cluster {
    pub fn new(history: History, checkpoints: CheckpointDir, seed: u64) -> Cluster {
        let trouble = Trouble { every: Duration::ZERO, kills: false, hangs: false };
        let (hosts, trainers, happened) = (Vec::new(), Vec::new(), Happened::default());
        let (next_event, prng) = (Duration::ZERO, Prng::new(seed ^ 0xC0FFEE));
        let kill_now = Arc::default();
        Cluster { hosts, trainers, history, trouble, happened, checkpoints, kill_now, next_event, prng }
    }

    pub fn addrs(&self) -> Vec<String> {
        self.hosts.iter().map(|host| host.borrow().addr.clone()).collect()
    }

    /// Gives each trainer a turn.
    pub fn train(&mut self, now: Duration) {
        let Cluster { trainers, history, .. } = self;
        trainers.iter_mut().for_each(|trainer| trainer.turn(now, history));
    }

    /// From now on the files of checkpoints do not grow for a time: rows change before they are read.
    pub fn hold_files(&mut self, until: Duration) {
        self.hosts.iter().for_each(|host| host.borrow_mut().held_until = until);
    }

    /// Ends all that is broken for a time.
    pub fn mend(&mut self) {
        self.trouble.every = Duration::ZERO;
        for host in &self.hosts {
            let mut host = host.borrow_mut();
            (host.asleep_until, host.held_until, host.back_at) = Default::default();
        }
        self.trainers.iter_mut().for_each(|trainer| trainer.stall(Duration::ZERO));
    }

    /// Breaks something, if it is time.
    pub fn break_something(&mut self, sim: &Sim, now: Duration) {
        let durable = self.hosts.iter().find(|host| host.borrow().is_durable());
        if self.kill_now.swap(false, Relaxed)
            && let Some(host) = durable
        {
            self.happened.kills += 1;
            host.borrow_mut().kill(now);
        }
        if self.trouble.every.is_zero() || now < self.next_event {
            return;
        }
        let mean = self.trouble.every.as_micros() as u64;
        self.next_event = now + Duration::from_micros(self.prng.below(2 * mean));
        let host = self.hosts[self.prng.below(self.hosts.len() as u64) as usize].clone();
        let mut host = host.borrow_mut();
        let trainers = self.trainers.len() as u64;
        let trainer = &mut self.trainers[self.prng.below(trainers) as usize];
        let until = now + Duration::from_micros(self.prng.below(300_000));
        let Happened { kills, stalls, deaths, cut_off, held, slept, pruned } = &mut self.happened;
        match self.prng.below(12) {
            0 | 1 if self.trouble.kills && host.is_durable() && host.server.is_some() => {
                *kills += 1;
                host.threads = 1 + self.prng.below(3) as usize;
                host.sim = sim.ahead(Duration::from_secs(self.prng.below(7_200)));
                host.kill(until);
            }
            2 | 3 => {
                *slept += 1;
                host.asleep_until = until;
            }
            4 => {
                *held += 1;
                let hangs = self.trouble.hangs && self.prng.below(8) == 0;
                host.held_until = until + Duration::from_secs(if hangs { 70 } else { 0 });
            }
            5 => {
                *cut_off += 1;
                sim.cut_off(&host.addr, until - now);
            }
            6..9 => {
                *stalls += 1;
                trainer.stall(now + Duration::from_micros(self.prng.below(2_000_000)));
            }
            9 | 10 if trainer.named && trainer.is_alive() => {
                *deaths += 1;
                trainer.kill();
            }
            11 => {
                *pruned += 1;
                let _ = self.checkpoints.prune(1 + self.prng.below(3) as u32);
            }
            _ => {}
        }
    }
}

/// Adds the actors of a job to a simulation.
pub fn run(sim: &Sim, cluster: &Rc<RefCell<Cluster>>) -> Vec<u64> {
    let mut actors = Vec::new();
    for host in &cluster.borrow().hosts {
        let host = host.clone();
        actors.push(sim.add_actor(move || host.borrow_mut().turn()));
    }
    let (net, of) = (sim.clone(), cluster.clone());
    actors.push(sim.add_actor(move || {
        // The driver has the cluster while it starts a worker.
        if let Ok(mut cluster) = of.try_borrow_mut() {
            cluster.train(net.now());
            cluster.break_something(&net, net.now());
        }
    }));
    actors
}

//! Servers with backups and a coordinator, in the simulation. The backups are servers without a place of their own, or
//! the servers of the other places. Each server, and the coordinator, has a clock of its own, and they differ in speed.

mod clocks;
mod faults;
mod folders;
mod known;
mod newcomers;

use crate::reached;
use crate::reached::{Hub, Reached};

use gannet_core::CheckpointDir;
use gannet_server::{LocalServer, MembershipConfig, OnServerLoss, ReplicationMode, ServerConfig};
use gannet_sim::{Sim, SimProcess};
use gannet_transport::{Net, Prng};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

pub(crate) use clocks::Clocks;

pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// How long workers wait for a server. With every third seed a quarter of all calls of the coordinator fail, so several
/// leases may pass before a server has taken a place.
pub(crate) fn patience(seed: u64) -> Duration {
    Duration::from_secs(if seed % 3 == 2 { 900 } else { 60 })
}

/// One server.
pub(crate) struct Member {
    /// The server and everything that runs beside it.
    actors: Vec<u64>,
    seat: Seat,
    pub(crate) coordinator: Arc<Reached>,
    has_ended: Rc<RefCell<bool>>,
    /// It was started, and the coordinator may still know the process before it as a backup.
    is_new: bool,
    /// It has no place of its own, however often it is started.
    is_spare: bool,
    /// When it was last cut off from the coordinator, or stopped. It may have lost its places, and end when it learns
    /// that.
    cut_at: Option<Duration>,
}

impl Member {
    /// Its host, which has the name of its address.
    pub(crate) fn host(&self) -> &str {
        &self.seat.addr
    }

    /// Whether this process has ended, also after another one was started in its place.
    pub(crate) fn life(&self) -> Rc<RefCell<bool>> {
        self.has_ended.clone()
    }

    fn has_ended(&self) -> bool {
        *self.has_ended.borrow()
    }
}

/// What stays of a server when it is started again.
#[derive(Clone)]
struct Seat {
    addr: String,
    /// The place of which it has the data folder.
    home: u32,
    backups: Vec<String>,
}

pub(crate) struct Cluster {
    pub(crate) sim: Sim,
    hub: Arc<Hub>,
    pub(crate) members: Vec<Member>,
    /// How many.
    pub(crate) places: u32,
    prng: Prng,
    clocks: Clocks,
    pub(crate) seed: u64,
    lost_per_thousand: u64,
    /// How many backups each place is to have.
    pub(crate) backups: usize,
    /// How many backups each place had.
    joined: Vec<usize>,
    /// Some servers that have ended stay dead for good, and others come at new addresses. How many have come.
    newcomers: Option<u32>,
    /// A server has failed.
    has_failed: bool,
    /// What a killed server had in memory stays for those who have mapped it.
    keeps_memory: bool,
    /// Where the job's checkpoints are. It goes back to them when rows are gone.
    checkpoints: Option<CheckpointDir>,
    replication: ReplicationMode,
    /// Each first server of a place has a data folder in this one.
    folders: Option<tempfile::TempDir>,
    /// Places whose rows are not in the folder of their first server.
    in_memory: BTreeSet<u32>,
    /// The coordinator's time, in nanoseconds.
    time: Arc<AtomicU64>,
    /// How long the coordinator knows a job without servers.
    kept: Duration,
    /// The servers that the next one names, in place of those of this job.
    named: Option<Vec<String>>,
    /// All servers are at other addresses, with the folders of their places.
    have_moved: bool,
}

impl Cluster {
    /// A cluster as the seed draws it.
    pub(crate) fn new(sim: &Sim, seed: u64) -> Cluster {
        Cluster::replicated(sim, seed, ReplicationMode::Sync)
    }

    /// One that replicates in this way.
    pub(crate) fn replicated(sim: &Sim, seed: u64, replication: ReplicationMode) -> Cluster {
        let mut cluster = Cluster::empty(sim, seed, replication);
        cluster.start_drawn();
        cluster
    }

    /// One that goes back to its checkpoints when rows are gone.
    pub(crate) fn of(sim: &Sim, seed: u64, checkpoints: Option<CheckpointDir>) -> Cluster {
        let mut cluster = Cluster { checkpoints, ..Cluster::empty(sim, seed, ReplicationMode::Sync) };
        cluster.start_drawn();
        cluster
    }

    /// Starts the servers that the seed draws.
    fn start_drawn(&mut self) {
        let seed = self.seed;
        match seed / 6 % 2 {
            0 => self.start_with_spares(1 + seed as u32 / 3 % 2),
            _ => {
                let places = 2 + seed as u32 / 3 % 3;
                let count = 1 + self.prng.below(u64::from(places) - 1) as u32;
                self.start_ring(places, count);
            }
        }
    }

    /// One without servers.
    pub(crate) fn empty(sim: &Sim, seed: u64, replication: ReplicationMode) -> Cluster {
        Cluster::empty_with_clocks(sim, seed, replication, Clocks::Drawn)
    }

    /// One without servers, with these clocks.
    pub(crate) fn empty_with_clocks(
        sim: &Sim,
        seed: u64,
        replication: ReplicationMode,
        clocks: Clocks,
    ) -> Cluster {
        reached::set(sim);
        let (time, mut prng) = (Arc::new(AtomicU64::new(0)), Prng::new(seed ^ 0xFA11));
        let drift = clocks.of_coordinator(&mut prng);
        let (clock, of) = (time.clone(), sim.on("coordinator", Duration::ZERO, drift));
        sim.add_actor(move || time.store(of.now().as_nanos() as u64, Relaxed));
        let hub = Hub::new(folders::new_coordinator(&clock));
        let lost_per_thousand = [0, 30, 150][seed as usize % 3];
        let (sim, members, places) = (sim.clone(), Vec::new(), 0);
        let (backups, joined, newcomers) = (2, Vec::new(), None);
        let (has_failed, keeps_memory) = (false, false);
        Cluster {
            sim,
            hub,
            members,
            places,
            prng,
            clocks,
            seed,
            lost_per_thousand,
            backups,
            joined,
            newcomers,
            has_failed,
            keeps_memory,
            checkpoints: None,
            replication,
            folders: None,
            in_memory: BTreeSet::new(),
            time: clock,
            kept: Duration::from_secs(3600),
            named: None,
            have_moved: false,
        }
    }

    /// Each place has three servers of its own.
    pub(crate) fn start_with_spares(&mut self, places: u32) {
        self.places = places;
        for home in 0..places {
            let addrs: Vec<String> = (0..3).map(|at| Cluster::addr(home, at)).collect();
            for addr in &addrs {
                let backups = addrs.iter().filter(|other| *other != addr).cloned().collect();
                let member = self.start(Seat { addr: addr.clone(), home, backups }, *addr != addrs[0]);
                self.members.push(member);
            }
        }
    }

    /// The backups of each server are the `count` servers behind it.
    pub(crate) fn start_ring(&mut self, places: u32, count: u32) {
        self.places = places;
        self.backups = count as usize;
        for home in 0..places {
            let backups = (1..=count).map(|by| Cluster::addr((home + by) % places, 0)).collect();
            let member = self.start(Seat { addr: Cluster::addr(home, 0), home, backups }, false);
            self.members.push(member);
        }
    }

    /// The address of the first server of each place.
    pub(crate) fn servers(&self) -> Vec<String> {
        (0..self.places).map(|place| Cluster::addr(place, 0)).collect()
    }

    pub(crate) fn addr(place: u32, at: u32) -> String {
        format!("sim:{}", 30_000 + place * 10 + at)
    }

    pub(crate) fn reach(&mut self) -> Arc<Reached> {
        let prng = Prng::new(self.prng.below(u64::MAX));
        Arc::new(Reached::new(self.hub.clone(), prng, self.lost_per_thousand))
    }

    fn start(&mut self, seat: Seat, is_backup: bool) -> Member {
        tracing::info!(server = seat.addr, is_backup, "the test starts a server");
        let coordinator = self.reach();
        let (store, is_backup) = self.store(&seat, is_backup);
        let membership = MembershipConfig {
            coordinator: coordinator.clone(),
            job: "job".into(),
            place: (seat.home, self.places),
            addr: seat.addr.clone(),
            servers: self.named.clone().unwrap_or_else(|| self.servers()),
            is_backup,
            backups: self.backups,
            lease: LEASE,
            kept: self.kept,
            on_server_loss: match self.checkpoints {
                Some(_) => OnServerLoss::Restore,
                // Rows that are in a folder are not begun anew.
                None if self.folders.is_some() => OnServerLoss::Wait,
                None => OnServerLoss::Stop,
            },
        };
        let config = ServerConfig {
            threads: 1 + self.prng.below(3) as usize,
            store,
            backups: seat.backups.clone(),
            replication: self.replication,
            membership: Some(membership),
            checkpoints: self.checkpoints.clone(),
            // A thread that polls takes many steps of the simulation.
            spin: Duration::ZERO,
            ..ServerConfig::new(&seat.addr)
        };
        let sim = self.host(&seat.addr);
        let mut server = LocalServer::new(sim.clone(), config).unwrap();
        let replicators = server.take_replicators().into_iter();
        let mut processes: Vec<SimProcess> =
            replicators.map(|replicator| sim.spawn(move || replicator.run(|| false))).collect();
        let membership = server.take_membership().unwrap();
        processes.push(sim.spawn(move || membership.run(|| false)));
        let has_ended = Rc::new(RefCell::new(false));
        let mut actors = Vec::new();
        match self.prng.below(2) {
            0 => actors.push(self.sim.add_actor(in_one(server, has_ended.clone()))),
            _ => processes.extend(in_turns(&sim, server, &has_ended)),
        }
        actors.extend(processes.iter().map(SimProcess::actor));
        let is_spare = seat.addr != Cluster::addr(seat.home, 0);
        Member { actors, seat, coordinator, has_ended, is_new: is_backup, is_spare, cut_at: None }
    }

    /// The simulation for a host with a clock of its own.
    pub(crate) fn host(&mut self, name: &str) -> Sim {
        let ahead = Duration::from_secs(self.prng.below(7_200));
        let drift = self.clocks.of_process(&mut self.prng);
        self.sim.on(name, ahead, drift)
    }

    /// Starts the servers again that have ended, as they were started first, but not this one. All of them reach the
    /// coordinator from now on.
    pub(crate) fn restart(&mut self, but: Option<usize>) {
        self.members.iter().for_each(|member| member.coordinator.cut_off.store(false, Relaxed));
        for at in (0..self.members.len()).filter(|at| Some(*at) != but) {
            let member = &self.members[at];
            if member.has_ended() {
                self.end(member);
                let is_backup = member.is_spare;
                self.members[at] = self.start(member.seat.clone(), is_backup);
            }
        }
    }

    /// How many servers there are.
    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    /// From now on killed servers leave their memory to those who have mapped it.
    pub(crate) fn keep_memory(&mut self) {
        self.keeps_memory = true;
    }

    /// As by SIGSTOP or SIGCONT.
    pub(crate) fn pause(&mut self, at: usize, paused: bool) {
        self.members[at].cut_at = Some(self.sim.now());
        self.members[at].actors.iter().for_each(|actor| self.sim.pause(*actor, paused));
    }

    fn end(&self, member: &Member) {
        for actor in &member.actors {
            match self.keeps_memory {
                true => self.sim.pause(*actor, true),
                false => self.sim.remove_actor(*actor),
            }
        }
        self.sim.crash(member.host());
    }

    /// Starts the first server of a place again, as it was at first. It replicates in this way.
    pub(crate) fn start_again(&mut self, place: u32, replication: ReplicationMode) {
        self.replication = replication;
        self.end(&self.members[place as usize]);
        let seat = self.members[place as usize].seat.clone();
        self.members[place as usize] = self.start(seat, false);
    }

    /// Whether the first server of a place has ended.
    pub(crate) fn has_ended(&self, place: u32) -> bool {
        self.members[place as usize].has_ended()
    }

    /// Starts the servers again that have ended, as backups, and lets those that were cut off reach the coordinator.
    pub(crate) fn mend(&mut self) {
        // An owner that nobody has replaced yet is not a backup.
        let have_owners = (0..self.places).all(|place| self.has_owner(place));
        for at in 0..self.members.len() {
            let member = &self.members[at];
            if member.coordinator.cut_off.swap(false, Relaxed) {
                tracing::info!(server = member.host(), "the test lets a server reach the coordinator again");
                self.members[at].cut_at = Some(self.sim.now());
            }
            let member = &self.members[at];
            if have_owners && member.has_ended() {
                self.end(member);
                let seat = match self.newcomers {
                    Some(_) if self.prng.below(3) > 0 => self.newcomer(),
                    _ => self.members[at].seat.clone(),
                };
                let had_addr = seat.addr == self.members[at].seat.addr;
                self.members[at] = self.start(seat, true);
                self.members[at].is_new = had_addr;
            }
        }
    }

    /// Checks that no backup leaves before a server has failed: servers that are backups of each other must not wait
    /// for each other.
    fn check_backups(&mut self) {
        let joined = (0..self.places).map(|place| self.known(place).map_or(0, |(_, backups)| backups.len()));
        let joined: Vec<usize> = joined.collect();
        let left = joined.iter().zip(&self.joined).any(|(now, before)| now < before);
        assert!(
            self.has_failed || !left || self.seed % 2 == 1,
            "seed {}: a backup has left: {}",
            self.seed,
            self.state()
        );
        self.joined = joined;
    }

    /// All servers have run for so long that no place names a process any more that has ended.
    pub(crate) fn settle(&mut self) {
        self.members.iter_mut().for_each(|of| of.is_new = false);
    }

    /// What is known now of which backups are joined.
    pub(crate) fn note_joined(&mut self) {
        let known = (0..self.places).filter_map(|place| self.known(place));
        let known: Vec<String> = known.flat_map(|(_, backups)| backups).collect();
        self.members.iter_mut().for_each(|of| of.is_new &= known.contains(&of.seat.addr));
    }

    /// For messages.
    pub(crate) fn state(&self) -> String {
        let places: Vec<_> = (0..self.places)
            .map(|place| gannet_server::place_status(&self.hub.of, "job", place).unwrap())
            .collect();
        let of = |of: &Member| (of.seat.addr.clone(), of.has_ended(), of.coordinator.cut_off.load(Relaxed));
        format!("{places:?} {:?}", self.members.iter().map(of).collect::<Vec<_>>())
    }

    /// Runs as long as `goes_on` says. Returns how many owners and how many others have failed.
    pub(crate) fn run(&mut self, mut goes_on: impl FnMut() -> bool) -> [u64; 2] {
        let (mut failed, mut ran) = ([0; 2], Duration::ZERO);
        // Longer than an owner waits for a backup. Most workers end before. No link stalls with these seeds.
        let quiet = Duration::from_secs(if self.seed.is_multiple_of(4) { 5 } else { 0 });
        while goes_on() {
            let time = Duration::from_millis(1 + self.prng.below(400));
            self.sim.run(time);
            ran += time;
            assert!(ran < Duration::from_secs(3_600), "seed {}: no end: {}", self.seed, self.state());
            self.check_backups();
            self.note_joined();
            match self.prng.below(12) {
                0..2 if failed[0] < 6 && ran >= quiet => {
                    let owned = self.fail();
                    failed[0] += u64::from(owned == Some(true));
                    failed[1] += u64::from(owned == Some(false));
                }
                // Servers that are to be replaced stay away for longer.
                2..6 if self.newcomers.is_none() || self.prng.below(6) == 0 => self.mend(),
                _ => {}
            }
        }
        failed
    }
}

/// A server whose threads do their work when anybody waits. A server that was deposed ends, as a process does.
fn in_one(server: LocalServer<Sim>, has_ended: Rc<RefCell<bool>>) -> impl FnMut() {
    let mut server = Some(server);
    move || {
        if server.as_mut().is_some_and(|server| server.run().is_err()) {
            server = None;
            *has_ended.borrow_mut() = true;
        }
    }
}

/// A server whose threads sleep while they have nothing to do.
fn in_turns(
    sim: &Sim,
    server: LocalServer<Sim>,
    has_ended: &Rc<RefCell<bool>>,
) -> impl Iterator<Item = SimProcess> {
    server.into_turns().into_iter().map(|mut turn| {
        let ended = has_ended.clone();
        sim.spawn(move || {
            while !*ended.borrow() {
                if turn(Duration::from_secs(1)).is_err() {
                    *ended.borrow_mut() = true;
                }
            }
        })
    })
}

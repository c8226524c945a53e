//! A server that dies for good, or whose lease ends, is replaced by one of its backups, while several workers call and
//! wait. The backups are servers without a place of their own, or the servers of the other places. The coordinator
//! gives no answer now and then, and its answers get lost.

use crate::blocking::{Book, Program, Pushes, SHARED};
use crate::model::schema;
use crate::simulated::faults;
use crate::stepping::seeds;

use gannet_core::{CheckpointDir, Read, Schema, Store, Write};
use gannet_node::{
    Coordinator, CoordinatorEntry, CoordinatorError, LocalServer, MembershipConfig, MemoryCoordinator, Merge,
    OnServerLoss, Places, ServerConfig, StepReduce, SyncMode, Worker, WorkerConfig,
};
use gannet_transport::sim::{Prng, Sim, SimProcess};
use gannet_transport::{Net, Poll};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(2);

/// The coordinator as one process reaches it.
pub(crate) struct Reached {
    of: Arc<MemoryCoordinator>,
    prng: Mutex<Prng>,
    /// Calls of a thousand that give no answer.
    lost_per_thousand: u64,
    /// It does not reach the coordinator.
    cut_off: AtomicBool,
}

impl Reached {
    fn call<T>(
        &self,
        call: impl FnOnce(&MemoryCoordinator) -> Result<T, CoordinatorError>,
    ) -> Result<T, CoordinatorError> {
        let lost = |what: &str| Err(CoordinatorError(what.to_owned()));
        if self.cut_off.load(Relaxed) || self.prng.lock().unwrap().below(1000) < self.lost_per_thousand {
            return lost("the request was lost");
        }
        let answer = call(&self.of);
        if self.prng.lock().unwrap().below(1000) < self.lost_per_thousand {
            return lost("the answer was lost");
        }
        answer
    }
}

impl Coordinator for Reached {
    fn get(&self, key: &str) -> Result<Option<CoordinatorEntry>, CoordinatorError> {
        self.call(|of| of.get(key))
    }

    fn compare_and_set(
        &self,
        key: &str,
        version: u64,
        value: &[u8],
        lease: Option<u64>,
    ) -> Result<Option<u64>, CoordinatorError> {
        self.call(|of| of.compare_and_set(key, version, value, lease))
    }

    fn grant(&self, ttl: Duration) -> Result<u64, CoordinatorError> {
        self.call(|of| of.grant(ttl))
    }

    fn keep_alive(&self, lease: u64) -> Result<bool, CoordinatorError> {
        self.call(|of| of.keep_alive(lease))
    }
}

/// One server.
struct Member {
    actor: u64,
    seat: Seat,
    processes: Vec<SimProcess>,
    coordinator: Arc<Reached>,
    has_ended: Rc<RefCell<bool>>,
    /// It was started, and the coordinator may still know the process before it as a backup.
    is_new: bool,
    /// It has no place of its own, however often it is started.
    is_spare: bool,
}

impl Member {
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
    coordinator: Arc<MemoryCoordinator>,
    members: Vec<Member>,
    /// How many.
    pub(crate) places: u32,
    prng: Prng,
    seed: u64,
    lost_per_thousand: u64,
    /// How many backups each place had.
    joined: Vec<usize>,
    /// A server has failed.
    has_failed: bool,
    /// Where the job's checkpoints are. It goes back to them when rows are gone.
    checkpoints: Option<CheckpointDir>,
}

impl Cluster {
    pub(crate) fn new(sim: &Sim, seed: u64) -> Cluster {
        Cluster::of(sim, seed, None)
    }

    pub(crate) fn of(sim: &Sim, seed: u64, checkpoints: Option<CheckpointDir>) -> Cluster {
        let time = Arc::new(AtomicU64::new(0));
        let (clock, of) = (time.clone(), sim.clone());
        sim.add_actor(move || time.store(of.now().as_nanos() as u64, Relaxed));
        let clock = Arc::new(move || Duration::from_nanos(clock.load(Relaxed)));
        let coordinator = Arc::new(MemoryCoordinator::new(clock));
        let (prng, lost_per_thousand) = (Prng::new(seed ^ 0xFA11), [0, 30, 150][seed as usize % 3]);
        let (sim, members, places) = (sim.clone(), Vec::new(), 0);
        let (joined, has_failed) = (Vec::new(), false);
        let mut cluster = Cluster {
            sim,
            coordinator,
            members,
            places,
            prng,
            seed,
            lost_per_thousand,
            joined,
            has_failed,
            checkpoints,
        };
        match seed / 6 % 2 {
            0 => cluster.start_with_spares(1 + seed as u32 / 3 % 2),
            _ => cluster.start_ring(2 + seed as u32 / 3 % 3),
        }
        cluster
    }

    /// Each place has three servers of its own.
    fn start_with_spares(&mut self, places: u32) {
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

    /// The backups of each server are the servers behind it.
    fn start_ring(&mut self, places: u32) {
        self.places = places;
        let count = 1 + self.prng.below(u64::from(places) - 1) as u32;
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

    fn addr(place: u32, at: u32) -> String {
        format!("sim:{}", 30_000 + place * 10 + at)
    }

    pub(crate) fn reach(&mut self) -> Arc<Reached> {
        Arc::new(Reached {
            of: self.coordinator.clone(),
            prng: Mutex::new(Prng::new(self.prng.below(u64::MAX))),
            lost_per_thousand: self.lost_per_thousand,
            cut_off: AtomicBool::new(false),
        })
    }

    fn start(&mut self, seat: Seat, is_backup: bool) -> Member {
        let coordinator = self.reach();
        let membership = MembershipConfig {
            coordinator: coordinator.clone(),
            job: "job".into(),
            place: (seat.home, self.places),
            addr: seat.addr.clone(),
            is_backup,
            lease: LEASE,
            on_server_loss: match self.checkpoints {
                Some(_) => OnServerLoss::Restore,
                None => OnServerLoss::Stop,
            },
        };
        let config = ServerConfig {
            threads: 1 + self.prng.below(3) as usize,
            store: Store::memory(),
            backups: seat.backups.clone(),
            membership: Some(membership),
            checkpoints: self.checkpoints.clone(),
            ..ServerConfig::new(&seat.addr)
        };
        // Clocks of different hosts differ.
        let sim = self.sim.ahead(Duration::from_secs(self.prng.below(7_200)));
        let mut server = LocalServer::new(sim.clone(), config).unwrap();
        let replicators = server.take_replicators().into_iter();
        let mut processes: Vec<SimProcess> =
            replicators.map(|replicator| sim.spawn(move || replicator.run(|| false))).collect();
        let membership = server.take_membership().unwrap();
        processes.push(sim.spawn(move || membership.run(|| false)));
        let has_ended = Rc::new(RefCell::new(false));
        let (mut server, ended) = (Some(server), has_ended.clone());
        let run = move || {
            // A server that was deposed ends, as a process does.
            if server.as_mut().is_some_and(|server| server.run().is_err()) {
                server = None;
                *ended.borrow_mut() = true;
            }
        };
        let actor = self.sim.add_actor(run);
        let is_spare = seat.addr != Cluster::addr(seat.home, 0);
        Member { actor, seat, processes, coordinator, has_ended, is_new: is_backup, is_spare }
    }

    /// What the coordinator knows of a place: its owner, and the backups.
    fn known(&self, place: u32) -> Option<(String, Vec<String>)> {
        let place = gannet_node::place(&*self.coordinator, "job", place).unwrap();
        place.filter(|place| place.ready).map(|place| (place.owner, place.backups))
    }

    /// Whether the owner of a place serves.
    fn has_owner(&self, place: u32) -> bool {
        let has_lease = self.coordinator.get(&format!("job/owner/{place}")).unwrap().is_some();
        let is = |owner: &str| self.members.iter().any(|of| of.seat.addr == owner && !of.has_ended());
        has_lease && self.known(place).is_some_and(|(owner, _)| is(&owner))
    }

    /// Whether a server may fail: each of its places has a backup that runs and has all that was acknowledged.
    fn may_fail(&self, at: usize) -> bool {
        let addr = &self.members[at].seat.addr;
        let runs = |backup: &String| {
            let is_it = |of: &Member| of.seat.addr == *backup && !of.is_new && !of.has_ended();
            self.members.iter().any(is_it)
        };
        let is_backed = |place| {
            let (owner, backups) = self.known(place).unwrap_or_default();
            self.has_owner(place) && (owner != *addr || backups.iter().any(runs))
        };
        let is_cut = self.members.iter().any(|of| !of.has_ended() && of.coordinator.cut_off.load(Relaxed));
        !is_cut && !self.members[at].has_ended() && (0..self.places).all(is_backed)
    }

    /// Kills the owner of a place and all its backups, and some other servers. Returns how many servers run.
    pub(crate) fn lose(&mut self, place: u32, others: bool) -> usize {
        let (owner, backups) = self.known(place).unwrap_or_default();
        for at in 0..self.members.len() {
            let addr = &self.members[at].seat.addr;
            let has_rows = *addr == owner || backups.contains(addr);
            if !self.members[at].has_ended() && (has_rows || others && self.prng.below(2) == 0) {
                self.kill(at);
            }
        }
        self.members.iter().filter(|of| !of.has_ended()).count()
    }

    pub(crate) fn kill(&mut self, at: usize) {
        self.end(&self.members[at]);
        *self.members[at].has_ended.borrow_mut() = true;
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

    /// Whether all places have an owner in one generation, and at least so many backups.
    pub(crate) fn serves(&self, backups: usize) -> bool {
        let place = |place| gannet_node::place(&*self.coordinator, "job", place).unwrap();
        let mut generations = (0..self.places).map(|number| place(number).map(|place| place.generation));
        let first = generations.next();
        if generations.any(|of| Some(of) != first) {
            return false;
        }
        (0..self.places).all(|place| {
            let known = self.known(place);
            self.has_owner(place) && known.is_some_and(|(_, joined)| joined.len() >= backups)
        })
    }

    fn owns(&self, at: usize) -> bool {
        let is_own = |place| self.known(place).is_some_and(|(owner, _)| owner == self.members[at].seat.addr);
        (0..self.places).any(is_own)
    }

    fn end(&self, member: &Member) {
        self.sim.remove_actor(member.actor);
        member.processes.iter().for_each(|process| self.sim.kill(process));
        self.sim.reset_all(&member.seat.addr);
    }

    /// Kills a server, or cuts an owner off from the coordinator. Returns whether it owned a place, if it did so.
    pub(crate) fn fail(&mut self) -> Option<bool> {
        let at = self.prng.below(self.members.len() as u64) as usize;
        if !self.may_fail(at) {
            return None;
        }
        self.has_failed = true;
        let owns = self.owns(at);
        if owns && self.prng.below(2) == 0 {
            self.members[at].coordinator.cut_off.store(true, Relaxed);
            return Some(owns);
        }
        self.kill(at);
        Some(owns)
    }

    /// Starts the servers again that have ended, as backups, and lets those that were cut off reach the coordinator.
    fn mend(&mut self) {
        // An owner that nobody has replaced yet is not a backup.
        let have_owners = (0..self.places).all(|place| self.has_owner(place));
        for at in 0..self.members.len() {
            let member = &self.members[at];
            member.coordinator.cut_off.store(false, Relaxed);
            if have_owners && member.has_ended() {
                self.end(member);
                self.members[at] = self.start(member.seat.clone(), true);
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

    /// For messages.
    pub(crate) fn state(&self) -> String {
        let places: Vec<_> = (0..self.places).map(|place| self.known(place)).collect();
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
            let known = (0..self.places).filter_map(|place| self.known(place));
            let known: Vec<String> = known.flat_map(|(_, backups)| backups).collect();
            self.members.iter_mut().for_each(|of| of.is_new &= known.contains(&of.seat.addr));
            match self.prng.below(12) {
                0..2 if failed[0] < 6 && ran >= quiet => {
                    let owned = self.fail();
                    failed[0] += u64::from(owned == Some(true));
                    failed[1] += u64::from(owned == Some(false));
                }
                2..6 => self.mend(),
                _ => {}
            }
        }
        failed
    }
}

/// Checks the rows at the end.
fn check(
    cluster: &Cluster,
    schema: &Schema,
    workers: u32,
    book: &[Pushes],
    places: &Places,
    servers: &[String],
) {
    let config = WorkerConfig { places: Some(places.clone()), ..WorkerConfig::new(servers.to_vec(), 99, 1) };
    let mut reader = Worker::connect(cluster.sim.clone(), config).unwrap();
    let table = reader.open_table(schema).unwrap();
    let mut row = vec![0.0; workers as usize];
    reader.pull(table, &[SHARED], Read::Weights, &mut row).unwrap();
    let counts: Vec<u64> = row.iter().map(|count| *count as u64).collect();
    let pushes: Vec<u64> = book.iter().map(|pushes| pushes.begun).collect();
    assert_eq!(counts, pushes, "seed {}", cluster.seed);
    reader.push(table, &[SHARED], Write::Gradient, &row).unwrap();
}

/// A worker that only reads: no push of it makes an owner wait for its backups. It must see all pushes that were
/// acknowledged before its pull began, also if another server has acknowledged them.
struct Reader {
    sim: Sim,
    servers: Vec<String>,
    table: Schema,
    book: Book,
    places: Places,
    seed: u64,
}

impl Reader {
    fn run(self) {
        let config = WorkerConfig { places: Some(self.places), ..WorkerConfig::reader(self.servers) };
        let mut reader = Worker::connect(self.sim.clone(), config).unwrap();
        let table = reader.open_table(&self.table).unwrap();
        let mut row = vec![0.0; self.book.borrow().len()];
        loop {
            let before: Vec<u64> = self.book.borrow().iter().map(|pushes| pushes.acknowledged).collect();
            reader.pull(table, &[SHARED], Read::Weights, &mut row).unwrap();
            let counts: Vec<u64> = row.iter().map(|count| *count as u64).collect();
            let has_all = counts.iter().zip(&before).all(|(count, least)| count >= least);
            assert!(has_all, "seed {}: {counts:?}, acknowledged were {before:?}", self.seed);
            self.sim.poll().unwrap().wait(Duration::from_millis(40), &mut Vec::new()).unwrap();
        }
    }
}

#[test]
fn any_server_may_die_for_good() {
    let mut failed = [0; 2];
    for seed in 900..900 + seeds(12) {
        let _scattered = gannet_node::scatter_partitions(seed % 2 == 1);
        let sim = Sim::new(seed, faults(seed));
        let mut cluster = Cluster::new(&sim, seed);
        // A push that an owner cannot acknowledge stops all its replies. With one writer, whose link breaks, nobody
        // pushes to an owner whose lease has ended: only its silence keeps the reader from old rows.
        let workers = if seed % 4 == 3 { 1 } else { 2 };
        let mode = match seed / 2 % 3 {
            0 => None,
            1 => Some(SyncMode::Ssp(seed as u32 % 4)),
            _ => Some(SyncMode::Bsp(StepReduce { aggregate: workers, merge: Merge::Sum })),
        };
        let book: Book = Rc::new(RefCell::new(vec![Pushes::default(); workers as usize]));
        let table = schema("t", workers, 8);
        let places = Places { coordinator: cluster.reach(), job: "job".into() };
        let servers = cluster.servers();
        // The workers come first, or when the servers have become backups of each other.
        if seed % 4 < 2 {
            sim.run(Duration::from_secs(1 + seed % 5));
        }
        let program = |rank| Program {
            sim: sim.clone(),
            servers: servers.clone(),
            table: table.clone(),
            rank,
            workers,
            incarnation: 1,
            mode,
            book: book.clone(),
            seed,
            places: Some(places.clone()),
        };
        let processes: Vec<SimProcess> = (0..workers)
            .map(|rank| {
                let program = program(rank);
                sim.spawn(move || program.run())
            })
            .collect();
        // In steps a push is acknowledged before it is applied.
        let reader = mode.is_none().then(|| {
            let (servers, table, places) = (servers.clone(), table.clone(), places.clone());
            let reader = Reader { sim: sim.clone(), servers, table, book: book.clone(), places, seed };
            sim.spawn(move || reader.run())
        });
        let of_this = cluster.run(|| processes.iter().any(|worker| !worker.has_ended()));
        failed.iter_mut().zip(of_this).for_each(|(all, more)| *all += more);
        reader.iter().for_each(|reader| sim.kill(reader));
        check(&cluster, &table, workers, &book.borrow(), &places, &servers);
    }
    assert!(failed.iter().all(|&count| count > 3), "{failed:?}: the test shows nothing");
}

//! A server that dies for good, or whose lease ends, is replaced by one of its backups, while several workers call and
//! wait. The coordinator gives no answer now and then, and its answers get lost.

use crate::blocking::{Book, Program, Pushes, SHARED};
use crate::model::schema;
use crate::simulated::faults;
use crate::stepping::seeds;

use gannet_core::{Read, Schema, Store, Write};
use gannet_node::{
    Coordinator, CoordinatorEntry, CoordinatorError, LocalServer, MembershipConfig, MemoryCoordinator, Merge,
    Places, ServerConfig, StepReduce, SyncMode, Worker, WorkerConfig,
};
use gannet_transport::Net;
use gannet_transport::sim::{Prng, Sim, SimProcess};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Members of a place.
const MEMBERS: usize = 3;
const LEASE: Duration = Duration::from_secs(2);

/// The coordinator as one process reaches it.
struct Reached {
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

/// One process of a place.
struct Member {
    actor: u64,
    addr: String,
    processes: Vec<SimProcess>,
    coordinator: Arc<Reached>,
    has_ended: Rc<RefCell<bool>>,
    /// It was started, and the coordinator may still know the process before it as a backup.
    is_new: bool,
}

struct Place {
    members: Vec<Member>,
    number: u32,
}

struct Cluster {
    sim: Sim,
    coordinator: Arc<MemoryCoordinator>,
    places: Vec<Place>,
    prng: Prng,
    seed: u64,
    lost_per_thousand: u64,
}

impl Cluster {
    fn new(sim: &Sim, seed: u64) -> Cluster {
        let time = Arc::new(AtomicU64::new(0));
        let (clock, of) = (time.clone(), sim.clone());
        sim.add_actor(move || time.store(of.now().as_nanos() as u64, Relaxed));
        let clock = Arc::new(move || Duration::from_nanos(clock.load(Relaxed)));
        let coordinator = Arc::new(MemoryCoordinator::new(clock));
        let (prng, lost_per_thousand) = (Prng::new(seed ^ 0xFA11), [0, 30, 150][seed as usize % 3]);
        let mut cluster =
            Cluster { sim: sim.clone(), coordinator, places: Vec::new(), prng, seed, lost_per_thousand };
        let count = 1 + seed as u32 / 3 % 2;
        for number in 0..count {
            let addrs = Cluster::addrs(number);
            let members = addrs.iter().enumerate();
            let members = members.map(|(at, _)| cluster.start((number, count), at, at > 0)).collect();
            cluster.places.push(Place { members, number });
        }
        cluster
    }

    fn addrs(place: u32) -> Vec<String> {
        (0..MEMBERS as u32).map(|at| format!("sim:{}", 30_000 + place * 10 + at)).collect()
    }

    fn reach(&mut self) -> Arc<Reached> {
        Arc::new(Reached {
            of: self.coordinator.clone(),
            prng: Mutex::new(Prng::new(self.prng.below(u64::MAX))),
            lost_per_thousand: self.lost_per_thousand,
            cut_off: AtomicBool::new(false),
        })
    }

    fn start(&mut self, place: (u32, u32), at: usize, is_backup: bool) -> Member {
        let addrs = Cluster::addrs(place.0);
        let (addr, coordinator) = (addrs[at].clone(), self.reach());
        let membership = MembershipConfig {
            coordinator: coordinator.clone(),
            job: "job".into(),
            place,
            addr: addr.clone(),
            is_backup,
            lease: LEASE,
        };
        let config = ServerConfig {
            threads: 1 + self.prng.below(3) as usize,
            store: Store::memory(),
            backups: addrs.into_iter().filter(|other| *other != addr).collect(),
            membership: Some(membership),
            ..ServerConfig::new(&addr)
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
        Member { actor, addr, processes, coordinator, has_ended, is_new: is_backup }
    }

    /// The owner of a place, if it serves.
    fn owner(&self, place: &Place) -> Option<usize> {
        self.coordinator.get(&format!("job/owner/{}", place.number)).unwrap()?;
        let (owner, _) = gannet_node::place(&*self.coordinator, "job", place.number).unwrap()?;
        let is_owner = |member: &Member| member.addr == owner && !*member.has_ended.borrow();
        place.members.iter().position(is_owner)
    }

    /// The owner of a place, if one more member may fail: a backup that runs has all that was acknowledged.
    fn safe_owner(&self, place: &Place) -> Option<usize> {
        let (_, backups) = gannet_node::place(&*self.coordinator, "job", place.number).unwrap()?;
        let runs = |member: &&Member| !*member.has_ended.borrow();
        let running: Vec<&Member> = place.members.iter().filter(runs).collect();
        let is_cut = running.iter().any(|member| member.coordinator.cut_off.load(Relaxed));
        let is_backed = running.iter().any(|member| !member.is_new && backups.contains(&member.addr));
        self.owner(place).filter(|_| is_backed && !is_cut)
    }

    fn end(&self, member: &Member) {
        self.sim.remove_actor(member.actor);
        member.processes.iter().for_each(|process| self.sim.kill(process));
        self.sim.reset_all(&member.addr);
    }

    /// Kills the owner of a place, or cuts it off from the coordinator. Returns whether it did.
    fn fail_owner(&mut self, place: usize) -> bool {
        let Some(at) = self.safe_owner(&self.places[place]) else { return false };
        if self.prng.below(2) == 0 {
            self.places[place].members[at].coordinator.cut_off.store(true, Relaxed);
            return true;
        }
        self.end(&self.places[place].members[at]);
        *self.places[place].members[at].has_ended.borrow_mut() = true;
        true
    }

    /// Kills a member that is not the owner.
    fn fail_backup(&mut self, place: usize) -> bool {
        let Some(owner) = self.safe_owner(&self.places[place]) else { return false };
        let at = (owner + 1 + self.prng.below(MEMBERS as u64 - 1) as usize) % MEMBERS;
        if *self.places[place].members[at].has_ended.borrow() {
            return false;
        }
        self.end(&self.places[place].members[at]);
        *self.places[place].members[at].has_ended.borrow_mut() = true;
        true
    }

    /// Starts the members again that have ended, as backups, and lets those that were cut off reach the coordinator.
    fn mend(&mut self, count: u32) {
        for place in 0..self.places.len() {
            let number = self.places[place].number;
            // An owner that nobody has replaced yet is not a backup.
            let has_owner = self.owner(&self.places[place]).is_some();
            for at in 0..MEMBERS {
                let member = &self.places[place].members[at];
                member.coordinator.cut_off.store(false, Relaxed);
                if has_owner && *member.has_ended.borrow() {
                    self.end(member);
                    self.places[place].members[at] = self.start((number, count), at, true);
                }
            }
        }
    }

    /// For messages.
    fn state(&self) -> String {
        let place = |place: &Place| {
            let known = gannet_node::place(&*self.coordinator, "job", place.number);
            let of = |member: &Member| {
                (member.addr.clone(), *member.has_ended.borrow(), member.coordinator.cut_off.load(Relaxed))
            };
            format!("{known:?} {:?}", place.members.iter().map(of).collect::<Vec<_>>())
        };
        self.places.iter().map(place).collect::<Vec<_>>().join("; ")
    }

    fn run(&mut self, workers: &[SimProcess]) -> [u64; 2] {
        let (mut failed, mut ran) = ([0; 2], Duration::ZERO);
        let count = self.places.len() as u32;
        while workers.iter().any(|worker| !worker.has_ended()) {
            let time = Duration::from_millis(1 + self.prng.below(400));
            self.sim.run(time);
            ran += time;
            assert!(ran < Duration::from_secs(3_600), "seed {}: no end: {}", self.seed, self.state());
            for place in &mut self.places {
                let known = gannet_node::place(&*self.coordinator, "job", place.number).unwrap();
                let Some((_, backups)) = known else { continue };
                place.members.iter_mut().for_each(|member| member.is_new &= backups.contains(&member.addr));
            }
            let place = self.prng.below(u64::from(count)) as usize;
            match self.prng.below(12) {
                0 if failed[0] < 6 => failed[0] += u64::from(self.fail_owner(place)),
                1 if failed[1] < 6 => failed[1] += u64::from(self.fail_backup(place)),
                2..6 => self.mend(count),
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

#[test]
fn any_server_may_die_for_good() {
    let mut failed = [0; 2];
    for seed in 900..900 + seeds(9) {
        let _scattered = gannet_node::scatter_partitions(seed % 2 == 1);
        let sim = Sim::new(seed, faults(seed));
        let mut cluster = Cluster::new(&sim, seed);
        let mode = match seed / 2 % 3 {
            0 => None,
            1 => Some(SyncMode::Ssp(seed as u32 % 4)),
            _ => Some(SyncMode::Bsp(StepReduce { aggregate: 2, merge: Merge::Sum })),
        };
        let workers = 2;
        let book: Book = Rc::new(RefCell::new(vec![Pushes::default(); workers as usize]));
        let table = schema("t", workers, 8);
        let places = Places { coordinator: cluster.reach(), job: "job".into() };
        let servers: Vec<String> =
            (0..cluster.places.len() as u32).map(|place| Cluster::addrs(place)[0].clone()).collect();
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
        let of_this = cluster.run(&processes);
        failed.iter_mut().zip(of_this).for_each(|(all, more)| *all += more);
        check(&cluster, &table, workers, &book.borrow(), &places, &servers);
    }
    assert!(failed.iter().all(|&count| count > 3), "{failed:?}: the test shows nothing");
}

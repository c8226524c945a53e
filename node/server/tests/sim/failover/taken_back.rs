//! An owner is cut off from the coordinator, and the server that takes its place dies before it is ready. The owner has
//! every row. It once ended when it heard of the other server, and then nobody had the rows.

use crate::cluster::{Cluster, LEASE};
use crate::model::schema;
use crate::stepping::{Seed, are_all, seeds_from};
use gannet_core::{Read, Write};
use gannet_server::ReplicationMode;
use gannet_sim::{Faults, Sim, SimProcess};
use gannet_transport::{Net, Poll, Prng};
use gannet_worker::{Places, PushId, Worker, WorkerConfig};
use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const KEYS: u64 = 100;
/// Pushes that the writer has in flight.
const IN_FLIGHT: usize = 4;

/// What the writer has begun, what was acknowledged, and whether it is to end.
#[derive(Default)]
struct Pushed {
    begun: Cell<u64>,
    acknowledged: Cell<u64>,
    is_over: Cell<bool>,
}

pub(super) struct Scene {
    pub(super) sim: Sim,
    pub(super) cluster: Cluster,
    places: Places,
    pushed: Rc<Pushed>,
    writer: SimProcess,
    pub(super) prng: Prng,
    pub(super) seed: u64,
}

impl Scene {
    /// `seed`: no call to the coordinator is lost if 3 divides it.
    pub(super) fn new(seed: u64, replication: ReplicationMode, has_folder: bool) -> Scene {
        let sim = Sim::new(seed, Faults::none());
        let mut cluster = match has_folder {
            true => Cluster::empty_with_folders(&sim, seed, replication),
            false => Cluster::empty(&sim, seed, replication),
        };
        match seed / 3 % 3 {
            0 if !has_folder => cluster.start_ring(2, 1),
            1 if !has_folder => cluster.start_ring(3, 2),
            _ => cluster.start_with_spares(1),
        }
        cluster.heal();
        if cluster.places == 1 {
            cluster.kill(2);
            let begun = sim.now();
            while cluster.backups(0).len() > 1 {
                sim.run(Duration::from_millis(10));
                assert!(sim.now() < begun + Duration::from_secs(60), "{}", cluster.state());
            }
        }
        let places = Places { coordinator: cluster.reach(), job: "job".into() };
        let config = WorkerConfig::new(cluster.servers(), 1, 1);
        let (pushed, of) = (Rc::<Pushed>::default(), sim.clone());
        let (told, config) = (pushed.clone(), WorkerConfig { places: Some(places.clone()), ..config });
        let writer = sim.spawn(move || write(&of, config, &told));
        Scene { sim, cluster, places, pushed, writer, prng: Prng::new(seed ^ 0xBACC), seed }
    }

    pub(super) fn until(&mut self, what: &str, mut is_so: impl FnMut(&Scene) -> bool) {
        let end = self.sim.now() + Duration::from_secs(60);
        while !is_so(self) {
            assert!(self.sim.now() < end, "seed {}: {what}: {}", self.seed, self.cluster.state());
            self.sim.run(Duration::from_millis(1));
        }
    }

    /// Waits until so many more pushes are acknowledged.
    pub(super) fn until_pushed(&mut self, more: u64) {
        let wanted = self.pushed.acknowledged.get() + more;
        self.until("pushes", |of| of.pushed.acknowledged.get() >= wanted);
    }

    pub(super) fn run_below(&mut self, most: Duration) {
        let time = Duration::from_micros(self.prng.below(most.as_micros() as u64));
        self.sim.run(time);
    }

    pub(super) fn cut(&self, at: usize, is_cut: bool) {
        self.cluster.members[at].coordinator.cut_off.store(is_cut, Relaxed);
    }

    /// The first owner is cut off, and another server begins to take its place. It cannot say that it is ready. It
    /// dies, or with some seeds comes back later. Returns whether the first owner has its place again.
    fn take_back(&mut self) -> bool {
        self.until_pushed(10);
        self.cut(0, true);
        self.until("a server that takes the place", |of| of.cluster.epoch(0) > 1);
        assert!(self.cluster.known(0).is_none(), "seed {}: it is ready at once", self.seed);
        let place = gannet_server::place_status(&*self.places.coordinator, "job", 0).unwrap().unwrap();
        let taker = self.cluster.members.iter().position(|of| of.host() == place.owner).unwrap();
        let lives = self.seed.is_multiple_of(2);
        self.cut(taker, true);
        let [first, other] = [0, taker].map(|at| self.cluster.members[at].life());
        // The first owner hears of the other one while that has the lease, or later.
        if self.prng.below(2) == 0 {
            self.cut(0, false);
        }
        self.run_below(LEASE * 2);
        if !lives {
            self.cluster.kill(taker);
        }
        self.run_below(LEASE * 2);
        self.cut(0, false);
        self.until("an owner", |of| of.cluster.has_owner(0));
        self.run_below(LEASE);
        self.cut(taker, false);
        self.until_pushed(10);
        let has_it_again = self.cluster.known(0).is_some_and(|(owner, _)| owner == Cluster::addr(0, 0));
        // The other one ends when it learns that it has not got the place.
        self.until("an end of the other server", |_| !has_it_again || *other.borrow());
        assert!(!has_it_again || !*first.borrow(), "seed {}: the owner has ended", self.seed);
        has_it_again
    }

    /// Every push is in the rows once.
    pub(super) fn check(&mut self) {
        self.pushed.is_over.set(true);
        self.until("an end", |of| of.writer.has_ended());
        let config = WorkerConfig {
            places: Some(self.places.clone()),
            ..WorkerConfig::reader(self.cluster.servers())
        };
        let mut worker = Worker::connect(self.sim.clone(), config).unwrap();
        let table = worker.open_table(&schema("t", 1, 8)).unwrap();
        let (keys, mut rows) = ((0..KEYS).collect::<Vec<u64>>(), vec![0.0; KEYS as usize]);
        worker.pull(table, &keys, Read::Weights, &mut rows).unwrap();
        let begun = self.pushed.begun.get();
        let wrong = rows.iter().find(|row| **row as u64 != begun);
        assert_eq!(wrong, None, "seed {}: {begun} pushes", self.seed);
    }
}

/// Pushes ones to all keys, with several pushes in flight.
fn write(sim: &Sim, config: WorkerConfig, pushed: &Pushed) {
    let mut worker = Worker::connect(sim.clone(), config).unwrap();
    let table = worker.open_table(&schema("t", 1, 8)).unwrap();
    let keys: Vec<u64> = (0..KEYS).collect();
    let cut = Arc::new(worker.cut(table, &keys));
    let mut open: VecDeque<PushId> = VecDeque::new();
    while !pushed.is_over.get() || !open.is_empty() {
        while open.len() > IN_FLIGHT || pushed.is_over.get() && !open.is_empty() {
            worker.finish_push(open.pop_front().unwrap()).unwrap();
            pushed.acknowledged.set(pushed.acknowledged.get() + 1);
        }
        if pushed.is_over.get() {
            continue;
        }
        pushed.begun.set(pushed.begun.get() + 1);
        let (seq, ones) = (worker.next_seq(table), vec![1.0; KEYS as usize]);
        open.push_back(worker.begin_push(table, cut.clone(), Write::Gradient, ones, None, seq).unwrap());
        sim.poll().unwrap().wait(Duration::from_millis(10), &mut Vec::new()).unwrap();
        worker.poll().unwrap();
    }
}

fn run_seeds(seeds: Range<u64>, replication: ReplicationMode) {
    let mut taken_back = 0;
    for seed in seeds.filter(|seed| seed.is_multiple_of(3)) {
        let _seed = Seed::begin(seed);
        let mut scene = Scene::new(seed, replication, false);
        taken_back += u64::from(scene.take_back());
        scene.check();
    }
    assert!(!are_all() || taken_back > 3, "{taken_back}: the test shows nothing");
}

#[test]
fn an_owner_ended_when_a_server_began_to_take_its_place_and_died() {
    run_seeds(seeds_from(5_400, 54), ReplicationMode::Sync);
}

#[test]
fn so_it_did_when_rows_are_read_at_once() {
    run_seeds(seeds_from(5_500, 54), ReplicationMode::Async);
}

/// The folder has the claim with which the owner has taken its place back. So the rows are believed after a death.
#[test]
fn an_owner_that_took_its_place_back_goes_on_with_its_folder_when_it_dies() {
    let mut taken_back = 0;
    for seed in seeds_from(5_600, 24).filter(|seed| seed.is_multiple_of(3)) {
        let _seed = Seed::begin(seed);
        let mut scene = Scene::new(seed, ReplicationMode::Sync, true);
        if scene.take_back() {
            taken_back += 1;
            scene.cluster.kill(0);
            scene.run_below(LEASE * 2);
            scene.cluster.start_at(0);
            scene.until_pushed(10);
        }
        scene.check();
    }
    assert!(!are_all() || taken_back > 3, "{taken_back}: the test shows nothing");
}

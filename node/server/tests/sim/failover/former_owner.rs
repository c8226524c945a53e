//! A server that has lost its places and does not know it still fills a backup. That backup has the rows of the new
//! owner meanwhile, and must refuse the old ones.

use crate::cluster::Cluster;
use crate::model::schema;
use gannet_core::{Read, Write};
use gannet_sim::{Faults, Sim, SimProcess};
use gannet_transport::Net;
use gannet_worker::{Places, Worker, WorkerConfig};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const KEYS: u64 = 200;
/// Three servers that are all backups of each other, and a coordinator that always answers.
const SEEDS: [u64; 3] = [21, 57, 93];

struct Scene {
    sim: Sim,
    cluster: Cluster,
    places: Places,
    /// Pushes of ones that were acknowledged, and how many there are to be.
    pushed: Rc<Cell<u64>>,
    wanted: Rc<Cell<u64>>,
    writer: SimProcess,
}

impl Scene {
    fn new(seed: u64) -> Scene {
        let sim = Sim::new(seed, Faults::none());
        let mut cluster = Cluster::new(&sim, seed);
        assert_eq!((cluster.places, cluster.backups), (3, 2));
        cluster.heal();
        let (places, servers) =
            (Places { coordinator: cluster.reach(), job: "job".into() }, cluster.servers());
        let (pushed, wanted) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(5)));
        let config = WorkerConfig { places: Some(places.clone()), ..WorkerConfig::new(servers, 1, 1) };
        let (of, told, most) = (sim.clone(), pushed.clone(), wanted.clone());
        let writer = sim.spawn(move || {
            let mut worker = Worker::connect(of.clone(), config).unwrap();
            let table = worker.open_table(&schema("t", 1, 8)).unwrap();
            let keys: Vec<u64> = (0..KEYS).collect();
            loop {
                while told.get() < most.get() {
                    worker.push(table, &keys, Write::Gradient, &[1.0; KEYS as usize]).unwrap();
                    told.set(told.get() + 1);
                }
                gannet_transport::Poll::wait(
                    &mut of.poll().unwrap(),
                    Duration::from_millis(20),
                    &mut Vec::new(),
                )
                .unwrap();
            }
        });
        Scene { sim, cluster, places, pushed, wanted, writer }
    }

    /// The links between the first and the third server are down until something is so.
    fn cut_until(&self, what: &str, is_so: impl Fn(&Scene) -> bool) {
        let [first, third] = [0, 2].map(|at| self.cluster.members[at].host().to_owned());
        for _ in 0..1_200 {
            if is_so(self) {
                return;
            }
            self.sim.cut(&first, &third, Duration::from_millis(200));
            self.sim.cut(&third, &first, Duration::from_millis(200));
            self.sim.run(Duration::from_millis(50));
        }
        panic!("{what}: not in a minute: {}", self.cluster.state());
    }

    /// Whether the second server has a place and the third has all of its rows.
    fn is_of_second(&self, place: u32) -> bool {
        let host = |at: usize| self.cluster.members[at].host();
        self.cluster
            .known(place)
            .is_some_and(|(owner, of)| owner == host(1) && of.iter().any(|of| of == host(2)))
    }

    /// Every push that was acknowledged is in the rows once.
    fn check(self, of_seed: &str) {
        self.sim.kill(&self.writer);
        let config = WorkerConfig {
            places: Some(self.places.clone()),
            ..WorkerConfig::reader(self.cluster.servers())
        };
        let (of, count, what) = (self.sim.clone(), self.pushed.get() as f32, of_seed.to_owned());
        let reader = self.sim.spawn(move || {
            let mut worker = Worker::connect(of, config).unwrap();
            let table = worker.open_table(&schema("t", 1, 8)).unwrap();
            let (keys, mut rows) = ((0..KEYS).collect::<Vec<u64>>(), vec![0.0; KEYS as usize]);
            worker.pull(table, &keys, Read::Weights, &mut rows).unwrap();
            let wrong = rows.iter().find(|row| **row != count);
            assert_eq!(wrong, None, "{what}: {count} pushes were acknowledged");
        });
        for _ in 0..600 {
            self.sim.run(Duration::from_millis(100));
            if reader.has_ended() {
                return;
            }
        }
        panic!("{of_seed}: no answer in a minute: {}", self.cluster.state());
    }
}

/// The second server takes the place of the first, which is cut off from the coordinator and fills the third. So long
/// after that the second dies.
fn outlive(seed: u64, after: Duration) {
    let mut scene = Scene::new(seed);
    // The third is new, and the first does not reach it.
    scene.cluster.kill(2);
    scene.cut_until("pushes", |of| of.pushed.get() == 5 && (0..3).all(|place| of.cluster.has_owner(place)));
    scene.cluster.mend();
    scene.cut_until("a new backup", |of| of.is_of_second(1));
    scene.cluster.cut_off(0);
    scene.cut_until("another owner", |of| (0..3).all(|place| of.is_of_second(place)));
    scene.wanted.set(9);
    scene.cut_until("more pushes", |of| of.pushed.get() == 9);
    scene.sim.run(after);
    scene.cluster.kill(1);
    scene.check(&format!("seed {seed}, {after:?}"));
}

#[test]
fn a_backup_does_not_take_old_rows_from_a_former_owner() {
    for seed in SEEDS {
        for half in 0..8 {
            outlive(seed, Duration::from_millis(500 * half));
        }
    }
}

//! A server whose shards have copies on another server. It dies for good, and the other server takes its place.

use crate::model::{Model, random_keys, random_values, schema, unique_keys};
use crate::simulated::{connect, faults};
use crate::stepping::{Seed, are_all, seeds_from};

use gannet_core::{Read, Store, Write};
use gannet_server::{LocalServer, ServerConfig};
use gannet_sim::{Sim, SimProcess};
use gannet_transport::Prng;
use gannet_worker::{TableId, Worker};
use std::sync::Arc;
use std::time::Duration;

/// A server in the simulation, with what tells its commands to its backups.
struct Replicated {
    actor: u64,
    addr: String,
    replicators: Vec<SimProcess>,
}

impl Replicated {
    fn start(sim: &Sim, addr: &str, threads: usize, backups: &[&str]) -> Replicated {
        let backups = backups.iter().map(|addr| addr.to_string()).collect();
        let store = Store::memory();
        let config = ServerConfig { threads, store, backups, ..ServerConfig::new(addr) };
        let mut server = LocalServer::new(sim.clone(), config).unwrap();
        let addr = server.addr().to_owned();
        let replicators = server.take_replicators().into_iter();
        let replicators = replicators.map(|replicator| sim.spawn(move || replicator.run(|| false))).collect();
        Replicated { actor: sim.add_actor(move || server.run().unwrap()), addr, replicators }
    }

    /// As a kill of the process.
    fn kill(&self, sim: &Sim) {
        sim.remove_actor(self.actor);
        self.replicators.iter().for_each(|process| sim.kill(process));
        sim.reset_all(&self.addr);
    }
}

/// A key that each push has. Its row counts the pushes.
const COUNTED: u64 = 1;

struct Pushing {
    worker: Worker<Sim>,
    table: TableId,
    model: Model,
    pushes: u64,
}

impl Pushing {
    /// Begins a push. Its acknowledgement comes later.
    fn push(&mut self, prng: &mut Prng) {
        let count = 1 + prng.below(300) as usize;
        let mut keys = unique_keys(prng, count, 2_000);
        keys.retain(|key| *key != COUNTED);
        keys.push(COUNTED);
        let cut = Arc::new(self.worker.cut(self.table, &keys));
        let dim = self.model.schema.dim as usize;
        let mut values = random_values(prng, cut.keys().len() * dim);
        let at = cut.keys().iter().position(|key| *key == COUNTED).unwrap();
        values[at * dim..][..dim].fill(1.0);
        self.model.push(cut.keys(), &values);
        self.pushes += 1;
        self.worker.begin_push(self.table, cut, Write::Gradient, values, None, self.pushes).unwrap();
    }

    fn check(&mut self, prng: &mut Prng, seed: u64) {
        self.worker.drain().unwrap();
        let keys = random_keys(prng, 3_000, 2_000);
        let mut out = vec![0.0; keys.len() * self.model.schema.dim as usize];
        self.worker.pull(self.table, &keys, Read::Weights, &mut out).unwrap();
        assert!(out == self.model.pull(&keys), "seed {seed}, after {} pushes", self.pushes);
    }
}

/// How many pushes another worker sees.
fn counted(reader: &mut Worker<Sim>, table: TableId, dim: usize) -> u64 {
    let mut row = vec![0.0; dim];
    reader.pull(table, &[COUNTED], Read::Weights, &mut row).unwrap();
    row[0] as u64
}

#[test]
fn a_backup_has_each_acknowledged_push_once() {
    let (mut resent, mut seen) = (0, 0);
    for seed in seeds_from(700, 24) {
        let _seed = Seed::begin(seed);
        let sim = Sim::new(seed, faults(seed));
        let mut prng = Prng::new(seed);
        let mut draw = |below: u64| prng.below(below);
        let threads = |draw: u64| 1 + draw as usize;
        let mut backup = Replicated::start(&sim, "sim:0", threads(draw(4)), &[]);
        let primary = Replicated::start(&sim, "sim:0", threads(draw(3)), &[&backup.addr]);
        let mut worker = connect(&sim, std::slice::from_ref(&primary.addr), 3);
        let model = Model::new(schema("t", 1 + seed as u32 % 3, 16));
        let dim = model.schema.dim as usize;
        let table = worker.open_table(&model.schema).unwrap();
        let mut reader = connect(&sim, std::slice::from_ref(&primary.addr), 4);
        let read_table = reader.open_table(&model.schema).unwrap();
        let mut pushing = Pushing { worker, table, model, pushes: 0 };
        let (restart, rounds) = (prng.below(20), 12 + prng.below(12));
        for round in 0..rounds {
            pushing.push(&mut prng);
            sim.run(Duration::from_micros(prng.below(300)));
            if round == restart {
                backup.kill(&sim);
                backup = Replicated::start(&sim, &backup.addr, threads(prng.below(4)), &[]);
            }
            if round % 5 == 4 {
                pushing.check(&mut prng, seed);
            }
        }
        // The backup has all rows after a while.
        sim.run(Duration::from_secs(60));
        let before = counted(&mut reader, read_table, dim);
        for _ in 0..prng.below(12) {
            pushing.push(&mut prng);
            sim.run(Duration::from_micros(prng.below(100)));
        }
        let last = match seed % 3 {
            0 => counted(&mut reader, read_table, dim),
            _ => before,
        };
        primary.kill(&sim);
        let mut promoter = connect(&sim, std::slice::from_ref(&backup.addr), 9);
        assert_eq!(promoter.promote_backup(0, 1, 2).unwrap(), 1, "seed {seed}");
        // Whatever anyone has seen is still there.
        reader.replace_server(&primary.addr, &backup.addr);
        let now = counted(&mut reader, read_table, dim);
        assert!(now >= last, "seed {seed}: {last} pushes were seen, and {now} are there");
        seen += u64::from(last > before);
        pushing.worker.replace_server(&primary.addr, &backup.addr);
        for _ in 0..5 {
            pushing.push(&mut prng);
        }
        pushing.check(&mut prng, seed);
        assert_eq!(counted(&mut reader, read_table, dim), pushing.pushes, "seed {seed}");
        resent += pushing.worker.counters().resends;
    }
    assert!(!are_all() || resent > 20 && seen > 0, "{resent} resends, {seen}: the test shows nothing");
}

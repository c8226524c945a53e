//! Thousands of incarnations in the simulation: many clients ask at once, links are lost, and the server that counts is
//! killed between storing a number and answering with it.

use crate::config::ServerConfig;
use crate::local::LocalServer;
use gannet_core::Store;
use gannet_sim::{Faults, Sim};
use gannet_transport::Prng;
use gannet_worker::IncarnationClient;
use std::collections::HashSet;
use std::time::Duration;

/// A server that can be killed, with the folder that it leaves.
struct KilledServer {
    store: Store,
    addr: String,
    actor: u64,
    _folder: tempfile::TempDir,
}

fn start(sim: &Sim, addr: &str, store: &Store) -> (String, u64) {
    let config = ServerConfig { threads: 2, store: store.clone(), ..ServerConfig::new(addr) };
    let mut server = LocalServer::new(sim.clone(), config).unwrap();
    let addr = server.addr().to_owned();
    (addr, sim.add_actor(move || server.run().unwrap()))
}

impl KilledServer {
    fn new(sim: &Sim) -> KilledServer {
        // Thousands of syncs would take long on a disk, so the folder is in memory where possible.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let store = Store::open_dir(folder.path()).unwrap();
        let (addr, actor) = start(sim, "sim:0", &store);
        KilledServer { store, addr, actor, _folder: folder }
    }

    /// Unsent answers are lost. The server's next incarnation has a wall clock of its own, which may have gone back.
    fn kill(&mut self, sim: &Sim, prng: &mut Prng) {
        sim.remove_actor(self.actor);
        sim.reset_all(&self.addr);
        let ahead = Duration::from_secs(prng.below(7_200));
        self.actor = start(&sim.ahead(ahead), &self.addr, &self.store).1;
    }
}

#[test]
fn no_incarnation_is_given_twice_and_each_is_above_all_that_were_answered_before() {
    let (mut allocated, mut kills, mut lost, mut turned) = (0, 0, 0, 0);
    for seed in 0..9 {
        let faults = Faults {
            reset_per_million: [0, 20_000, 60_000][seed as usize % 3],
            refuse_per_million: 50_000,
            piece_bytes_max: [0, 30, 1_000][seed as usize / 3 % 3],
            ..Faults::none()
        };
        let (sim, mut prng) = (Sim::new(seed, faults), Prng::new(seed));
        let mut places = [KilledServer::new(&sim), KilledServer::new(&sim)];
        let mut order = [0, 1];
        let (mut clients, mut numbers, mut highest) = (Vec::new(), HashSet::new(), 0);
        while numbers.len() < 300 {
            if clients.len() < 6 && prng.below(3) > 0 {
                let servers: Vec<String> = order.iter().map(|&at: &usize| places[at].addr.clone()).collect();
                let client = IncarnationClient::begin(sim.clone(), &servers, highest);
                clients.push(client.unwrap_or_else(|error| panic!("seed {seed}: {error}")));
            }
            sim.run(Duration::from_micros(prng.below(400)));
            clients.retain_mut(|client| {
                let number = client.step().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                let Some(number) = number else { return true };
                assert!(
                    number > client.before(),
                    "seed {seed}: {number}, after {} was answered",
                    client.before()
                );
                assert!(numbers.insert(number), "seed {seed}: {number} is given twice");
                highest = highest.max(number);
                lost += client.worker().counters().links_lost;
                false
            });
            if prng.below(40) == 0 {
                places[prng.below(2) as usize].kill(&sim, &mut prng);
                kills += 1;
            }
            // A run that names its servers in another order continues above what the other server has counted.
            if clients.is_empty() && prng.below(4) == 0 {
                order.swap(0, 1);
                turned += 1;
            }
        }
        allocated += numbers.len();
    }
    assert!(
        allocated >= 2_700 && kills > 100 && lost > 100 && turned > 20,
        "{allocated} {kills} {lost} {turned}"
    );
}

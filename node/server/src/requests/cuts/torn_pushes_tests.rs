//! Checkpoints when a push is not complete on all its shards, and its pusher may be gone. The tests are clients over
//! raw links, one to each thread.

use crate::config::ServerConfig;
use crate::local::LocalServer;
use crate::sessions::refusals_tests::{acked, ask, refused};
use gannet_core::{CheckpointDir, Cursor, Schema, Store, Write, hash, shard_of};
use gannet_optim::{Add, Rule};
use gannet_sim::{Faults, Sim, SimStream};
use gannet_transport::{Head, Link, Net, Poll, Prng};
use gannet_wire::frames::bulk::{AckFrame, PushFrame};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::push_payload::{PushPayload, PushValues};
use gannet_wire::frames::session::{HelloFrame, PingFrame, PongFrame};
use gannet_wire::limits::WORKER_TIMEOUT;
use gannet_wire::messages::control;
use gannet_wire::messages::control::HelloV1;
use gannet_wire::refusal::Refusal;
use gannet_worker::{
    CheckpointOptions, SavedCheckpoint, Worker, WorkerConfig, WorkerError, forget_clients, save_checkpoint,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use tempfile::TempDir;

const SHARDS: u32 = 8;

const THREADS: u32 = 2;

const SECOND: Duration = Duration::from_secs(1);

/// A number that no rank has.
const RANKLESS: u64 = 1 << 40;

fn schema() -> Schema {
    Schema { shards: SHARDS, ..Schema::scalar("t", Rule::Add(Add)) }
}

/// Servers of two threads, their folders and checkpoints.
struct World {
    sim: Sim,
    servers: Vec<(String, u64, Store)>,
    checkpoints: CheckpointDir,
    _folders: Vec<TempDir>,
}

impl World {
    fn new(servers: usize) -> World {
        let folders: Vec<TempDir> = (0..=servers).map(|_| tempfile::tempdir().unwrap()).collect();
        let store = |at: usize| Store::open_dir(folders[at + 1].path()).unwrap();
        let servers = (0..servers).map(|at| ("sim:0".into(), 0, store(at))).collect();
        let checkpoints = CheckpointDir::create(folders[0].path()).unwrap();
        let mut world = World { sim: Sim::new(1, Faults::none()), servers, checkpoints, _folders: folders };
        world.start();
        world
    }

    fn start(&mut self) {
        for (addr, actor, store) in &mut self.servers {
            let (store, checkpoints) = (store.clone(), Some(self.checkpoints.clone()));
            let threads = THREADS as usize;
            let config = ServerConfig { threads, store, checkpoints, ..ServerConfig::new(&*addr) };
            let mut server = LocalServer::new(self.sim.clone(), config).unwrap();
            *addr = server.addr().to_owned();
            *actor = self.sim.add_actor(move || server.run().unwrap());
        }
        let config = WorkerConfig::new(self.addrs(), 50, 1);
        Worker::connect(self.sim.clone(), config).unwrap().open_table(&schema()).unwrap();
    }

    /// Kills all servers, and starts them again.
    fn restart(&mut self) {
        for (addr, actor, _) in &self.servers {
            self.sim.remove_actor(*actor);
            self.sim.reset_all(addr);
        }
        self.start();
    }

    fn addrs(&self) -> Vec<String> {
        self.servers.iter().map(|(addr, ..)| addr.clone()).collect()
    }

    /// All threads of all servers, in the order of their shards.
    fn threads(&self) -> usize {
        self.servers.len() * THREADS as usize
    }

    fn save(&self) -> Result<SavedCheckpoint, WorkerError> {
        let config = WorkerConfig { spin: Duration::ZERO, ..WorkerConfig::new(self.addrs(), 60, 1) };
        let freeze = Duration::from_millis(250);
        let options = CheckpointOptions { freeze, tries: 1, ..CheckpointOptions::default() };
        // The server's writer works in real time, and the simulation would not wait for it.
        let slow = self.sim.add_actor(|| std::thread::sleep(Duration::from_micros(500)));
        let saved = save_checkpoint(self.sim.clone(), &config, &self.checkpoints, &options);
        self.sim.remove_actor(slow);
        saved
    }

    /// A checkpoint is given up because of a push that is not complete.
    fn refused(&self) {
        match self.save().map(|saved| saved.manifest).unwrap_err() {
            WorkerError::Cut(text) => assert!(text.contains("is still not complete"), "{text}"),
            WorkerError::Refused { refusal, text, .. } => assert_eq!(refusal, Refusal::Cut, "{text}"),
            other => panic!("{other}"),
        }
    }

    /// The rows and cursors of a checkpoint that is saved now.
    fn saved(&self) -> (BTreeMap<u64, f32>, Vec<Cursor>) {
        let manifest = self.save().unwrap().manifest;
        let (chain, mut all) = (self.checkpoints.chain(manifest.number).unwrap(), BTreeMap::new());
        for shard in 0..SHARDS {
            let add = |keys: &[u64], rows: &[f32]| all.extend(keys.iter().copied().zip(rows.iter().copied()));
            self.checkpoints.shard_rows(&chain, "t", shard, add).unwrap();
        }
        (all, manifest.table("t").unwrap().1.cursors.clone())
    }

    /// A client with a link to each thread.
    fn client(&self, pusher: u64, incarnation: u64) -> Client {
        let link = |at: usize| {
            let (addr, thread) = (&self.servers[at / THREADS as usize].0, at as u32 % THREADS);
            let mut link = Link::new(self.sim.connect(addr, SECOND).unwrap());
            let hello = control::seal(&HelloV1 { pusher, incarnation, thread });
            ask(&self.sim, &mut link, HelloFrame {}.encode(0), &hello);
            link
        };
        Client { sim: self.sim.clone(), links: (0..self.threads()).map(link).collect() }
    }
}

/// The keys of every push, by thread.
fn keys(threads: usize) -> Vec<Vec<u64>> {
    let mut keys: Vec<u64> = (0..40).collect();
    keys.sort_by_key(|&key| shard_of(hash(key), SHARDS));
    let of =
        |thread: usize, key: u64| shard_of(hash(key), SHARDS) as usize * threads / SHARDS as usize == thread;
    (0..threads).map(|thread| keys.iter().copied().filter(|&key| of(thread, key)).collect()).collect()
}

/// 1 for each key of these threads.
fn ones(threads: usize, of: &[usize]) -> BTreeMap<u64, f32> {
    of.iter().flat_map(|&thread| keys(threads)[thread].clone()).map(|key| (key, 1.0)).collect()
}

struct Client {
    sim: Sim,
    links: Vec<Link<SimStream>>,
}

impl Client {
    /// Sends a thread its part of push `seq`, which adds 1 to all keys.
    fn push(&mut self, seq: u64, thread: usize) -> (Head, Vec<u8>) {
        let keys = &keys(self.links.len())[thread];
        let head = PushFrame {
            table: 0,
            keys: keys.len() as u32,
            write: Write::Gradient,
            seq,
            row: 0,
            total: 40,
            keyset: 0,
            slots: false,
            named: false,
            some: false,
            f16: false,
            since: false,
        };
        let values = vec![1.0; keys.len()];
        let payload = PushPayload { keys, values: PushValues::F32(&values), ..PushPayload::default() };
        let mut payload = payload.to_bytes();
        payload.resize(payload.len().next_multiple_of(8), 0);
        ask(&self.sim, &mut self.links[thread], head.encode(2), &payload)
    }

    fn apply(&mut self, seq: u64, thread: usize) {
        let applied = acked(&self.push(seq, thread).0);
        assert_eq!(applied.applied as usize, keys(self.links.len())[thread].len());
    }
}

/// A client was killed when its push had reached one of the threads. No checkpoint was saved any more.
#[test]
fn a_client_that_was_killed_in_the_middle_of_a_push_ended_checkpoints_for_good() {
    for (servers, pusher) in [(1, 3), (1, RANKLESS), (2, RANKLESS)] {
        let world = World::new(servers);
        let threads = world.threads();
        let mut killed = world.client(pusher, 5);
        killed.apply(1, 0);
        drop(killed);
        world.refused();
        world.sim.run(WORKER_TIMEOUT + 2 * SECOND);
        let (rows, cursors) = world.saved();
        assert_eq!(rows, ones(threads, &[0]), "{servers} servers");
        assert_eq!(cursors, [Cursor { pusher, incarnation: 6, seq: 0, closed: false }]);
        // Nothing of it is applied on any shard from now on. The next start of the client is another one.
        let mut late = world.client(pusher, 5);
        for thread in 0..threads {
            let (refusal, text) = refused(late.push(1, thread));
            assert!(refusal == Refusal::Fenced, "{text}");
        }
        assert_eq!(world.saved().0, ones(threads, &[0]));
        let mut next = world.client(pusher, 7);
        (0..threads).for_each(|thread| next.apply(1, thread));
        assert_eq!(world.saved().0.values().sum::<f32>(), (40 + keys(threads)[0].len()) as f32);
    }
}

/// All pushers stay as they are while a checkpoint is written.
#[test]
fn no_client_is_forgotten_on_request_while_a_checkpoint_is_written() {
    let world = World::new(1);
    let mut killed = world.client(RANKLESS, 5);
    killed.apply(1, 0);
    let (own, config) = (world.sim.clone(), WorkerConfig::new(world.addrs(), 70, 9));
    let (said, over) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(false)));
    let (into, is_over) = (said.clone(), over.clone());
    let asking = world.sim.spawn(move || {
        while !is_over.get() {
            into.borrow_mut().push(forget_clients(own.clone(), &config).map_err(|error| error.to_string()));
            own.poll().unwrap().wait(SECOND / 50, &mut Vec::new()).unwrap();
        }
    });
    world.refused();
    over.set(true);
    world.sim.run(SECOND);
    assert!(asking.has_ended());
    let is_held = |said: &Result<_, String>| {
        said.as_ref().is_err_and(|why| why.contains("a checkpoint is being written"))
    };
    let said = said.borrow();
    assert!(said.iter().any(is_held) && said.iter().all(|said| said.is_ok() || is_held(said)), "{said:?}");
}

/// After a restart, nobody knew the client any more, and no checkpoint was saved, either.
#[test]
fn nor_does_a_restart_of_the_servers_keep_a_torn_push() {
    for servers in [1, 2] {
        let mut world = World::new(servers);
        let mut killed = world.client(RANKLESS, 5);
        killed.apply(1, 1);
        drop(killed);
        world.restart();
        // The client may be about to come back.
        world.refused();
        world.sim.run(WORKER_TIMEOUT + 2 * SECOND);
        let saved = world.saved();
        assert_eq!(saved.0, ones(world.threads(), &[1]));
        // The fence is in the images.
        world.restart();
        assert_eq!(world.saved(), saved);
        let (refusal, text) = refused(world.client(RANKLESS, 5).push(1, 0));
        assert!(refusal == Refusal::Fenced, "{text}");
    }
}

/// A client that is alive keeps its push, however slow it is, within the time in which others wait for a worker.
#[test]
fn a_client_that_lives_or_comes_back_in_time_completes_its_push() {
    for comes_back in [false, true] {
        let world = World::new(1);
        let mut client = world.client(RANKLESS, 5);
        client.apply(1, 0);
        if comes_back {
            drop(client);
            world.sim.run(WORKER_TIMEOUT - 5 * SECOND);
            world.refused();
            client = world.client(RANKLESS, 5);
        }
        world.sim.run(WORKER_TIMEOUT + 2 * SECOND);
        world.refused();
        client.apply(1, 1);
        assert_eq!(world.saved().0, ones(2, &[0, 1]));
        assert_eq!(acked(&client.push(1, 0).0).applied, 0, "a resend");
        assert_eq!(world.saved().0, ones(2, &[0, 1]));
    }
}

/// A peer that says "1 of 2 rows" and stays ended checkpoints, too.
#[test]
fn a_peer_that_stays_and_never_completes_its_push_ended_checkpoints_for_good() {
    let world = World::new(1);
    let mut peer = world.client(RANKLESS, 5);
    peer.apply(1, 0);
    world.refused();
    world.sim.run(WORKER_TIMEOUT * 4);
    world.refused();
    let pong = ask(&world.sim, &mut peer.links[1], PingFrame {}.encode(3), &[]);
    assert_eq!(pong.0.kind, PongFrame::KIND);
    world.sim.run(WORKER_TIMEOUT * 2);
    assert_eq!(world.saved().0, ones(2, &[0]));
}

/// Clients push, die in the middle of a push, come back before or after they are given up, and start anew, while
/// checkpoints are saved and servers restart. Each part counts once or was refused.
#[test]
fn each_part_counts_once_or_is_refused_whoever_is_given_up() {
    for seed in 0..3 {
        let (mut prng, mut world) = (Prng::new(seed), World::new(1 + seed as usize % 2));
        let threads = world.threads();
        // What the rows must be, by thread; and each client: its incarnation, its push, and who has a part of it.
        let (mut counts, mut saves) = (vec![0.0; threads], 0);
        let mut clients = [(1, 1, vec![false; threads], None), (1, 1, vec![false; threads], None)];
        for _ in 0..24 {
            let at = prng.below(2) as usize;
            let (incarnation, seq, has, client) = &mut clients[at];
            let pusher = [2, RANKLESS][at];
            match prng.below(12) {
                0 => *client = None,
                1 => world.sim.run(Duration::from_secs(prng.below(90))),
                2 => {
                    world.restart();
                    clients.iter_mut().for_each(|(.., client)| *client = None);
                }
                3 | 4 => {
                    if let Ok(saved) = world.save() {
                        let (chain, mut sum) = (world.checkpoints.chain(saved.manifest.number).unwrap(), 0.0);
                        for shard in 0..SHARDS {
                            let add = |_: &[u64], rows: &[f32]| sum += rows.iter().sum::<f32>();
                            world.checkpoints.shard_rows(&chain, "t", shard, add).unwrap();
                        }
                        assert_eq!(sum, counts.iter().sum::<f32>(), "seed {seed}");
                        saves += 1;
                    }
                }
                _ => {
                    let client = client.get_or_insert_with(|| world.client(pusher, *incarnation));
                    let thread = prng.below(threads as u64) as usize;
                    let answer = client.push(*seq, thread);
                    if answer.0.kind == AckFrame::KIND {
                        let rows = acked(&answer.0).applied as f32;
                        assert_eq!(rows == 0.0, has[thread], "seed {seed}");
                        (counts[thread], has[thread]) = (counts[thread] + rows, true);
                        if has.iter().all(|has| *has) {
                            (*seq, *has) = (*seq + 1, vec![false; threads]);
                        }
                    } else {
                        assert_eq!(refused(answer).0, Refusal::Fenced, "seed {seed}");
                        // All threads refuse it.
                        *client = world.client(pusher, *incarnation);
                        for thread in 0..threads {
                            assert_eq!(refused(client.push(*seq, thread)).0, Refusal::Fenced, "seed {seed}");
                        }
                        (*incarnation, *seq, *has) = (*incarnation + 2, 1, vec![false; threads]);
                        *client = world.client(pusher, *incarnation);
                    }
                }
            }
        }
        world.sim.run(WORKER_TIMEOUT * 2);
        drop(clients);
        world.sim.run(WORKER_TIMEOUT + 2 * SECOND);
        let (rows, _) = world.saved();
        for (thread, keys) in keys(threads).iter().enumerate() {
            let sum: f32 = keys.iter().map(|key| rows.get(key).copied().unwrap_or(0.0)).sum();
            assert_eq!(sum, counts[thread], "seed {seed}, thread {thread}, {saves} saves");
        }
    }
}

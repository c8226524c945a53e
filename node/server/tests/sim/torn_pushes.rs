//! A pusher dies in the middle of a push over the shards of several threads, and checkpoints are to be saved. The push
//! has one outcome on all shards, also if who saves dies while it ends the push.

use crate::checkpoints::mortal;
use crate::checkpoints::mortal::Mortal;
use crate::model::schema;
use crate::stepping::{Seed, are_all, member, seeds_from, with_own_clock};

use gannet_core::{CheckpointDir, Read, Schema, Write};
use gannet_server::{LocalServer, ServerConfig};
use gannet_sim::{Faults, Sim, SimProcess};
use gannet_transport::{Net, Poll, Prng};
use gannet_wire::limits::WORKER_TIMEOUT;
use gannet_wire::share_pushers::share_pusher;
use gannet_wire::{Merge, StepReduce, SyncConfig, SyncMode};
use gannet_worker::{
    CheckpointOptions, SavedCheckpoint, SharePlace, TableId, Worker, WorkerConfig, WorkerError,
    save_checkpoint,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const SHARDS: u32 = 8;
const KEYS: u64 = 60;
const SECOND: Duration = Duration::from_secs(1);
/// `--worker-timeout` of the workers of a group.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A number that no rank has.
const RANKLESS: u64 = 1 << 40;
/// The pusher that dies has this host, and the worker that lives the next one.
const HOSTS: [&str; 2] = ["pusher", "other"];

/// The first float counts the pushes of the pusher that dies, the second those of the worker that lives.
fn table() -> Schema {
    schema("t", 2, SHARDS)
}

fn keys() -> Vec<u64> {
    (0..KEYS).map(|n| n * 0x1_0000_0001).collect()
}

/// Who dies.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Pusher {
    /// A client without a rank.
    Client,
    /// Worker 0 of two that keep step, or of two that do not.
    Rank(SyncMode),
    /// As `Rank`, with a fixed share of the data: its pushes are named by the batches of the share.
    Share(SyncMode),
}

impl Pusher {
    /// The pusher's number and its incarnation.
    fn name(self) -> (u64, u64) {
        if self == Pusher::Client { (RANKLESS, 5) } else { (1, 5) }
    }

    /// How long the pusher may be silent.
    fn limit(self) -> Duration {
        if self == Pusher::Client { WORKER_TIMEOUT } else { TIMEOUT }
    }

    fn member(self, rank: u32) -> Option<SyncConfig> {
        let (Pusher::Rank(mode) | Pusher::Share(mode)) = self else { return None };
        Some(SyncConfig { worker_timeout: TIMEOUT, ..member(rank, 2, mode) })
    }
}

/// A worker over the table, with this push begun.
struct Begun {
    worker: Worker<Sim>,
    table: TableId,
    share: Option<SharePlace>,
}

impl Begun {
    fn new(sim: Sim, config: WorkerConfig, pusher: Pusher, rank: u32) -> Result<Begun, WorkerError> {
        let mut worker = Worker::connect(sim, config)?;
        let table = worker.open_table(&table())?;
        if let Some(member) = pusher.member(rank) {
            worker.join(table, member)?;
        }
        let has_share = rank == 0 && matches!(pusher, Pusher::Share(_));
        let share = has_share.then(|| worker.begin_share(&[table], true)).transpose()?;
        Ok(Begun { worker, table, share })
    }

    /// Pushes 1 to a float of all keys.
    fn push(&mut self, float: usize, seq: u64) -> Result<(), WorkerError> {
        let cut = Arc::new(self.worker.cut(self.table, &keys()));
        let mut ones = vec![0.0; cut.keys().len() * 2];
        ones.chunks_mut(2).for_each(|row| row[float] = 1.0);
        let named = (seq, self.share.map(|share| share.name(seq)));
        let push = self.worker.begin_push_named(self.table, cut, Write::Gradient, ones, None, named)?;
        if self.worker.clock(self.table).is_some() {
            self.worker.tick(self.table)?;
        }
        self.worker.finish_push(push)
    }
}

/// Servers that save checkpoints, a pusher that dies, and for a group a worker that lives.
struct World {
    sim: Sim,
    servers: Vec<String>,
    checkpoints: CheckpointDir,
    pusher: Pusher,
    /// For how long a save may hold pushes back.
    freeze: Duration,
    processes: Vec<SimProcess>,
    /// Pushes that the pusher has begun.
    begun: Rc<Cell<u64>>,
    /// The pusher makes no further push.
    over: Rc<Cell<bool>>,
    /// Why the pusher has ended.
    refused: Rc<RefCell<Option<WorkerError>>>,
    _folder: tempfile::TempDir,
}

impl World {
    fn new(seed: u64, pusher: Pusher, servers: usize, threads: usize, faults: Faults) -> World {
        let sim = Sim::new(seed, faults);
        let folder = crate::folder_in_memory();
        let checkpoints = CheckpointDir::create(folder.path()).unwrap();
        let start = |number: usize| {
            let own = with_own_clock(&sim, &format!("server {number}"), seed);
            let kept = Some(checkpoints.clone());
            let config = ServerConfig { threads, checkpoints: kept, ..ServerConfig::new("sim:0") };
            let mut server = LocalServer::new(own, config).unwrap();
            let addr = server.addr().to_owned();
            sim.add_actor(move || server.run().unwrap());
            addr
        };
        let servers = (0..servers).map(start).collect();
        let (processes, begun, over, refused) = Default::default();
        // Where links stall, a save needs longer.
        let freeze = if faults.stall_per_million > 0 { SECOND } else { SECOND / 10 };
        World { sim, servers, checkpoints, pusher, freeze, processes, begun, over, refused, _folder: folder }
    }

    fn config(&self, (pusher, incarnation): (u64, u64)) -> WorkerConfig {
        let (spin, peer_timeout) = (Duration::ZERO, Duration::from_secs(600));
        WorkerConfig { spin, peer_timeout, ..WorkerConfig::new(self.servers.clone(), pusher, incarnation) }
    }

    /// Starts the pusher, and the worker that lives.
    fn start_pushers(&mut self, seed: u64) {
        let pause = |of: &Sim| of.poll().unwrap().wait(SECOND / 20, &mut Vec::new()).unwrap();
        let hosts = HOSTS.map(|name| with_own_clock(&self.sim, name, seed));
        let (config, pusher, begun) = (self.config(self.pusher.name()), self.pusher, self.begun.clone());
        let (own, over, refused) = (hosts[0].clone(), self.over.clone(), self.refused.clone());
        self.processes.push(self.sim.spawn(move || {
            let mut of = Begun::new(own.clone(), config, pusher, 0).unwrap();
            while !over.get() {
                begun.set(begun.get() + 1);
                if let Err(error) = of.push(0, begun.get()) {
                    *refused.borrow_mut() = Some(error);
                    return;
                }
                pause(&own);
            }
        }));
        if self.pusher == Pusher::Client {
            return;
        }
        let (own, config) = (hosts[1].clone(), self.config((2, 7)));
        self.processes.push(self.sim.spawn(move || {
            let mut of = Begun::new(own.clone(), config, pusher, 1).unwrap();
            for seq in 1.. {
                of.push(1, seq).unwrap();
                pause(&own);
            }
        }));
    }

    /// The pusher is cut off for so long. What it has sent and nobody has is lost, and it will send that again.
    fn cut_off_pusher(&self, time: Duration) {
        self.over.set(true);
        self.sim.crash(HOSTS[0]);
        for server in 0..self.servers.len() {
            self.sim.cut(HOSTS[0], &format!("server {server}"), time);
        }
    }

    /// Saves a checkpoint. `None`: who saves has died.
    fn save_over(&self, net: Mortal) -> Option<Result<SavedCheckpoint, WorkerError>> {
        let options = CheckpointOptions { freeze: self.freeze, tries: 1, ..CheckpointOptions::default() };
        let config = WorkerConfig { peer_timeout: 5 * SECOND, ..self.config((60, 1)) };
        // The servers' writers work in real time, and the simulation would not wait for them.
        let slow = self.sim.add_actor(|| std::thread::sleep(Duration::from_micros(100)));
        let saved = mortal::run(|| save_checkpoint(net, &config, &self.checkpoints, &options));
        self.sim.remove_actor(slow);
        saved
    }

    fn save(&self) -> Result<SavedCheckpoint, WorkerError> {
        self.save_over(Mortal::new(&self.sim, u64::MAX)).expect("nobody kills it")
    }

    /// What the pusher that died has in the rows of a checkpoint, by key.
    fn saved_rows(&self, saved: &SavedCheckpoint) -> BTreeMap<u64, f32> {
        let chain = self.checkpoints.chain(saved.manifest.number).unwrap();
        let mut all: BTreeMap<u64, f32> = keys().into_iter().map(|key| (key, 0.0)).collect();
        for shard in 0..SHARDS {
            let add = |keys: &[u64], rows: &[f32]| {
                all.extend(
                    keys.iter().copied().zip(rows.chunks(rows.len() / keys.len().max(1)).map(|r| r[0])),
                );
            };
            self.checkpoints.shard_rows(&chain, "t", shard, add).unwrap();
        }
        all
    }

    /// What the pusher that died has in the rows of the servers, by key.
    fn rows(&self) -> BTreeMap<u64, f32> {
        let mut reader =
            Worker::connect(self.sim.clone(), WorkerConfig::reader(self.servers.clone())).unwrap();
        let (table, mut rows) = (reader.open_table(&table()).unwrap(), vec![0.0; 2 * KEYS as usize]);
        reader.pull(table, &keys(), Read::Weights, &mut rows).unwrap();
        keys().into_iter().zip(rows.chunks(2).map(|row| row[0])).collect()
    }

    /// A checkpoint can be saved now, and nothing that is not in it comes later of the push that was torn.
    fn check(&self, what: &str) {
        // A link may be slow, and the live worker goes on with its steps.
        let mut tries = (0..5).map(|_| self.save());
        let saved = tries.find(|saved| saved.is_ok()).unwrap_or_else(|| self.save());
        let saved = saved.unwrap_or_else(|error| panic!("{what}: {error}"));
        let rows = self.saved_rows(&saved);
        assert_eq!(rows, self.rows(), "{what}");
        self.check_late(what, &rows);
    }

    /// The pusher is there again, and sends its last push again. It is applied on all shards or on none.
    fn check_late(&self, what: &str, before: &BTreeMap<u64, f32>) {
        while !self.processes[0].has_ended() {
            self.sim.run(SECOND);
            assert!(self.sim.now() < 900 * SECOND, "{what}: the pusher still waits");
        }
        let (refused, after) = (self.refused.borrow(), self.rows());
        let one_more = before.iter().map(|(key, count)| (*key, count + 1.0)).collect();
        let is_whole = refused.is_none() && (after == *before || after == one_more);
        let is_refused = refused.is_some() && after == *before;
        let changed = after.iter().filter(|(key, count)| before[*key] != **count).count();
        assert!(is_whole || is_refused, "{what}: {changed} of {KEYS} rows have more of it: {refused:?}");
    }
}

const BSP: SyncMode = SyncMode::Bsp(StepReduce { aggregate: 2, merge: Merge::Sum });

/// Who dies: in all modes.
const PUSHERS: [Pusher; 7] = [
    Pusher::Client,
    Pusher::Rank(SyncMode::Asp),
    Pusher::Rank(SyncMode::Ssp(3)),
    Pusher::Share(SyncMode::Asp),
    Pusher::Share(SyncMode::Ssp(3)),
    Pusher::Rank(BSP),
    Pusher::Share(BSP),
];

/// A torn push, of which a server lacks everything and another one has its part. It is time to give the pusher up.
fn torn(pusher: Pusher, lacking: usize, is_first: bool) -> World {
    let mut world = World::new(1, pusher, 2, 2, Faults::none());
    let cut = |world: &World| world.sim.cut(HOSTS[0], &format!("server {lacking}"), SECOND);
    world.start_pushers(1);
    // The pusher has opened the table, or has pushed several times.
    world.sim.run(if is_first { SECOND / 40 } else { SECOND / 2 });
    cut(&world);
    world.sim.run(SECOND / 5);
    world.cut_off_pusher(pusher.limit() * 5 / 4 + 10 * SECOND);
    let error = world.save().unwrap_err().to_string();
    assert!(error.contains("is still not complete"), "{error}: the test shows nothing");
    world.sim.run(pusher.limit() * 5 / 4 + 2 * SECOND);
    world
}

/// Who saves dies with each of its last waits in turn, and what it has just sent to one of the servers is lost: the one
/// that lacks the push. The pusher is fenced on the other one only, with one of these.
fn saver_dies(pusher: Pusher) {
    let waits = {
        let world = torn(pusher, 0, false);
        let net = Mortal::new(&world.sim, u64::MAX);
        world.save_over(net.clone()).unwrap().unwrap();
        u64::MAX - net.left()
    };
    // Those of a share take the same steps: every third one is enough.
    let every = if matches!(pusher, Pusher::Share(_)) { 3 } else { 1 };
    for wait in (waits.saturating_sub(80)..waits).step_by(every) {
        let (lacking, is_first) = (wait as usize % 2, wait % 4 < 2);
        let world = torn(pusher, lacking, is_first);
        let _ = world.save_over(Mortal::losing(&world.sim, wait, &world.servers[lacking]));
        world.sim.run(SECOND / 2);
        let what = format!("{pusher:?}, server {lacking} lost what was sent before wait {wait}");
        world.check(&what);
    }
}

#[test]
fn a_client_that_was_given_up_on_some_servers_pushed_on_at_the_others() {
    saver_dies(Pusher::Client);
}

#[test]
fn so_did_a_worker_with_a_fixed_share() {
    saver_dies(Pusher::Rank(SyncMode::Asp));
    saver_dies(Pusher::Share(SyncMode::Asp));
}

/// A job with --tasks off and --allow-missing-workers saved no checkpoint after a worker had been killed in a push.
#[test]
fn a_worker_that_was_killed_in_the_middle_of_a_batch_of_its_share_ended_checkpoints_for_good() {
    for mode in [SyncMode::Asp, SyncMode::Ssp(3), BSP] {
        for (lacking, is_first) in [(0, false), (1, false), (0, true), (1, true)] {
            let what = format!("{mode:?}, server {lacking} lacks the push, first: {is_first}");
            let world = torn(Pusher::Share(mode), lacking, is_first);
            let batch = world.begun.get();
            let saved = world.save().unwrap_or_else(|error| panic!("{what}: {error}"));
            let cursors = &saved.manifest.tables[0].cursors;
            let share = cursors.iter().find(|cursor| cursor.pusher == share_pusher(1)).unwrap();
            assert_eq!((share.incarnation, share.seq, share.closed), (5, batch, false), "{what}");
            let before = world.rows();
            world.check_late(&what, &before);
            // The worker comes again, and goes on behind the batch that was torn.
            let mut again = Begun::new(world.sim.clone(), world.config((1, 9)), world.pusher, 0).unwrap();
            assert_eq!(again.share.unwrap().batches(), batch, "{what}");
            again.push(0, 1).unwrap();
            let one_more: BTreeMap<u64, f32> =
                before.iter().map(|(key, count)| (*key, count + 1.0)).collect();
            assert_eq!(world.rows(), one_more, "{what}");
        }
    }
}

/// Pushers are killed at any time, links are slow, and who saves may die at any time.
#[test]
fn a_torn_push_has_one_outcome_whoever_dies() {
    let (mut torn, mut died) = (0, 0);
    for seed in seeds_from(5_000, 14) {
        let _seed = Seed::begin(seed);
        let (mut prng, pusher) = (Prng::new(seed ^ 0x7024), PUSHERS[seed as usize % PUSHERS.len()]);
        let servers = 1 + prng.below(2) as usize;
        let threads = 2 + prng.below(2) as usize;
        let stalls = Faults { stall_per_million: 200_000, stall_max: SECOND / 20, ..Faults::none() };
        let mut world = World::new(seed, pusher, servers, threads, Faults { window_bytes: 700, ..stalls });
        world.start_pushers(seed);
        world.sim.run(Duration::from_micros(prng.below(3_000_000)));
        let begun = world.begun.get();
        while world.begun.get() == begun {
            world.sim.run(Duration::from_millis(1));
        }
        world.sim.run(Duration::from_millis(prng.below(25)));
        world.cut_off_pusher(pusher.limit() * 5 / 4 + 60 * SECOND);
        let what = format!("seed {seed}, {pusher:?}, {servers} servers of {threads} threads");
        let given_up = world.sim.now() + pusher.limit() * 5 / 4 + 2 * SECOND;
        while world.sim.now() < given_up {
            if prng.below(4) == 0 {
                torn += u32::from(world.save().is_err());
            }
            world.sim.run(Duration::from_millis(prng.below(8_000)));
        }
        for _ in 0..prng.below(4) {
            let lost = &world.servers[prng.below(servers as u64) as usize];
            let net = Mortal::losing(&world.sim, prng.below(160), lost);
            died += u32::from(world.save_over(net).is_none());
        }
        world.sim.run(SECOND);
        world.check(&what);
    }
    assert!(!are_all() || torn > 3 && died > 3, "{torn} torn, {died} died: the test shows nothing");
}

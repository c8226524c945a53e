//! Checkpoints of a table in synchronous steps, where the threads of a server have made a step with different workers,
//! or were killed in it. The tests are workers over raw links, one to each thread.

use crate::config::ServerConfig;
use crate::local::LocalServer;
use crate::sessions::refusals_tests::ask;
use gannet_core::{CheckpointDir, NO_CLOCK, Schema, Store, Write, hash, shard_of};
use gannet_optim::{Add, Rule};
use gannet_sim::{Faults, Sim, SimStream};
use gannet_transport::{Head, Link, Net, NoOwner};
use gannet_wire::frames::bulk::PushFrame;
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::push_payload::{PushPayload, PushValues};
use gannet_wire::frames::session::HelloFrame;
use gannet_wire::frames::sync::{FenceFrame, FencedFrame, JoinFrame, JoinedFrame, TickFrame};
use gannet_wire::messages::control;
use gannet_wire::messages::control::{HelloV1, JoinV1};
use gannet_wire::refusal::Refusal;
use gannet_wire::share_pushers::share_pusher;
use gannet_worker::{CheckpointOptions, SavedCheckpoint, Worker, WorkerConfig, WorkerError, save_checkpoint};
use std::collections::BTreeMap;
use std::time::Duration;
use tempfile::TempDir;

const SHARDS: u32 = 8;

/// Ends worker 1.
const FENCE: FenceFrame = FenceFrame { table: 0, index: 1, pusher: 2, incarnation: 1 };

fn tick(clock: u64) -> Head {
    TickFrame { table: 0, clock, skip: false }.encode(3)
}

fn schema() -> Schema {
    Schema { shards: SHARDS, ..Schema::scalar("t", Rule::Add(Add)) }
}

/// The keys of every batch, in ascending order of shard: those of the shards of thread 0 of two, and the others.
fn keys() -> [Vec<u64>; 2] {
    let mut keys: Vec<u64> = (0..40).collect();
    keys.sort_by_key(|&key| shard_of(hash(key), SHARDS));
    let (first, second) = keys.into_iter().partition(|&key| shard_of(hash(key), SHARDS) < SHARDS / 2);
    [first, second]
}

/// A server whose table is on disk, and its checkpoints.
struct World {
    sim: Sim,
    actor: u64,
    addr: String,
    store: Store,
    checkpoints: CheckpointDir,
    _folders: [TempDir; 2],
}

impl World {
    /// A server of two threads with the table.
    fn new() -> World {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let store = Store::open_dir(folders[0].path()).unwrap();
        let checkpoints = CheckpointDir::create(folders[1].path()).unwrap();
        let (sim, addr) = (Sim::new(1, Faults::none()), "sim:0".into());
        let mut world = World { sim, actor: 0, addr, store, checkpoints, _folders: folders };
        world.start(2);
        world
    }

    fn start(&mut self, threads: usize) {
        let (store, checkpoints) = (self.store.clone(), Some(self.checkpoints.clone()));
        let config = ServerConfig { threads, store, checkpoints, ..ServerConfig::new(&self.addr) };
        let mut server = LocalServer::new(self.sim.clone(), config).unwrap();
        self.addr = server.addr().to_owned();
        self.actor = self.sim.add_actor(move || server.run().unwrap());
        let config = WorkerConfig::new([&self.addr], 50, 1);
        Worker::connect(self.sim.clone(), config).unwrap().open_table(&schema()).unwrap();
    }

    /// Kills the server, and starts it with so many threads. The table is open, and no worker has joined.
    fn restart(&mut self, threads: usize) {
        self.sim.remove_actor(self.actor);
        self.sim.reset_all(&self.addr);
        self.start(threads);
    }

    fn save(&self) -> Result<SavedCheckpoint, WorkerError> {
        self.save_within(Duration::from_millis(200))
    }

    fn save_within(&self, freeze: Duration) -> Result<SavedCheckpoint, WorkerError> {
        let config = WorkerConfig { spin: Duration::ZERO, ..WorkerConfig::new([&self.addr], 60, 1) };
        let options = CheckpointOptions { freeze, tries: 1, ..CheckpointOptions::default() };
        // The server's writer works in real time, and the simulation would not wait for it.
        let slow = self.sim.add_actor(|| std::thread::sleep(Duration::from_micros(500)));
        let saved = save_checkpoint(self.sim.clone(), &config, &self.checkpoints, &options);
        self.sim.remove_actor(slow);
        saved
    }

    /// A checkpoint is not complete in its time. The coordinator or the server may notice it first, and only the
    /// coordinator says what is missing.
    fn refused(&self, missing: &str) {
        let error = self.save().map(|saved| saved.manifest).unwrap_err();
        let text = error.to_string();
        match error {
            WorkerError::Cut(_) => assert!(text.contains(missing), "{text}"),
            WorkerError::Refused { refusal, .. } => assert_eq!(refusal, Refusal::Cut, "{text}"),
            _ => panic!("{text}"),
        }
        assert!(self.checkpoints.newest_valid().unwrap().is_none());
    }

    /// All rows of a checkpoint that is saved now.
    fn saved_rows(&self) -> BTreeMap<u64, f32> {
        self.rows(self.save().unwrap().manifest.number)
    }

    fn rows(&self, number: u64) -> BTreeMap<u64, f32> {
        let (chain, mut all) = (self.checkpoints.chain(number).unwrap(), BTreeMap::new());
        for shard in 0..SHARDS {
            let add = |keys: &[u64], rows: &[f32]| all.extend(keys.iter().copied().zip(rows.iter().copied()));
            self.checkpoints.shard_rows(&chain, "t", shard, add).unwrap();
        }
        all
    }

    /// A link of worker `rank` of `workers` to a thread. A step waits for `aggregate` of them.
    fn join(&self, rank: u32, thread: u32, (workers, aggregate): (u32, u32), clock: u64) -> Member {
        let sim = self.sim.clone();
        let mut link = Link::new(sim.connect(&self.addr, Duration::from_secs(1)).unwrap());
        let hello = control::seal(&HelloV1 { pusher: u64::from(rank) + 1, incarnation: 1, thread });
        ask(&sim, &mut link, HelloFrame {}.encode(0), &hello);
        let (mode, bound, mean, timeout_ms, left) = (2, aggregate, false, 30_000, 0);
        let join = control::seal(&JoinV1 {
            rank,
            workers,
            mode,
            bound,
            mean,
            strict: false,
            timeout_ms,
            clock,
            left,
        });
        let joined = ask(&sim, &mut link, JoinFrame { table: 0 }.encode(1), &join);
        assert_eq!(joined.0.kind, JoinedFrame::KIND);
        Member { sim, link }
    }
}

/// A worker's link to one thread.
struct Member {
    sim: Sim,
    link: Link<SimStream>,
}

impl Member {
    fn send(&mut self, head: Head, payload: &[u8]) {
        self.link.transmit().send_copy(head, payload).unwrap();
        self.link.flush(&mut NoOwner).unwrap();
    }

    /// Sends a request whose answer may come later.
    fn tell(&mut self, head: Head, payload: &[u8]) {
        self.send(head, payload);
        for _ in 0..20 {
            self.link.flush(&mut NoOwner).unwrap();
            self.sim.run(Duration::from_millis(1));
            self.link.fill(&mut NoOwner).unwrap();
            while self.link.receive().peek(&mut NoOwner).unwrap().is_some() {
                self.link.receive().consume();
            }
        }
    }

    /// Pushes 1 for each of these keys, as a batch of `total` rows of some worker's share, or without such a name.
    fn push(&mut self, share_of: Option<u64>, keys: &[u64], total: usize) {
        let name = share_of.map(|worker| [share_pusher(worker), 1, 1]);
        let head = PushFrame {
            table: 0,
            keys: keys.len() as u32,
            write: Write::Gradient,
            seq: 1,
            row: 0,
            total: total as u32,
            keyset: 0,
            slots: false,
            named: name.is_some(),
            some: false,
            f16: false,
            since: false,
        };
        let values = vec![1.0; keys.len()];
        let values = PushValues::F32(&values);
        let payload = PushPayload { name: name.as_ref(), keys, values, ..PushPayload::default() };
        let mut payload = payload.to_bytes();
        payload.resize(payload.len().next_multiple_of(8), 0);
        self.tell(head.encode(2), &payload);
    }

    fn tick(&mut self, clock: u64) {
        self.tell(tick(clock), &[]);
    }

    /// The others go on without worker 1.
    fn fence(&mut self) {
        let fenced = ask(&self.sim, &mut self.link, FENCE.encode(4), &[]);
        assert_eq!(fenced.0.kind, FencedFrame::KIND);
    }
}

fn ones(keys: &[&[u64]]) -> BTreeMap<u64, f32> {
    keys.concat().into_iter().map(|key| (key, 1.0)).collect()
}

/// A worker died when its batch had reached one of two threads. A checkpoint had the rows of that thread, and a cursor
/// that claimed the batch. Servers that were restored from it dropped the rest.
#[test]
fn a_batch_that_some_shards_have_was_claimed_as_whole() {
    let ([first, second], world) = (keys(), World::new());
    let join = |rank, thread| world.join(rank, thread, (2, 2), NO_CLOCK);
    let [mut a, mut b, mut dying, _dead] = [join(0, 0), join(0, 1), join(1, 0), join(1, 1)];
    dying.push(Some(2), &first, 40);
    dying.tick(1);
    [&mut a, &mut b].into_iter().for_each(|link| link.tick(1));
    [&mut a, &mut b].into_iter().for_each(Member::fence);
    world.refused("push 1 of");
    // Worker 0 takes the batch over. Its step completes it on the other thread.
    a.push(Some(2), &first, 40);
    b.push(Some(2), &second, 40);
    [&mut a, &mut b].into_iter().for_each(|link| link.tick(2));
    assert_eq!(world.saved_rows(), ones(&[&first, &second]));
}

/// The rest of a batch may come while pushes are held back. A cut that let no step in would never have it.
#[test]
fn a_cut_lets_in_the_step_that_completes_a_batch() {
    let ([first, second], world) = (keys(), World::new());
    let join = |rank, thread| world.join(rank, thread, (2, 2), NO_CLOCK);
    let [mut a, mut b, mut dying, _dead] = [join(0, 0), join(0, 1), join(1, 0), join(1, 1)];
    dying.push(Some(2), &first, 40);
    dying.tick(1);
    [&mut a, &mut b].into_iter().for_each(|link| link.tick(1));
    b.fence();
    // Both threads have made a step, and only one of them has the batch. It is under way to the other one. The next
    // step is complete when the cut has begun.
    b.push(Some(2), &second, 40);
    let (sim, soon, mut sent) = (world.sim.clone(), world.sim.now() + Duration::from_secs(1), false);
    world.sim.add_actor(move || {
        if !sent && sim.now() >= soon {
            sent = true;
            a.send(FENCE.encode(4), &[]);
            [&mut a, &mut b].into_iter().for_each(|link| link.send(tick(2), &[]));
        }
    });
    let saved = world.save_within(Duration::from_secs(3)).unwrap();
    assert!(saved.frozen > Duration::from_millis(500), "{:?}: the test shows nothing", saved.frozen);
    assert_eq!(world.rows(saved.manifest.number), ones(&[&first, &second]));
}

/// Where steps do not wait for all workers, a thread drops what comes too late, and nobody sends it again. Checkpoints
/// must not wait for it.
#[test]
fn a_batch_that_is_dropped_by_intent_keeps_no_checkpoint_back() {
    let ([first, _], world) = (keys(), World::new());
    let join = |rank, thread| world.join(rank, thread, (2, 1), NO_CLOCK);
    let [mut a, mut b, mut slow, _slow] = [join(0, 0), join(0, 1), join(1, 0), join(1, 1)];
    slow.push(Some(2), &first, 40);
    slow.tick(1);
    [&mut a, &mut b].into_iter().for_each(|link| link.tick(1));
    assert_eq!(world.saved_rows(), ones(&[&first]));
}

/// A server was killed when one of two threads had made a step. After a restart, a checkpoint had the step in some
/// shards, and the name of the step claimed it for all.
#[test]
fn shards_that_were_ahead_after_a_restart_were_cut_with_those_behind() {
    for threads in [1, 2] {
        let ([first, second], mut world) = (keys(), World::new());
        let mut a = world.join(0, 0, (1, 1), NO_CLOCK);
        a.push(None, &first, 0);
        a.tick(1);
        drop(a);
        world.restart(threads);
        world.refused("step 1 of table \"t\"");
        let mut links: Vec<_> = (0..threads as u32).map(|thread| world.join(0, thread, (1, 1), 0)).collect();
        world.refused("step 1 of table \"t\"");
        // The worker sends the step again, because nothing of it was acknowledged.
        match &mut links[..] {
            [one] => one.push(None, &[&first[..], &second].concat(), 0),
            [a, b, ..] => {
                a.push(None, &first, 0);
                b.push(None, &second, 0);
            }
            [] => unreachable!("a server has a thread"),
        }
        links.iter_mut().for_each(|link| link.tick(1));
        assert_eq!(world.saved_rows(), ones(&[&first, &second]), "{threads} threads");
    }
}

/// A thread has no file of a step without rows for its shards, if nobody writes one. Then no checkpoint could be saved
/// after a restart, until workers join.
#[test]
fn shards_without_rows_in_the_last_step_are_not_taken_for_shards_behind() {
    for threads in [1, 2, 3] {
        let ([first, _], mut world) = (keys(), World::new());
        let mut links = [0, 1].map(|thread| world.join(0, thread, (1, 1), NO_CLOCK));
        links[0].push(None, &first, 0);
        links.iter_mut().for_each(|link| link.tick(1));
        drop(links);
        world.restart(threads);
        assert_eq!(world.saved_rows(), ones(&[&first]), "{threads} threads");
    }
}

/// Promise 4 for synchronous steps: a fenced worker counts in the step that it had finished before the fence, and in
/// none that it had not.
#[test]
fn a_fenced_worker_counts_in_the_step_that_it_had_finished_and_in_no_other() {
    let ([first, second], world) = (keys(), World::new());
    let join = |rank, thread| world.join(rank, thread, (2, 2), NO_CLOCK);
    let [mut a, mut b, mut finished, mut unfinished] = [join(0, 0), join(0, 1), join(1, 0), join(1, 1)];
    finished.push(None, &first, 0);
    finished.tick(1);
    unfinished.push(None, &second, 0);
    [&mut a, &mut b].into_iter().for_each(Member::fence);
    [&mut a, &mut b].into_iter().for_each(|link| link.tick(1));
    assert_eq!(world.saved_rows(), ones(&[&first]));
}

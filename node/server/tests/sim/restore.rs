//! Servers that are restored from a checkpoint: onto other numbers of servers, threads and shards, rows, optimizer
//! state and cursors are those of the cut. Old pushes are dropped, new ones are applied, and the job goes on.

use crate::saved::{Rows, Saver, rows_of};
use gannet_core::{
    Admission, CheckpointDir, Cursor, LocalStore, PushName, PushOptions, Read, Schema, Shards, Store, Write,
    hash, shard_of,
};
use gannet_optim::{AdaGrad, Add, Rule};
use gannet_server::{
    LocalServer, RestoreError, RestoreSource, ServerConfig, ServerError, open_whole, restore_folder,
};
use gannet_sim::{Faults, Sim};
use gannet_transport::Prng;
use gannet_wire::{JobPlan, PartitionMap, PlanFile, ShardHolder, SplitGrant, TableRecord};
use gannet_worker::{JobClient, Worker, WorkerConfig};
use proptest::prelude::*;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

const ADMITTED_AT: u32 = 3;

pub(crate) fn schema(name: &str, shards: u32) -> Schema {
    let rule = Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 });
    Schema { dim: 3, shards, ..Schema::scalar(name, rule) }
}

/// A table in this process, as a job's servers have it together.
pub(crate) struct Job {
    pub(crate) clicks: Shards,
    users: Shards,
    seq: u64,
    prng: Prng,
}

impl Job {
    pub(crate) fn new(seed: u64, shards: u32) -> Job {
        let open = |schema: &Schema| open_whole(&Store::memory(), schema).unwrap();
        let admission = Admission::Count { pushes: ADMITTED_AT, sketch_bytes: 64 << 10 };
        let (clicks, users) = (
            open(&schema("clicks", shards)),
            open(&Schema { admission, ..schema("users", (shards / 2).max(1)) }),
        );
        Job { clicks, users, seq: 0, prng: Prng::new(seed) }
    }

    /// Each of three workers pushes to both tables; some rows are deleted.
    pub(crate) fn train(&mut self, rounds: u64) {
        for _ in 0..rounds {
            self.seq += 1;
            for pusher in 1..=3 {
                for table in [&mut self.clicks, &mut self.users] {
                    let mut keys: Vec<u64> =
                        (0..300).map(|_| self.prng.below(4_000) * 0x1_0000_0001).collect();
                    keys.sort_unstable_by_key(|key| (hash(*key), *key));
                    keys.dedup();
                    let write = if self.seq.is_multiple_of(5) { Write::Delete } else { Write::Gradient };
                    let floats = if write == Write::Delete { 0 } else { 3 * keys.len() };
                    let values: Vec<f32> = (0..floats).map(|_| self.prng.below(9) as f32 - 4.0).collect();
                    let name = PushName { pusher, incarnation: 10 + pusher, seq: self.seq, row: 0 };
                    let options =
                        PushOptions { clock: self.seq, total: keys.len() as u64, ..PushOptions::default() };
                    table.push_at(&name, options, write, &keys, None, &values).unwrap();
                }
            }
        }
        self.clicks.close_pusher(3, 13).unwrap();
    }

    pub(crate) fn save(&mut self, saver: &mut Saver, full: bool) -> u64 {
        saver.save(&mut [&mut self.clicks, &mut self.users], full)
    }
}

/// The cursors of a table. Every shard has the same ones.
fn cursors(table: &Shards) -> Vec<Cursor> {
    let cursor = |p: gannet_core::PushProgress| {
        assert!(p.is_whole());
        Cursor { pusher: p.pusher, incarnation: p.incarnation, seq: p.seq, closed: p.closed }
    };
    table.push_progress().into_iter().map(cursor).collect()
}

/// Restores both tables onto so many servers, and returns their rows together.
fn restored(
    checkpoints: &Path,
    number: Option<u64>,
    (servers, threads, shards): (u32, usize, Option<u32>),
    wanted: [&[Cursor]; 2],
) -> [Rows; 2] {
    let mut all = [Rows::new(), Rows::new()];
    for server in 0..servers {
        let folder = crate::folder_in_memory();
        let store = Store::open_dir(folder.path()).unwrap();
        let source =
            RestoreSource { number, shards, ..RestoreSource::new(&opened(checkpoints), server, servers) };
        let done = restore_folder(&store, threads, &source).unwrap();
        let mut rows = 0;
        for ((name, all), wanted) in ["clicks", "users"].into_iter().zip(&mut all).zip(wanted) {
            let Some(held) = store.held(name).unwrap() else { continue };
            assert!(held.confirmed);
            let own = PartitionMap::of_job(servers).shards(server, held.shards);
            let schema = Schema { shards: held.shards, ..saved_schema(name) };
            let mut table = Shards::open(&store, &schema, own.clone()).unwrap();
            for (key, row) in rows_of(&mut table) {
                assert!(own.contains(shard_of(hash(key), held.shards)));
                rows += 1;
                assert_eq!(all.insert(key, row), None, "key {key} is on two servers");
            }
            assert_eq!(cursors(&table), wanted);
        }
        assert_eq!((done.rows, done.kept), (rows, false));
        // The folder has the tables now: they are used as they are.
        let has_shards = store.held("clicks").unwrap().is_some();
        let again = restore_folder(&store, 1, &source).unwrap();
        assert_eq!((again.kept, again.rows), (has_shards, 0));
    }
    all
}

fn saved_schema(name: &str) -> Schema {
    match name {
        "users" => {
            let admission = Admission::Count { pushes: ADMITTED_AT, sketch_bytes: 64 << 10 };
            Schema { admission, ..schema(name, 1) }
        }
        _ => schema(name, 1),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn rows_state_and_cursors_are_those_of_the_cut(
        seed in any::<u64>(),
        log_shards in 0u32..5,
        rounds in prop::collection::vec(0u64..8, 1..4),
        servers in 1u32..5,
        threads in 1usize..4,
        log_wanted in prop::option::of(0u32..6),
    ) {
        let folder = crate::folder_in_memory();
        let (mut saver, mut job) = (Saver::new(folder.path()), Job::new(seed, 1 << log_shards));
        let mut saved = Vec::new();
        for rounds in rounds {
            job.train(rounds);
            let number = job.save(&mut saver, false);
            let rows = [rows_of(&mut job.clicks), rows_of(&mut job.users)];
            saved.push((number, rows, cursors(&job.clicks), cursors(&job.users)));
        }
        job.train(1); // after the last cut
        let shards = log_wanted.map(|log| 1 << log);
        let newest = saved.len() - 1;
        for (number, rows, clicks, users) in [&saved[0], &saved[newest]] {
            let number = (*number < saved[newest].0).then_some(*number);
            let got = restored(folder.path(), number, (servers, threads, shards), [clicks, users]);
            prop_assert_eq!(&got, rows);
        }
    }
}

#[test]
fn servers_with_different_checkpoints_are_not_taken_for_one_table() {
    let folder = crate::folder_in_memory();
    let (mut saver, mut job) = (Saver::new(folder.path()), Job::new(1, 4));
    job.train(2);
    let numbers = [job.save(&mut saver, true), job.save(&mut saver, false)];
    let sim = Sim::new(1, Faults::none());
    let source = |server, number| RestoreSource {
        number: Some(number),
        ..RestoreSource::new(&opened(folder.path()), server, 2)
    };
    let addrs = [start(&sim, 1, source(0, numbers[0])), start(&sim, 1, source(1, numbers[1]))];
    let mut worker = Worker::connect(sim.clone(), WorkerConfig::new(addrs, 1, 50)).unwrap();
    let two = worker.open_table(&schema("clicks", 4)).unwrap_err().to_string();
    assert!(two.contains("these are two tables"), "{two}");
}

/// A simulated server that is restored, and its address.
pub(crate) fn opened(folder: &Path) -> CheckpointDir {
    CheckpointDir::open(folder).unwrap()
}

fn start(sim: &Sim, threads: usize, source: RestoreSource) -> String {
    let config = ServerConfig { threads, restore: Some(source), ..ServerConfig::new("sim:0") };
    let mut server = LocalServer::new(sim.clone(), config).unwrap();
    let addr = server.addr().to_owned();
    sim.add_actor(move || server.run().unwrap());
    addr
}

fn state_of(worker: &mut Worker<Sim>, table: gannet_worker::TableId, rows: &Rows) -> Rows {
    let keys: Vec<u64> = rows.keys().copied().collect();
    let floats = worker.schema(table).floats();
    let mut out = vec![0.0; keys.len() * floats];
    worker.pull(table, &keys, Read::State, &mut out).unwrap();
    let bits = |row: &[f32]| row.iter().map(|float| float.to_bits()).collect();
    keys.into_iter().zip(out.chunks(floats).map(bits)).collect()
}

#[test]
fn old_pushes_are_dropped_and_new_ones_are_applied_in_other_layouts() {
    for (seed, servers, threads, shards) in [(1, 1, 2, None), (2, 2, 1, Some(4)), (3, 3, 2, Some(32))] {
        let folder = crate::folder_in_memory();
        let (mut saver, mut job) = (Saver::new(folder.path()), Job::new(seed, 8));
        job.train(6);
        job.save(&mut saver, true);
        job.train(3);
        job.save(&mut saver, false);
        let sim = Sim::new(seed, Faults::none());
        let source =
            |server| RestoreSource { shards, ..RestoreSource::new(&opened(folder.path()), server, servers) };
        let addrs: Vec<String> = (0..servers).map(|server| start(&sim, threads, source(server))).collect();
        let mut worker = Worker::connect(sim.clone(), WorkerConfig::new(addrs.clone(), 1, 11)).unwrap();
        let wanted = Schema { shards: shards.unwrap_or(8), ..schema("clicks", 8) };
        let table = worker.open_table(&wanted).unwrap();
        let rows = rows_of(&mut job.clicks);
        let status = worker.status(table).unwrap();
        assert_eq!(status.stats.rows, rows.len() as u64);
        let known: Vec<_> =
            status.pushers.iter().map(|p| (p.pusher, p.incarnation, p.seq, p.closed)).collect();
        assert_eq!(known, [(1, 11, 9, false), (2, 12, 9, false), (3, 13, 9, true)]);

        // The last push that the checkpoint has is sent again: other values would show.
        let keys: Vec<u64> = rows.keys().copied().step_by(7).collect();
        let values = vec![100.0; keys.len() * 3];
        let push = |worker: &mut Worker<Sim>, seq| {
            let cut = Arc::new(worker.cut(table, &keys));
            let id = worker.begin_push(table, cut, Write::Gradient, values.clone(), None, seq).unwrap();
            worker.finish_push(id).unwrap();
        };
        push(&mut worker, 9);
        assert_eq!(worker.counters().duplicate, keys.len() as u64);
        assert_eq!(state_of(&mut worker, table, &rows), rows);
        // A new push has the effect that it has on the tables that were saved.
        push(&mut worker, 10);
        let mut sorted = keys.clone();
        sorted.sort_unstable_by_key(|key| hash(*key));
        let name = PushName { pusher: 1, incarnation: 11, seq: 10, row: 0 };
        job.clicks.push(&name, Write::Gradient, &sorted, None, &values).unwrap();
        let rows = rows_of(&mut job.clicks);
        assert_eq!(state_of(&mut worker, table, &rows), rows);
        // A worker of an older incarnation is refused.
        let mut stale = Worker::connect(sim.clone(), WorkerConfig::new(addrs, 2, 11)).unwrap();
        let refused = stale.open_table(&wanted).unwrap_err().to_string();
        assert!(refused.contains("a newer incarnation of this worker"), "{refused}");
    }
}

#[test]
fn counts_of_keys_without_a_row_survive() {
    for (shards, wanted) in [(4, None), (4, Some(1)), (4, Some(16))] {
        let folder = crate::folder_in_memory();
        let admission = Admission::Count { pushes: ADMITTED_AT, sketch_bytes: 64 << 10 };
        let counted = Schema { admission, ..Schema::scalar("counted", Rule::Add(Add)) };
        let mut table = open_whole(&Store::memory(), &Schema { shards, ..counted.clone() }).unwrap();
        let mut push = |seq: u64, keys: &mut Vec<u64>| {
            keys.sort_unstable_by_key(|key| hash(*key));
            let name = PushName { pusher: 1, incarnation: 1, seq, row: 0 };
            table.push(&name, Write::Gradient, keys, None, &vec![1.0; keys.len()]).unwrap();
        };
        // Keys below 100 are pushed once, those below 50 twice, those below 20 three times.
        for (seq, keys) in (1..).zip([100, 50, 20]) {
            push(seq, &mut (0..keys).collect());
        }
        Saver::new(folder.path()).save(&mut [&mut table], true);
        let sim = Sim::new(1, Faults::none());
        let source = |server| RestoreSource {
            shards: wanted,
            ..RestoreSource::new(&opened(folder.path()), server, 2)
        };
        let addrs = [start(&sim, 2, source(0)), start(&sim, 1, source(1))];
        let mut worker = Worker::connect(sim.clone(), WorkerConfig::new(addrs, 2, 5)).unwrap();
        let opened = worker.open_table(&Schema { shards: wanted.unwrap_or(shards), ..counted }).unwrap();
        assert_eq!(worker.status(opened).unwrap().stats.rows, 20);
        // One more push admits those that had two.
        let keys: Vec<u64> = (0..100).collect();
        worker.push(opened, &keys, Write::Gradient, &[1.0; 100]).unwrap();
        assert_eq!(worker.status(opened).unwrap().stats.rows, 50);
        let mut sums = [0.0; 100];
        worker.pull(opened, &keys, Read::Weights, &mut sums).unwrap();
        let sum = |key: usize| {
            if key < 20 {
                2.0
            } else if key < 50 {
                1.0
            } else {
                0.0
            }
        };
        assert_eq!(sums, std::array::from_fn(sum));
    }
}

fn plan() -> JobPlan {
    let file = PlanFile { name: "part".into(), bytes: 400, print: 1, whole: false };
    JobPlan {
        workers: 2,
        files: vec![file],
        task_bytes: 100,
        batch: 8,
        epochs: 1,
        worker_timeout_ms: 2_000,
        settings: Vec::new(),
    }
}

fn join(sim: &Sim, addr: &str, rank: u32, incarnation: u64) -> JobClient<Sim> {
    let config = WorkerConfig::new([addr], u64::from(rank) + 1, incarnation);
    JobClient::join(sim.clone(), config, rank, plan()).unwrap()
}

fn record(births: u64) -> TableRecord {
    let holder = ShardHolder { addr: "s:1".into(), first: 0, end: 2 };
    TableRecord { table: "t".into(), uid: [1; 16], births: vec![births; 2], holders: vec![holder] }
}

/// The job goes on with the splits that the checkpoint's cut had left, in memory and on a folder that is started twice.
#[test]
fn the_scheduler_goes_on_and_no_incarnation_is_handed_out_again() {
    let folder = crate::folder_in_memory();
    let sim = Sim::new(1, Faults::none());
    let server =
        LocalServer::new(sim.clone(), ServerConfig { threads: 1, ..ServerConfig::new("sim:0") }).unwrap();
    let addr = server.addr().to_owned();
    let server = Rc::new(RefCell::new(server));
    let running = server.clone();
    sim.add_actor(move || running.borrow_mut().run().unwrap());
    let reader = |addr: &str| WorkerConfig::reader([addr.to_owned()]);
    let allocate = |addr: &str| Worker::allocate_incarnation(sim.clone(), &reader(addr)).unwrap();
    let highest = (0..5).map(|_| allocate(&addr)).max().unwrap();
    let mut client = join(&sim, &addr, 0, highest);
    client.note_table(record(5)).unwrap();
    assert!(matches!(client.take(&[]).unwrap(), SplitGrant::Task { index: 0, from: 0, .. }));
    client.done(0, 10).unwrap();
    let mut saver = Saver::new(folder.path());
    let run = saver.run.clone();
    let states = server.borrow().saved_states("");
    assert_eq!(states.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["tasks"]);
    assert!(server.borrow().saved_states("another").is_empty());
    saver.states = states;
    let mut table = open_whole(&Store::memory(), &schema("clicks", 2)).unwrap();
    let name = PushName { pusher: 9, incarnation: highest + 70, seq: 1, row: 0 };
    table.push(&name, Write::Gradient, &[1], None, &[1.0; 3]).unwrap();
    saver.run = String::new();
    saver.save(&mut [&mut table], true);
    // Split 1 is trained after the cut, and then all processes are gone.
    client.take(&[]).unwrap();
    client.done(1, 10).unwrap();
    assert_eq!(run, "monday");

    let data = crate::folder_in_memory();
    for store in [Store::memory(), Store::open_dir(data.path()).unwrap()] {
        let source = RestoreSource::new(&opened(folder.path()), 0, 1);
        let config = |restore| ServerConfig {
            threads: 2,
            store: store.clone(),
            restore,
            ..ServerConfig::new("sim:0")
        };
        let starts =
            if store.durable() { vec![Some(source.clone()), Some(source), None] } else { vec![Some(source)] };
        for (again, restore) in starts.into_iter().enumerate() {
            let mut server = LocalServer::new(sim.clone(), config(restore)).unwrap();
            let addr = server.addr().to_owned();
            let actor = sim.add_actor(move || server.run().unwrap());
            let next = allocate(&addr);
            assert!(next > highest + 70 + (1 << 32), "{next} after {highest}");
            let mut client = join(&sim, &addr, 0, next);
            // The images are new: the births of the first report after the restore count.
            if again == 0 {
                client.note_table(record(6)).unwrap();
            } else {
                assert!(client.note_table(record(5)).is_err());
                break;
            }
            let status = JobClient::status_of(sim.clone(), reader(&addr)).unwrap().unwrap();
            assert_eq!((status.tasks_done, status.tasks), (1, 4));
            sim.remove_actor(actor);
            sim.reset_all(&addr);
        }
    }
}

fn refused(source: RestoreSource, store: Store) -> String {
    let config = ServerConfig { threads: 1, store, restore: Some(source), ..ServerConfig::new("sim:0") };
    match LocalServer::new(Sim::new(1, Faults::none()), config) {
        Err(error @ ServerError::Restore(_)) => error.to_string(),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was restored"),
    }
}

#[test]
fn what_cannot_be_restored_is_refused_by_name_before_the_server_listens() {
    let folder = crate::folder_in_memory();
    let (mut saver, mut job) = (Saver::new(folder.path()), Job::new(1, 4));
    job.train(4);
    let first = job.save(&mut saver, true);
    job.train(2);
    let second = job.save(&mut saver, false);
    let source = RestoreSource::new(&opened(folder.path()), 0, 2);
    let memory = Store::memory;
    let place = refused(RestoreSource { server: 2, ..source.clone() }, memory());
    assert!(place.contains("server 2 of 2") && place.contains("the last one is 1"), "{place}");
    let shards = refused(RestoreSource { shards: Some(3), ..source.clone() }, memory());
    assert!(shards.starts_with("3 shards: "), "{shards}");
    let number = refused(RestoreSource { number: Some(77), ..source.clone() }, memory());
    assert!(number.contains("checkpoint 77") && number.contains(&format!("is {second}")), "{number}");
    let run = refused(RestoreSource { run: Some("tuesday".into()), ..source.clone() }, memory());
    assert!(run.contains("tuesday") && run.contains("monday"), "{run}");
    let growing = gannet_core::GrowthConfig { memory_limit: 64 << 10, clock: None };
    let small = refused(source.clone(), Store::memory_with(growing));
    assert!(small.contains("limit"), "{small}");
    let absent = folder.path().join("x");
    let directory = CheckpointDir::with_store(&absent, Arc::new(LocalStore::new(&absent)));
    let nowhere = refused(RestoreSource { directory, ..source.clone() }, memory());
    assert!(nowhere.contains("no such folder"), "{nowhere}");

    // A folder with the part of another server.
    let data = crate::folder_in_memory();
    let store = Store::open_dir(data.path()).unwrap();
    restore_folder(&store, 2, &source).unwrap();
    let part = refused(RestoreSource::new(&opened(folder.path()), 1, 2), store.clone());
    assert!(part.contains("server 0 of 2") && part.contains("name an empty folder"), "{part}");
    let other = RestoreSource { shards: Some(16), ..source.clone() };
    assert!(refused(other, store.clone()).contains("has 4 shards, and 16 are wanted"));
    // A folder whose other table is gone.
    store.drop_table("users").unwrap();
    let gone = refused(source.clone(), store);
    assert!(gone.contains("holds the rows of clicks, but nothing of users"), "{gone}");
    // Another table of the same name.
    let other = crate::folder_in_memory();
    let store = Store::open_dir(other.path()).unwrap();
    drop(open_whole(&store, &schema("clicks", 4)).unwrap());
    assert!(refused(source.clone(), store).contains("it holds another table \"clicks\""));

    // A folder that the run has begun anew in, with tables of other names, is used as it is.
    let anew = crate::folder_in_memory();
    let store = Store::open_dir(anew.path()).unwrap();
    drop(open_whole(&store, &schema("monday.2.clicks", 4)).unwrap());
    assert!(restore_folder(&store, 1, &source).unwrap().kept);
    assert!(store.held("clicks").unwrap().is_none());

    // A row file with a flipped byte. The older checkpoint is whole.
    let broken = folder.path().join(format!("{second:010}/t00-0000.rows"));
    let mut bytes = std::fs::read(&broken).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&broken, bytes).unwrap();
    let damaged = refused(source.clone(), memory());
    assert!(damaged.contains("t00-0000.rows") && damaged.contains("checksum"), "{damaged}");
    let offered = format!("the newest good checkpoint in {} is {first}", folder.path().display());
    assert!(damaged.contains(&offered) && damaged.contains("away"), "{damaged}");
    // A checkpoint that is cut short is skipped.
    std::fs::write(&broken, b"short").unwrap();
    let older = crate::folder_in_memory();
    let store = Store::open_dir(older.path()).unwrap();
    assert_eq!(restore_folder(&store, 1, &source).unwrap().checkpoint, first);
}

#[test]
fn an_interrupted_restore_is_never_served() {
    let folder = crate::folder_in_memory();
    let (mut saver, mut job) = (Saver::new(folder.path()), Job::new(1, 4));
    job.train(4);
    job.save(&mut saver, true);
    let wanted = rows_of(&mut job.clicks);
    let data = crate::folder_in_memory();
    let store = Store::open_dir(data.path()).unwrap();
    // What a killed restore leaves: the mark, and images with some rows, not confirmed.
    std::fs::write(data.path().join("RESTORING"), "gannet restores checkpoint 1 of there").unwrap();
    let identity = gannet_core::TableIdentity { server: 0, servers: 1, ..job.clicks.identity() };
    let origin = gannet_core::Origin { identity, seed: 3 };
    let mut left = Shards::open_as(&store, &schema("clicks", 4), 0..4, &origin).unwrap();
    left.restore_rows(&[1 << 40, 2 << 40], &[1.0; 12]).unwrap();
    // It was a checkpoint with a table that the next one does not have.
    drop((left, Shards::open_as(&store, &schema("other", 4), 0..4, &origin).unwrap()));
    let sim = Sim::new(1, Faults::none());
    let config = ServerConfig { threads: 1, store: store.clone(), ..ServerConfig::new("sim:0") };
    let Err(ServerError::Restore(error @ RestoreError::Interrupted { .. })) = LocalServer::new(sim, config)
    else {
        panic!("it was served");
    };
    assert!(error.to_string().contains("a restore of checkpoint 1 of there into this folder"), "{error}");
    let source = RestoreSource::new(&opened(folder.path()), 0, 1);
    let done = restore_folder(&store, 2, &source).unwrap();
    assert_eq!((done.kept, done.rows > 0), (false, true));
    let mut table = Shards::open(&store, &schema("clicks", 4), 0..4).unwrap();
    assert_eq!(rows_of(&mut table), wanted);
    assert!(!data.path().join("RESTORING").exists());
    assert!(store.held("other").unwrap().is_none());
}

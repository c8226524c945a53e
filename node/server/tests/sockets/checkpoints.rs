//! Checkpoints of running servers: every cut holds whole pushes, and the cursor of each pusher tells how many.

use gannet_core::{CheckpointDir, JobManifest, Read, Schema, Write, mix};
use gannet_optim::{Add, Rule};
use gannet_server::{RestoreSource, Server, ServerConfig};
use gannet_transport::multi::Transports;
use gannet_wire::{Buckets, Merge, MetricsSink, Refusal, StepReduce, SyncConfig, SyncMode};
use gannet_worker::{CheckpointOptions, Worker, WorkerConfig, WorkerError, save_checkpoint};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const SHARDS: u32 = 8;

fn schema(name: &str) -> Schema {
    Schema { shards: SHARDS, ..Schema::scalar(name, Rule::Add(Add)) }
}

fn servers(folder: &Path, threads: [usize; 2]) -> Vec<Server> {
    let server = |threads| {
        let config = ServerConfig {
            threads,
            checkpoints: Some(CheckpointDir::create(folder).unwrap()),
            ..ServerConfig::new("127.0.0.1:0")
        };
        Server::start(Transports::new(), config).unwrap()
    };
    threads.map(server).into()
}

fn config(servers: &[Server], worker: u64, incarnation: u64) -> WorkerConfig {
    WorkerConfig::new(servers.iter().map(|server| server.addr().to_owned()), worker, incarnation)
}

/// The keys of a worker: every push of it adds 1 to each.
fn keys(worker: u64) -> Vec<u64> {
    (0..3000).map(|i| worker << 32 | i).collect()
}

/// All rows of a table in a checkpoint.
fn rows(directory: &CheckpointDir, number: u64, table: &str) -> HashMap<u64, Vec<f32>> {
    let (chain, mut all) = (directory.chain(number).unwrap(), HashMap::new());
    let floats = chain[0].table(table).unwrap().1.schema.floats();
    for shard in 0..SHARDS {
        let add = |keys: &[u64], rows: &[f32]| {
            for (&key, row) in keys.iter().zip(rows.chunks(floats)) {
                assert_eq!(all.insert(key, row.to_vec()), None, "key {key} came twice");
            }
        };
        directory.shard_rows(&chain, table, shard, add).unwrap();
    }
    all
}

/// Every key of a worker has the value of its cursor: its pushes have the sequence numbers 1, 2, ...
fn check(directory: &CheckpointDir, manifest: &JobManifest, table: &str, workers: u64) -> u64 {
    let rows = rows(directory, manifest.number, table);
    let cursors = &manifest.table(table).unwrap().1.cursors;
    let mut least = u64::MAX;
    for worker in 0..workers {
        let cursor = cursors.iter().find(|cursor| cursor.pusher == worker);
        let pushes = cursor.map_or(0, |cursor| cursor.seq);
        for key in keys(worker) {
            let value = rows.get(&key).map_or(0.0, |row| row[0]);
            assert_eq!(
                value, pushes as f32,
                "key {key:x} of worker {worker} in checkpoint {}",
                manifest.number
            );
        }
        least = least.min(pushes);
    }
    least
}

/// Stops the workers at the end of the test, also when it fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn every_cut_holds_whole_pushes_while_workers_push() {
    let folder = tempfile::tempdir().unwrap();
    let servers = servers(folder.path(), [2, 3]);
    let directory = CheckpointDir::open(folder.path()).unwrap();
    let (stop, ready) = (AtomicBool::new(false), std::sync::Barrier::new(4));
    std::thread::scope(|scope| {
        let _stopped = Stop(&stop);
        for worker in 0..3 {
            let (config, stop, ready) = (config(&servers, worker, 1), &stop, &ready);
            scope.spawn(move || {
                let mut worker_link = Worker::connect(Transports::new(), config).unwrap();
                let table = worker_link.open_table(&schema("clicks")).unwrap();
                let cut = Arc::new(worker_link.cut(table, &keys(worker)));
                let mut seq = 0;
                ready.wait();
                while !stop.load(Relaxed) {
                    // Several pushes are in flight, so that some are under way in every cut.
                    for _ in 0..4 {
                        seq += 1;
                        let (cut, ones) = (cut.clone(), vec![1.0; cut.keys().len()]);
                        worker_link.begin_push(table, cut, Write::Gradient, ones, None, seq).unwrap();
                    }
                    worker_link.drain().unwrap();
                }
            });
        }
        let options = |increment| CheckpointOptions { increment, ..Default::default() };
        let mut before = 0;
        ready.wait();
        for round in 0..12 {
            std::thread::sleep(Duration::from_millis(30));
            let at = config(&servers, 9, 0);
            let saved =
                save_checkpoint(Transports::new(), &at, &directory, &options(round % 4 != 0)).unwrap();
            let least = check(&directory, &saved.manifest, "clicks", 3);
            assert!(least >= before, "a later cut has fewer pushes");
            before = least;
        }
        assert!(before > 0);
    });
    assert!(directory.newest_valid().unwrap().unwrap().number > 3);
}

/// The keys of a sparse push: few, so that most threads have none of them.
fn sparse_keys(worker: u64, seq: u64) -> Vec<u64> {
    let mut keys: Vec<u64> = (0..1 + seq % 3).map(|i| (worker << 32) + mix(seq * 256 + i) % 50).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Pushes of few keys go to few threads. The last push that a thread has begun says nothing about an earlier one that
/// goes to other threads.
#[test]
fn every_cut_holds_all_pushes_up_to_its_cursor_however_few_keys_they_have() {
    let folder = tempfile::tempdir().unwrap();
    let servers = servers(folder.path(), [3, 4]);
    let directory = CheckpointDir::open(folder.path()).unwrap();
    let (stop, ready) = (AtomicBool::new(false), std::sync::Barrier::new(3));
    std::thread::scope(|scope| {
        let _stopped = Stop(&stop);
        for number in 0..2u64 {
            let (config, stop, ready) = (config(&servers, number, 1), &stop, &ready);
            scope.spawn(move || {
                let mut worker = Worker::connect(Transports::new(), config).unwrap();
                let table = worker.open_table(&schema("clicks")).unwrap();
                let mut seq = 0;
                ready.wait();
                while !stop.load(Relaxed) {
                    for _ in 0..32 {
                        seq += 1;
                        let cut = Arc::new(worker.cut(table, &sparse_keys(number, seq)));
                        let ones = vec![1.0; cut.keys().len()];
                        worker.begin_push(table, cut, Write::Gradient, ones, None, seq).unwrap();
                    }
                    worker.drain().unwrap();
                }
            });
        }
        ready.wait();
        for round in 0..30 {
            std::thread::sleep(Duration::from_millis(10));
            let options = CheckpointOptions { increment: round % 5 != 0, ..Default::default() };
            let at = config(&servers, 9, 0);
            let saved = save_checkpoint(Transports::new(), &at, &directory, &options).unwrap();
            let rows = rows(&directory, saved.manifest.number, "clicks");
            for number in 0..2 {
                let cursors = &saved.manifest.table("clicks").unwrap().1.cursors;
                let last =
                    cursors.iter().find(|cursor| cursor.pusher == number).map_or(0, |cursor| cursor.seq);
                let mut want = HashMap::<u64, f32>::new();
                let pushed = (1..=last).flat_map(|seq| sparse_keys(number, seq));
                pushed.for_each(|key| *want.entry(key).or_default() += 1.0);
                let found =
                    rows.iter().filter(|(key, _)| *key >> 32 == number).map(|(&key, row)| (key, row[0]));
                assert_eq!(found.collect::<HashMap<_, _>>(), want, "worker {number}, up to push {last}");
            }
        }
    });
}

/// Workers that keep step: a cut has every step on all shards or on none, so all workers' keys have one value.
#[test]
fn every_cut_of_synchronous_steps_is_between_two_steps() {
    let folder = tempfile::tempdir().unwrap();
    let servers = servers(folder.path(), [2, 3]);
    let directory = CheckpointDir::open(folder.path()).unwrap();
    let (stop, ready) = (AtomicBool::new(false), std::sync::Barrier::new(3));
    let mode = SyncMode::Bsp(StepReduce { aggregate: 2, merge: Merge::Sum });
    std::thread::scope(|scope| {
        let _stopped = Stop(&stop);
        for rank in 0..2u32 {
            let (config, stop, ready) = (config(&servers, u64::from(rank), 1), &stop, &ready);
            scope.spawn(move || {
                let mut worker = Worker::connect(Transports::new(), config).unwrap();
                let table = worker.open_table(&schema("clicks")).unwrap();
                let worker_timeout = Duration::from_secs(60);
                let member = SyncConfig { rank, workers: 2, mode, worker_timeout, strict: false };
                let mut clock = worker.join(table, member).unwrap();
                let cut = Arc::new(worker.cut(table, &keys(u64::from(rank))));
                ready.wait();
                while !stop.load(Relaxed) {
                    let (cut, ones) = (cut.clone(), vec![1.0; cut.keys().len()]);
                    worker.begin_push(table, cut, Write::Gradient, ones, None, clock + 1).unwrap();
                    clock = worker.tick(table).unwrap();
                    worker.drain().unwrap();
                }
                worker.leave(table).unwrap();
            });
        }
        ready.wait();
        let mut last = 0.0;
        for round in 0..8 {
            std::thread::sleep(Duration::from_millis(20));
            let options = CheckpointOptions { increment: round % 3 != 0, ..Default::default() };
            let at = config(&servers, 9, 0);
            let saved = save_checkpoint(Transports::new(), &at, &directory, &options).unwrap();
            let rows = rows(&directory, saved.manifest.number, "clicks");
            let value = rows.get(&keys(0)[0]).map_or(0.0, |row| row[0]);
            assert!(value >= last, "a later cut has fewer steps");
            last = value;
            for key in (0..2).flat_map(keys) {
                assert_eq!(rows.get(&key).map_or(0.0, |row| row[0]), value, "key {key:x}");
            }
        }
        assert!(last > 0.0);
    });
}

/// Rows come and go between increments. The chain gives the table as it was at each cut, and servers of another number
/// and with other threads are restored from it. Resends of old pushes are dropped there.
#[test]
fn a_chain_of_increments_restores_the_table_onto_other_servers() {
    let folder = tempfile::tempdir().unwrap();
    let first = servers(folder.path(), [2, 1]);
    let directory = CheckpointDir::open(folder.path()).unwrap();
    let mut worker = Worker::connect(Transports::new(), config(&first, 1, 7)).unwrap();
    let table = worker.open_table(&schema("clicks")).unwrap();
    let mut model = BTreeMap::<u64, f32>::new();
    let mut parents = 0;
    for round in 0..6u64 {
        let added: Vec<u64> = (round * 500..round * 500 + 2000).collect();
        worker.push(table, &added, Write::Gradient, &vec![1.0; added.len()]).unwrap();
        added.iter().for_each(|&key| *model.entry(key).or_default() += 1.0);
        let gone: Vec<u64> = added.iter().copied().filter(|key| key % 7 == round).collect();
        worker.delete(table, &gone).unwrap();
        model.retain(|key, _| !gone.contains(key));
        let options = CheckpointOptions { increment: true, ..Default::default() };
        let saved = save_checkpoint(Transports::new(), &config(&first, 9, 0), &directory, &options).unwrap();
        parents += u32::from(saved.manifest.parent.is_some());
        let rows = rows(&directory, saved.manifest.number, "clicks");
        let found: BTreeMap<u64, f32> = rows.into_iter().map(|(key, row)| (key, row[0])).collect();
        assert_eq!(found, model, "checkpoint {}", saved.manifest.number);
    }
    assert_eq!(parents, 5, "the first is full, the others are increments");
    let seq = worker.next_seq(table) - 1;
    drop((worker, first));
    let restored = |server: u32| {
        let source = RestoreSource::new(&directory, server, 3);
        let config = ServerConfig {
            threads: 1 + server as usize,
            restore: Some(source),
            checkpoints: Some(directory.clone()),
            ..ServerConfig::new("127.0.0.1:0")
        };
        Server::start(Transports::new(), config).unwrap()
    };
    let second: Vec<Server> = (0..3).map(restored).collect();
    let mut worker = Worker::connect(Transports::new(), config(&second, 1, 7)).unwrap();
    let table = worker.open_table(&schema("clicks")).unwrap();
    let scan = |worker: &mut Worker<Transports>| {
        let mut found = BTreeMap::new();
        let add = |keys: &[u64], rows: &[f32]| found.extend(keys.iter().copied().zip(rows.iter().copied()));
        worker.scan(table, add).unwrap();
        found
    };
    assert_eq!(scan(&mut worker), model);
    // The last push once more, as a worker sends it that had no answer before the servers died.
    let keys: Vec<u64> = (0..3000).collect();
    for (seq, applied) in [(seq, false), (seq + 1, true)] {
        let cut = Arc::new(worker.cut(table, &keys));
        worker.begin_push(table, cut, Write::Gradient, vec![1.0; keys.len()], None, seq).unwrap();
        worker.drain().unwrap();
        if applied {
            keys.iter().for_each(|&key| *model.entry(key).or_default() += 1.0);
        }
        assert_eq!(scan(&mut worker), model, "push {seq}");
    }
    // The restored servers go on with checkpoints. Their history is another one, so this one is full.
    let options = CheckpointOptions { increment: true, ..Default::default() };
    let saved = save_checkpoint(Transports::new(), &config(&second, 9, 0), &directory, &options).unwrap();
    assert_eq!((saved.manifest.parent, saved.manifest.rows()), (None, model.len() as u64));
}

#[test]
fn a_server_with_another_checkpoint_folder_refuses_by_name() {
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let servers = servers(own.path(), [1, 1]);
    let config = config(&servers, 1, 1);
    let mut worker = Worker::connect(Transports::new(), config.clone()).unwrap();
    let table = worker.open_table(&schema("clicks")).unwrap();
    worker.push(table, &[1, 2, 3], Write::Gradient, &[1.0; 3]).unwrap();
    let save = |folder: &Path| {
        let directory = CheckpointDir::create(folder).unwrap();
        save_checkpoint(Transports::new(), &config, &directory, &CheckpointOptions::default())
    };
    let refused = save(other.path()).unwrap_err().to_string();
    assert!(refused.contains("cannot reach the folder"), "{refused}");
    assert_eq!([1, 2].map(|_| save(own.path()).unwrap().manifest.number), [1, 2]);
    // The servers have a complete checkpoint of the number that the other folder gives, where 1 stays taken.
    let refused = save(other.path()).unwrap_err().to_string();
    assert!(refused.contains("is complete already") && refused.contains("--checkpoint"), "{refused}");
    assert!(CheckpointDir::open(own.path()).unwrap().verify(2).is_ok(), "it is as it was");
}

#[test]
fn a_server_without_a_checkpoint_folder_refuses_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let directory = CheckpointDir::create(folder.path()).unwrap();
    let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0")).unwrap();
    let config = WorkerConfig::new([server.addr()], 1, 1);
    let mut worker = Worker::connect(Transports::new(), config.clone()).unwrap();
    let save = || save_checkpoint(Transports::new(), &config, &directory, &CheckpointOptions::default());
    let refused = save().unwrap_err();
    assert!(refused.to_string().contains("no table is open"), "{refused}");
    let table = worker.open_table(&schema("clicks")).unwrap();
    worker.push(table, &[1], Write::Gradient, &[1.0]).unwrap();
    let refused = save().unwrap_err();
    let is_mismatch = matches!(refused, WorkerError::Refused { refusal: Refusal::Mismatch, .. });
    assert!(is_mismatch && refused.to_string().contains("--checkpoint DIR"), "{refused}");
    let left = directory.list().unwrap();
    assert!(
        left.iter().all(|save| save.bytes == 0) && left.len() == 1,
        "only the number stays taken: {left:?}"
    );
    // The server does not hold pushes back for the refused checkpoint.
    worker.push(table, &[1], Write::Gradient, &[1.0]).unwrap();
}

/// The sums of the counters by name and label, and the counts of histograms.
#[derive(Default)]
struct Sums(HashMap<String, f64>);

type Labels<'a> = &'a [(&'static str, &'a str)];

impl MetricsSink for Sums {
    fn counter(&mut self, name: &'static str, _: &'static str, labels: Labels<'_>, value: f64) {
        let labels: String = labels.iter().map(|(_, value)| format!(" {value}")).collect();
        *self.0.entry(format!("{name}{labels}")).or_default() += value;
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, labels: Labels<'_>, value: f64) {
        self.counter(name, help, labels, value);
    }

    fn histogram(&mut self, name: &'static str, help: &'static str, labels: Labels<'_>, buckets: &Buckets) {
        self.counter(name, help, labels, buckets.count() as f64);
    }
}

#[test]
fn the_pauses_of_a_checkpoint_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let servers = servers(folder.path(), [2, 3]);
    let mut worker = Worker::connect(Transports::new(), config(&servers, 0, 1)).unwrap();
    let table = worker.open_table(&schema("clicks")).unwrap();
    let keys = keys(0);
    worker.push(table, &keys, Write::Gradient, &vec![1.0; keys.len()]).unwrap();
    let directory = CheckpointDir::open(folder.path()).unwrap();
    let save = || {
        let (config, options) = (config(&servers, 0, 1), CheckpointOptions::default());
        save_checkpoint(Transports::new(), &config, &directory, &options).unwrap()
    };
    let count = |name: &str| {
        let mut sums = Sums::default();
        servers.iter().for_each(|server| server.shared_counters().tell(&mut sums));
        sums.0[name]
    };
    for round in 1..3 {
        save();
        let threads = f64::from(round * 5);
        assert_eq!(count("gannet_server_cut_held_seconds"), threads);
        assert_eq!(count("gannet_server_cuts_total written"), threads);
        assert_eq!(count("gannet_server_cut_rows_total"), f64::from(round * 3000));
        assert_eq!(count("gannet_server_cut_bytes_total"), f64::from(round * 3000 * 12));
        assert!(count("gannet_server_cut_slice_seconds") >= f64::from(round) * f64::from(SHARDS));
        assert_eq!(count("gannet_server_cut_saved_bytes"), 0.0);
        assert!(count("gannet_server_requests_total cut") > 0.0);
    }
    assert_eq!(count("gannet_server_cuts_total given_up"), 0.0);
    // No server can write into a folder that is not there.
    std::fs::remove_dir_all(folder.path()).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let other = CheckpointDir::create(elsewhere.path()).unwrap();
    let options = CheckpointOptions { tries: 1, ..CheckpointOptions::default() };
    assert!(save_checkpoint(Transports::new(), &config(&servers, 0, 1), &other, &options).is_err());
    let start = std::time::Instant::now();
    while count("gannet_server_cuts_total given_up") < 5.0 {
        assert!(start.elapsed() < Duration::from_secs(30), "the cuts of five threads are given up");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(count("gannet_server_cut_held_seconds"), 15.0);
}

/// A server whose tables have some rows, and a checkpoint of it.
fn saved_once() -> (tempfile::TempDir, Vec<Server>, CheckpointDir) {
    let folder = tempfile::tempdir().unwrap();
    let servers = servers(folder.path(), [2, 1]);
    let directory = CheckpointDir::open(folder.path()).unwrap();
    let mut worker = Worker::connect(Transports::new(), config(&servers, 1, 1)).unwrap();
    let table = worker.open_table(&schema("monday.clicks")).unwrap();
    worker.push(table, &keys(1), Write::Gradient, &vec![1.0; keys(1).len()]).unwrap();
    save(&servers, &directory, 5).unwrap();
    (folder, servers, directory)
}

/// Saves an increment of run `monday` with this birth, as the only one that does.
fn save(servers: &[Server], directory: &CheckpointDir, birth: u64) -> Result<JobManifest, WorkerError> {
    let options = CheckpointOptions {
        run: "monday".into(),
        increment: true,
        birth,
        sole: true,
        ..CheckpointOptions::default()
    };
    let saved = save_checkpoint(Transports::new(), &config(servers, 9, 0), directory, &options)?;
    Ok(saved.manifest)
}

/// A damaged checkpoint, from which no increment can be made, blocked all later ones.
#[test]
fn after_damage_the_next_checkpoint_is_a_full_one() {
    let (folder, servers, directory) = saved_once();
    assert_eq!(save(&servers, &directory, 5).unwrap().parent, Some(1));
    let file =
        std::fs::read_dir(folder.path().join("0000000001")).unwrap().map(|entry| entry.unwrap().path());
    let rows = file.into_iter().find(|path| path.extension().is_some_and(|end| end == "rows")).unwrap();
    std::fs::write(&rows, b"short").unwrap();
    assert!(directory.newest_valid().is_err());
    let saved = save(&servers, &directory, 5).unwrap();
    assert_eq!((saved.parent, saved.rows()), (None, keys(1).len() as u64));
    assert_eq!(directory.newest_valid().unwrap().unwrap().number, 3);
}

/// Two jobs with runs of one name removed the checkpoints of each other.
#[test]
fn another_job_with_a_run_of_the_same_name_is_refused() {
    let (_folder, servers, directory) = saved_once();
    let refused = save(&servers, &directory, 7).unwrap_err().to_string();
    assert!(refused.contains("of another job") && refused.contains("--checkpoint"), "{refused}");
    // Who does not know the birth, as the command, goes on with that of the directory.
    assert_eq!(save(&servers, &directory, 0).unwrap().run_birth(), Some("0000000000000005"));
    assert_eq!(save(&servers, &directory, 5).unwrap().parent, Some(2));
}

#[test]
fn what_a_killed_saver_had_written_is_removed_before_the_next_save() {
    let (_folder, servers, directory) = saved_once();
    let draft = directory.begin_as("monday 0000000000000005").unwrap();
    draft.state("tasks", &[7; 5000]).unwrap();
    assert!(directory.list().unwrap()[1].bytes > 5000);
    assert_eq!(save(&servers, &directory, 5).unwrap().number, 3);
    assert_eq!(directory.list().unwrap()[1].bytes, 0);
}

/// What a thread says of so many tables is longer than a frame, and so is what the coordinator says of an increment.
#[test]
fn a_checkpoint_of_thousands_of_tables_is_saved_in_parts_and_restored() {
    const TABLES: u64 = 2000;
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let directory = CheckpointDir::create(folder.path()).unwrap();
    let start = |restore: Option<RestoreSource>| {
        let checkpoints = Some(directory.clone());
        let config = ServerConfig { threads: 2, checkpoints, restore, ..ServerConfig::new("127.0.0.1:0") };
        Server::start(Transports::new(), config).unwrap()
    };
    let schema = |number: u64| Schema::scalar(&format!("embedding-{number}"), Rule::Add(Add));
    let keys = |number: u64| [number, number + (1 << 40)];
    let servers = [start(None)];
    let config = config(&servers, 1, 1);
    let mut worker = Worker::connect(Transports::new(), config.clone()).unwrap();
    let mut tables = Vec::new();
    for number in 0..TABLES {
        tables.push(worker.open_table(&schema(number)).unwrap());
        worker.push(tables[number as usize], &keys(number), Write::Gradient, &[1.0, 2.0]).unwrap();
    }
    let options = CheckpointOptions { increment: true, ..CheckpointOptions::default() };
    let saved = save_checkpoint(Transports::new(), &config, &directory, &options).unwrap();
    assert_eq!((saved.manifest.tables.len(), saved.manifest.rows()), (TABLES as usize, 2 * TABLES));
    worker.push(tables[7], &keys(7), Write::Gradient, &[10.0, 20.0]).unwrap();
    let saved = save_checkpoint(Transports::new(), &config, &directory, &options).unwrap();
    assert_eq!(saved.manifest.rows(), 2, "an increment");
    drop(worker);
    let [server] = servers;
    server.stop().unwrap();
    let source =
        RestoreSource { number: Some(saved.manifest.number), ..RestoreSource::new(&directory, 0, 1) };
    let restored = [start(Some(source))];
    let config = self::config(&restored, 1, 2);
    let mut worker = Worker::connect(Transports::new(), config).unwrap();
    for number in 0..TABLES {
        let table = worker.open_table(&schema(number)).unwrap();
        let mut rows = [0.0; 2];
        worker.pull(table, &keys(number), Read::Weights, &mut rows).unwrap();
        let want = if number == 7 { [11.0, 22.0] } else { [1.0, 2.0] };
        assert_eq!(rows, want, "table {number}");
    }
}

//! Checks of a checkpoint: its rows are those after exactly the pushes up to its cursors, and servers that are restored
//! from it go on from there.

use super::history::{Acked, History, Pushed, Pushers, apply};
use crate::saved::{Rows, rows_of};
use gannet_core::{CheckpointDir, Cursor, DATA_PUSHERS, JobManifest, Schema, Shards, Store, TableCut, Write};
use gannet_server::{LocalServer, RestoreSource, ServerConfig, restore_folder};
use gannet_sim::{Faults, Sim};
use gannet_transport::Prng;
use gannet_wire::PartitionMap;
use gannet_worker::{DataName, TableId, Worker, WorkerConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Checks a checkpoint that was saved after these pushes were acknowledged.
pub fn check(
    directory: &CheckpointDir,
    manifest: &JobManifest,
    history: &History,
    acked: &Acked,
    prng: &mut Prng,
) {
    directory.verify(manifest.number).unwrap();
    for (number, job) in history.tables.iter().enumerate() {
        let name = &job.schema.name;
        let cut = manifest.table(name).map(|(_, cut)| cut).unwrap_or_else(|| panic!("{name} is missing"));
        must_have_acked(number, cut, acked);
        let mut expected = history.replay(number, &cut.cursors);
        let chain = directory.chain(manifest.number).unwrap();
        compare(&saved_rows(directory, &chain, &cut.schema), &rows_of(&mut expected), name);
        if let Pushers::One(_) = job.pushers {
            for marked in expected.mark_cut(gannet_core::CutReader::Checkpoint, &[]) {
                let saved = directory.shard_sketch(&chain, name, marked.position.shard).unwrap();
                // A shard in which nothing was counted needs no sketch.
                let saved = saved.unwrap_or_else(|| vec![0; marked.sketch.len()]);
                assert!(saved == marked.sketch, "the counts of {name}");
            }
        }
    }
    match prng.below(6) {
        0 => into_folders(directory, manifest, history, prng),
        1 | 2 => onto_servers(directory, manifest, history, prng),
        _ => {}
    }
}

/// The rows of a table are these, bit for bit.
fn compare(got: &Rows, want: &Rows, table: &str) {
    let keys: BTreeSet<u64> = got.keys().chain(want.keys()).copied().collect();
    let wrong: Vec<u64> = keys.into_iter().filter(|key| got.get(key) != want.get(key)).collect();
    if let Some(key) = wrong.first() {
        let count = wrong.len();
        panic!("{count} rows of {table} are wrong: key {key}: {:?} for {:?}", got.get(key), want.get(key));
    }
}

/// A push that was acknowledged before the save began is in the cut.
fn must_have_acked(table: usize, cut: &TableCut, acked: &Acked) {
    for (&(_, pusher), &(incarnation, seq)) in acked.range((table, 0)..=(table, u64::MAX)) {
        let cursor = cut.cursors.iter().find(|cursor| cursor.pusher == pusher);
        let has = cursor.map(|cursor| (cursor.incarnation, cursor.seq));
        assert!(has >= Some((incarnation, seq)), "table {table}: {has:?} for push {seq} of {pusher:x}");
    }
}

/// The rows of a checkpoint's files.
fn saved_rows(directory: &CheckpointDir, chain: &[JobManifest], schema: &Schema) -> Rows {
    let mut all = Rows::new();
    for shard in 0..schema.shards {
        let add = |keys: &[u64], rows: &[f32]| {
            for (&key, row) in keys.iter().zip(rows.chunks(schema.floats())) {
                let bits = row.iter().map(|float| float.to_bits()).collect();
                assert_eq!(all.insert(key, bits), None, "key {key} came twice");
            }
        };
        directory.shard_rows(chain, &schema.name, shard, add).unwrap();
    }
    all
}

/// Draws a number of shards: other than saved in every second case.
pub fn draw_shards(prng: &mut Prng) -> Option<u32> {
    [None, None, Some(1), Some(2), Some(8)][prng.below(5) as usize]
}

fn sorted(cursors: &[Cursor]) -> Vec<Cursor> {
    let mut all = cursors.to_vec();
    all.sort_by_key(|cursor| cursor.pusher);
    all
}

/// Restores into data folders, and looks into the images.
fn into_folders(directory: &CheckpointDir, manifest: &JobManifest, history: &History, prng: &mut Prng) {
    let (servers, threads, shards) =
        (1 + prng.below(4) as u32, 1 + prng.below(3) as usize, draw_shards(prng));
    let mut all: BTreeMap<String, Rows> = BTreeMap::new();
    for server in 0..servers {
        let folder = crate::folder_in_memory();
        let store = Store::open_dir(folder.path()).unwrap();
        let number = Some(manifest.number);
        let source = RestoreSource { number, shards, ..RestoreSource::new(directory, server, servers) };
        restore_folder(&store, threads, &source).unwrap();
        for cut in &manifest.tables {
            let schema = Schema { shards: shards.unwrap_or(cut.schema.shards), ..cut.schema.clone() };
            let own = PartitionMap::of_job(servers).shards(server, schema.shards);
            if own.is_empty() {
                continue;
            }
            let mut table = Shards::open(&store, &schema, own).unwrap();
            let known = table.push_progress();
            assert!(known.iter().all(gannet_core::PushProgress::is_whole));
            let cursor = |p: gannet_core::PushProgress| Cursor {
                pusher: p.pusher,
                incarnation: p.incarnation,
                seq: p.seq,
                closed: p.closed,
            };
            assert_eq!(known.into_iter().map(cursor).collect::<Vec<_>>(), sorted(&cut.cursors));
            all.entry(schema.name).or_default().extend(rows_of(&mut table));
        }
    }
    for (number, job) in history.tables.iter().enumerate() {
        let cut = manifest.table(&job.schema.name).map(|(_, cut)| cut).unwrap();
        let restored = all.remove(&job.schema.name).unwrap_or_default();
        compare(&restored, &history.rows(number, &cut.cursors), &job.schema.name);
    }
}

/// Restores onto running servers. Old pushes are dropped there, and new ones are applied once.
fn onto_servers(directory: &CheckpointDir, manifest: &JobManifest, history: &History, prng: &mut Prng) {
    let (servers, shards) = (1 + prng.below(4) as u32, draw_shards(prng));
    let sim = Sim::new(manifest.number, Faults::none());
    let start = |server| {
        let source = RestoreSource {
            number: Some(manifest.number),
            shards,
            ..RestoreSource::new(directory, server, servers)
        };
        let threads = 1 + server as usize % 3;
        let config = ServerConfig { threads, restore: Some(source), ..ServerConfig::new("sim:0") };
        let mut server = LocalServer::new(sim.clone(), config).unwrap();
        let addr = server.addr().to_owned();
        sim.add_actor(move || server.run().unwrap());
        addr
    };
    let addrs: Vec<String> = (0..servers).map(start).collect();
    for (number, job) in history.tables.iter().enumerate() {
        let cut = manifest.table(&job.schema.name).map(|(_, cut)| cut).unwrap();
        let mut expected = history.replay(number, &cut.cursors);
        let schema = Schema { shards: shards.unwrap_or(cut.schema.shards), ..cut.schema.clone() };
        let reader = WorkerConfig::reader(addrs.clone());
        let mut reader = Worker::connect(sim.clone(), reader).unwrap();
        let table = reader.open_table(&schema).unwrap();
        compare(&scanned(&mut reader, table), &rows_of(&mut expected), &schema.name);
        for cursor in &cut.cursors {
            let mut of = Pushing::new(&sim, &addrs, &schema, cursor);
            // Other values would show.
            let known = |seq| {
                let line = history.lines.get(&(number, cursor.pusher, cursor.incarnation))?;
                line.pushes.iter().find(|push| push.seq == seq).cloned()
            };
            for seq in [cursor.seq.saturating_sub(1), cursor.seq] {
                let Some(old) = known(seq) else { continue };
                of.push(&schema, &Pushed { values: vec![77.0; old.values.len()], ..old });
            }
            assert_eq!(of.worker.counters().applied, 0, "an old push of {:x} was applied", cursor.pusher);
            // Counts of keys are merged where the number of shards changes: keys may come earlier.
            if matches!(job.pushers, Pushers::One(_)) && shards.is_some() {
                continue;
            }
            let next = known(cursor.seq + 1).unwrap_or_else(|| {
                let (write, keys) = (Write::Gradient, vec![cursor.pusher << 32 | 5, cursor.pusher << 32 | 6]);
                let values = vec![1.0; 2 * schema.write_floats(write)];
                Pushed { seq: cursor.seq + 1, write, keys, values }
            });
            of.push(&schema, &next);
            apply(&mut expected, (cursor.pusher, cursor.incarnation), &next);
            of.must_be_fenced(&sim, &addrs, &schema);
        }
        compare(&scanned(&mut reader, table), &rows_of(&mut expected), &schema.name);
    }
}

/// A worker that goes on from a cursor.
struct Pushing {
    worker: Worker<Sim>,
    table: TableId,
    cursor: Cursor,
}

impl Pushing {
    fn new(sim: &Sim, addrs: &[String], schema: &Schema, cursor: &Cursor) -> Pushing {
        let (pusher, incarnation) = match cursor.pusher {
            data if data >= DATA_PUSHERS => (1000, 1),
            _ => (cursor.pusher, cursor.incarnation),
        };
        let config = WorkerConfig::new(addrs.to_vec(), pusher, incarnation);
        let mut worker = Worker::connect(sim.clone(), config).unwrap();
        let table = worker.open_table(schema).unwrap();
        Pushing { worker, table, cursor: *cursor }
    }

    fn push(&mut self, schema: &Schema, push: &Pushed) {
        let Pushing { worker, table, cursor } = self;
        let cut = Arc::new(worker.cut(*table, &push.keys));
        let each = schema.write_floats(push.write);
        let row = |key: &u64| {
            let at = push.keys.iter().position(|known| known == key).unwrap();
            push.values[at * each..][..each].iter().copied()
        };
        let values: Vec<f32> = cut.keys().iter().flat_map(row).collect();
        let Cursor { pusher, incarnation, .. } = *cursor;
        let named = DataName { pusher, incarnation, seq: push.seq, clock: push.seq };
        let own = worker.next_seq(*table).max(if pusher >= DATA_PUSHERS { 0 } else { push.seq });
        let name = (own, Some(named).filter(|_| pusher >= DATA_PUSHERS));
        let id = worker.begin_push_named(*table, cut, push.write, values, None, name).unwrap();
        worker.finish_push(id).unwrap();
    }

    /// An earlier incarnation of the pusher is refused.
    fn must_be_fenced(&self, sim: &Sim, addrs: &[String], schema: &Schema) {
        let Cursor { pusher, incarnation, .. } = self.cursor;
        if pusher < DATA_PUSHERS && incarnation > 1 {
            let config = WorkerConfig::new(addrs.to_vec(), pusher, incarnation - 1);
            let refused = Worker::connect(sim.clone(), config).and_then(|mut old| old.open_table(schema));
            let text = refused.unwrap_err().to_string();
            assert!(text.contains("a newer incarnation of this worker"), "{text}");
        }
    }
}

fn scanned(worker: &mut Worker<Sim>, table: TableId) -> Rows {
    let floats = worker.schema(table).floats();
    let mut rows = Rows::new();
    worker
        .scan(table, |keys, values| {
            for (&key, row) in keys.iter().zip(values.chunks(floats)) {
                let bits = row.iter().map(|float| float.to_bits()).collect();
                assert_eq!(rows.insert(key, bits), None, "key {key} came twice");
            }
        })
        .unwrap();
    rows
}

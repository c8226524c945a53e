//! Rows READ from a server's registered memory, in the simulation. READs return words or lines in any order
//! while rows are written. Every row that is accepted must be whole. The number of registered regions must stay
//! bounded, and end with the tables.

use crate::model;

use gannet_core::{Read, Store, Write};
use gannet_server::{LocalServer, ServerConfig};
use gannet_sim::{Faults, Sim};
use gannet_transport::{Net, Prng};
use gannet_worker::{OneSided, Worker, WorkerConfig};
use model::{Model, random_values, schema};
use std::sync::Arc;
use std::time::Duration;

fn start(sim: &Sim, threads: usize) -> (u64, String) {
    let config = ServerConfig { threads, store: Store::memory(), ..ServerConfig::new("sim:0") };
    let mut server = LocalServer::new(sim.clone(), config).unwrap();
    let addr = server.addr().to_owned();
    (sim.add_actor(move || server.run().unwrap()), addr)
}

fn connect(sim: &Sim, addr: &str, pusher: u64) -> Worker<Sim> {
    let config = WorkerConfig { one_sided: OneSided::Always, ..WorkerConfig::new([addr], pusher, 1) };
    Worker::connect(sim.clone(), config).unwrap()
}

fn worlds(seed: u64) -> [(Sim, &'static str); 2] {
    let sim = || Sim::new(seed, Faults::none());
    [(sim().far(), "words"), (sim().far_lines(), "lines")]
}

fn registered(sim: &Sim) -> u64 {
    sim.registrar().map_or(0, |registrar| registrar.regions())
}

/// One worker adds 1 to all floats of its rows again and again without waiting, while another READs them. A row
/// with different floats was torn. A row with a smaller value than before never existed.
#[test]
fn rows_that_are_read_while_they_are_written_are_whole() {
    for dim in [1, 2, 9, 40] {
        for (sim, how) in worlds(u64::from(dim)) {
            let (_, addr) = start(&sim, 2);
            let (mut writer, mut reader) = (connect(&sim, &addr, 1), connect(&sim, &addr, 2));
            let schema = schema("t", dim, 4);
            let (table, same) = (writer.open_table(&schema).unwrap(), reader.open_table(&schema).unwrap());
            let keys: Vec<u64> = (0..40).collect();
            let ones = vec![1.0; keys.len() * dim as usize];
            writer.push(table, &keys, Write::Gradient, &ones).unwrap();
            let cut = Arc::new(writer.cut(table, &keys));
            let (mut seen, mut changed) = (vec![1.0; keys.len()], 0);
            for seq in 2..150 {
                let values = ones.clone();
                writer.begin_push(table, cut.clone(), Write::Gradient, values, None, seq).unwrap();
                let mut out = vec![f32::NAN; ones.len()];
                reader.pull(same, &keys, Read::Weights, &mut out).unwrap();
                for (key, row) in out.chunks_exact(dim as usize).enumerate() {
                    assert!(row.iter().all(|&x| x == row[0]), "dim {dim}, {how}: {key} is torn: {row:?}");
                    assert!(row[0] >= seen[key], "dim {dim}, {how}: {key} goes back to {}", row[0]);
                    changed += u64::from(row[0] > seen[key]);
                    seen[key] = row[0];
                }
            }
            writer.drain().unwrap();
            let counters = reader.counters();
            assert!(counters.near_rows > 1_000 && changed > 100, "dim {dim}, {how}: {counters:?} {changed}");
        }
    }
}

/// The number of registrations grows with the table and stays constant when the table stops growing, whichever
/// workers pull, push, connect and leave. All registrations end with the server.
#[test]
fn registrations_are_constant_once_the_table_stops_growing() {
    for (sim, how) in worlds(4) {
        assert_eq!(registered(&sim), 0);
        let (actor, addr) = start(&sim, 2);
        let mut model = Model::new(schema("t", 3, 8));
        let mut prng = Prng::new(11);
        let mut worker = connect(&sim, &addr, 1);
        let table = worker.open_table(&model.schema).unwrap();
        let mut counts = Vec::new();
        let mut seq = 0;
        for batch in 0..60u64 {
            let keys: Vec<u64> = (batch * 700..(batch + 1) * 700).collect();
            let cut = Arc::new(worker.cut(table, &keys));
            let values = random_values(&mut prng, keys.len() * 3);
            model.push(cut.keys(), &values);
            seq += 1;
            worker.begin_push(table, cut, Write::Gradient, values, None, seq).unwrap();
            worker.drain().unwrap();
            (0..3).for_each(|_| pull(&mut worker, &sim, &model, batch));
            counts.push(registered(&sim));
        }
        // Waits until the last stretch has been requested.
        let before = (0..100).find_map(|_| {
            let read = worker.counters().near_rows;
            pull(&mut worker, &sim, &model, 59);
            (worker.counters().near_rows - read >= 690).then(|| registered(&sim))
        });
        let constant = before.expect("rows are still requested");
        assert!(counts.is_sorted() && counts[0] >= 8, "{how}: {counts:?}");
        // One header for each shard, and 42,000 rows of 28 bytes in stretches.
        assert!(constant > 8 + 8 && constant <= 8 * 5, "{how}: {constant}");
        for round in 0..30u64 {
            match round % 3 {
                0 => sim.reset_all(&addr),
                1 => drop(std::mem::replace(&mut worker, connect(&sim, &addr, 10 + round))),
                _ => {}
            }
            let same = worker.open_table(&model.schema).unwrap();
            // Keys of existing rows, each once.
            let keys: Vec<u64> = (0..500).map(|i| (round * 997 + i * 83) % 42_000).collect();
            let cut = Arc::new(worker.cut(same, &keys));
            let values = random_values(&mut prng, keys.len() * 3);
            model.push(cut.keys(), &values);
            seq += 1;
            worker.begin_push(same, cut, Write::Gradient, values, None, seq).unwrap();
            worker.drain().unwrap();
            (0..5).for_each(|i| pull(&mut worker, &sim, &model, 59 - i % 2));
            assert_eq!(registered(&sim), constant, "{how}, round {round}");
        }
        drop(worker);
        sim.run(Duration::from_secs(1));
        assert_eq!(registered(&sim), constant, "{how}: they belong to the table");
        sim.remove_actor(actor);
        assert_eq!(registered(&sim), 0, "{how}");
    }
}

/// Pulls a batch and compares it with the model. Time passes, so that background requests are answered.
fn pull(worker: &mut Worker<Sim>, sim: &Sim, model: &Model, batch: u64) {
    let table = worker.open_table(&model.schema).unwrap();
    let keys: Vec<u64> = (batch * 700..(batch + 1) * 700).collect();
    let mut out = vec![0.0; keys.len() * 3];
    worker.pull(table, &keys, Read::Weights, &mut out).unwrap();
    assert!(out == model.pull(&keys));
    sim.run(Duration::from_millis(600));
    worker.poll().unwrap();
}

#[test]
fn a_worker_with_one_sided_never_reads_no_memory() {
    for (world, reads) in [(OneSided::Never, false), (OneSided::Auto, true), (OneSided::Always, true)] {
        let near = Sim::new(8, Faults::none()).near();
        for sim in [near, Sim::new(9, Faults::none()).far()] {
            let (_, addr) = start(&sim, 1);
            let config = WorkerConfig { one_sided: world, ..WorkerConfig::new([addr], 1, 1) };
            let mut worker = Worker::connect(sim.clone(), config).unwrap();
            let mut model = Model::new(schema("t", 3, 4));
            let table = worker.open_table(&model.schema).unwrap();
            let keys: Vec<u64> = (0..1400).collect();
            let values = vec![1.0; keys.len() * 3];
            model.push(&keys, &values);
            worker.push(table, &keys, Write::Gradient, &values).unwrap();
            (0..8).for_each(|_| pull(&mut worker, &sim, &model, 1));
            assert_eq!(worker.counters().near_rows > 0, reads, "{world:?}");
            assert_eq!(registered(&sim) > 0, reads && sim.registrar().is_some(), "{world:?}");
        }
    }
}

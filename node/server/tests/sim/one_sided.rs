//! Rows read in the images of a server on the same host, in the simulation. A worker must read what the server
//! would have answered, without a request to it. If the server stops responding, the worker must soon stop
//! trusting its images.

use crate::model;

use gannet_core::{Read, Store, Write};
use gannet_server::{LocalServer, ServerConfig};
use gannet_sim::{Faults, Sim};
use gannet_transport::Prng;
use gannet_wire::limits::LEASE;
use gannet_worker::{OneSided, Worker, WorkerConfig, WorkerError};
use model::{Model, random_values, schema, unique_keys};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const PEER_TIMEOUT: Duration = Duration::from_secs(20);

/// A server that can be paused as by SIGSTOP: it closes no connection.
fn start(sim: &Sim, addr: &str, store: &Store, threads: usize) -> (u64, String, Rc<Cell<bool>>) {
    let config = ServerConfig { threads, store: store.clone(), ..ServerConfig::new(addr) };
    let mut server = LocalServer::new(sim.clone(), config).unwrap();
    let (addr, stopped) = (server.addr().to_owned(), Rc::<Cell<bool>>::default());
    let stop = stopped.clone();
    let actor = sim.add_actor(move || {
        if !stop.get() {
            server.run().unwrap();
        }
    });
    (actor, addr, stopped)
}

fn connect(sim: &Sim, addr: &str, pusher: u64) -> Worker<Sim> {
    // All rows are read that can be: nothing is measured first.
    let config = WorkerConfig {
        peer_timeout: PEER_TIMEOUT,
        one_sided: OneSided::Always,
        ..WorkerConfig::new([addr], pusher, 1)
    };
    Worker::connect(sim.clone(), config).unwrap()
}

/// Waits for the images. They are requested in the background; until they arrive, rows are requested.
fn until_near(worker: &mut Worker<Sim>, sim: &Sim) {
    for _ in 0..100 {
        sim.run(Duration::from_millis(1));
        worker.poll().unwrap();
    }
}

#[test]
fn rows_read_in_place_equal_the_servers_answers_without_requests() {
    for threads in [1, 3] {
        let sim = Sim::new(threads as u64, Faults::none()).near();
        let (_, addr, _) = start(&sim, "sim:0", &Store::memory(), threads);
        let (mut writer, mut reader) = (connect(&sim, &addr, 1), connect(&sim, &addr, 2));
        let mut model = Model::new(schema("t", 3, 16));
        let (table, same) =
            (writer.open_table(&model.schema).unwrap(), reader.open_table(&model.schema).unwrap());
        let mut prng = Prng::new(7);
        let (mut read, mut wanted) = (0, 0);
        for round in 0..60 {
            let keys = unique_keys(&mut prng, 700, 20_000);
            let cut = Arc::new(writer.cut(table, &keys));
            let values = random_values(&mut prng, keys.len() * 3);
            model.push(cut.keys(), &values);
            writer.begin_push(table, cut, Write::Gradient, values, None, round + 1).unwrap();
            writer.drain().unwrap();
            until_near(&mut reader, &sim);
            let (before, mut out) = (reader.counters(), vec![f32::NAN; keys.len() * 3]);
            reader.pull(same, &keys, Read::Weights, &mut out).unwrap();
            assert!(out == model.pull(&keys), "{threads} threads, round {round}");
            let after = reader.counters();
            assert_eq!(after.bytes_received, before.bytes_received, "{threads} threads, round {round}");
            read += after.near_rows - before.near_rows;
            wanted += keys.len() as u64;
            // Keys without a row are requested; the keys beside them are not.
            let keys: Vec<u64> = keys.iter().flat_map(|&key| [key, key + (1 << 40)]).collect();
            let mut out = vec![f32::NAN; keys.len() * 3];
            reader.pull(same, &keys, Read::Weights, &mut out).unwrap();
            assert!(out == model.pull(&keys), "{threads} threads, round {round}");
        }
        assert_eq!(read, wanted);
    }
}

/// Until it has measured, a worker reads rows in images that it will not push back, and requests the others. In the
/// images reads take no time here, so in the end it reads both. READs over RDMA take about as long as requests here.
/// Meanwhile a pull may read some chunks and request others.
#[test]
fn a_worker_reads_where_that_is_cheaper() {
    let (near, far) = (Sim::new(5, Faults::none()).near(), Sim::new(6, Faults::none()).far_lines());
    for (sim, kept_first, last) in [(near, 0.0, Some(1.0)), (far, 1.0, None)] {
        let (_, addr, _) = start(&sim, "sim:0", &Store::memory(), 3);
        let mut worker = Worker::connect(sim.clone(), WorkerConfig::new([addr], 1, 1)).unwrap();
        let mut model = Model::new(schema("t", 3, 16));
        let table = worker.open_table(&model.schema).unwrap();
        let mut prng = Prng::new(9);
        let mut mixed = 0;
        for round in 0..12_000 {
            let keys = unique_keys(&mut prng, 60, 400);
            let cut = Arc::new(worker.cut(table, &keys));
            let before = worker.counters().near_rows;
            let kept = round % 2 == 1;
            let pull = worker.begin_pull(table, cut.clone(), Read::Weights, Vec::new(), kept).unwrap();
            let pulled = worker.finish_pull(pull).unwrap();
            assert!(pulled.values == model.pull(cut.keys()), "round {round}");
            let read = worker.counters().near_rows - before;
            mixed += u32::from(read > 0 && read < 50);
            let values = random_values(&mut prng, keys.len() * 3);
            model.push(cut.keys(), &values);
            worker.begin_push(table, cut, Write::Gradient, values, kept.then_some(pull), round + 1).unwrap();
            worker.drain().unwrap();
            if round == 10 {
                until_near(&mut worker, &sim);
                assert_eq!(worker.read_path_choice(table, false).share, 1.0);
                assert_eq!(worker.read_path_choice(table, true).share, kept_first);
            }
        }
        for kept in [false, true] {
            let choice = worker.read_path_choice(table, kept);
            assert!(
                choice.readable && choice.settled && last.is_none_or(|last| choice.share == last),
                "kept {kept}: {choice:?}"
            );
        }
        assert!(mixed > 20, "{mixed} pulls read some chunks and requested others: the test shows nothing");
    }
}

#[test]
fn a_push_to_slots_that_are_wrong_finds_its_rows() {
    // The server from which a pull got the slots is gone when the push comes. The next server has other rows in
    // these slots.
    let sim = Sim::new(3, Faults::none()).near();
    let folder = crate::folder_in_memory();
    let store = Store::open_dir(folder.path()).unwrap();
    let (actor, addr, _) = start(&sim, "sim:0", &store, 1);
    let mut worker = connect(&sim, &addr, 1);
    let mut model = Model::new(schema("t", 1, 4));
    let table = worker.open_table(&model.schema).unwrap();
    let keys: Vec<u64> = (0..500).collect();
    let cut = Arc::new(worker.cut(table, &keys));
    for round in 1..20 {
        until_near(&mut worker, &sim);
        let pull = worker.begin_pull(table, cut.clone(), Read::Weights, Vec::new(), true).unwrap();
        worker.finish_pull(pull).unwrap();
        if round == 10 {
            sim.remove_actor(actor);
            sim.reset_all(&addr);
            start(&sim, &addr, &store, 1);
        }
        let values = vec![round as f32; keys.len()];
        model.push(cut.keys(), &values);
        worker.begin_push(table, cut.clone(), Write::Gradient, values, Some(pull), round).unwrap();
        worker.drain().unwrap();
    }
    assert!(worker.counters().near_rows > 5_000 && worker.counters().links_lost == 1);
    let mut out = vec![0.0; keys.len()];
    worker.pull(table, &keys, Read::Weights, &mut out).unwrap();
    assert!(out == model.pull(&keys));
}

#[test]
fn a_server_that_is_stopped_is_not_believed_beyond_its_lease() {
    stopped(Sim::new(5, Faults::none()).near());
}

#[test]
fn nor_is_one_whose_memory_is_read_over_rdma() {
    stopped(Sim::new(5, Faults::none()).far());
}

fn stopped(sim: Sim) {
    let (_, addr, stopped) = start(&sim, "sim:0", &Store::memory(), 1);
    let mut worker = connect(&sim, &addr, 1);
    let table = worker.open_table(&schema("t", 1, 4)).unwrap();
    worker.push(table, &[1, 2, 3], Write::Gradient, &[1.0, 2.0, 3.0]).unwrap();
    until_near(&mut worker, &sim);
    let mut out = [0.0; 3];
    let warm = (0..100).any(|_| {
        sim.run(Duration::from_millis(100));
        worker.pull(table, &[1, 2, 3], Read::Weights, &mut out).unwrap();
        worker.counters().near_rows > 0
    });
    assert!(warm, "no row was read");
    // A worker that only reads renews its lease in the background.
    for _ in 0..100 {
        sim.run(Duration::from_millis(100));
        let before = worker.counters();
        worker.pull(table, &[1, 2, 3], Read::Weights, &mut out).unwrap();
        assert_eq!(worker.counters().near_rows, before.near_rows + 3);
    }
    stopped.set(true);
    let before = worker.counters();
    sim.run(LEASE + Duration::from_millis(1));
    let error = worker.pull(table, &[1, 2, 3], Read::Weights, &mut out).unwrap_err();
    assert!(matches!(error, WorkerError::PeerLost { .. }) && error.to_string().contains(&addr), "{error}");
    assert_eq!(
        worker.counters().near_rows,
        before.near_rows,
        "rows of a stopped server were taken for current"
    );
    stopped.set(false);
    let answered = (0..10).any(|_| {
        sim.run(Duration::from_secs(1));
        worker.pull(table, &[1, 2, 3], Read::Weights, &mut out).is_ok()
    });
    assert!(answered && out == [1.0, 2.0, 3.0], "{out:?}");
}

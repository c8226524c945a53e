//! Workers and servers on one host, over loopback and over shared memory, compared with a map; and the failures
//! between them.

use crate::model::{Model, random_keys, random_values, schema, unique_keys};
use crate::ports::free_addr;
use gannet_core::{Read, SHARDS_DEFAULT, Store, Write};
use gannet_jobs::MemoryCoordinator;
use gannet_server::{Server, ServerConfig};
use gannet_transport::Prng;
use gannet_transport::multi::{Transport, Transports};
use gannet_transport::tcp::{Io, Tcp};
use gannet_wire::{Coordinator, CoordinatorWrite, Refusal, shards_for_threads};
use gannet_worker::{RemoteCoordinator, SeenPushes, Worker, WorkerConfig, WorkerError};
use std::cell::Cell;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

thread_local! {
    /// The transport and driver of the test that runs on this thread.
    static WAY: Cell<(Transport, Io)> = const { Cell::new((Transport::Tcp, Io::Epoll)) };
}

fn net() -> Transports {
    let (transport, io) = WAY.get();
    Transports::over(Tcp::new().with_io(io)).with_transport(transport)
}

/// The transport that `auto` chooses: workers of these tests are on their servers' host.
fn expected() -> &'static str {
    if WAY.get().0 == Transport::Tcp { "tcp" } else { "shm" }
}

/// Each of these tests over epoll, over shared memory and, where the system offers it, both over io_uring.
macro_rules! over_all {
    ($($name:ident,)*) => {
        mod epoll {
            $(#[test] fn $name() { super::$name(); })*
        }
        mod uring {
            $(#[test] fn $name() {
                super::over_uring(super::Transport::Tcp, super::$name);
            })*
        }
        mod shm {
            $(#[test] fn $name() {
                super::WAY.set((super::Transport::Auto, super::Io::Epoll));
                super::$name();
            })*
        }
        mod shm_beside_uring {
            $(#[test] fn $name() {
                super::over_uring(super::Transport::Auto, super::$name);
            })*
        }
    };
}

fn over_uring(transport: Transport, test: fn()) {
    WAY.set((transport, Io::Uring));
    if net().io() == "epoll" {
        return eprintln!("io_uring is refused here: not tested");
    }
    test();
}

over_all! {
    simple_calls_agree_with_a_map,
    pipelined_pulls_see_the_pushes_that_they_name,
    a_keyset_over_the_limit_is_not_stored_and_keys_are_sent,
    values_that_are_not_finite_are_counted_and_never_stored,
    another_schema_or_partition_is_refused_by_name,
    a_newer_incarnation_fences_an_older_one,
    bad_peers_lose_their_session_and_nothing_else,
    a_peer_that_stalls_or_is_not_there_is_named,
    a_worker_that_starts_first_waits_for_its_server,
    a_server_started_again_on_its_folder_applies_each_push_once,
    a_server_started_again_without_its_memory_is_told_apart,
}

fn server(threads: usize) -> Server {
    Server::start(net(), ServerConfig { threads, ..ServerConfig::new("127.0.0.1:0") }).unwrap()
}

fn worker_config(servers: &[&Server], pusher: u64) -> WorkerConfig {
    let addrs: Vec<_> = servers.iter().map(|server| server.addr()).collect();
    WorkerConfig { peer_timeout: Duration::from_secs(10), ..WorkerConfig::new(addrs, pusher, 1) }
}

fn worker(servers: &[&Server], pusher: u64) -> Worker<Transports> {
    Worker::connect(net(), worker_config(servers, pusher)).unwrap()
}

#[test]
fn a_worker_and_a_server_may_move_to_another_thread() {
    fn moves<T: Send>() {}
    moves::<Worker<Transports>>();
    moves::<Server>();
}

fn simple_calls_agree_with_a_map() {
    for (servers, threads, dim, net) in
        [(1, 1, 1, net()), (2, 2, 3, net()), (1, 3, 17, net().with_checksums())]
    {
        let servers: Vec<_> = (0..servers).map(|_| server(threads)).collect();
        let refs: Vec<_> = servers.iter().collect();
        let mut worker = Worker::connect(net, worker_config(&refs, 1)).unwrap();
        assert_eq!((worker.links(), worker.transport().as_str()), (servers.len() * threads, expected()));
        let mut models = [Model::new(schema("a", dim, 64)), Model::new(schema("b", dim + 1, 4))];
        let tables = [0, 1].map(|i: usize| worker.open_table(&models[i].schema).unwrap());
        let mut prng = Prng::new(u64::from(dim));
        for round in 0..60 {
            let i = round % 2;
            let count = [0, 1, 7, 300, 30_000][prng.below(5) as usize];
            let keys = random_keys(&mut prng, count, 20_000);
            let floats = models[i].schema.dim as usize;
            let values = random_values(&mut prng, count * floats);
            worker.push(tables[i], &keys, Write::Gradient, &values).unwrap();
            models[i].push(&keys, &values);
            let mut requested = random_keys(&mut prng, count + 5, 25_000);
            requested.extend(&keys);
            let mut out = vec![9.0; requested.len() * floats];
            worker.pull(tables[i], &requested, Read::Weights, &mut out).unwrap();
            assert!(out == models[i].pull(&requested), "round {round}");
        }
        for (table, model) in tables.into_iter().zip(&models) {
            let status = worker.status(table).unwrap();
            assert_eq!(status.stats.rows as usize, model.rows());
            let shards = match model.schema.shards {
                SHARDS_DEFAULT => shards_for_threads(servers.len() * threads),
                shards => shards,
            };
            assert_eq!(status.stats.shards, shards);
            let mut rows = Vec::new();
            let dim = model.schema.dim as usize;
            worker
                .scan(table, |keys, floats| {
                    rows.extend(keys.iter().copied().zip(floats.chunks_exact(dim).map(<[f32]>::to_vec)));
                })
                .unwrap();
            rows.sort_by_key(|row| row.0);
            assert!(rows == model.sorted());
        }
        worker.close_pusher(tables[0]).unwrap();
        let pushers = worker.status(tables[0]).unwrap().pushers;
        assert!(pushers.len() == 1 && pushers[0].closed && pushers[0].pusher == 1, "{pushers:?}");
        let rows: u64 = servers.into_iter().map(|server| server.stop().unwrap()).sum();
        assert_eq!(rows as usize, models.iter().map(Model::rows).sum::<usize>());
    }
}

/// Many batches in flight: each pull must answer exactly the pushes that it reports to have seen.
fn pipelined_pulls_see_the_pushes_that_they_name() {
    let (a, b) = (server(2), server(1));
    let mut worker = worker(&[&a, &b], 5);
    let model = Model::new(schema("t", 2, 16));
    let table = worker.open_table(&model.schema).unwrap();
    let mut prng = Prng::new(77);
    let mut pushes: Vec<(Vec<u64>, Vec<f32>)> = Vec::new();
    let mut pulls = std::collections::VecDeque::new();
    // The sums of the first `summed` pushes. The numbers that pulls report seldom decrease, so each push is
    // summed about once.
    let (mut expected, mut summed) = (Model::new(model.schema.clone()), 0);
    for round in 0..120u64 {
        let keys = unique_keys(&mut prng, 20_000, 30_000);
        let cut = Arc::new(worker.cut(table, &keys));
        let keep = round % 3 != 0;
        let values = worker.spare();
        pulls.push_back((worker.begin_pull(table, cut.clone(), Read::State, values, keep).unwrap(), cut));
        if pulls.len() < 4 {
            continue;
        }
        let (id, cut) = pulls.pop_front().unwrap();
        let pulled = worker.finish_pull(id).unwrap();
        assert!(worker.finish_pull(id).is_err());
        for SeenPushes { rows, seq } in pulled.saw {
            let range = rows.start as usize..rows.end as usize;
            let saw = seq as usize;
            if saw < summed {
                (expected, summed) = (Model::new(model.schema.clone()), 0);
            }
            pushes[summed..saw].iter().for_each(|(keys, values)| expected.push(keys, values));
            summed = saw;
            let got = &pulled.values[range.start * 2..range.end * 2];
            assert!(got == expected.pull(&cut.keys()[range]), "round {round}");
        }
        let values = random_values(&mut prng, cut.keys().len() * 2);
        let seq = worker.next_seq(table);
        assert_eq!(seq, pushes.len() as u64 + 1);
        worker.begin_push(table, cut.clone(), Write::Change, values.clone(), Some(id), seq).unwrap();
        pushes.push((cut.keys().to_vec(), values));
        let stale = worker.begin_push(table, cut, Write::Change, pushes[0].1.clone(), None, seq);
        assert!(matches!(stale, Err(WorkerError::Call(_))));
    }
    worker.drain().unwrap();
    let counters = worker.counters();
    assert_eq!((counters.resends, counters.duplicate), (0, 0));
    assert_eq!(counters.applied as usize, pushes.iter().map(|push| push.0.len()).sum::<usize>());
    // Two of three pushes used a keyset and carried no keys.
    let rows = counters.applied * 8;
    let pulls_keys = 120 * 20_000 * 8;
    assert!(counters.bytes_sent < rows + rows / 2 + pulls_keys, "{counters:?}");
}

fn a_keyset_over_the_limit_is_not_stored_and_keys_are_sent() {
    let config =
        ServerConfig { threads: 1, keyset_bytes_max: 5_000 * 12, ..ServerConfig::new("127.0.0.1:0") };
    let server = Server::start(net(), config).unwrap();
    let mut worker = worker(&[&server], 5);
    let mut model = Model::new(schema("t", 1, 8));
    let table = worker.open_table(&model.schema).unwrap();
    let mut prng = Prng::new(3);
    for count in [4_000, 30_000, 300] {
        for _ in 0..4 {
            let keys = unique_keys(&mut prng, count, 100_000);
            let cut = Arc::new(worker.cut(table, &keys));
            let id = worker.begin_pull(table, cut.clone(), Read::Weights, Vec::new(), true).unwrap();
            let pulled = worker.finish_pull(id).unwrap();
            assert!(pulled.values == model.pull(cut.keys()));
            let values = random_values(&mut prng, cut.keys().len());
            model.push(cut.keys(), &values);
            let seq = worker.next_seq(table);
            worker.begin_push(table, cut, Write::Gradient, values, Some(id), seq).unwrap();
        }
    }
    worker.drain().unwrap();
    let keys = random_keys(&mut prng, 50_000, 100_000);
    let mut out = vec![0.0; keys.len()];
    worker.pull(table, &keys, Read::Weights, &mut out).unwrap();
    assert!(out == model.pull(&keys));
    assert_eq!(worker.counters().links_lost, 0);
}

fn values_that_are_not_finite_are_counted_and_never_stored() {
    let server = server(1);
    let mut worker = worker(&[&server], 5);
    let table = worker.open_table(&schema("t", 2, 8)).unwrap();
    let keys = [1, 2, 3];
    worker.push(table, &keys, Write::Gradient, &[1.0, 2.0, f32::NAN, 0.0, 3.0, f32::INFINITY]).unwrap();
    let mut out = [7.0; 6];
    worker.pull(table, &keys, Read::Weights, &mut out).unwrap();
    assert_eq!(out, [1.0, 2.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!((worker.counters().applied, worker.counters().not_finite), (1, 2));
    let other = worker.open_table(&schema("other", 2, 8)).unwrap();
    assert_eq!((worker.not_finite_rows(table), worker.not_finite_rows(other)), (2, 0));
}

fn another_schema_or_partition_is_refused_by_name() {
    let (a, b) = (server(1), server(1));
    let mut first = worker(&[&a], 1);
    let table = first.open_table(&schema("t", 2, 8)).unwrap();
    let mut second = worker(&[&a], 2);
    let error = second.open_table(&schema("t", 3, 8)).unwrap_err();
    let WorkerError::Refused { peer, refusal: Refusal::Mismatch, text, .. } = &error else {
        panic!("{error}")
    };
    assert!(peer.starts_with(a.addr()), "{peer}");
    assert!(text.contains("its dimension is 2, but 3 was requested"), "{text}");
    let mut third = worker(&[&b, &a], 3);
    let error = third.open_table(&schema("t", 2, 8)).unwrap_err().to_string();
    assert!(error.contains("made by 1 server, as") && error.contains("2 are given"), "{error}");
    // The link still works, and so does the table.
    second.open_table(&schema("u", 1, 8)).unwrap();
    first.push(table, &[5], Write::Gradient, &[1.0, 1.0]).unwrap();
    let again = second.open_table(&schema("t", 2, 8)).unwrap();
    let mut out = [0.0; 2];
    second.pull(again, &[5], Read::Weights, &mut out).unwrap();
    assert_eq!(out, [1.0, 1.0]);
}

fn a_newer_incarnation_fences_an_older_one() {
    let server = server(1);
    let mut old = worker(&[&server], 1);
    let mut new =
        Worker::connect(net(), WorkerConfig { incarnation: 2, ..worker_config(&[&server], 1) }).unwrap();
    let table = old.open_table(&schema("t", 1, 1)).unwrap();
    let same = new.open_table(&schema("t", 1, 1)).unwrap();
    old.push(table, &[1], Write::Gradient, &[1.0]).unwrap();
    new.push(same, &[1], Write::Gradient, &[1.0]).unwrap();
    let error = old.push(table, &[1], Write::Gradient, &[1.0]).unwrap_err();
    assert!(matches!(error, WorkerError::Refused { refusal: Refusal::Fenced, .. }), "{error}");
    let mut out = [0.0];
    old.pull(table, &[1], Read::Weights, &mut out).unwrap();
    assert_eq!(out, [2.0]);
}

fn bad_peers_lose_their_session_and_nothing_else() {
    use gannet_transport::{Head, limits::FRAME_BYTES_MAX};
    let server = server(2);
    let mut worker = worker(&[&server], 1);
    let table = worker.open_table(&schema("t", 1, 8)).unwrap();
    let mut head = vec![0; 64];
    Head { kind: 5, len: FRAME_BYTES_MAX as u32 + 8, ..Head::default() }.encode(&mut head);
    let oversized = head.clone();
    Head::new(7, 0, 0, [0; 4]).encode(&mut head);
    let pushes_first = head.clone();
    Head { kind: 1, len: 64, ..Head::default() }.encode(&mut head);
    let hello_of_zeros = [&head[..], &[0; 64]].concat();
    let mut prng = Prng::new(1);
    let noise: Vec<u8> = (0..5_000).map(|_| prng.next_u64() as u8).collect();
    let http = b"GET / HTTP/1.1\r\n\r\n".repeat(9);
    for bad in [oversized, pushes_first, hello_of_zeros, noise, http] {
        let mut raw = std::net::TcpStream::connect(server.addr()).unwrap();
        raw.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        raw.write_all(&bad).unwrap();
        let mut answer = Vec::new();
        // A refusal and the end, or a reset; in no case silence.
        match raw.read_to_end(&mut answer) {
            Ok(_) => assert!(answer.starts_with(b"GN"), "{answer:?}"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
        worker.push(table, &[1], Write::Gradient, &[1.0]).unwrap();
    }
    // A session that was greeted and then sends garbage ends too.
    let mut out = [0.0];
    worker.pull(table, &[1], Read::Weights, &mut out).unwrap();
    assert_eq!(out, [5.0]);
    assert_eq!(worker.counters().links_lost, 0);
}

/// The test of the same name in sim shows, by a clock of its own, that it is named in time.
fn a_peer_that_stalls_or_is_not_there_is_named() {
    // Accepts by backlog and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for addr in [silent.local_addr().unwrap().to_string(), free_addr()] {
        let timeout = Duration::from_millis(600);
        let config = WorkerConfig { peer_timeout: timeout, ..WorkerConfig::new([&addr], 1, 1) };
        let error = Worker::connect(net(), config).err().unwrap();
        let WorkerError::PeerLost { peer, waited, .. } = &error else { panic!("{error}") };
        assert!(peer.starts_with(addr.as_str()) && *waited >= timeout, "{error}");
    }
}

fn a_worker_that_starts_first_waits_for_its_server() {
    let addr = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let config = WorkerConfig::new([addr.clone()], 1, 1);
    let net_of_both = net();
    let waiting =
        std::thread::spawn(move || Worker::connect(net_of_both, config).map(|worker| worker.links()));
    std::thread::sleep(Duration::from_millis(200));
    let server = Server::start(net(), ServerConfig { threads: 2, ..ServerConfig::new(addr) }).unwrap();
    assert_eq!(waiting.join().unwrap().unwrap(), 2);
    server.stop().unwrap();
}

fn on_folder(addr: &str, folder: &std::path::Path) -> Server {
    let store = Store::open_dir(folder).unwrap();
    let started = Instant::now();
    loop {
        match Server::start(
            net(),
            ServerConfig { threads: 2, store: store.clone(), ..ServerConfig::new(addr) },
        ) {
            Ok(server) => return server,
            Err(error) if started.elapsed() > Duration::from_secs(10) => panic!("{error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn a_server_started_again_on_its_folder_applies_each_push_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Some(on_folder("127.0.0.1:0", folder.path()));
    let addr = server.as_ref().unwrap().addr().to_owned();
    let mut worker = worker(&[server.as_ref().unwrap()], 9);
    let mut model = Model::new(schema("t", 1, 8));
    let table = worker.open_table(&model.schema).unwrap();
    let mut prng = Prng::new(4);
    for round in 0..60 {
        let keys = unique_keys(&mut prng, 3_000, 5_000);
        let cut = Arc::new(worker.cut(table, &keys));
        let pull = worker.begin_pull(table, cut.clone(), Read::Weights, Vec::new(), true).unwrap();
        worker.finish_pull(pull).unwrap();
        let values = random_values(&mut prng, cut.keys().len());
        model.push(cut.keys(), &values);
        let seq = worker.next_seq(table);
        worker.begin_push(table, cut, Write::Gradient, values, Some(pull), seq).unwrap();
        if round % 20 == 10 {
            // In the middle: some pushes are in flight.
            server.take().unwrap().stop().unwrap();
            server = Some(on_folder(&addr, folder.path()));
        }
    }
    worker.drain().unwrap();
    let keys = random_keys(&mut prng, 20_000, 5_000);
    let mut out = vec![0.0; keys.len()];
    worker.pull(table, &keys, Read::Weights, &mut out).unwrap();
    assert!(out == model.pull(&keys));
    assert!(worker.counters().links_lost >= 3 * 2, "{:?}", worker.counters());
}

fn a_server_started_again_without_its_memory_is_told_apart() {
    let first = server(1);
    let addr = first.addr().to_owned();
    let mut worker = worker(&[&first], 9);
    let table = worker.open_table(&schema("t", 1, 8)).unwrap();
    worker.push(table, &[1], Write::Gradient, &[1.0]).unwrap();
    first.stop().unwrap();
    let _second = Server::start(net(), ServerConfig { threads: 1, ..ServerConfig::new(addr) }).unwrap();
    let error = worker.push(table, &[1], Write::Gradient, &[1.0]).unwrap_err();
    assert!(matches!(&error, WorkerError::Forgot { table, .. } if table == "t"), "{error}");
}

/// A listener whose queue is full drops connections. The worker must wait for that peer only.
#[test]
fn a_server_that_swallows_connections_does_not_hold_up_the_others() {
    let good = server(1);
    let bad = server(1);
    let bad_addr = bad.addr().to_owned();
    let config = WorkerConfig { peer_timeout: Duration::from_secs(4), ..worker_config(&[&good, &bad], 1) };
    let mut worker = Worker::connect(Tcp::new(), config).unwrap();
    let table = worker.open_table(&schema("t", 1, 2)).unwrap();
    let key_of = |server: u32| {
        (1u64..).find(|key| gannet_core::shard_of(gannet_core::hash(*key), 2) == server).unwrap()
    };
    let (here, there) = ([key_of(0)], [key_of(1)]);
    bad.stop().unwrap();
    // A queue of one, which is full: the system drops further connections.
    let hole =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::sockopt::set_socket_reuseaddr(&hole, true).unwrap();
    let addr: std::net::SocketAddr = bad_addr.parse().unwrap();
    rustix::net::bind(&hole, &addr).unwrap();
    rustix::net::listen(&hole, 0).unwrap();
    let fill: Vec<_> =
        (0..4).map(|_| std::net::TcpStream::connect_timeout(&addr, Duration::from_millis(100))).collect();
    assert!(fill.iter().any(Result::is_err), "the queue is not full");
    let (mut out, mut calls, from) = ([0.0], 0, Instant::now());
    while from.elapsed() < Duration::from_secs(2) {
        worker.push(table, &here, Write::Gradient, &[1.0]).unwrap();
        worker.pull(table, &here, Read::Weights, &mut out).unwrap();
        calls += 1;
    }
    // An attempt to connect takes up to 4 s here. If the worker waited for it, there would be one call.
    assert!(calls > 10, "{calls} calls");
    let error = worker.pull(table, &there, Read::Weights, &mut out).unwrap_err();
    let WorkerError::PeerLost { peer, .. } = &error else { panic!("{error}") };
    assert!(peer.starts_with(&bad_addr), "{error}");
}

/// The sets of 64 places with eight backups each were larger than a scheduler took as one request. A backup that had
/// died could then not leave them.
#[test]
fn a_scheduler_takes_the_writes_of_64_places_at_once() {
    let coordinator = Arc::new(MemoryCoordinator::new(Arc::new(|| Duration::ZERO)));
    let config = ServerConfig { coordinator: Some(coordinator.clone()), ..ServerConfig::new("127.0.0.1:0") };
    let server = Server::start(Transports::new(), config).unwrap();
    let remote = RemoteCoordinator::new(Transports::new(), server.addr(), None);
    let write = |place| {
        let (key, value) = (format!("job/place/{place}"), vec![place; 8 * 264]);
        CoordinatorWrite { key, version: 0, value, lease: None }
    };
    let writes: Vec<CoordinatorWrite> = (0..64).map(write).collect();
    assert!(remote.compare_and_set_all(&writes).unwrap().is_some());
    assert_eq!(coordinator.get("job/place/63").unwrap().unwrap().value, writes[63].value);
}

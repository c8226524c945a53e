//! A server over real sockets dies, and its backup takes its place.

use crate::model::{Model, random_keys, random_values, schema, unique_keys};
use gannet_core::{Read, Store, Write};
use gannet_node::{Server, ServerConfig, Worker, WorkerConfig};
use gannet_transport::multi::Transports;
use gannet_transport::sim::Prng;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn server(threads: usize, backups: Vec<String>) -> Server {
    let (store, listen) = (Store::memory(), "127.0.0.1:0");
    let config = ServerConfig { threads, store, backups, ..ServerConfig::new(listen) };
    Server::start(Transports::new(), config).unwrap()
}

fn connect(server: &str, pusher: u64) -> Worker<Transports> {
    Worker::connect(Transports::new(), WorkerConfig::new([server], pusher, 1)).unwrap()
}

#[test]
fn a_backup_takes_the_place_of_a_server_over_sockets() {
    let mut prng = Prng::new(5);
    let backup = server(3, Vec::new());
    let primary = server(2, vec![backup.addr().to_owned()]);
    let addr = primary.addr().to_owned();
    let mut worker = connect(&addr, 3);
    let mut model = Model::new(schema("t", 3, 16));
    let table = worker.open_table(&model.schema).unwrap();
    let mut push = |worker: &mut Worker<Transports>, model: &mut Model| {
        let keys = unique_keys(&mut prng, 2_000, 20_000);
        let cut = Arc::new(worker.cut(table, &keys));
        let values = random_values(&mut prng, cut.keys().len() * 3);
        model.push(cut.keys(), &values);
        let seq = worker.next_seq(table);
        worker.begin_push(table, cut, Write::Gradient, values, None, seq).unwrap();
    };
    let mut promoter = connect(backup.addr(), 9);
    let until = Instant::now() + Duration::from_secs(60);
    // The backup is filled while pushes go on.
    while primary.joined_backups() == 0 {
        (0..20).for_each(|_| push(&mut worker, &mut model));
        worker.drain().unwrap();
        assert!(Instant::now() < until, "the backup is not filled");
    }
    (0..20).for_each(|_| push(&mut worker, &mut model));
    drop(primary);
    assert_eq!(promoter.promote_backup(0, 1, 2).unwrap(), 1);
    worker.replace_server(&addr, backup.addr());
    (0..20).for_each(|_| push(&mut worker, &mut model));
    worker.drain().unwrap();
    let keys = random_keys(&mut Prng::new(6), 20_000, 20_000);
    let mut out = vec![0.0; keys.len() * 3];
    worker.pull(table, &keys, Read::Weights, &mut out).unwrap();
    assert!(out == model.pull(&keys));
}

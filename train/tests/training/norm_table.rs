//! The table of the normalization: the first worker decides, wholly, whoever dies, and the others have the same.

use gannet_core::Store;
use gannet_server::{Server, ServerConfig};
use gannet_train::{
    AgreedNormalization, NormAtServers, NormInStore, Normalization, NormalizedFeature, norm_table,
    normalization_of,
};
use gannet_transport::multi::Transports;
use gannet_worker::{Worker, WorkerConfig};
use std::sync::Barrier;

/// What worker `of` has seen: features of its own, and one that all have.
fn seen(of: u64, features: u64) -> Normalization {
    let feature = |i: u64| NormalizedFeature {
        key: if i == 0 { 7 } else { gannet_core::mix(of * features + i) },
        center: of as f32 / 3.0,
        factor: 1.0 + i as f32 / 7.0,
        unit: (i % 3) as f32,
    };
    Normalization::new((0..features).map(feature).collect())
}

fn config(server: &Server, pusher: u64, incarnation: u64) -> WorkerConfig {
    let config = WorkerConfig::builder([server.addr()]).incarnation(incarnation).build();
    WorkerConfig { pusher, ..config }
}

#[test]
fn workers_that_decide_at_once_have_the_same() {
    for features in [0, 1, 10_000] {
        let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0")).unwrap();
        let (workers, barrier) = (6, Barrier::new(6));
        let decide = |of: u64| {
            let table = NormAtServers::new(Transports::new(), config(&server, 1 + of, 1 + of), "lr");
            barrier.wait();
            table.decide(&seen(of, features)).unwrap()
        };
        let all: Vec<Normalization> = std::thread::scope(|scope| {
            let started: Vec<_> = (0..workers).map(|of| scope.spawn(move || decide(of))).collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(all.iter().all(|one| *one == all[0]), "{features}: workers differ");
        assert!((0..workers).any(|of| all[0] == seen(of, features)), "{features}: the numbers of no worker");
        // A worker that comes later.
        let late = NormAtServers::new(Transports::new(), config(&server, 9, 90), "lr");
        assert_eq!(late.decided().unwrap().as_ref(), Some(&all[0]));
        assert_eq!(late.agree(seen(50, 3)).unwrap(), all[0]);
    }
}

#[test]
fn a_worker_that_dies_before_it_has_decided_leaves_nothing() {
    let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0")).unwrap();
    let table = NormAtServers::new(Transports::new(), config(&server, 1, 1), "fm");
    assert_eq!(table.decided().unwrap(), None);
    // Rows of a name that nothing chooses.
    table.write(&seen(1, 5_000)).unwrap();
    assert_eq!(table.decided().unwrap(), None);
    let next = NormAtServers::new(Transports::new(), config(&server, 2, 2), "fm");
    assert_eq!(next.decide(&seen(2, 100)).unwrap(), seen(2, 100));
    // The same worker, started again.
    let again = NormAtServers::new(Transports::new(), config(&server, 1, 3), "fm");
    assert_eq!(again.decide(&seen(1, 5_000)).unwrap(), seen(2, 100));
    let mut reader = Worker::connect(Transports::new(), WorkerConfig::reader([server.addr()])).unwrap();
    let open = reader.open_table(&gannet_train::norm_schema("fm")).unwrap();
    assert_eq!(reader.schema(open).name, norm_table("fm"));
    let mut rows = 0;
    let decided = normalization_of(&mut |page| {
        Ok(reader.scan(open, |keys, floats| {
            rows += keys.len();
            page(keys, floats);
        })?)
    });
    assert_eq!(decided.unwrap(), Some(seen(2, 100)));
    assert_eq!(rows, 2 * (5_000 + 100 + 1));
}

#[test]
fn a_folder_keeps_the_first_decision() {
    let folder = tempfile::tempdir().unwrap();
    let open = || NormInStore::new(&Store::open_dir(folder.path()).unwrap(), None, "lr");
    assert_eq!(open().decided().unwrap(), None);
    assert_eq!(open().agree(seen(1, 9_000)).unwrap(), seen(1, 9_000));
    assert_eq!(open().decided().unwrap(), Some(seen(1, 9_000)));
    assert_eq!(open().agree(seen(2, 10)).unwrap(), seen(1, 9_000));
}

//! A worker that trains a table alone, on servers: the rows get the same bits as rows that are learned in place.

use crate::model;

use gannet_core::Schema;
use gannet_optim::{AdaGrad, Ftrl, Rule, Sgd};
use gannet_server::{Server, ServerConfig};
use gannet_train::{Backend, Data, FlatTable, Options, PushContent, RemoteBackend, train};
use gannet_transport::tcp::Tcp;
use gannet_worker::{Worker, WorkerConfig};
use model::{examples, file, libsvm};
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

/// Trains two passes. Returns the bits of every row, and of the losses.
fn outcome<B: Backend>(backend: &mut B, path: &str, batch: usize) -> (HashMap<u64, Vec<u32>>, Vec<u64>) {
    let options = Options { batch, epochs: 2, ..Options::new(Data::new(path)) };
    let report = train(&options, backend, &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert_eq!(report.push, PushContent::Replay);
    let (floats, mut rows) = (backend.schema().floats(), HashMap::new());
    let mut page = |keys: &[u64], values: &[f32]| {
        let bits = values.chunks_exact(floats).map(|row| row.iter().map(|value| value.to_bits()).collect());
        rows.extend(keys.iter().copied().zip(bits));
    };
    backend.scan(&mut page).unwrap();
    let losses = [report.progressive.unwrap().loss(), report.last_loss.unwrap()];
    (rows, losses.map(f64::to_bits).to_vec())
}

#[test]
fn rows_on_servers_get_the_bits_of_rows_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "a.svm", libsvm(&examples(1_500, 5)).as_bytes());
    let start = || Server::start(Tcp::new(), ServerConfig { threads: 2, ..ServerConfig::new("127.0.0.1:0") });
    let servers = [start().unwrap(), start().unwrap()];
    let rules = [
        Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.3, l2: 0.5 }),
        Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-6, initial_accumulator: 0.1 }),
        Rule::Sgd(Sgd { lr: 0.05 }),
    ];
    for rule in rules {
        let want = outcome(&mut FlatTable::new(&Schema::scalar("lr", rule)).unwrap(), &path, 256);
        for batch in [1, 64, 4096] {
            let config = WorkerConfig::new(servers.iter().map(Server::addr), 1, 1);
            let worker = Worker::connect(Tcp::new(), config).unwrap();
            let schema = Schema::scalar(&format!("{}-{batch}", rule.name()), rule);
            let got = outcome(&mut RemoteBackend::open_alone(worker, &schema).unwrap(), &path, batch);
            assert!(got == want, "{} {batch}", rule.name());
        }
    }
}

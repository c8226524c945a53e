//! Replay damped by the pushes of other workers. One worker learns the same bits with damping, and many workers lose
//! little where plain sums of their pushes lose much.

use crate::model;

use gannet_core::Schema;
use gannet_optim::{Ftrl, Rule};
use gannet_server::{Server, ServerConfig};
use gannet_train::{Backend, Data, Options, RemoteBackend, Share, train};
use gannet_transport::tcp::Tcp;
use gannet_wire::{SyncConfig, SyncMode};
use gannet_worker::{Worker, WorkerConfig};
use model::{examples, file, libsvm};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn server() -> Server {
    Server::start(Tcp::new(), ServerConfig { threads: 1, ..ServerConfig::new("127.0.0.1:0") }).unwrap()
}

fn schema(alpha: f32) -> Schema {
    Schema::scalar("lr", Rule::Ftrl(Ftrl { alpha, beta: 1.0, l1: 0.0, l2: 0.5 }))
}

fn remote(server: &Server, rank: u32, damped: bool, alpha: f32) -> RemoteBackend<Tcp> {
    let config = WorkerConfig::new([server.addr()], u64::from(rank) + 1, 1);
    let worker = Worker::connect(Tcp::new(), config).unwrap();
    let open = if damped { RemoteBackend::open_damped } else { RemoteBackend::open };
    open(worker, &schema(alpha), 1).unwrap()
}

#[test]
fn one_worker_learns_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "train.svm", libsvm(&examples(8_000, 3)).as_bytes());
    let learned = |damped| {
        let server = server();
        let mut rows = remote(&server, 0, damped, 0.1);
        let options = Options { batch: 64, epochs: 2, ..Options::new(Data::new(&path)) };
        let report = train(&options, &mut rows, &AtomicBool::new(false), &mut |_| {}).unwrap();
        let mut all = Vec::new();
        let mut page = |keys: &[u64], rows: &[f32]| {
            all.extend(
                keys.iter().copied().zip(rows.chunks(2).map(|row| [row[0].to_bits(), row[1].to_bits()])),
            );
        };
        rows.scan(&mut page).unwrap();
        all.sort_unstable();
        (all, report.progressive.unwrap().loss().to_bits(), report.rows)
    };
    let (damped, plain) = (learned(true), learned(false));
    assert!(plain.0.len() > 1_000);
    assert!(damped == plain);
}

/// Test loss with so many workers, none more than two batches ahead of another.
fn loss(folder: &tempfile::TempDir, workers: u32, damped: bool) -> f64 {
    let path = file(folder, "train.svm", libsvm(&examples(24_000, 5)).as_bytes());
    let test = file(folder, "test.svm", libsvm(&examples(4_000, 6)).as_bytes());
    let server = server();
    std::thread::scope(|scope| {
        for rank in 0..workers {
            let (server, path) = (&server, &path);
            scope.spawn(move || {
                let mut rows = remote(server, rank, damped, 1.0);
                let (mode, worker_timeout) = (SyncMode::Ssp(2), Duration::from_secs(60));
                rows.join(SyncConfig { rank, workers, mode, worker_timeout, strict: false }).unwrap();
                let share = Share { worker: rank, workers };
                let options = Options { batch: 250, epochs: 2, share, ..Options::new(Data::new(path)) };
                train(&options, &mut rows, &AtomicBool::new(false), &mut |_| {}).unwrap();
                rows.leave().unwrap();
            });
        }
    });
    let mut rows = remote(&server, workers, damped, 1.0);
    gannet_train::evaluate(&Data::new(&test), &mut rows).unwrap().unwrap().log_loss
}

#[test]
fn many_workers_lose_little() {
    let folder = tempfile::tempdir().unwrap();
    let (one, damped, plain) = (loss(&folder, 1, true), loss(&folder, 8, true), loss(&folder, 8, false));
    println!("one worker {one:.4}, 8 damped {damped:.4}, 8 not {plain:.4}");
    assert!(damped < one * 1.1, "one worker {one}, 8 damped {damped}");
    assert!(plain > one * 1.3, "one worker {one}, 8 not damped {plain}");
}

//! A worker saves a table into a folder while somebody else saves there.

use gannet_core::{Checkpoint, Schema, Write, own_files};
use gannet_optim::{Add, Rule};
use gannet_server::{Server, ServerConfig};
use gannet_transport::multi::Transports;
use gannet_worker::{Worker, WorkerConfig, WorkerError};
use std::fs::File;

/// Of 300 pairs, 239 had one that failed with "File exists".
#[test]
fn two_saves_into_one_folder_at_once_met_each_others_files() {
    let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0")).unwrap();
    let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
    let mut worker = Worker::connect(Transports::new(), config).unwrap();
    let table = worker.open_table(&Schema::scalar("t", Rule::Add(Add))).unwrap();
    worker.push(table, &[7, 8], Write::Gradient, &[1.0, 2.0]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let other = File::open(folder.path()).unwrap();
    assert!(own_files::lock_exclusive(&other).unwrap());
    let refused = worker.save(table, folder.path()).unwrap_err();
    assert!(matches!(refused, WorkerError::Call(_)), "{refused}");
    let name = folder.path().display().to_string();
    assert!(refused.to_string().contains(&name) && refused.to_string().contains("wait until it has ended"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was written");
    drop(other);
    assert_eq!(worker.save(table, folder.path()).unwrap(), 2);
    assert_eq!(Checkpoint::open(folder.path()).unwrap().rows(), 2);
}

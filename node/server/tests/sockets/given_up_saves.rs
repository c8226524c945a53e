//! Saves that are given up while a server still writes: nothing that it writes late gets into another checkpoint.

use gannet_core::{CheckpointDir, CheckpointStore, JobManifest, Schema, Write};
use gannet_memory_store::{Fault, MemoryStore, StoreCall};
use gannet_optim::{Add, Rule};
use gannet_server::{Server, ServerConfig};
use gannet_transport::multi::Transports;
use gannet_worker::{CheckpointOptions, Worker, WorkerConfig, WorkerError, save_checkpoint};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SLOW: Duration = Duration::from_millis(1500);
const RUN: &str = "monday";

/// Two servers with a thread each, a table on them, and a store of checkpoints whose calls fail when a test wants it.
struct Job {
    store: MemoryStore,
    directory: CheckpointDir,
    _servers: Vec<Server>,
    config: WorkerConfig,
}

impl Job {
    fn start() -> Job {
        let store = MemoryStore::default();
        let directory = CheckpointDir::with_store("memory", Arc::new(store.clone()));
        let server = || {
            let checkpoints = Some(directory.clone());
            let config = ServerConfig { threads: 1, checkpoints, ..ServerConfig::new("127.0.0.1:0") };
            Server::start(Transports::new(), config).unwrap()
        };
        let servers = vec![server(), server()];
        let config = WorkerConfig::new(servers.iter().map(|server| server.addr().to_owned()), 1, 1);
        let mut worker = Worker::connect(Transports::new(), config.clone()).unwrap();
        let schema = Schema { shards: 8, ..Schema::scalar(&format!("{RUN}.clicks"), Rule::Add(Add)) };
        let table = worker.open_table(&schema).unwrap();
        let keys: Vec<u64> = (0..4000).collect();
        worker.push(table, &keys, Write::Gradient, &[1.0; 4000]).unwrap();
        Job { store, directory, _servers: servers, config }
    }

    fn save(&self, run: &str) -> Result<JobManifest, WorkerError> {
        let options = CheckpointOptions { run: run.into(), ..CheckpointOptions::default() };
        let saved = save_checkpoint(Transports::new(), &self.config, &self.directory, &options);
        saved.map(|saved| saved.manifest)
    }

    fn files(&self, number: u64) -> Vec<String> {
        let files = self.store.files(&format!("{number:010}")).unwrap();
        files.into_iter().map(|file| file.name).collect()
    }
}

/// The end of the first file is slow, and that of another one fails.
fn one_slow_and_one_that_fails() -> impl FnMut(&StoreCall) -> Option<Fault> + Send + 'static {
    let mut slow: Option<String> = None;
    move |call| {
        if call.method != "finish" || call.place.0 != "0000000001" {
            return None;
        }
        // The shards 0 to 3 are those of one server.
        let of_first = |name: &str| name < "t00-0004.rows";
        match &slow {
            None => {
                slow = Some(call.place.1.clone());
                Some(Fault::Slow(SLOW))
            }
            Some(slow) if of_first(slow) != of_first(&call.place.1) => Some(Fault::Fails),
            Some(_) => None,
        }
    }
}

#[test]
fn the_number_of_a_save_that_was_given_up_was_used_again_while_a_server_still_wrote() {
    let job = Job::start();
    job.store.set_faults(one_slow_and_one_that_fails());
    let begun = Instant::now();
    let error = job.save(RUN).unwrap_err().to_string();
    assert!(error.contains("could not write its part") && begun.elapsed() < SLOW, "{error}");
    job.store.clear_faults();
    assert_eq!(job.files(1), [] as [String; 0]);
    let saved = job.save(RUN).unwrap();
    assert!(begun.elapsed() < SLOW, "the first writer was over too soon for this test");
    assert_eq!((saved.number, saved.rows()), (2, 4000));
    // The late file comes, and the writer does not begin another one.
    while job.files(1).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the slow file is not there");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(job.files(1).len(), 1, "the writer went on: {:?}", job.files(1));
    job.directory.verify(2).unwrap();
    let pruned = job.directory.prune_run(&saved, 3).unwrap();
    assert_eq!((pruned.removed, pruned.kept), (vec![1], vec![2]));
}

#[test]
fn a_save_that_no_server_has_heard_of_leaves_nothing() {
    let job = Job::start();
    let error = job.save("tuesday").unwrap_err().to_string();
    assert!(error.contains("no table of run \"tuesday\" is open"), "{error}");
    assert!(job.directory.list().unwrap().is_empty());
}

#[test]
fn a_save_took_a_directory_with_checkpoints_of_another_run() {
    let job = Job::start();
    let draft = job.directory.begin().unwrap();
    draft.publish(&JobManifest::new(1, "sunday")).unwrap();
    let error = job.save(RUN).unwrap_err().to_string();
    assert!(
        error.contains("of the run \"sunday\"") && error.contains("not of the run \"monday\""),
        "{error}"
    );
    assert!(error.contains("memory/0000000001") && error.contains("--checkpoint"), "{error}");
    let listed: Vec<u64> = job.directory.list().unwrap().iter().map(|listed| listed.number).collect();
    assert_eq!(listed, [1], "it is as it was");
}

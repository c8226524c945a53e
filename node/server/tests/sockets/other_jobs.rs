//! Whose checkpoints a directory has: a second job is refused, a job that was restored is not, and a saver whose run
//! was undone publishes nothing.

use gannet_core::{CheckpointDir, JobManifest, Schema, Write};
use gannet_memory_store::MemoryStore;
use gannet_optim::{Add, Rule};
use gannet_server::{RestoreSource, Server, ServerConfig};
use gannet_transport::multi::Transports;
use gannet_wire::RunIntent;
use gannet_worker::{
    CheckpointOptions, RunClient, RunRequest, Worker, WorkerConfig, WorkerError, save_checkpoint,
};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

/// A directory in memory, and its store.
fn directory() -> (CheckpointDir, MemoryStore) {
    let store = MemoryStore::default();
    (CheckpointDir::with_store("memory", Arc::new(store.clone())), store)
}

/// A server that saves in a directory.
fn server(directory: &CheckpointDir, addr: &str, restored: Option<u64>) -> Server {
    let restore =
        restored.map(|number| RestoreSource { number: Some(number), ..RestoreSource::new(directory, 0, 1) });
    let checkpoints = Some(directory.clone());
    let config = ServerConfig { threads: 2, checkpoints, restore, ..ServerConfig::new(addr) };
    Server::start(Transports::new(), config).unwrap()
}

fn config(server: &Server) -> WorkerConfig {
    let config = WorkerConfig::builder([server.addr()]).worker(1).incarnation(1 << 40);
    config.peer_timeout(Duration::from_secs(20)).build()
}

/// Opens a table and pushes a row.
fn train(server: &Server, table: &str) {
    let mut worker = Worker::connect(Transports::new(), config(server)).unwrap();
    let schema = Schema { shards: 8, ..Schema::scalar(table, Rule::Add(Add)) };
    let table = worker.open_table(&schema).unwrap();
    worker.push(table, &[7, 8], Write::Gradient, &[1.0, 2.0]).unwrap();
}

fn save(
    server: &Server,
    directory: &CheckpointDir,
    options: CheckpointOptions,
) -> Result<JobManifest, WorkerError> {
    let saved = save_checkpoint(Transports::new(), &config(server), directory, &options);
    saved.map(|saved| saved.manifest)
}

fn of_run(run: &str) -> CheckpointOptions {
    CheckpointOptions { run: run.into(), ..CheckpointOptions::default() }
}

fn numbers(directory: &CheckpointDir) -> Vec<u64> {
    directory.list().unwrap().iter().map(|listed| listed.number).collect()
}

#[test]
fn two_jobs_without_a_run_saved_into_one_folder_without_a_word() {
    for (run, tables) in [("", ["clicks", "clicks"]), ("", ["clicks", "views"]), ("monday", ["monday.t"; 2])]
    {
        let (directory, _) = directory();
        let servers = tables.map(|table| {
            let server = server(&directory, "127.0.0.1:0", None);
            train(&server, table);
            server
        });
        let first = save(&servers[0], &directory, of_run(run)).unwrap();
        let error = save(&servers[1], &directory, of_run(run)).unwrap_err();
        assert!(matches!(error, WorkerError::CheckpointDir(_)), "{error}");
        let (error, saved) = (error.to_string(), &first.tables[0]);
        let said = [
            "memory/0000000001: this checkpoint is of another job",
            &format!("it has table {:?} with the id {}", saved.schema.name, saved.uid),
            &format!("the servers have table {:?} with the id ", tables[1]),
            "--checkpoint",
            "--restore",
        ];
        assert!(said.iter().all(|said| error.contains(said)), "{error}");
        assert_eq!(directory.newest_manifest().unwrap(), Some(first));
        if run.is_empty() {
            assert_eq!(numbers(&directory), [1], "it is as it was");
        }
        let again = save(&servers[0], &directory, of_run(run)).unwrap();
        assert_eq!(again.tables[0].uid, saved_uid(&directory, 1));
    }
}

/// Both found a fresh folder. From then on each went on beside its own checkpoints.
#[test]
fn two_jobs_that_saved_at_the_same_moment_shared_a_folder_for_ever() {
    for run in ["", "monday"] {
        let table = if run.is_empty() { "clicks" } else { "monday.t" };
        for _ in 0..15 {
            let (directory, _) = directory();
            let servers = [(); 2].map(|()| {
                let server = server(&directory, "127.0.0.1:0", None);
                train(&server, table);
                server
            });
            let together = Barrier::new(2);
            let saved = std::thread::scope(|scope| {
                let save = |server| {
                    together.wait();
                    save(server, &directory, of_run(run)).is_ok()
                };
                let saves = servers.each_ref().map(|server| scope.spawn(move || save(server)));
                saves.map(|save| save.join().unwrap())
            });
            assert!(saved != [true; 2], "{run:?}: each has a checkpoint there");
            let later = servers.each_ref().map(|server| save(server, &directory, of_run(run)).is_ok());
            assert!(later != [true; 2], "{run:?}: {saved:?}, and then each goes on");
        }
    }
}

fn saved_uid(directory: &CheckpointDir, number: u64) -> gannet_core::TableUid {
    directory.chain(number).unwrap()[0].tables[0].uid
}

/// Its tables have other ids than in the checkpoint, which follow from it.
#[test]
fn a_job_that_was_restored_saves_beside_what_it_was_restored_from() {
    let (directory, _) = directory();
    let first = server(&directory, "127.0.0.1:0", None);
    train(&first, "clicks");
    for _ in 0..2 {
        save(&first, &directory, of_run("")).unwrap();
    }
    drop(first);
    // From the newest one, from an older one, and from one of a job that was restored.
    for number in [2, 1, 4] {
        let restored = server(&directory, "127.0.0.1:0", Some(number));
        train(&restored, "clicks");
        save(&restored, &directory, of_run("")).unwrap();
    }
    assert_eq!(numbers(&directory), [1, 2, 3, 4, 5]);
    let restored = server(&directory, "127.0.0.1:0", Some(5));
    train(&restored, "clicks");
    train(&restored, "more");
    save(&restored, &directory, of_run("")).unwrap();
    // One of two tables is made anew.
    let mut worker = Worker::connect(Transports::new(), config(&restored)).unwrap();
    worker.drop_table("clicks").unwrap();
    drop(worker);
    train(&restored, "clicks");
    save(&restored, &directory, of_run("")).unwrap();
    assert_eq!(numbers(&directory), [1, 2, 3, 4, 5, 6, 7]);
}

/// Begins a run as its worker 0.
fn join(server: &Server, name: &str) -> RunClient<Transports> {
    let (settings, tables) = (Vec::new(), vec!["t".to_owned()]);
    let (want, notes, name) = (RunIntent::Auto, String::new(), name.to_owned());
    let (at, worker_timeout) = (1_800_000_000, Duration::from_secs(60));
    let request = RunRequest { name, want, settings, tables, at, notes, worker_timeout };
    RunClient::join(Transports::new(), &config(server), 0, request).unwrap()
}

/// All servers had been lost, and the run was begun anew. The new worker 0 was then refused for ever, because the
/// newest checkpoint was of another birth.
#[test]
fn a_worker_of_an_undone_run_published_a_checkpoint_and_locked_the_new_run_out() {
    let (directory, _) = directory();
    let server = server(&directory, "127.0.0.1:0", None);
    let run = join(&server, "monday");
    train(&server, "monday.t");
    let birth = run.id().birth;
    let own = |birth| CheckpointOptions { birth, sole: true, ..of_run("monday") };
    let error = save(&server, &directory, own(birth ^ 1)).unwrap_err().to_string();
    let says = [format!("birth {birth:016x}"), format!("birth {:016x}", birth ^ 1), "start it again".into()];
    assert!(says.iter().all(|said| error.contains(said)), "{error}");
    assert_eq!(directory.newest_manifest().unwrap(), None);
    let saved = save(&server, &directory, own(birth)).unwrap();
    assert_eq!(saved.run_birth(), Some(format!("{birth:016x}").as_str()));
    // One that does not know the birth takes the servers' word for it.
    let saved = save(&server, &directory, of_run("monday")).unwrap();
    assert_eq!(saved.run_birth(), Some(format!("{birth:016x}").as_str()));
    drop(run);
}

#[test]
fn a_save_without_a_birth_took_over_that_of_another_job() {
    let (directory, _) = directory();
    let servers = [0, 1].map(|_| server(&directory, "127.0.0.1:0", None));
    let runs = servers.each_ref().map(|server| join(server, "monday"));
    servers.iter().for_each(|server| train(server, "monday.t"));
    let saved = save(&servers[0], &directory, of_run("monday")).unwrap();
    assert_eq!(saved.run_birth(), Some(format!("{:016x}", runs[0].id().birth).as_str()));
    let error = save(&servers[1], &directory, of_run("monday")).unwrap_err().to_string();
    assert!(error.contains("of another job") && error.contains("\"monday\""), "{error}");
    assert_eq!(directory.newest_manifest().unwrap(), Some(saved));
}

/// The rows of a checkpoint are written, and its servers die before it is published. By then the job may have gone
/// back.
#[test]
fn a_checkpoint_was_published_when_its_servers_were_gone() {
    let (directory, store) = directory();
    let first = server(&directory, "127.0.0.1:0", None);
    let (run, addr) = (join(&first, "monday"), first.addr().to_owned());
    train(&first, "monday.t");
    let (at, birth) = (config(&first), run.id().birth);
    drop(run);
    let servers = Arc::new(Mutex::new(vec![first]));
    let (of_hook, beside) = (servers.clone(), directory.clone());
    store.set_faults(move |call| {
        // The coordinator writes the states last, when the servers have written their files.
        if call.method == "finish" && call.place.1 == "incarnations.state" {
            let mut servers = of_hook.lock().unwrap();
            drop(servers.pop());
            servers.push(server(&beside, &addr, None));
        }
        None
    });
    let options = CheckpointOptions { birth, sole: true, tries: 1, ..of_run("monday") };
    let error = save_checkpoint(Transports::new(), &at, &directory, &options).unwrap_err();
    store.clear_faults();
    assert!(error.to_string().contains("has no cut"), "{error}");
    assert_eq!(directory.newest_manifest().unwrap(), None);
    // The run is begun anew, and its worker 0 saves.
    let servers = servers.lock().unwrap();
    let run = join(&servers[0], "monday");
    train(&servers[0], "monday.t");
    let options = CheckpointOptions { birth: run.id().birth, sole: true, ..of_run("monday") };
    assert_eq!(save(&servers[0], &directory, options).unwrap().rows(), 2);
}

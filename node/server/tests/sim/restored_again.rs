//! Servers that restore the same checkpoint a second time, beside servers that went on from it.

use crate::saved::Saver;
use gannet_core::{CheckpointDir, PushName, Read, Schema, Store, Write, hash, shard_of};
use gannet_optim::{Add, Rule};
use gannet_server::{LocalServer, RestoreSource, ServerConfig, open_whole};
use gannet_sim::{Faults, Sim};
use gannet_worker::{TableId, Worker, WorkerConfig, WorkerError};
use std::path::Path;

const KEYS: u64 = 400;

fn schema() -> Schema {
    Schema { shards: 8, ..Schema::scalar("clicks", Rule::Add(Add)) }
}

/// A checkpoint of a table in which each key has the value 1.
fn save(folder: &Path) {
    let mut table = open_whole(&Store::memory(), &schema()).unwrap();
    let mut keys: Vec<u64> = (0..KEYS).collect();
    keys.sort_by_key(|&key| shard_of(hash(key), 8));
    let name = PushName { pusher: 9, incarnation: 1, seq: 1, row: 0 };
    table.push(&name, Write::Gradient, &keys, None, &[1.0; KEYS as usize]).unwrap();
    Saver::new(folder).save(&mut [&mut table], true);
}

/// Two servers of a job that restore the newest checkpoint when they start, and go on from a data folder if they have
/// one.
struct Servers {
    sim: Sim,
    checkpoints: CheckpointDir,
    stores: [Store; 2],
    actors: [u64; 2],
    addrs: [String; 2],
    incarnation: u64,
}

impl Servers {
    fn start(checkpoints: &Path, stores: [Store; 2]) -> Servers {
        let (sim, checkpoints) = (Sim::new(1, Faults::none()), CheckpointDir::open(checkpoints).unwrap());
        let addrs = [0, 1].map(|_| "sim:0".to_owned());
        let mut servers = Servers { sim, checkpoints, stores, actors: [0; 2], addrs, incarnation: 50 };
        (0..2).for_each(|server| servers.begin(server));
        servers
    }

    fn begin(&mut self, server: usize) {
        let restore = Some(RestoreSource::new(&self.checkpoints, server as u32, 2));
        let store = self.stores[server].clone();
        let config = ServerConfig { threads: 2, restore, store, ..ServerConfig::new(&self.addrs[server]) };
        let mut started = LocalServer::new(self.sim.clone(), config).unwrap();
        started.addr().clone_into(&mut self.addrs[server]);
        self.actors[server] = self.sim.add_actor(move || started.run().unwrap());
    }

    /// Kills a server and starts it again.
    fn again(&mut self, server: usize) {
        self.sim.remove_actor(self.actors[server]);
        self.sim.reset_all(&self.addrs[server]);
        self.begin(server);
    }

    fn worker(&mut self) -> Worker<Sim> {
        self.incarnation += 1;
        let config = WorkerConfig::new(self.addrs.clone(), self.incarnation, self.incarnation);
        Worker::connect(self.sim.clone(), config).unwrap()
    }

    /// A new worker pushes to all rows. Returns their value afterwards, which is the same for all.
    fn push(&mut self) -> Result<f32, WorkerError> {
        let mut worker = self.worker();
        let table = worker.open_table(&schema())?;
        push(&mut worker, table)
    }

    fn gone(&mut self) -> String {
        match self.push() {
            Err(WorkerError::Gone(why)) => why,
            other => panic!("the rows are not known to be lost: {other:?}"),
        }
    }
}

fn push(worker: &mut Worker<Sim>, table: TableId) -> Result<f32, WorkerError> {
    let keys: Vec<u64> = (0..KEYS).collect();
    worker.push(table, &keys, Write::Gradient, &[1.0; KEYS as usize])?;
    let mut values = vec![0.0; KEYS as usize];
    worker.pull(table, &keys, Read::Weights, &mut values)?;
    assert!(values.iter().all(|value| *value == values[0]), "rows of different times: {values:?}");
    Ok(values[0])
}

#[test]
fn a_second_restore_of_one_checkpoint_beside_a_server_that_went_on_was_not_noticed() {
    let folder = crate::folder_in_memory();
    save(folder.path());
    let mut servers = Servers::start(folder.path(), [Store::memory(), Store::memory()]);
    let mut living = servers.worker();
    let table = living.open_table(&schema()).unwrap();
    assert_eq!(push(&mut living, table).unwrap(), 2.0);
    assert_eq!(servers.push().unwrap(), 3.0);
    servers.again(1);
    let forgot = push(&mut living, table).unwrap_err();
    assert!(matches!(forgot, WorkerError::Forgot { .. }), "{forgot}");
    for _ in 0..2 {
        let gone = servers.gone();
        let (went_on, lost) = (servers.addrs[0].clone(), servers.addrs[1].clone());
        assert!(
            gone.contains(&format!("the rows of shards 4 to 7 are gone: {lost} made them anew")),
            "{gone}"
        );
        assert!(
            gone.contains(&format!("{went_on} went on")) && gone.contains("all processes of the job"),
            "{gone}"
        );
    }
    // What helps: all servers restore the checkpoint.
    servers.again(0);
    assert_eq!(servers.push().unwrap(), 2.0);
    (0..2).for_each(|server| servers.again(server));
    assert_eq!(servers.push().unwrap(), 2.0);
}

#[test]
fn nor_was_one_beside_a_data_folder_that_was_kept() {
    let (checkpoints, kept) = (crate::folder_in_memory(), crate::folder_in_memory());
    save(checkpoints.path());
    let stores = [Store::open_dir(kept.path()).unwrap(), Store::memory()];
    let mut servers = Servers::start(checkpoints.path(), stores);
    assert_eq!(servers.push().unwrap(), 2.0);
    // The whole job is started again. One server goes on from its folder, and the other has lost its own.
    (0..2).for_each(|server| servers.again(server));
    let gone = servers.gone();
    assert!(gone.contains(&servers.addrs[1]), "{gone}");
}

#[test]
fn servers_that_go_on_from_their_folders_are_taken_for_what_they_have() {
    let (checkpoints, folders) = (crate::folder_in_memory(), [0, 1].map(|_| crate::folder_in_memory()));
    save(checkpoints.path());
    let stores = folders.each_ref().map(|folder| Store::open_dir(folder.path()).unwrap());
    let mut servers = Servers::start(checkpoints.path(), stores);
    for value in 2..6_u8 {
        assert_eq!(servers.push().unwrap(), f32::from(value));
        servers.again(usize::from(value % 2));
    }
}

//! A server over real sockets dies, and its backup takes its place.

use crate::model::{Model, random_keys, random_values, schema, unique_keys};
use crate::ports::free_addr;
use gannet_core::{Read, Schema, Store, Write};
use gannet_jobs::MemoryCoordinator;
use gannet_optim::{Add, Rule};
use gannet_server::limits::RUN_KEPT;
use gannet_server::{MembershipConfig, OnServerLoss, Server, ServerConfig};
use gannet_transport::Prng;
use gannet_transport::multi::Transports;
use gannet_wire::{Coordinator, CoordinatorEntry, CoordinatorError, CoordinatorPage, CoordinatorWrite};
use gannet_worker::{Places, Worker, WorkerConfig};
use std::sync::{Arc, Mutex};
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

#[test]
fn a_backup_takes_the_place_of_a_server_with_thousands_of_tables() {
    const TABLES: u64 = 2000;
    let backup = server(2, Vec::new());
    let primary = server(2, vec![backup.addr().to_owned()]);
    let addr = primary.addr().to_owned();
    let mut worker = connect(&addr, 3);
    let mut tables = Vec::new();
    for number in 0..TABLES {
        let schema = Schema::scalar(&format!("embedding-{number}"), Rule::Add(Add));
        tables.push(worker.open_table(&schema).unwrap());
        worker.push(tables[number as usize], &[number, 1 << 40], Write::Gradient, &[1.0, 2.0]).unwrap();
    }
    let until = Instant::now() + Duration::from_secs(60);
    while primary.joined_backups() == 0 {
        assert!(Instant::now() < until, "the backup is not filled");
        std::thread::sleep(Duration::from_millis(20));
    }
    for (number, &table) in (0..).zip(&tables) {
        worker.push(table, &[number], Write::Gradient, &[4.0]).unwrap();
    }
    let mut promoter = connect(backup.addr(), 9);
    drop(primary);
    promoter.promote_backup(0, 1, 2).unwrap();
    worker.replace_server(&addr, backup.addr());
    for (number, &table) in (0..).zip(&tables) {
        let mut rows = [0.0; 2];
        worker.pull(table, &[number, 1 << 40], Read::Weights, &mut rows).unwrap();
        assert_eq!(rows, [5.0, 2.0], "table {number}");
    }
}

/// A member of place 0 of a job with one server.
fn member(coordinator: &Arc<MemoryCoordinator>, addrs: &[String], at: usize) -> Server {
    member_of(coordinator.clone(), addrs, at)
}

fn member_of(coordinator: Arc<dyn Coordinator>, addrs: &[String], at: usize) -> Server {
    let membership = MembershipConfig {
        coordinator,
        job: "job".into(),
        place: (0, 1),
        servers: vec![addrs[0].clone()],
        addr: addrs[at].clone(),
        is_backup: at > 0,
        backups: addrs.len() - 1,
        lease: Duration::from_secs(2),
        kept: RUN_KEPT,
        on_server_loss: OnServerLoss::Stop,
    };
    let config = ServerConfig {
        threads: 1 + at,
        store: Store::memory(),
        backups: addrs.iter().filter(|addr| **addr != addrs[at]).cloned().collect(),
        membership: Some(membership),
        ..ServerConfig::new(&addrs[at])
    };
    Server::start(Transports::new(), config).unwrap()
}

/// The owner of the place, and its backups that have everything that was acknowledged.
fn owner(coordinator: &MemoryCoordinator) -> Option<(String, Vec<String>)> {
    let place = gannet_server::place_status(coordinator, "job", 0).unwrap();
    place.filter(|place| place.has_lease && place.ready).map(|place| (place.owner, place.backups))
}

/// Waits until the place has an owner with so many backups.
fn wait_for_backups(coordinator: &MemoryCoordinator, count: usize) -> String {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match owner(coordinator) {
            Some((owner, backups)) if backups.len() == count => return owner,
            known => assert!(Instant::now() < until, "no owner with {count} backups: {known:?}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A coordinator that can show the registry of servers as it was.
struct Frozen {
    of: Arc<MemoryCoordinator>,
    registry: Mutex<Option<CoordinatorPage>>,
}

impl Coordinator for Frozen {
    fn get(&self, key: &str) -> Result<Option<CoordinatorEntry>, CoordinatorError> {
        self.of.get(key)
    }

    fn compare_and_set_all(&self, writes: &[CoordinatorWrite]) -> Result<Option<u64>, CoordinatorError> {
        self.of.compare_and_set_all(writes)
    }

    fn remove_all(&self, keys: &[(String, u64)]) -> Result<bool, CoordinatorError> {
        self.of.remove_all(keys)
    }

    fn grant(&self, ttl: Duration) -> Result<u64, CoordinatorError> {
        self.of.grant(ttl)
    }

    fn keep_alive(&self, lease: u64) -> Result<bool, CoordinatorError> {
        self.of.keep_alive(lease)
    }

    fn list(&self, prefix: &str, after: &str) -> Result<CoordinatorPage, CoordinatorError> {
        match &*self.registry.lock().unwrap() {
            Some(page) if prefix == "job/server/" => Ok(page.clone()),
            _ => self.of.list(prefix, after),
        }
    }

    fn watch(&self, prefix: &str, since: u64, limit: Duration) -> Result<Option<u64>, CoordinatorError> {
        self.of.watch(prefix, since, limit)
    }
}

#[test]
fn a_foreign_server_at_the_address_of_a_backup_is_not_counted_as_one() {
    let start = Instant::now();
    let coordinator = Arc::new(MemoryCoordinator::new(Arc::new(move || start.elapsed())));
    let addrs: Vec<String> = (0..2).map(|_| free_addr()).collect();
    let frozen = Arc::new(Frozen { of: coordinator.clone(), registry: Mutex::default() });
    let _owner = member_of(frozen.clone(), &addrs, 0);
    let backup = member(&coordinator, &addrs, 1);
    assert_eq!(wait_for_backups(&coordinator, 1), addrs[0]);
    // Before the lease of the backup ends, a server of another job gets its address.
    *frozen.registry.lock().unwrap() = Some(coordinator.list("job/server/", "").unwrap());
    drop(backup);
    let foreign = Server::start(Transports::new(), ServerConfig::new(&addrs[1])).unwrap();
    wait_for_backups(&coordinator, 0);
    // The owner greets it several times and sends it nothing.
    let until = Instant::now() + Duration::from_secs(60);
    while foreign.served().sessions_begun < 4 {
        assert!(Instant::now() < until, "the owner does not come");
        assert_eq!(owner(&coordinator).unwrap().1, Vec::<String>::new());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(owner(&coordinator).unwrap().1, Vec::<String>::new());
}

#[test]
fn a_worker_goes_on_without_being_told_when_servers_die_one_after_another() {
    let start = Instant::now();
    let coordinator = Arc::new(MemoryCoordinator::new(Arc::new(move || start.elapsed())));
    let addrs: Vec<String> = (0..3).map(|_| free_addr()).collect();
    let mut members: Vec<Option<Server>> =
        (0..addrs.len()).map(|at| Some(member(&coordinator, &addrs, at))).collect();
    let places = Places { coordinator: coordinator.clone(), job: "job".into() };
    let config = WorkerConfig { places: Some(places), ..WorkerConfig::new([addrs[0].clone()], 3, 1) };
    wait_for_backups(&coordinator, 2);
    let mut worker = Worker::connect(Transports::new(), config).unwrap();
    let mut model = Model::new(schema("t", 3, 16));
    let table = worker.open_table(&model.schema).unwrap();
    let mut prng = Prng::new(7);
    for backups in [2, 1, 0] {
        let owner = wait_for_backups(&coordinator, backups);
        for round in 0..60 {
            let keys = unique_keys(&mut prng, 2_000, 20_000);
            let cut = Arc::new(worker.cut(table, &keys));
            let values = random_values(&mut prng, cut.keys().len() * 3);
            model.push(cut.keys(), &values);
            let seq = worker.next_seq(table);
            worker.begin_push(table, cut, Write::Gradient, values, None, seq).unwrap();
            if round == 30 && backups > 0 {
                // Pushes are under way.
                members[addrs.iter().position(|addr| *addr == owner).unwrap()] = None;
            }
        }
        worker.drain().unwrap();
        let keys = random_keys(&mut Prng::new(6), 20_000, 20_000);
        let mut out = vec![0.0; keys.len() * 3];
        worker.pull(table, &keys, Read::Weights, &mut out).unwrap();
        assert!(out == model.pull(&keys), "{backups} backups");
    }
    assert_eq!(members.iter().flatten().count(), 1);
}

#[test]
fn a_server_of_another_job_got_the_address_of_a_dead_one_and_ended_its_workers() {
    let start = Instant::now();
    let coordinator = Arc::new(MemoryCoordinator::new(Arc::new(move || start.elapsed())));
    let addrs: Vec<String> = (0..2).map(|_| free_addr()).collect();
    let mut members: Vec<Option<Server>> =
        (0..addrs.len()).map(|at| Some(member(&coordinator, &addrs, at))).collect();
    let places = Places { coordinator: coordinator.clone(), job: "job".into() };
    let config = WorkerConfig { places: Some(places), ..WorkerConfig::new([addrs[0].clone()], 3, 1) };
    assert_eq!(wait_for_backups(&coordinator, 1), addrs[0]);
    let mut worker = Worker::connect(Transports::new(), config).unwrap();
    let table = worker.open_table(&schema("t", 3, 16)).unwrap();
    worker.push(table, &[1, 2], Write::Gradient, &[1.0; 6]).unwrap();
    members[0] = None;
    // It has a table of the same name, with another id.
    let other = Server::start(Transports::new(), ServerConfig::new(&addrs[0])).unwrap();
    let mut others = connect(other.addr(), 3);
    let their_table = others.open_table(&schema("t", 3, 16)).unwrap();
    worker.push(table, &[1, 2], Write::Gradient, &[1.0; 6]).unwrap();
    let mut rows = [0.0; 6];
    worker.pull(table, &[1, 2], Read::Weights, &mut rows).unwrap();
    assert_eq!(owner(&coordinator).unwrap().0, addrs[1]);
    let mut model = Model::new(schema("t", 3, 16));
    (0..2).for_each(|_| model.push(&[1, 2], &[1.0; 6]));
    assert!(rows[..] == model.pull(&[1, 2])[..]);
    others.pull(their_table, &[1, 2], Read::Weights, &mut rows).unwrap();
    assert!(rows[..] == Model::new(schema("t", 3, 16)).pull(&[1, 2])[..], "the other job got no push");
}

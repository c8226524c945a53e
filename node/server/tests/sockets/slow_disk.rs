//! A scheduler whose disk is slow hears nobody while it writes what its coordinator knows.

use gannet_jobs::MemoryCoordinator;
use gannet_server::{Server, ServerConfig};
use gannet_transport::multi::Transports;
use gannet_wire::{Coordinator, CoordinatorEntry, CoordinatorError, CoordinatorPage, CoordinatorWrite};
use gannet_worker::RemoteCoordinator;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(2);

/// A coordinator whose writes take three times a lease, by its clock.
struct SlowDisk {
    of: MemoryCoordinator,
    secs: Arc<AtomicU64>,
}

impl SlowDisk {
    fn write<T>(&self, done: T) -> T {
        self.secs.fetch_add(3 * LEASE.as_secs(), Relaxed);
        done
    }
}

impl Coordinator for SlowDisk {
    fn get(&self, key: &str) -> Result<Option<CoordinatorEntry>, CoordinatorError> {
        self.of.get(key)
    }

    fn compare_and_set_all(&self, writes: &[CoordinatorWrite]) -> Result<Option<u64>, CoordinatorError> {
        self.write(self.of.compare_and_set_all(writes))
    }

    fn remove_all(&self, keys: &[(String, u64)]) -> Result<bool, CoordinatorError> {
        self.write(self.of.remove_all(keys))
    }

    fn grant(&self, ttl: Duration) -> Result<u64, CoordinatorError> {
        self.of.grant(ttl)
    }

    fn keep_alive(&self, lease: u64) -> Result<bool, CoordinatorError> {
        self.of.keep_alive(lease)
    }

    fn list(&self, prefix: &str, after: &str) -> Result<CoordinatorPage, CoordinatorError> {
        self.of.list(prefix, after)
    }

    fn watch(&self, prefix: &str, since: u64, limit: Duration) -> Result<Option<u64>, CoordinatorError> {
        self.of.watch(prefix, since, limit)
    }

    fn begin_wait(&self, limit: Duration) {
        self.of.begin_wait(limit);
    }

    fn end_wait(&self) {
        self.of.end_wait();
    }
}

#[test]
fn a_scheduler_that_waited_for_its_disk_ended_the_leases_of_servers_that_it_could_not_hear() {
    let secs = Arc::new(AtomicU64::new(0));
    let clock = secs.clone();
    let of = MemoryCoordinator::new(Arc::new(move || Duration::from_secs(clock.load(Relaxed))));
    let coordinator = Arc::new(SlowDisk { of, secs: secs.clone() });
    // Only thread 0 says when it hears. Another one has no requests.
    let config =
        ServerConfig { coordinator: Some(coordinator), threads: 2, ..ServerConfig::new("127.0.0.1:0") };
    let server = Server::start(Transports::new(), config).unwrap();
    let [owner, other] = [0, 1].map(|_| RemoteCoordinator::new(Transports::new(), server.addr(), None));
    let lease = owner.grant(LEASE).unwrap();
    assert!(owner.compare_and_set("owner", 0, b"a", Some(lease)).unwrap().is_some());
    for write in 0..20 {
        assert!(other.compare_and_set(&format!("place/{write}"), 0, b"", None).unwrap().is_some());
        assert!(other.get("owner").unwrap().is_some(), "the lease ended in write {write}");
        assert_eq!(owner.keep_alive(lease), Ok(true));
    }
    // The thread hears others, and not the owner.
    secs.fetch_add(3 * LEASE.as_secs(), Relaxed);
    while other.get("owner").unwrap().is_some() {
        other.grant(LEASE).unwrap();
        secs.fetch_add(LEASE.as_secs() / 2, Relaxed);
    }
    assert_eq!(owner.keep_alive(lease), Ok(false));
}

//! Servers with data folders: all of them die at once, and are started again.

use super::{Cluster, LEASE, Seat};
use crate::reached::Hub;
use gannet_core::{CheckpointDir, Store};
use gannet_jobs::MemoryCoordinator;
use gannet_server::ReplicationMode;
use gannet_sim::Sim;
use gannet_transport::Net;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A coordinator with this time.
pub(super) fn new_coordinator(time: &Arc<AtomicU64>) -> MemoryCoordinator {
    let time = time.clone();
    MemoryCoordinator::new(Arc::new(move || Duration::from_nanos(time.load(Relaxed))))
}

impl Cluster {
    /// A ring of servers with data folders, without servers at first.
    pub(crate) fn empty_with_folders(sim: &Sim, seed: u64, replication: ReplicationMode) -> Cluster {
        let folders = crate::folder_in_memory();
        Cluster { folders: Some(folders), ..Cluster::empty(sim, seed, replication) }
    }

    /// A ring of two. The first server has its rows in memory, and begins the job. The second one has a data folder.
    pub(crate) fn start_in_memory_and_with_folder(&mut self) {
        (self.places, self.backups) = (2, 1);
        for home in 0..2 {
            let backups = vec![Cluster::addr(1 - home, 0)];
            let member = self.start(Seat { addr: Cluster::addr(home, 0), home, backups }, false);
            self.members.push(member);
            while self.keys().is_empty() {
                self.sim.run(Duration::from_millis(10));
            }
            self.folders.get_or_insert_with(crate::folder_in_memory);
        }
    }

    /// A ring of servers with data folders, as the seed draws it. They go back to checkpoints if there are some.
    pub(crate) fn with_folders(
        sim: &Sim,
        seed: u64,
        replication: ReplicationMode,
        checkpoints: Option<CheckpointDir>,
    ) -> Cluster {
        let mut cluster = Cluster { checkpoints, ..Cluster::empty_with_folders(sim, seed, replication) };
        // All servers take their places again at once, each with five calls that must be answered one after another. If
        // one is not, they wait for a lease. The workers wait for a minute.
        cluster.lost_per_thousand /= 2;
        let places = 1 + seed as u32 / 3 % 3;
        let backups = cluster.prng.below(u64::from(places)) as u32;
        cluster.start_ring(places, backups);
        cluster
    }

    /// The folder of a server, if it has one.
    fn folder_of(&self, seat: &Seat) -> Option<PathBuf> {
        let folders =
            self.folders.as_ref().filter(|_| self.have_moved || seat.addr == Cluster::addr(seat.home, 0))?;
        Some(folders.path().join(seat.home.to_string()))
    }

    /// The folder of the first server of a place.
    pub(crate) fn folder(&self, place: u32) -> PathBuf {
        self.folders.as_ref().expect("servers with folders").path().join(place.to_string())
    }

    /// Where a server has its rows, and whether it has no place. One with a folder knows by itself what it may take.
    pub(super) fn store(&self, seat: &Seat, is_backup: bool) -> (Store, bool) {
        match self.folder_of(seat) {
            Some(path) => (Store::open_dir(&path).unwrap(), false),
            None => (Store::memory(), is_backup),
        }
    }

    /// Notes which places other servers have taken. Returns whether all rows are in folders: nothing is lost if all
    /// servers die now.
    pub(crate) fn are_all_in_folders(&mut self) -> bool {
        for place in 0..self.places {
            let first = Cluster::addr(place, 0);
            if self.known(place).is_some_and(|(owner, _)| owner != first) {
                self.in_memory.insert(place);
            }
        }
        let is_in_folder =
            |place| !self.in_memory.contains(&place) && self.folder(place).join("PLACE").exists();
        (0..self.places).all(is_in_folder)
    }

    /// Kills all servers, one after another, and starts them again in another order. It stops in the middle if rows
    /// would be lost. Returns whether all servers were dead.
    pub(crate) fn black_out(&mut self) -> bool {
        // Some are cut off before, and do not know what happens to their places.
        for at in 0..self.members.len() {
            if self.prng.below(4) == 0 && !self.members[at].has_ended() {
                self.cut_off(at);
            }
        }
        let time = self.prng_time(4_000);
        if !self.wait_in_folders(time) {
            return false;
        }
        let mut left: Vec<usize> = (0..self.members.len()).collect();
        while !left.is_empty() {
            let at = left.swap_remove(self.prng.below(left.len() as u64) as usize);
            if !self.members[at].has_ended() {
                self.kill(at);
            }
            // A backup may take a place in between.
            let time = self.prng_time(3_000).saturating_sub(Duration::from_secs(2));
            if !self.wait_in_folders(time) {
                return false;
            }
        }
        let away = self.prng_time(5_000);
        self.sim.run(away);
        let mut dead: Vec<usize> = (0..self.members.len()).collect();
        while !dead.is_empty() {
            let at = dead.swap_remove(self.prng.below(dead.len() as u64) as usize);
            self.start_at(at);
            let time = self.prng_time(3_000).saturating_sub(Duration::from_secs(2));
            self.sim.run(time);
        }
        true
    }

    fn prng_time(&mut self, below: u64) -> Duration {
        Duration::from_millis(self.prng.below(below))
    }

    /// Runs for so long, as long as all rows are in folders.
    fn wait_in_folders(&mut self, time: Duration) -> bool {
        let end = self.sim.now() + time;
        loop {
            if !self.are_all_in_folders() {
                return false;
            }
            let left = end.saturating_sub(self.sim.now());
            if left.is_zero() {
                return true;
            }
            self.sim.run(left.min(LEASE / 20));
        }
    }

    /// Starts a server that has ended.
    pub(crate) fn start_at(&mut self, at: usize) {
        self.end(&self.members[at]);
        let seat = self.members[at].seat.clone();
        self.members[at] = self.start(seat, true);
        self.members[at].is_new = true;
    }

    /// Starts a server that has ended. It is cut off from the coordinator with this call of it.
    pub(crate) fn start_until(&mut self, at: usize, call: u64, is_lost: bool) {
        self.start_at(at);
        self.members[at].coordinator.cut_off_at(call, is_lost);
    }

    /// The coordinator is started again, without what it knew. Servers that were started before do not reach it.
    pub(crate) fn forget(&mut self) {
        self.hub = Hub::new(new_coordinator(&self.time));
    }

    /// A server is cut off from the coordinator with its next call but so many.
    pub(crate) fn cut_off_with(&mut self, at: usize, call: u64) {
        self.has_failed = true;
        self.members[at].coordinator.cut_off_at(call, false);
    }

    /// Whether somebody has the lease of a place.
    pub(crate) fn has_lease(&self, place: u32) -> bool {
        gannet_server::place_status(&self.hub.of, "job", place).unwrap().is_some_and(|place| place.has_lease)
    }

    /// Whether a server is cut off from the coordinator.
    pub(crate) fn is_cut_off(&self, at: usize) -> bool {
        self.members[at].coordinator.cut_off.load(Relaxed)
    }

    /// Runs as long as `goes_on` says. Returns how often all servers were dead at once, and how many others failed.
    pub(crate) fn run_with_blackouts(&mut self, mut goes_on: impl FnMut() -> bool) -> [u64; 2] {
        let (mut failed, mut ran) = ([0; 2], Duration::ZERO);
        // In these seeds servers fail one by one, too, and places get into memory.
        let fails = self.seed % 4 == 3;
        // A server that was started has the address of an owner, and not yet its place.
        let mut started_at = self.sim.now();
        while goes_on() {
            let time = self.prng_time(400) + Duration::from_millis(1);
            self.sim.run(time);
            ran += time;
            assert!(ran < Duration::from_secs(3_600), "seed {}: no end: {}", self.seed, self.state());
            self.note_joined();
            let is_safe = self.are_all_in_folders();
            match self.prng.below(16) {
                0..2 if failed[0] < 4 && is_safe => {
                    failed[0] += u64::from(self.black_out());
                    self.mend_all();
                    started_at = self.sim.now();
                }
                2..5 if fails && failed[1] < 3 && self.sim.now() > started_at + 3 * LEASE => {
                    failed[1] += u64::from(self.fail().is_some());
                }
                5..9 if self.mend_all() => started_at = self.sim.now(),
                _ => {}
            }
        }
        failed
    }

    /// As [`mend`](Self::mend), also if a place has no owner: a server with a folder may have its rows. Returns whether
    /// a server was started.
    fn mend_all(&mut self) -> bool {
        let ended: Vec<usize> = (0..self.members.len()).filter(|at| self.members[*at].has_ended()).collect();
        self.mend();
        for at in &ended {
            if self.members[*at].has_ended() {
                self.start_at(*at);
            }
        }
        !ended.is_empty()
    }
}

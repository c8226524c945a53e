//! What goes wrong in a cluster: servers that are killed, cut off or stopped, and writes that are late.

use super::{Cluster, LEASE, Member};

use gannet_transport::Net;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

impl Cluster {
    /// Whether a server may fail: each of its places has a backup that runs and has all that was acknowledged. No write
    /// is on its way with which an owner takes that backup out of its set.
    pub(crate) fn may_fail(&self, at: usize) -> bool {
        let addr = &self.members[at].seat.addr;
        let runs = |backup: &String| {
            let may_end = |of: &Member| of.cut_at.is_some_and(|at| self.sim.now() < at + 2 * LEASE);
            let is_it =
                |of: &Member| of.seat.addr == *backup && !of.is_new && !of.has_ended() && !may_end(of);
            self.members.iter().any(is_it)
        };
        let is_backed = |place| {
            let (owner, backups) = self.known(place).unwrap_or_default();
            self.has_owner(place) && (owner != *addr || backups.iter().any(runs))
        };
        let is_cut = self.members.iter().any(|of| !of.has_ended() && of.coordinator.cut_off.load(Relaxed));
        !is_cut && !self.has_late_writes() && !self.members[at].has_ended() && (0..self.places).all(is_backed)
    }

    /// Whether a write of a place is on its way to the coordinator.
    pub(crate) fn has_late_writes(&self) -> bool {
        self.hub.has_late_writes()
    }

    /// Kills the owner of a place and all its backups, and some other servers. Returns how many servers run.
    pub(crate) fn lose(&mut self, place: u32, others: bool) -> usize {
        let (owner, backups) = self.known(place).unwrap_or_default();
        for at in 0..self.members.len() {
            let addr = &self.members[at].seat.addr;
            let has_rows = *addr == owner || backups.contains(addr);
            if !self.members[at].has_ended() && (has_rows || others && self.prng.below(2) == 0) {
                self.kill(at);
            }
        }
        self.members.iter().filter(|of| !of.has_ended()).count()
    }

    /// Kills a server.
    pub(crate) fn kill(&mut self, at: usize) {
        self.has_failed = true;
        tracing::info!(server = self.members[at].host(), "the test kills a server");
        self.end(&self.members[at]);
        *self.members[at].has_ended.borrow_mut() = true;
    }

    /// Cuts a server off from the coordinator.
    pub(crate) fn cut_off(&mut self, at: usize) {
        self.has_failed = true;
        tracing::info!(server = self.members[at].host(), "the test cuts a server off from the coordinator");
        self.members[at].coordinator.cut_off.store(true, Relaxed);
    }

    /// Kills a backup of a server, which stands still for this time when it is about to take that backup out of its
    /// sets. Returns `false`, and does nothing, if no other server could take a place then.
    pub(crate) fn stall_at_write(&mut self, at: usize, time: Duration) -> bool {
        let own = self.epochs_of(at).first().map(|(place, _)| *place);
        let backup = own.and_then(|place| self.backups(place).first().cloned());
        let Some(lost) = self.members.iter().position(|of| Some(&of.seat.addr) == backup.as_ref()) else {
            return false;
        };
        let may_take = |addr: &String| {
            let mut others = self.members.iter().enumerate().filter(|(other, _)| ![at, lost].contains(other));
            others.any(|(_, of)| of.seat.addr == *addr && !of.is_new && !of.has_ended())
        };
        let has_another = |place| {
            let (owner, backups) = self.known(place).unwrap_or_default();
            may_take(&owner) || backups.iter().any(may_take)
        };
        if !(0..self.places).all(has_another) {
            return false;
        }
        self.kill(lost);
        self.members[at].coordinator.stall.store(time.as_millis() as u64, Relaxed);
        true
    }

    /// Waits until that server stands still, and longer than that. Returns whether it did.
    pub(crate) fn end_stall(&mut self, at: usize, time: Duration) -> bool {
        let stalls = |of: &Cluster| of.members[at].coordinator.stall.load(Relaxed) == 0;
        let began = (0..400).any(|_| {
            self.sim.run(Duration::from_millis(50));
            stalls(self)
        });
        self.members[at].coordinator.stall.store(0, Relaxed);
        self.sim.run(time);
        self.members[at].cut_at = Some(self.sim.now());
        began
    }

    /// Kills a server, or cuts an owner off from the coordinator, or any server if servers are replaced. Returns
    /// whether it owned a place, if it did so.
    pub(crate) fn fail(&mut self) -> Option<bool> {
        let at = self.prng.below(self.members.len() as u64) as usize;
        if !self.may_fail(at) {
            return None;
        }
        let owns = self.owns(at);
        match (owns || self.newcomers.is_some()) && self.prng.below(2) == 0 {
            true => self.cut_off(at),
            false => self.kill(at),
        }
        Some(owns)
    }
}

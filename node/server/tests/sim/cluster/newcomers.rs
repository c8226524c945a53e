//! Servers that die for good are replaced by new ones at other addresses.

use super::{Cluster, Member, Seat};
use gannet_transport::Net;
use std::time::Duration;

impl Cluster {
    /// A server at a new address, with no place and no neighbours.
    pub(super) fn newcomer(&mut self) -> Seat {
        let number = self.newcomers.get_or_insert_default();
        *number += 1;
        Seat { addr: format!("sim:{}", 40_000 + *number), home: 0, backups: Vec::new() }
    }

    /// The servers of another job that has the same name, as many places and the same coordinator. They are no members
    /// of this cluster.
    pub(crate) fn start_strangers(&mut self) -> Vec<Member> {
        let addrs: Vec<String> = (0..self.places).map(|home| format!("sim:{}", 50_000 + home)).collect();
        self.named = Some(addrs.clone());
        let start = |home: u32| {
            let backups = vec![addrs[(home + 1) as usize % addrs.len()].clone()];
            self.start(Seat { addr: addrs[home as usize].clone(), home, backups }, false)
        };
        let strangers = (0..addrs.len() as u32).map(start).collect();
        self.named = None;
        strangers
    }

    /// The servers of this job at the addresses of [`Cluster::start_strangers`], with their folders, in this order or
    /// the other.
    pub(crate) fn start_moved(&mut self, reversed: bool) -> Vec<Member> {
        let addrs: Vec<String> = (0..self.places).map(|home| format!("sim:{}", 50_000 + home)).collect();
        (self.named, self.have_moved) = (Some(addrs.clone()), true);
        let mut homes: Vec<u32> = (0..self.places).collect();
        if reversed {
            homes.reverse();
        }
        let start = |home: u32| {
            let backups = vec![addrs[(home + 1) as usize % addrs.len()].clone()];
            self.start(Seat { addr: addrs[home as usize].clone(), home, backups }, false)
        };
        homes.into_iter().map(start).collect()
    }

    /// From now on some servers that end stay dead for good, and others come.
    pub(crate) fn replace_servers(&mut self) {
        self.newcomers = Some(0);
        // There was no process before them.
        self.members.iter_mut().for_each(|member| member.is_new = false);
    }

    /// Kills the servers of the beginning that are left, one after another, until all have been replaced.
    pub(crate) fn replace_all(&mut self) {
        let is_first = |member: &Member| member.seat.addr.as_str() < "sim:4";
        for _ in 0..1_000 {
            self.heal();
            self.sim.run(Duration::from_millis(500));
            let Some(at) = self.members.iter().position(is_first) else { return };
            if self.may_fail(at) {
                self.kill(at);
            }
        }
        panic!("seed {}: {}", self.seed, self.state());
    }

    /// Waits until each place has an owner and all backups that it is to have.
    pub(crate) fn heal(&mut self) {
        // A backup may be cut off from the coordinator, and still have everything.
        self.mend();
        let begun = self.sim.now();
        let backed = |of: &Cluster| {
            let runs = |addr: &String| of.members.iter().any(|of| of.seat.addr == *addr && !of.has_ended());
            let are_all = |backups: &[String]| backups.len() == of.backups && backups.iter().all(runs);
            let has_all = |place| of.known(place).is_some_and(|(_, backups)| are_all(&backups));
            (0..of.places).all(|place| of.has_owner(place) && has_all(place))
        };
        while !backed(self) || self.members.iter().any(Member::has_ended) {
            self.mend();
            self.sim.run(Duration::from_millis(100));
            self.note_joined();
            let waited = self.sim.now() - begun;
            assert!(waited < Duration::from_secs(600), "seed {}: {}", self.seed, self.state());
        }
    }
}

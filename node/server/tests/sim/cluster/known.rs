//! What the coordinator knows of a cluster.

use super::Cluster;
use gannet_server::PlacesForgotten;
use gannet_wire::Coordinator;
use std::collections::BTreeSet;
use std::time::Duration;

impl Cluster {
    /// All keys of the job that the coordinator has.
    pub(crate) fn keys(&self) -> Vec<String> {
        let page = self.hub.of.list("job/", "").unwrap();
        assert!(!page.more);
        page.entries.into_iter().map(|(key, _)| key).collect()
    }

    /// All addresses of servers that the coordinator names: owners, backups, and those that have registered.
    pub(crate) fn named_servers(&self) -> BTreeSet<String> {
        let mut all: BTreeSet<String> = gannet_server::members(&self.hub.of, "job")
            .unwrap()
            .into_iter()
            .map(|member| member.addr)
            .collect();
        for place in gannet_server::place_statuses(&self.hub.of, "job").unwrap().into_values() {
            all.insert(place.owner);
            all.extend(place.backups);
        }
        all
    }

    /// Makes the coordinator forget the job.
    pub(crate) fn forget_job(&self) -> PlacesForgotten {
        gannet_server::forget_places(&self.hub.of, "job").unwrap()
    }

    /// The coordinator knows a job without servers for so long. For servers that are started later.
    pub(crate) fn keep_for(&mut self, kept: Duration) {
        self.kept = kept;
    }

    /// What the coordinator knows of a place: its owner, and the backups.
    pub(crate) fn known(&self, place: u32) -> Option<(String, Vec<String>)> {
        let place = gannet_server::place_status(&self.hub.of, "job", place).unwrap();
        place.filter(|place| place.ready).map(|place| (place.owner, place.backups))
    }

    /// The backups of a place that have everything. None, if nobody serves it.
    pub(crate) fn backups(&self, place: u32) -> Vec<String> {
        self.known(place).unwrap_or_default().1
    }

    /// The epoch of a place.
    pub(crate) fn epoch(&self, place: u32) -> u64 {
        gannet_server::place_status(&self.hub.of, "job", place).unwrap().map_or(0, |place| place.epoch)
    }

    /// The places that a server has, each with its epoch.
    pub(crate) fn epochs_of(&self, at: usize) -> Vec<(u32, u64)> {
        let is_own =
            |place: &u32| self.known(*place).is_some_and(|(owner, _)| owner == self.members[at].seat.addr);
        (0..self.places).filter(is_own).map(|place| (place, self.epoch(place))).collect()
    }

    /// How often a server has taken the place of another one.
    pub(crate) fn takeovers(&self) -> u64 {
        (0..self.places).map(|place| self.epoch(place).saturating_sub(1)).sum()
    }

    /// Whether the owner of a place serves.
    pub(crate) fn has_owner(&self, place: u32) -> bool {
        let has_lease = self.hub.of.get(&format!("job/owner/{place}")).unwrap().is_some();
        let is = |owner: &str| self.members.iter().any(|of| of.seat.addr == owner && !of.has_ended());
        has_lease && self.known(place).is_some_and(|(owner, _)| is(&owner))
    }

    /// How many pushes were undone at least when the job went back, as the servers say that had rows.
    pub(crate) fn undone(&self) -> u64 {
        gannet_server::generation(&self.hub.of, "job").unwrap().map_or(0, |generation| generation.undone)
    }

    /// How often the job has gone back, by the place that has gone back last.
    pub(crate) fn generation(&self) -> u64 {
        let place = |place| gannet_server::place_status(&self.hub.of, "job", place).unwrap();
        (0..self.places).filter_map(place).map(|place| place.generation).max().unwrap_or(0)
    }

    /// Whether all places have an owner in one generation, and at least so many backups.
    pub(crate) fn serves(&self, backups: usize) -> bool {
        let place = |place| gannet_server::place_status(&self.hub.of, "job", place).unwrap();
        let mut generations = (0..self.places).map(|number| place(number).map(|place| place.generation));
        let first = generations.next();
        if generations.any(|of| Some(of) != first) {
            return false;
        }
        (0..self.places).all(|place| {
            let known = self.known(place);
            self.has_owner(place) && known.is_some_and(|(_, joined)| joined.len() >= backups)
        })
    }

    pub(crate) fn owns(&self, at: usize) -> bool {
        !self.epochs_of(at).is_empty()
    }
}

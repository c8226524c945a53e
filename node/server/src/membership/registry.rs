//! The registry of a job's servers. Each server writes under `JOB/server/ADDR` what it is ([`ServerV1`]), with a lease.
//! Owners choose their backups from it, and `gannet status` shows it.

use crate::membership::status::PlaceStatus;
use gannet_wire::coordinator::{Coordinator, CoordinatorError, list_all};
use gannet_wire::messages::control;
use gannet_wire::messages::members::{ServerV1, SlotV1};
use std::collections::BTreeMap;
use std::time::Duration;

/// The servers of a job by their addresses.
pub(crate) type Members = BTreeMap<String, ServerV1>;

fn prefix(job: &str) -> String {
    format!("{job}/server/")
}

/// The servers that have registered, and have been heard of since.
pub(crate) fn members_of(coordinator: &dyn Coordinator, job: &str) -> Result<Members, CoordinatorError> {
    let prefix = prefix(job);
    let mut members = Members::new();
    for (key, entry) in list_all(coordinator, &prefix)?.0 {
        match control::open::<ServerV1>(&entry.value) {
            Ok(server) => drop(members.insert(key[prefix.len()..].to_owned(), server)),
            // It cannot be a backup of this one.
            Err(error) => tracing::debug!(key, %error, "a server of another version has registered"),
        }
    }
    Ok(members)
}

/// What a server has written into the registry.
pub(crate) struct Registration {
    key: String,
    lease: Option<u64>,
    version: u64,
    written: Option<ServerV1>,
    written_at: Duration,
}

impl Registration {
    pub(crate) fn new(job: &str, addr: &str) -> Registration {
        let key = prefix(job) + addr;
        Registration { key, lease: None, version: 0, written: None, written_at: Duration::ZERO }
    }

    /// Keeps the registration alive for another `ttl`. Writes the server if it has changed. Numbers that change all the
    /// time are written at most twice in this time.
    pub(crate) fn keep(
        &mut self,
        coordinator: &dyn Coordinator,
        now: Duration,
        ttl: Duration,
        server: ServerV1,
    ) -> Result<(), CoordinatorError> {
        if let Some(lease) = self.lease
            && !coordinator.keep_alive(lease)?
        {
            (self.lease, self.version, self.written) = (None, 0, None);
        }
        let lease = match self.lease {
            Some(lease) => lease,
            None => *self.lease.insert(coordinator.grant(ttl)?),
        };
        let is_old = now.saturating_sub(self.written_at) >= ttl / 2;
        let is_due = |written: &ServerV1| !is_same(written, &server) || is_old && *written != server;
        if self.written.as_ref().is_some_and(|written| !is_due(written)) {
            return Ok(());
        }
        let value = control::seal(&server);
        // The key may be that of an earlier process at this address, or of a write whose answer was lost.
        for _ in 0..2 {
            if let Some(version) =
                coordinator.compare_and_set(&self.key, self.version, &value, Some(lease))?
            {
                (self.version, self.written, self.written_at) = (version, Some(server), now);
                return Ok(());
            }
            self.version = coordinator.get(&self.key)?.map_or(0, |known| known.version);
        }
        Ok(())
    }
}

/// Whether two states of a server have the same places and backups. How far the backups are does not matter.
fn is_same(one: &ServerV1, other: &ServerV1) -> bool {
    let holds = |one: &SlotV1, other: &SlotV1| {
        (&one.addr, one.incarnation, one.joined) == (&other.addr, other.incarnation, other.joined)
    };
    one.incarnation == other.incarnation
        && one.owned == other.owned
        && one.slots.len() == other.slots.len()
        && one.slots.iter().zip(&other.slots).all(|(one, other)| holds(one, other))
}

/// A server of a job, as it has told the coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its address.
    pub addr: String,
    /// The places that it has. None: it is there for others.
    pub places: Vec<u32>,
    /// Its backups: one for each backup slot, if it has places.
    pub backups: Vec<BackupStatus>,
}

/// A backup slot of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupStatus {
    /// The address of the backup. `None`: no server is free for it.
    pub addr: Option<String>,
    /// The backup has all rows, and workers wait for it.
    pub joined: bool,
    /// Shards of all tables whose rows it was told.
    pub filled: u64,
    /// Of how many.
    pub shards: u64,
    /// Commands that it has not acknowledged, counted for each thread of its owner, in all tables.
    pub commands: u64,
    /// Bytes of these and of rows.
    pub bytes: u64,
}

/// The servers of a job that the coordinator has heard of within their leases, in the order of their addresses. A
/// number can be half a lease old.
///
/// # Errors
/// The coordinator gave no answer.
pub fn members(coordinator: &dyn Coordinator, job: &str) -> Result<Vec<MemberStatus>, CoordinatorError> {
    let backup = |slot: SlotV1| {
        let SlotV1 { addr, joined, filled, shards, commands, bytes, .. } = slot;
        BackupStatus {
            addr: Some(addr).filter(|addr| !addr.is_empty()),
            joined,
            filled,
            shards,
            commands,
            bytes,
        }
    };
    let member = |(addr, server): (String, ServerV1)| {
        let backups = if server.owned.is_empty() { Vec::new() } else { server.slots };
        MemberStatus { addr, places: server.owned, backups: backups.into_iter().map(backup).collect() }
    };
    Ok(members_of(coordinator, job)?.into_iter().map(member).collect())
}

/// All places of a job that a server has had, by their numbers.
///
/// # Errors
/// The coordinator gave no answer.
pub fn place_statuses(
    coordinator: &dyn Coordinator,
    job: &str,
) -> Result<BTreeMap<u32, PlaceStatus>, CoordinatorError> {
    let prefix = format!("{job}/place/");
    let (keys, _) = list_all(coordinator, &prefix)?;
    let mut places = BTreeMap::new();
    for number in keys.iter().filter_map(|(key, _)| key[prefix.len()..].parse().ok()) {
        places.extend(
            crate::membership::status::place_status(coordinator, job, number)?.map(|place| (number, place)),
        );
    }
    Ok(places)
}

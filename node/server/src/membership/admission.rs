//! Whose job it is that the coordinator knows under a name. Servers of another job may have the same name, as many
//! places and the same coordinator. They must not join.
//!
//! A job is founded with a number, its birth. A server belongs to the job if it knows that number, from its data folder
//! or because it has been a member. A server in memory that starts belongs to it if it names the same servers.

use crate::config::OnServerLoss;
use crate::limits::STRANGER_LEASES;
use crate::membership::Membership;
use crate::membership::forgetting::{PlacesForgotten, forget_places};
use crate::membership::registry::members_of;
use crate::membership::role::{Deposed, StepOutcome};
use crate::places::folder::PlaceFolder;
use gannet_transport::Net;
use gannet_wire::coordinator::{CoordinatorError, list_all};
use gannet_wire::messages::control::GenerationV2;
use ring::digest::{SHA256, digest};
use std::cell::Cell;
use std::time::Duration;

/// How a server knows its job.
#[derive(Default)]
pub(crate) struct JobIdentity {
    /// The birth of the job. 0: this server is not a member yet.
    birth: Cell<u64>,
    /// The servers that it names.
    servers: u64,
    /// When it first found another job under the name.
    refused_at: Cell<Option<Duration>>,
}

impl JobIdentity {
    pub(crate) fn new(servers: &[String]) -> JobIdentity {
        let digest = digest(&SHA256, servers.join(",").as_bytes());
        let first = digest.as_ref().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        JobIdentity { servers: first, ..JobIdentity::default() }
    }

    /// The servers as one number.
    pub(crate) fn servers(&self) -> u64 {
        self.servers
    }
}

impl<N: Net> Membership<N> {
    /// Whether this server is a member of the job that the coordinator knows, and what it then knows of the job.
    /// `None`: it asks again later.
    pub(crate) fn admit(&self, known: GenerationV2, version: u64) -> StepOutcome<Option<GenerationV2>> {
        let (own, kept) = (self.identity.birth.get(), self.place_folder().map_or(0, PlaceFolder::birth));
        let is_member = match (own, kept) {
            (0, 0) => known.servers == self.identity.servers,
            (0, kept) => known.birth == kept,
            (own, _) => known.birth == own,
        };
        if !is_member {
            return self.refuse(known, own, kept);
        }
        self.identity.refused_at.set(None);
        // Servers with data folders may come at other addresses, and those in memory know the job by these.
        let servers = if own == 0 { self.identity.servers } else { known.servers };
        // The rows in a data folder are of no use if nobody knows whether they are the newest.
        let lease = if self.keeps_rows() { 0 } else { known.lease };
        let next = GenerationV2 { servers, lease, ..known };
        if next != known && self.set_generation(version, &next)?.is_none() {
            return Ok(Ok(None));
        }
        self.identity.birth.set(known.birth);
        if let Some(folder) = self.place_folder() {
            folder.belongs_to(known.birth);
        }
        Ok(Ok(Some(next)))
    }

    /// The name is that of another job.
    fn refuse(&self, known: GenerationV2, own: u64, kept: u64) -> StepOutcome<Option<GenerationV2>> {
        let job = &self.config.job;
        if own != 0 || kept != 0 {
            return Ok(Err(Deposed(format!(
                "run {job:?} was begun anew at the coordinator since this server was a member of it: the coordinator was \
                 started again without what it knew, somebody has made it forget the run, or it is another one. Start it \
                 with its --data-dir, or move everything in this server's data folder away to begin without these rows"
            ))));
        }
        let now = self.net.now();
        let since = self.identity.refused_at.get().unwrap_or(now);
        self.identity.refused_at.set(Some(since));
        let remedy = format!(
            "if this is another job, start all its processes with another --run NAME; if it is the same one, with the same \
             --ps-hosts (a new server joins it with --spare). `gannet forget --coordinator ... --run {job}` removes a run \
             without servers"
        );
        if self.has_live_server()? {
            // The servers may have died a moment ago.
            if now.saturating_sub(since) < self.config.lease * STRANGER_LEASES {
                return Ok(Ok(None));
            }
            let members = members_of(&*self.config.coordinator, job)?;
            let members = members.into_keys().collect::<Vec<_>>().join(", ");
            return Ok(Err(Deposed(format!(
                "run {job:?} is that of other servers, which live ({members}): {remedy}"
            ))));
        }
        // Nobody has rows of a job whose rows were in memory.
        if known.lease != 0 && self.config.on_server_loss != OnServerLoss::Wait {
            if let PlacesForgotten::Removed(_) = forget_places(&*self.config.coordinator, job)? {
                tracing::warn!(
                    job,
                    "the run was that of other servers, which are gone with their rows: it begins anew"
                );
            }
            return Ok(Ok(None));
        }
        let text = format!(
            "run {job:?} is that of other servers, which are away and have its rows in data folders: this server waits for \
             them; {remedy}"
        );
        self.warn(self.config.place.0, text);
        Ok(Ok(None))
    }

    /// Whether a server of the job has been heard of within its lease.
    fn has_live_server(&self) -> Result<bool, CoordinatorError> {
        let of = |kind: &str| -> Result<bool, CoordinatorError> {
            let prefix = format!("{}/{kind}/", self.config.job);
            Ok(!list_all(&*self.config.coordinator, &prefix)?.0.is_empty())
        };
        Ok(of("owner")? || of("server")?)
    }
}

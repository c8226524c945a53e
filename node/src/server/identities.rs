//! Which tables this server has, and under which identity: one answer for all its threads, however many workers ask at
//! once.
//!
//! A table is made in two phases. First, workers ask all servers what they have of the table (frame 51). A server that
//! has nothing may then make its shards, but only in the incarnation in which it answered. When all servers have made
//! their shards, each of them gets a confirmation (53). Only then does a worker push. So if shards are missing beside
//! confirmed ones, rows are lost. If they are missing beside unconfirmed ones, nobody has ever pushed.

use super::bulk::{RequestFailure, RequestOutcome, refuse};
use super::tables;
use crate::error::Refusal;
use crate::frames::control::{self, HeldV1, IdentifyV1, IdentityV1};
use crate::frames::{FrameKind, IdentifyFrame, IdentityFrame};
use crate::limits::{REFUSALS_TOGETHER, TABLES_MAX};
use crate::partition::Partitioning;
use crate::token;
use gannet_core::{HeldTable, OpenError, Origin, Schema, Shards, Store, TableIdentity, TableUid};
use gannet_transport::{Frame, Transmit};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What this incarnation of the server has of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownTable {
    pub(super) identity: TableIdentity,
    shards: u32,
    pub(super) confirmed: bool,
    /// Threads that have opened their part.
    opened: u32,
}

/// The tables of a server, for all its threads.
pub(super) struct Identities {
    store: Store,
    /// This incarnation of the server: a random number.
    incarnation: u64,
    partitioning: Partitioning,
    known: Mutex<BTreeMap<String, KnownTable>>,
    /// The text of the last refusal that was logged, and its time.
    refused: Mutex<Option<(String, Duration)>>,
}

/// What a refusal advises to a user who wants to begin with new tables.
pub(super) fn to_begin_anew(store: &Store) -> &'static str {
    match store.folder() {
        Some(_) => "give the servers another --data-dir",
        None => "start the servers again, which have their tables in memory",
    }
}

/// The identity that a worker expects a table to have on this server.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdentityClaim {
    /// Without an id, the server draws a new one.
    pub(super) identity: TableIdentity,
    /// The incarnation of the server that may make the shards.
    pub(super) make_in: u64,
}

impl Identities {
    pub(super) fn new(store: Store, incarnation: u64) -> Identities {
        let (known, refused) = (Mutex::default(), Mutex::default());
        Identities { store, incarnation, partitioning: Partitioning::here(), known, refused }
    }

    /// Whether to log a refusal. Several threads may refuse one worker for one reason at once: only one of them logs
    /// it.
    pub(super) fn is_news(&self, why: &str, now: Duration) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let logged = |(text, at): &(String, Duration)| text == why && now < *at + REFUSALS_TOGETHER;
        if refused.as_ref().is_some_and(logged) {
            return false;
        }
        *refused = Some((why.to_owned(), now));
        true
    }

    /// This incarnation of the server.
    pub(super) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The identity and the seed of new images.
    pub(super) fn origin(&self, identity: TableIdentity) -> Origin {
        Origin { identity, seed: self.incarnation }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, KnownTable>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the server has of a table: as its threads have opened it, or else as its folder says.
    fn look(
        &self,
        known: &mut BTreeMap<String, KnownTable>,
        table: &str,
    ) -> Result<Option<KnownTable>, OpenError> {
        if let Some(known) = known.get(table) {
            return Ok(Some(*known));
        }
        let Some(held) = self.store.held(table)? else { return Ok(None) };
        let HeldTable { identity, shards, confirmed, .. } = held;
        let TableIdentity { server, servers, .. } = identity;
        if servers > 0 && server < servers {
            held.must_have(&self.store, table, &self.partitioning.map(servers).shards(server, shards))?;
        }
        let found = KnownTable { identity, shards, confirmed, opened: 0 };
        known.insert(table.to_owned(), found);
        Ok(Some(found))
    }

    /// Gives this server the identity that a worker asks for, or refuses.
    pub(super) fn claim(&self, schema: &Schema, claim: IdentityClaim) -> Result<KnownTable, RequestFailure> {
        let IdentityClaim { identity: TableIdentity { uid, server, servers }, make_in } = claim;
        let mut all = self.lock();
        let name = &schema.name;
        let known = self.look(&mut all, name).map_err(|error| (Refusal::Images, error.to_string()));
        if let Some(known) = known.map_err(|(refusal, text)| RequestFailure::Refused(refusal, text))? {
            if known.identity == claim.identity && known.shards != schema.shards {
                let text = format!(
                    "table {name:?} has {} shards, and {} were requested: give every worker the same --shards; \
                     to begin anew, {}",
                    known.shards,
                    schema.shards,
                    to_begin_anew(&self.store)
                );
                return refuse(Refusal::Mismatch, text);
            }
            if known.identity == claim.identity {
                return Ok(known);
            }
            let text = format!(
                "table {name:?} is here with {}; id {uid}, server {server} of {servers} was requested",
                known.identity
            );
            return refuse(Refusal::Identity, text);
        }
        // A server without shards of the table loses none when it restarts.
        let has_shards =
            servers > 0 && !self.partitioning.map(servers).shards(server, schema.shards).is_empty();
        if make_in != self.incarnation && (has_shards || uid == TableUid::NONE) {
            return refuse(Refusal::Identity, format!("this server has nothing of table {name:?}"));
        }
        if all.len() >= TABLES_MAX {
            return refuse(Refusal::Limit, format!("{TABLES_MAX} tables are open, the limit"));
        }
        let uid = if uid == TableUid::NONE { draw_uid() } else { Some(uid) };
        let Some(uid) = uid else { return refuse(Refusal::Limit, "the system gives no random bytes") };
        let identity = TableIdentity { uid, server, servers };
        let known = KnownTable { identity, shards: schema.shards, confirmed: false, opened: 0 };
        all.insert(name.clone(), known);
        Ok(known)
    }

    /// Notes that a thread has opened its part of a table, or could not. Forgets a table of which nothing was made.
    pub(super) fn note_opened(&self, table: &str, opened: bool) {
        let mut all = self.lock();
        let Some(known) = all.get_mut(table) else { return };
        known.opened += u32::from(opened);
        let nothing = known.opened == 0 && !known.confirmed;
        if nothing && matches!(self.store.held(table), Ok(None)) {
            all.remove(table);
        }
    }

    /// This server has taken the place of a server of a table.
    pub(super) fn take_over(&self, table: &str, identity: TableIdentity, shards: u32, confirmed: bool) {
        let known = KnownTable { identity, shards, confirmed, opened: 0 };
        self.lock().entry(table.to_owned()).or_insert(known).opened += 1;
    }

    /// Forgets a table that was dropped.
    pub(super) fn forget(&self, table: &str) {
        self.lock().remove(table);
    }

    /// Whether all servers of a table have made their shards.
    pub(super) fn is_confirmed(&self, table: &str) -> bool {
        self.lock().get(table).is_some_and(|known| known.confirmed)
    }

    /// Notes that all servers of a table have made their shards.
    pub(super) fn confirm(&self, table: &str) {
        if let Some(known) = self.lock().get_mut(table) {
            known.confirmed = true;
        }
    }

    /// Answers what the server has of a table.
    pub(super) fn answer(&self, frame: &Frame<'_>, transmit: &mut Transmit) -> RequestOutcome {
        IdentifyFrame::decode(&frame.head)?;
        let table = match control::open::<IdentifyV1>(frame.payload) {
            Ok(IdentifyV1 { table }) => table,
            Err(error) => return refuse(Refusal::Malformed, error.to_string()),
        };
        if let Err(error) = Schema::check_name(&table) {
            return refuse(Refusal::Malformed, error.to_string());
        }
        let held = match self.look(&mut self.lock(), &table) {
            Ok(held) => held,
            Err(error) => return refuse(Refusal::Images, error.to_string()),
        };
        let held = held.map(|KnownTable { identity, shards, confirmed, .. }| {
            let TableIdentity { uid, server, servers } = identity;
            HeldV1 { uid: uid.0, server, servers, shards, confirmed }
        });
        tables::answer(frame, IdentityFrame {}, &control::seal(&IdentityV1 { held }), transmit)
    }
}

/// A random id for a new table. `None` if the system gives no random bytes.
fn draw_uid() -> Option<TableUid> {
    let drawn = token::draw()?;
    let mut uid = [0; 16];
    drawn.iter().zip((0..16).cycle()).for_each(|(byte, at)| uid[at] ^= byte);
    Some(TableUid(uid)).filter(|uid| *uid != TableUid::NONE)
}

/// Opens (or makes) all shards of a table for a process that has the whole table, as a single server would.
///
/// # Errors
/// As [`Shards::open_as`]. Also if the folder has a part of a table of several servers, or if the system gives no
/// random bytes.
pub fn open_whole(store: &Store, schema: &Schema) -> Result<Shards, OpenError> {
    let no_chance = || OpenError::Io {
        what: "drawing an id for the table in",
        path: store.folder().unwrap_or(std::path::Path::new("memory")).into(),
        source: std::io::Error::other("the system gives no random bytes"),
    };
    schema.check()?;
    let seed = token::draw().ok_or_else(no_chance)?;
    let seed = seed.iter().fold(0u64, |word, &byte| word.rotate_left(8) ^ u64::from(byte));
    let all = 0..schema.shards;
    let identity = match store.held(&schema.name)? {
        Some(held) if held.identity.servers == 1 => held.identity,
        Some(held) => {
            let wanted = TableIdentity { server: 0, servers: 1, ..held.identity };
            let path = store.folder().unwrap_or(std::path::Path::new("memory")).join(&schema.name);
            return Err(OpenError::OtherTable { path, found: held.identity, wanted });
        }
        None => TableIdentity { uid: draw_uid().ok_or_else(no_chance)?, server: 0, servers: 1 },
    };
    let shards = Shards::open_as(store, schema, all, &Origin { identity, seed })?;
    shards.confirm();
    Ok(shards)
}

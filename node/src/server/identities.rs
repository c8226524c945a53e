//! Which tables this server has, and as what: one answer for all its threads, however many workers ask at once.
//!
//! A table is made in two phases. Workers ask all servers what they hold of it (51); those that hold nothing may then
//! make their shards, in the life in which they said so; when all have, each is told that the table is confirmed (53).
//! Only then is anything pushed. So whoever finds shards missing beside confirmed ones knows that rows are gone, and
//! whoever finds them missing beside others knows that nobody has ever pushed.

use super::bulk::{RequestFailure, RequestOutcome, refuse};
use super::tables;
use crate::error::Refusal;
use crate::frames::control::{self, HeldV1, IdentifyV1, IdentityV1};
use crate::frames::{FrameKind, IdentifyFrame, IdentityFrame};
use crate::limits::{REFUSALS_TOGETHER, TABLES_MAX};
use crate::partition::share;
use crate::token;
use gannet_core::{HeldTable, OpenError, Origin, Schema, Shards, Store, TableIdentity, TableUid};
use gannet_transport::{Frame, Transmit};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What this life of the server has of a table.
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
    /// This life of the server, drawn by chance.
    incarnation: u64,
    known: Mutex<BTreeMap<String, KnownTable>>,
    /// What a refusal was last logged with, and when.
    refused: Mutex<Option<(String, Duration)>>,
}

/// How servers come to have other tables: what a refusal advises.
pub(super) fn to_begin_anew(store: &Store) -> &'static str {
    match store.folder() {
        Some(_) => "give the servers another --data-dir",
        None => "start the servers again, which have their tables in memory",
    }
}

/// What a worker asks a server to be for a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdentityClaim {
    /// Without an id: a new one is to be drawn.
    pub(super) identity: TableIdentity,
    /// The life in which shards may be made.
    pub(super) make_in: u64,
}

impl Identities {
    pub(super) fn new(store: Store, incarnation: u64) -> Identities {
        Identities { store, incarnation, known: Mutex::default(), refused: Mutex::default() }
    }

    /// Whether a refusal is to be logged: threads that refuse one worker for one reason do so at once, and one of them
    /// says it.
    pub(super) fn is_news(&self, why: &str, now: Duration) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let told = |(text, at): &(String, Duration)| text == why && now < *at + REFUSALS_TOGETHER;
        if refused.as_ref().is_some_and(told) {
            return false;
        }
        *refused = Some((why.to_owned(), now));
        true
    }

    /// What new images are made as.
    pub(super) fn origin(&self, identity: TableIdentity) -> Origin {
        Origin { identity, seed: self.incarnation }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, KnownTable>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the server has of a table: what its threads have opened, or what its folder says.
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
            held.must_have(&self.store, table, share(0..shards, server, servers))?;
        }
        let found = KnownTable { identity, shards, confirmed, opened: 0 };
        known.insert(table.to_owned(), found);
        Ok(Some(found))
    }

    /// Takes this server for what a worker asks, or says why not.
    pub(super) fn claim(&self, schema: &Schema, claim: IdentityClaim) -> Result<KnownTable, RequestFailure> {
        let IdentityClaim { identity: TableIdentity { uid, server, servers }, make_in } = claim;
        let mut all = self.lock();
        let name = &schema.name;
        let known = self.look(&mut all, name).map_err(|error| (Refusal::Images, error.to_string()));
        if let Some(known) = known.map_err(|(refusal, text)| RequestFailure::Refused(refusal, text))? {
            if known.identity == claim.identity && known.shards != schema.shards {
                let text = format!(
                    "table {name:?} has {} shards, and {} were asked: give every worker the same --shards; to begin anew, \
                     {}",
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
        // A server that is to have no shards loses none with its life.
        let has_shards = servers > 0 && !share(0..schema.shards, server, servers).is_empty();
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

    /// A thread has opened its part of a table, or could not. One of which nothing was made is forgotten.
    pub(super) fn note_opened(&self, table: &str, opened: bool) {
        let mut all = self.lock();
        let Some(known) = all.get_mut(table) else { return };
        known.opened += u32::from(opened);
        let nothing = known.opened == 0 && !known.confirmed;
        if nothing && matches!(self.store.held(table), Ok(None)) {
            all.remove(table);
        }
    }

    /// A table is dropped here.
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

    /// Answers what the server holds of a table.
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

/// An id that no other table has.
fn draw_uid() -> Option<TableUid> {
    let drawn = token::draw()?;
    let mut uid = [0; 16];
    drawn.iter().zip((0..16).cycle()).for_each(|(byte, at)| uid[at] ^= byte);
    Some(TableUid(uid)).filter(|uid| *uid != TableUid::NONE)
}

/// Opens (or makes) all shards of a table that one process has for itself, as its one server would.
///
/// # Errors
/// As [`Shards::open_as`]; or the folder holds a part of a table of several servers; or the system gives no random
/// bytes.
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

//! Which tables this server has, and under which identity: one answer for all its threads, however many workers ask at
//! once.
//!
//! A table is made in two phases. First, workers ask all servers what they have of the table (frame 51). A server that
//! has nothing may then make its shards, but only in the incarnation in which it answered. When all servers have made
//! their shards, each of them gets a confirmation (53). Only then does a worker push. So if shards are missing beside
//! confirmed ones, rows are lost. If they are missing beside unconfirmed ones, nobody has ever pushed.

use crate::limits::{REFUSALS_TOGETHER, TABLES_MAX};
use crate::peers::outcome::{RequestFailure, RequestOutcome, refuse, send_answer};
use gannet_core::{HeldTable, OpenError, Origin, Schema, Shards, Store, TableIdentity, TableUid};
use gannet_transport::{Frame, Transmit};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::tables::{IdentifyFrame, IdentityFrame};
use gannet_wire::messages::control;
use gannet_wire::messages::control::{HeldV1, IdentifyV2, IdentityV1};
use gannet_wire::partition::Partitioning;
use gannet_wire::random;
use gannet_wire::refusal::Refusal;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What this incarnation of the server has of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownTable {
    pub(crate) identity: TableIdentity,
    shards: u32,
    pub(crate) confirmed: bool,
    /// Threads that have opened their part.
    opened: u32,
}

/// Checks that the tables of a data folder have all their images, and that these are what their names say. No server
/// may use the folder.
///
/// # Errors
/// An image is lost, is no image, or belongs to another table or shard.
pub fn check_held_tables(store: &Store) -> Result<(), OpenError> {
    for table in store.tables() {
        let Some(held) = store.held(&table)? else { continue };
        let TableIdentity { server, servers, .. } = held.identity;
        if server < servers {
            let shards = Partitioning::here().map(servers).shards(server, held.shards);
            held.must_have(store, &table, &shards)?;
        }
    }
    Ok(())
}

impl KnownTable {
    fn part(&self) -> TablePart {
        (self.identity.server, self.identity.servers)
    }
}

/// The part of a table that is of one server: which, and of how many.
type TablePart = (u32, u32);

/// The parts of each table that are here.
type KnownParts = BTreeMap<String, Vec<KnownTable>>;

/// The tables of a server, for all its threads.
pub(crate) struct Identities {
    store: Store,
    /// This incarnation of the server: a random number.
    incarnation: u64,
    partitioning: Partitioning,
    /// Which server this one began as, if it can take the places of others. Then it can have several parts of a table.
    home: Option<u32>,
    /// The place that it began with is in the store's folder. Otherwise the folder has nothing that may be served.
    folder_serves: AtomicBool,
    known: Mutex<KnownParts>,
    /// The text of the last refusal that was logged, and its time.
    refused: Mutex<Option<(String, Duration)>>,
}

/// What a refusal advises to a user who wants to begin with new tables.
pub(crate) fn to_begin_anew(store: &Store) -> &'static str {
    match store.folder() {
        Some(_) => "give the servers another --data-dir",
        None => "start the servers again, which have their tables in memory",
    }
}

/// Refuses one more table.
pub(crate) fn too_many_tables() -> String {
    format!(
        "{TABLES_MAX} tables are open, the limit of a server: drop tables that are not needed any more, or use more servers"
    )
}

/// The identity that a worker expects a table to have on this server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdentityClaim {
    /// Without an id, the server draws a new one.
    pub(crate) identity: TableIdentity,
    /// The incarnation of the server that may make the shards.
    pub(crate) make_in: u64,
}

impl Identities {
    pub(crate) fn new(store: Store, incarnation: u64, home: Option<u32>) -> Identities {
        let (known, refused) = (Mutex::default(), Mutex::default());
        // Without places, what the folder has is served.
        let folder_serves = AtomicBool::new(home.is_none());
        Identities {
            store,
            incarnation,
            partitioning: Partitioning::here(),
            home,
            folder_serves,
            known,
            refused,
        }
    }

    /// From now on the place that this server began with is in the store's folder.
    pub(crate) fn serve_folder(&self) {
        self.folder_serves.store(true, Release);
    }

    /// Whether images of this server may be in the store.
    fn store_serves(&self) -> bool {
        !self.store.durable() || self.folder_serves.load(Acquire)
    }

    /// Where the images of a part are: those of another server's place, and of one that was taken with copies, are
    /// beside the store, in memory.
    pub(crate) fn store_of(&self, identity: TableIdentity) -> Store {
        match self.home.is_none_or(|home| home == identity.server) && self.store_serves() {
            true => self.store.clone(),
            false => self.store.beside(),
        }
    }

    /// Removes the images of a table from the folder. Images in memory disappear when they are closed.
    pub(crate) fn drop_table(&self, table: &str) -> std::io::Result<bool> {
        match self.store_serves() {
            true => self.store.drop_table(table),
            false => Ok(true),
        }
    }

    /// Whether a part of a table is the one that a request for `wanted` is about. Without places a server has one part,
    /// and says which.
    pub(crate) fn is_about(&self, wanted: TableIdentity, part: TableIdentity) -> bool {
        self.home.is_none() || (wanted.server, wanted.servers) == (part.server, part.servers)
    }

    /// Whether to log a refusal. Several threads may refuse one worker for one reason at once: only one of them logs
    /// it.
    pub(crate) fn is_news(&self, why: &str, now: Duration) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let logged = |(text, at): &(String, Duration)| text == why && now < *at + REFUSALS_TOGETHER;
        if refused.as_ref().is_some_and(logged) {
            return false;
        }
        *refused = Some((why.to_owned(), now));
        true
    }

    /// This incarnation of the server.
    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The identity and the seed of new images.
    pub(crate) fn origin(&self, identity: TableIdentity) -> Origin {
        Origin { identity, seed: self.incarnation }
    }

    fn lock(&self) -> MutexGuard<'_, KnownParts> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the server has of a table: as its threads have opened it, or else as its folder says. Without `part`, that
    /// is the first part.
    fn look(
        &self,
        known: &mut KnownParts,
        table: &str,
        part: Option<TablePart>,
    ) -> Result<Option<KnownTable>, OpenError> {
        let is_it = |known: &KnownTable| part.is_none_or(|part| known.part() == part);
        let parts = known.get(table).map(Vec::as_slice).unwrap_or_default();
        if let Some(known) = parts.iter().find(|known| is_it(known)) {
            return Ok(Some(*known));
        }
        let held = if self.store_serves() { self.store.held(table)? } else { None };
        let Some(held) = held else { return Ok(None) };
        let HeldTable { identity, shards, confirmed, .. } = held;
        let TableIdentity { server, servers, .. } = identity;
        let found = KnownTable { identity, shards, confirmed, opened: 0 };
        if !is_it(&found) {
            return Ok(None);
        }
        if server < servers {
            held.must_have(&self.store, table, &self.partitioning.map(servers).shards(server, shards))?;
        }
        known.entry(table.to_owned()).or_default().push(found);
        Ok(Some(found))
    }

    /// Gives this server the identity that a worker asks for, or refuses.
    pub(crate) fn claim(&self, schema: &Schema, claim: IdentityClaim) -> Result<KnownTable, RequestFailure> {
        let IdentityClaim { identity: TableIdentity { uid, server, servers }, make_in } = claim;
        let mut all = self.lock();
        let name = &schema.name;
        let part = self.home.map(|_| (server, servers));
        let known = self.look(&mut all, name, part);
        let known = known.map_err(|error| RequestFailure::Refused(Refusal::Images, error.to_string()))?;
        // Another part that is here says which table it is.
        let other = all.get(name).and_then(|parts| parts.iter().find(|part| part.identity.uid != uid));
        if let Some(known) = known.or(other.copied()) {
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
        if all.values().map(Vec::len).sum::<usize>() >= TABLES_MAX {
            return refuse(Refusal::Limit, too_many_tables());
        }
        let uid = if uid == TableUid::NONE { draw_uid() } else { Some(uid) };
        let Some(uid) = uid else { return refuse(Refusal::Limit, "the system gives no random bytes") };
        let identity = TableIdentity { uid, server, servers };
        let known = KnownTable { identity, shards: schema.shards, confirmed: false, opened: 0 };
        all.entry(name.clone()).or_default().push(known);
        Ok(known)
    }

    /// Notes that a thread has opened its part of a table, or could not. Forgets a table of which nothing was made.
    pub(crate) fn note_opened(&self, table: &str, identity: TableIdentity, opened: bool) {
        let mut all = self.lock();
        let Some(parts) = all.get_mut(table) else { return };
        let Some(at) = parts.iter().position(|known| known.identity == identity) else { return };
        parts[at].opened += u32::from(opened);
        let nothing = parts[at].opened == 0 && !parts[at].confirmed;
        if nothing && matches!(self.store_of(identity).held(table), Ok(None)) {
            parts.remove(at);
        }
    }

    /// This server has taken the place of a server of a table.
    pub(crate) fn take_over(&self, table: &str, identity: TableIdentity, shards: u32, confirmed: bool) {
        let mut all = self.lock();
        let parts = all.entry(table.to_owned()).or_default();
        match parts.iter_mut().find(|known| known.identity == identity) {
            Some(known) => known.opened += 1,
            None => parts.push(KnownTable { identity, shards, confirmed, opened: 1 }),
        }
    }

    /// Forgets a table that was dropped.
    pub(crate) fn forget(&self, table: &str) {
        self.lock().remove(table);
    }

    /// Whether all servers of a table have made their shards.
    pub(crate) fn is_confirmed(&self, table: &str, identity: TableIdentity) -> bool {
        let all = self.lock();
        let known = all.get(table).and_then(|parts| parts.iter().find(|known| known.identity == identity));
        known.is_some_and(|known| known.confirmed)
    }

    /// Notes that all servers of a table have made their shards.
    pub(crate) fn confirm(&self, table: &str, identity: TableIdentity) {
        let mut all = self.lock();
        let parts = all.get_mut(table).into_iter().flatten();
        parts.filter(|known| known.identity == identity).for_each(|known| known.confirmed = true);
    }

    /// Answers what the server has of a table.
    pub(crate) fn answer(
        &self,
        frame: &Frame<'_>,
        request: &IdentifyV2,
        transmit: &mut Transmit,
    ) -> RequestOutcome {
        let IdentifyV2 { table, server, servers } = request;
        let part = Some((*server, *servers)).filter(|_| *servers > 0 && self.home.is_some());
        let held = match self.look(&mut self.lock(), table, part) {
            Ok(held) => held,
            Err(error) => return refuse(Refusal::Images, error.to_string()),
        };
        let held = held.map(|KnownTable { identity, shards, confirmed, .. }| {
            let TableIdentity { uid, server, servers } = identity;
            HeldV1 { uid: uid.0, server, servers, shards, confirmed }
        });
        send_answer(frame, IdentityFrame {}, &control::seal(&IdentityV1 { held }), transmit)
    }
}

/// Reads a request about what the server has of a table.
pub(crate) fn identify_request(frame: &Frame<'_>) -> Result<IdentifyV2, RequestFailure> {
    IdentifyFrame::decode(&frame.head)?;
    let request = match control::open_as::<IdentifyV2>(2, frame.payload) {
        Ok(request) => request,
        Err(error) => return refuse(Refusal::Malformed, error.to_string()),
    };
    match Schema::check_name(&request.table) {
        Ok(()) => Ok(request),
        Err(error) => refuse(Refusal::Malformed, error.to_string()),
    }
}

/// A random id for a new table. `None` if the system gives no random bytes.
fn draw_uid() -> Option<TableUid> {
    let drawn = random::draw()?;
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
    let seed = random::draw_number().ok_or_else(no_chance)?;
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

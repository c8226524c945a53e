//! A backup's copies of other servers' shards. They get the commands that the owner tells, in its order.
//!
//! A copy is of one stream: of one connection of one thread of the owner. A new stream for a shard ends the copy before
//! it. The frames of a stream are numbered, so a frame that the owner sends again after a lost link is skipped.

#[cfg(test)]
#[path = "copies_tests.rs"]
mod tests;

use crate::limits::{COMMAND_BYTES_MAX, COPIES_MAX, TABLES_MAX};
use crate::peers::outcome::{RequestFailure, RequestOutcome, refuse};
use crate::places::own::{Promotion, SCHEDULER_PLACE};
use crate::replication::copies::{Copies, StreamOrigin};
use crate::requests::states::answer_state;
use crate::server_tables::ServerTables;
use crate::tables::table::ServerTable;
use bytemuck::cast_slice;
use gannet_core::{Schema, ShardSet, Shards, TableIdentity, TableUid};
use gannet_transport::{Frame, Full, Transmit};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::replication::{
    CommandsDoneFrame, CommandsFrame, CopiedFrame, CopyFrame, PromoteFrame, PromotedFrame, StateFrame,
};
use gannet_wire::messages::control;
use gannet_wire::messages::control::CopyV1;
use gannet_wire::refusal::Refusal;

/// Answers a request about copies of other servers' shards.
pub(crate) fn answer_copies(
    tables: &mut ServerTables,
    frame: &Frame<'_>,
    session: u32,
    transmit: &mut Transmit,
) -> RequestOutcome {
    match frame.head.kind {
        CopyFrame::KIND => answer_copy(tables, frame, session, transmit),
        CommandsFrame::KIND => answer_commands(tables, frame, transmit),
        StateFrame::KIND => answer_state(tables, frame, session, transmit),
        _ => answer_promote(tables, frame, transmit),
    }
}

/// Begins copies of shards of another server.
fn answer_copy(
    tables: &mut ServerTables,
    frame: &Frame<'_>,
    session: u32,
    transmit: &mut Transmit,
) -> RequestOutcome {
    let CopyFrame { stream, epoch, keeps } = CopyFrame::decode(&frame.head)?;
    let copy = match control::open::<CopyV1>(frame.payload) {
        Ok(copy) => copy,
        Err(error) => return refuse(Refusal::Malformed, error.to_string()),
    };
    transmit.reserve(0).ok_or(Full)?;
    if copy.births.is_empty() {
        // The table was dropped.
        tables.backups.copies.retain(|known| known.stream != stream);
    } else if let Some(known) = tables.backups.copies.iter_mut().find(|known| known.stream == stream) {
        (known.confirmed, known.all_births) = (copy.confirmed, copy.all_births);
    } else {
        let begun = begin_copies(tables, stream, StreamOrigin { epoch, session }, copy)?;
        if tables.backups.copies.iter().any(|old| begun.is_about(old) && begun.origin.is_before(old.origin)) {
            return refuse(Refusal::Unknown, "these copies were begun again over a later link");
        }
        // Whole ones may be all that is left of what was acknowledged.
        tables.backups.copies.retain(|old| !begun.is_about(old) || keeps && old.are_whole());
        if tables.backups.copies.len() >= COPIES_MAX {
            let text = format!(
                "{COPIES_MAX} copies of tables are here, the limit: drop tables, or use more servers"
            );
            return refuse(Refusal::Limit, text);
        }
        tables.backups.copies.push(begun);
    }
    transmit.commit(CopiedFrame {}.encode(frame.head.id), 0);
    Ok(())
}

fn begin_copies(
    tables: &ServerTables,
    stream: u64,
    origin: StreamOrigin,
    copy: CopyV1,
) -> Result<Copies, RequestFailure> {
    let CopyV1 { schema, uid, server, servers, confirmed, all_births, births } = copy;
    let Some(schema) = Schema::decode(&schema) else {
        return refuse(Refusal::Malformed, "the schema cannot be read");
    };
    if server >= servers {
        return refuse(Refusal::Malformed, format!("server {server} of {servers}"));
    }
    let own = tables.own_part(server, servers, schema.shards);
    if !births.is_sorted_by(|a, b| a.0 < b.0) || births.iter().any(|(shard, _)| !own.contains(*shard)) {
        let text = format!("thread {} keeps copies of {own} of server {server}", tables.thread());
        return refuse(Refusal::WrongShard, text);
    }
    let identity = TableIdentity { uid: TableUid(uid), server, servers };
    if tables.all.iter().any(|table| table.identity() == identity && table.shards.is_some()) {
        let text = format!("this server owns the shards of table {:?} itself", schema.name);
        return refuse(Refusal::Identity, text);
    }
    match Shards::open_copies(tables.store(), &schema, identity, &births) {
        Ok(shards) => Ok(Copies {
            stream,
            origin,
            shards,
            confirmed,
            all_births,
            has_failed: false,
            frames: 0,
            words: Vec::new(),
        }),
        Err(error) => refuse(Refusal::Images, error.to_string()),
    }
}

/// Applies commands to copies.
fn answer_commands(tables: &mut ServerTables, frame: &Frame<'_>, transmit: &mut Transmit) -> RequestOutcome {
    let CommandsFrame { stream, number, more } = CommandsFrame::decode(&frame.head)?;
    transmit.reserve(0).ok_or(Full)?;
    let Some(at) = tables.backups.copies.iter().position(|copies| copies.stream == stream) else {
        return refuse(Refusal::Unknown, format!("no copies of stream {stream:016x} are here"));
    };
    let copies = &mut tables.backups.copies[at];
    let were_whole = copies.are_whole();
    if copies.has_failed {
        return refuse(Refusal::Images, "an earlier command of the stream failed on this copy");
    }
    let taken = match number.checked_sub(copies.frames) {
        None | Some(0) => Ok(()),
        Some(2..) => Err(format!("frame {number} of the stream came behind frame {}", copies.frames)),
        Some(1) if (copies.words.len() * 8).saturating_add(frame.payload.len()) > COMMAND_BYTES_MAX => {
            Err(format!("a command has more than {COMMAND_BYTES_MAX} bytes, the limit"))
        }
        Some(1) => {
            copies.frames = number;
            copies.take(cast_slice(frame.payload), more).map_err(|error| error.to_string())
        }
    };
    if let Err(why) = taken {
        copies.has_failed = true;
        return refuse(Refusal::Images, why);
    }
    if !were_whole && copies.are_whole() {
        end_replaced(tables, at);
    }
    transmit.commit(CommandsDoneFrame {}.encode(frame.head.id), 0);
    Ok(())
}

/// The copies at `whole` have become whole. Ends older ones whose shards all have newer whole copies. Copies are in
/// the order in which they were begun.
fn end_replaced(tables: &mut ServerTables, whole: usize) {
    let is_replaced = |(at, old): (usize, &Copies)| {
        let newer =
            || tables.backups.copies[at + 1..].iter().filter(|one| one.is_about(old) && one.are_whole());
        let has_newer = |shard: u32| newer().any(|one| one.shards.set().contains(shard));
        old.shards.set().iter().all(has_newer)
    };
    // There may be thousands of tables. Only copies of these shards can be replaced now.
    let older = tables.backups.copies[..whole]
        .iter()
        .enumerate()
        .filter(|(_, old)| old.is_about(&tables.backups.copies[whole]));
    let replaced = older.filter(|of| is_replaced(*of));
    let replaced: Vec<u64> = replaced.map(|(_, old)| old.stream).collect();
    tables.backups.copies.retain(|copies| !replaced.contains(&copies.stream));
}

/// A server by its place among the servers of its job.
#[derive(Clone, Copy)]
struct ServerPart {
    server: u32,
    servers: u32,
}

impl ServerPart {
    /// Whether a table is of this server.
    fn has(self, identity: TableIdentity) -> bool {
        (identity.server, identity.servers) == (self.server, self.servers)
    }
}

/// Ends copies of a server's shards that are not whole, if older ones of the whole table are.
fn end_partial(tables: &mut ServerTables, part: ServerPart) {
    let of = |copies: &Copies| part.has(copies.identity());
    let mut whole: Vec<(String, TableIdentity)> = Vec::new();
    for copies in tables.backups.copies.iter().filter(|copies| of(copies) && copies.are_whole()) {
        let (name, identity) = (copies.table().to_owned(), copies.identity());
        let is_it =
            |other: &&Copies| other.are_whole() && other.table() == name && other.identity() == identity;
        let has = tables.backups.copies.iter().filter(is_it).flat_map(|of| of.shards.set().iter());
        let own = tables.own_part(part.server, part.servers, copies.shards.schema().shards);
        if ShardSet::of(has) == own && whole.iter().all(|(known, _)| *known != name) {
            whole.push((name, identity));
        }
    }
    tables.backups.copies.retain(|copies| {
        let known = whole.iter().find(|(name, _)| of(copies) && copies.table() == name);
        known.is_none_or(|(_, identity)| copies.are_whole() && copies.identity() == *identity)
    });
}

/// Makes the copies of a server's shards their owner. Answers how many tables of that server are owned here then.
fn answer_promote(of: &mut ServerTables, frame: &Frame<'_>, transmit: &mut Transmit) -> RequestOutcome {
    let PromoteFrame { server, servers, epoch } = PromoteFrame::decode(&frame.head)?;
    transmit.reserve(0).ok_or(Full)?;
    let tables =
        promote_server(of, Promotion { server, servers, epoch, has_all_since: None, is_held: false })?;
    transmit.commit(PromotedFrame { tables }.encode(frame.head.id), 0);
    Ok(())
}

/// Makes the copies of a server's shards their owner: all of them or none. Returns how many tables of that server
/// are owned here then.
pub(crate) fn promote_server(tables: &mut ServerTables, promotion: Promotion) -> Result<u32, RequestFailure> {
    let Promotion { server, servers, epoch, has_all_since, .. } = promotion;
    let part = ServerPart { server, servers };
    let of = |copies: &Copies| part.has(copies.identity());
    if let Some(since) = has_all_since {
        // All tables were told since then. One that only an earlier owner told was dropped, or nothing of it was
        // acknowledged.
        tables.backups.copies.retain(|copies| !of(copies) || copies.origin.epoch >= since);
    }
    end_partial(tables, part);
    if has_all_since.is_some() {
        let new = unacknowledged(tables, part);
        tables
            .backups
            .copies
            .retain(|copies| !(of(copies) && new.iter().any(|table| table == copies.table())));
    }
    let mut names: Vec<String> = tables
        .backups
        .copies
        .iter()
        .filter(|copies| of(copies))
        .map(|copies| copies.table().to_owned())
        .collect();
    names.sort_unstable();
    names.dedup();
    for name in &names {
        must_be_promotable(tables, name, part)?;
    }
    tables.places.take(promotion);
    for name in &names {
        promote(tables, name, &of, epoch)?;
    }
    // An earlier promotion may have done it, and its answer was lost.
    let owned = |table: &&ServerTable| part.has(table.identity()) && table.shards.is_some();
    Ok(tables.all.iter().filter(owned).count() as u32)
}

/// Takes a place whose rows were loaded from a checkpoint. Copies of earlier rows are dropped. Returns how many
/// tables it has.
///
/// # Errors
/// There are too many tables: in words.
pub(crate) fn take_loaded(
    of: &mut ServerTables,
    promotion: Promotion,
    tables: Vec<ServerTable>,
) -> Result<u32, String> {
    let Promotion { server, servers, .. } = promotion;
    of.checkpoints.cuts.absences.forget();
    if of.all.lacks_room_for(tables.len()) {
        let (open, more) = (of.all.len(), tables.len());
        return Err(format!(
            "{open} tables are open here, the place has {more}, and {TABLES_MAX} are the limit"
        ));
    }
    let part = ServerPart { server, servers };
    of.backups.copies.retain(|copies| !part.has(copies.identity()));
    if server == SCHEDULER_PLACE {
        of.backups.states = None;
    }
    of.places.take(promotion);
    let count = tables.len() as u32;
    tables.into_iter().for_each(|table| _ = of.push_table(table, false));
    of.publish();
    Ok(count)
}

/// The tables of a server of which nothing was acknowledged, not even that they were opened, if this thread has
/// everything that was. The copies of such a table have no rows. They are not filled, or some of its shards have
/// none: a thread of the owner had not opened the table, or had not told so.
fn unacknowledged(tables: &ServerTables, part: ServerPart) -> Vec<String> {
    let of = |copies: &&Copies| part.has(copies.identity());
    let is_new = |name: &str| {
        let copies: Vec<&Copies> =
            tables.backups.copies.iter().filter(|copies| of(copies) && copies.table() == name).collect();
        let own = tables.own_part(part.server, part.servers, copies[0].shards.schema().shards);
        let has = ShardSet::of(copies.iter().flat_map(|copies| copies.shards.set().iter()));
        // No push reaches a table before the reply that it is open, which is not sent yet.
        if copies.iter().any(|copies| copies.has_failed || copies.shards.stats().rows > 0) {
            return false;
        }
        let is_filled = copies.iter().all(|copies| copies.shards.are_whole());
        !is_filled || has != own && !copies.iter().any(|copies| copies.confirmed)
    };
    let names = tables.backups.copies.iter().filter(of).map(Copies::table);
    names.filter(|name| is_new(name)).map(str::to_owned).collect()
}

/// Refuses to make the copies of a table its owner if one of them is missing or has not all rows.
fn must_be_promotable(tables: &ServerTables, name: &str, part: ServerPart) -> RequestOutcome {
    let of = |copies: &&Copies| copies.table() == name && part.has(copies.identity());
    let copies: Vec<&Copies> = tables.backups.copies.iter().filter(of).collect();
    let shards = copies[0].shards.schema().shards;
    let has = ShardSet::of(copies.iter().flat_map(|copies| copies.shards.set().iter()));
    let ServerPart { server, servers } = part;
    let own = tables.own_part(server, servers, shards);
    if has != own || copies.iter().any(|copies| copies.has_failed || !copies.shards.are_whole()) {
        let text = format!(
            "thread {} has not all rows of table {name:?} of server {server}: another backup must take its place, or \
             the table must be restored from a checkpoint",
            tables.thread()
        );
        return refuse(Refusal::Images, text);
    }
    let identity = copies[0].identity();
    let is_it = |table: &ServerTable| {
        table.schema.name == name && tables.home.identities.is_about(identity, table.identity())
    };
    match tables.all.iter().any(is_it) {
        true => refuse(Refusal::Identity, format!("this server has a part of table {name:?} of its own")),
        false => Ok(()),
    }
}

fn promote(
    tables: &mut ServerTables,
    name: &str,
    of: &impl Fn(&Copies) -> bool,
    epoch: u64,
) -> RequestOutcome {
    let (mut mine, others) = std::mem::take(&mut tables.backups.copies)
        .into_iter()
        .partition::<Vec<Copies>, _>(|copies| of(copies) && copies.table() == name);
    tables.backups.copies = others;
    // Of two copies of a shard the newest counts.
    mine.reverse();
    let (confirmed, all_births) = (mine[0].confirmed, mine[0].all_births);
    let shards = Shards::of_copies(mine.into_iter().map(|copies| copies.shards).collect(), epoch);
    let shards = shards.map_err(|error| RequestFailure::Refused(Refusal::Images, error.to_string()))?;
    shards.note_all_births(all_births);
    if confirmed {
        shards.confirm();
    }
    let (identity, of) = (shards.identity(), shards.schema().shards);
    tables.home.identities.take_over(name, identity, of, confirmed);
    tables.add_table(shards.schema().clone(), identity, Some(shards), false)?;
    tables.checkpoints.cuts.absences.forget();
    Ok(())
}

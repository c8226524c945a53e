//! Requests about tables: open, drop, identify, confirm, status, close.

use crate::peers::outcome::{RequestFailure, RequestOutcome, refuse, send_answer};
use crate::peers::pusher::{Pusher, is_data};
use crate::replication::TablePlace;
use crate::requests::steps::pushes::numbered;
use crate::server_tables::{FOLLOWS, NO_TABLES, ServerTables};
use crate::tables::identities;
use crate::tables::identities::IdentityClaim;
use crate::tables::table::ServerTable;
use gannet_core::{DATA_PUSHERS, PusherStatus, Schema, Shards, TableIdentity, TableUid};
use gannet_transport::{Frame, Full, Transmit};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::tables::{
    ClosePusherFrame, ConfirmFrame, ConfirmedFrame, DropTableFrame, OpenTableFrame, PusherClosedFrame,
    StatusFrame, StatusIsFrame, TableDroppedFrame, TableOpenedFrame,
};
use gannet_wire::limits::STATUS_PUSHERS_MAX;
use gannet_wire::messages::control;
use gannet_wire::messages::control::{
    ConfirmV2, DropTableV1, OpenTableV2, PusherV1, RestoredShareV1, StatusV2, TableOpenedV4,
};
use gannet_wire::partition::runs_of_set;
use gannet_wire::refusal::{REPLACED, Refusal};
use gannet_wire::share_pushers::is_share;

pub(crate) fn answer_open(
    tables: &mut ServerTables,
    frame: &Frame<'_>,
    pusher: &Pusher,
    transmit: &mut Transmit,
) -> RequestOutcome {
    let eviction = OpenTableFrame::decode(&frame.head)?.eviction();
    let request = match control::open_as::<OpenTableV2>(2, frame.payload) {
        Ok(request) => request,
        Err(error) => return refuse(Refusal::Malformed, error.to_string()),
    };
    let Some(schema) = Schema::decode(&request.schema) else {
        return refuse(Refusal::Malformed, "the schema cannot be read");
    };
    if request.servers == 0 || request.server >= request.servers {
        return refuse(Refusal::Malformed, format!("server {} of {}", request.server, request.servers));
    }
    let OpenTableV2 { uid, server, servers, make_in, .. } = request;
    if eviction.is_some() && tables.mirror.is_some() {
        return refuse(Refusal::Mismatch, FOLLOWS);
    }
    tables.must_own(server)?;
    let identity = TableIdentity { uid: TableUid(uid), server, servers };
    let number = tables.open(schema, IdentityClaim { identity, make_in })?;
    let fenced = |shards: &Shards| {
        let newer = |p: &PusherStatus| p.pusher == pusher.pusher && p.incarnation > pusher.incarnation;
        shards.pushers().iter().any(newer)
    };
    if tables.all[number].shards.as_ref().is_some_and(fenced) {
        return refuse(Refusal::Fenced, REPLACED);
    }
    if let Some(eviction) = eviction {
        tables.all[number].evict(eviction)?;
    }
    let ServerTable { own, shards, identity, schema, .. } = &tables.all[number];
    let incarnation = shards.as_ref().map_or(0, Shards::incarnation);
    let ours = (pusher.pusher, pusher.incarnation);
    let pushers = shards.as_ref().map(Shards::pushers).unwrap_or_default();
    if pushers.iter().any(|status| status.pusher == ours.0 && status.incarnation > ours.1) {
        return refuse(Refusal::Fenced, REPLACED);
    }
    let (table, own) = (number as u32, runs_of_set(own));
    let births = shards.as_ref().map(Shards::births).unwrap_or_default();
    let (uid, confirmed) = (identity.uid.0, tables.home.identities.is_confirmed(&schema.name, *identity));
    let all_births = shards.as_ref().map_or(0, Shards::all_births);
    let opened = TableOpenedV4 { table, shards: own, incarnation, uid, confirmed, all_births, births };
    send_answer(frame, TableOpenedFrame {}, &control::seal_as(4, &opened), transmit)
}

/// Drops a table: its rows on this thread, and its folder once no thread has a shard of it open. Nobody who knows
/// the table's number reaches another table with it.
pub(crate) fn answer_drop(
    tables: &mut ServerTables,
    frame: &Frame<'_>,
    pusher: &Pusher,
    transmit: &mut Transmit,
) -> RequestOutcome {
    DropTableFrame::decode(&frame.head)?;
    pusher.must_have_incarnation()?;
    let DropTableV1 { table: name } = match control::open(frame.payload) {
        Ok(drop) => drop,
        Err(error) => return refuse(Refusal::Malformed, error.to_string()),
    };
    if let Err(error) = Schema::check_name(&name) {
        return refuse(Refusal::Malformed, error.to_string());
    }
    transmit.reserve(0).ok_or(Full)?;
    drop_table(tables, &name)?;
    transmit.commit(TableDroppedFrame {}.encode(frame.head.id), 0);
    Ok(())
}

/// Drops a table of this thread.
pub(crate) fn drop_table(tables: &mut ServerTables, name: &str) -> RequestOutcome {
    tables.backups.copies.retain(|copies| copies.table() != name);
    let is_it = |(_, table): &(usize, &ServerTable)| table.schema.name == name;
    let numbers: Vec<usize> = tables.all.numbered().filter(is_it).map(|(number, _)| number).collect();
    for number in numbers {
        let Some(mut table) = tables.all.remove(number) else { continue };
        if let Some(replication) = &mut tables.backups.replication {
            replication.drop_table(number, &table, &tables.home.partitioning.map(table.identity.servers));
        }
        if let Some(shards) = &mut table.shards {
            // Before the rows go: a worker that reads the images itself stops trusting them.
            shards.stop_serving();
        }
        tables.counters.threads[tables.home.thread as usize].end_table(&table.counters);
        tracing::info!(table = name, thread = tables.home.thread, "table dropped");
    }
    tables.waits.group_changed = true;
    let dropped = tables.home.identities.drop_table(name);
    tables.home.identities.forget(name);
    if let Err(error) = dropped {
        return refuse(Refusal::NoSpace, format!("table {name:?} cannot be dropped: {error}"));
    }
    Ok(())
}

/// Answers what this server has of a table.
pub(crate) fn answer_identify(
    tables: &ServerTables,
    frame: &Frame<'_>,
    transmit: &mut Transmit,
) -> RequestOutcome {
    if tables.scheduler_only {
        return refuse(Refusal::Mismatch, NO_TABLES);
    }
    let request = identities::identify_request(frame)?;
    tables.must_own(request.server)?;
    tables.home.identities.answer(frame, &request, transmit)
}

/// Notes that all servers of a table have created their shards.
pub(crate) fn answer_confirm(
    tables: &mut ServerTables,
    frame: &Frame<'_>,
    transmit: &mut Transmit,
) -> RequestOutcome {
    ConfirmFrame::decode(&frame.head)?;
    let ConfirmV2 { table: number, uid, all_births } = match control::open_as(2, frame.payload) {
        Ok(confirm) => confirm,
        Err(error) => return refuse(Refusal::Malformed, error.to_string()),
    };
    let table = tables.all.get(number as usize).filter(|table| table.identity.uid.0 == uid);
    let Some(table) = table else {
        return refuse(
            Refusal::Identity,
            format!("table {number} of this thread has another id than the requested one"),
        );
    };
    let known = table.shards.as_ref().map_or(0, Shards::all_births);
    if known != 0 && known != all_births {
        return refuse(
            Refusal::Identity,
            format!("table {:?} was opened here together with other shards", table.schema.name),
        );
    }
    transmit.reserve(0).ok_or(Full)?;
    if let Some(shards) = &table.shards {
        shards.note_all_births(all_births);
        shards.confirm();
        if let Some(replication) = &mut tables.backups.replication {
            let map = tables.home.partitioning.map(table.identity.servers);
            let of = TablePlace { map: &map, place: tables.places.get(table.identity.server) };
            replication.confirm_table(number as usize, table, of);
        }
    }
    tables.home.identities.confirm(&table.schema.name, table.identity);
    transmit.commit(ConfirmedFrame {}.encode(frame.head.id), 0);
    Ok(())
}

pub(crate) fn answer_status(
    tables: &mut ServerTables,
    frame: &Frame<'_>,
    transmit: &mut Transmit,
) -> RequestOutcome {
    let table = numbered(tables, StatusFrame::decode(&frame.head)?.table)?;
    let (stats, pushers) = match &table.shards {
        Some(shards) => (shards.stats(), shards.pushers()),
        None => Default::default(),
    };
    let restored = restored_shares(&pushers);
    // Reports workers only. The scheduler knows the pushers of data, and a frame may be too small for all of them.
    let workers = pushers.into_iter().filter(|status| status.pusher < DATA_PUSHERS);
    let pushers = workers.take(STATUS_PUSHERS_MAX).map(|status| PusherV1 {
        pusher: status.pusher,
        incarnation: status.incarnation,
        seq: status.seq,
        rows: status.rows,
        closed: status.closed,
    });
    let (rows, bytes, shards) = (stats.rows, stats.bytes, stats.shards);
    let status = StatusV2 { rows, bytes, shards, pushers: pushers.collect(), restored };
    send_answer(frame, StatusIsFrame {}, &control::seal_as(2, &status), transmit)
}

pub(crate) fn answer_close(
    tables: &mut ServerTables,
    frame: &Frame<'_>,
    pusher: &Pusher,
    transmit: &mut Transmit,
) -> RequestOutcome {
    let request = ClosePusherFrame::decode(&frame.head)?;
    pusher.must_have_incarnation()?;
    let (target, incarnation) = match request.pusher {
        0 => (pusher.pusher, pusher.incarnation),
        target if is_data(target) => (target, request.incarnation),
        target => return refuse(Refusal::Name, format!("pusher {target:#x} is not a pusher of data")),
    };
    if tables.checkpoints.cuts.holds_close(request.table, target) {
        return Err(RequestFailure::Parked(request.table));
    }
    let table = numbered(tables, request.table)?;
    transmit.reserve(0).ok_or(Full)?;
    if let Some(shards) = &mut table.shards {
        // A fenced worker must not close data: another worker may train that data by now.
        let allowed = shards.check_pusher(pusher.pusher, pusher.incarnation);
        let closed = allowed.and_then(|()| shards.close_pusher(target, incarnation));
        closed.map_err(|error| RequestFailure::Refused(Refusal::of_push(&error), error.to_string()))?;
    }
    transmit.commit(PusherClosedFrame {}.encode(frame.head.id), 0);
    Ok(())
}

/// The fixed shares whose last push is in a checkpoint that was restored here, and that have pushed nothing here since.
/// `None`: nothing here is as a checkpoint had it. The images say so, whichever process restored them.
fn restored_shares(pushers: &[PusherStatus]) -> Option<Vec<RestoredShareV1>> {
    let still = |status: &&PusherStatus| is_share(status.pusher) && status.is_restored() && !status.closed;
    let share = |&PusherStatus { pusher, incarnation, seq, .. }: &PusherStatus| RestoredShareV1 {
        pusher,
        incarnation,
        seq,
    };
    let all: Vec<_> = pushers.iter().filter(still).take(STATUS_PUSHERS_MAX).map(share).collect();
    pushers.iter().any(PusherStatus::is_restored).then_some(all)
}

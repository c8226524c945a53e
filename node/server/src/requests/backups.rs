//! What a thread tells its backups, and which answers wait for them.

use crate::places::own::{Positions, SCHEDULER_PLACE};
use crate::replication::gate::ReplicationGate;
use crate::replication::{Replication, TablePlace};
use crate::server_tables::ServerTables;
use crate::tables::table::ServerTable;
use gannet_core::Shards;
use std::time::Duration;

/// From now on backups are told all commands.
pub(crate) fn replicate_to(tables: &mut ServerTables, mut replication: Replication) {
    for (number, table) in tables.all.numbered_mut() {
        let identity = table.identity();
        let map = tables.home.partitioning.map(identity.servers);
        let of = TablePlace { map: &map, place: tables.places.get(identity.server) };
        replication.add_table(number, table, of, true);
    }
    tables.backups.replication = Some(replication);
}

/// A turn of the replication. Returns whether it has more to do at once.
pub(crate) fn replicate(tables: &mut ServerTables) -> bool {
    let Some(replication) = &mut tables.backups.replication else { return false };
    let more = replication.turn(&mut tables.all, tables.home.partitioning, &tables.places);
    replication.publish(&tables.all);
    tables.waits.group_changed |= replication.has_room_again();
    more
}

/// What may leave the sessions now. The clock is read here, so behind everything that was done for an answer: a
/// thread that slept meanwhile must not answer with the rows of a place that another server has taken.
pub(crate) fn gate(tables: &ServerTables, now: impl FnOnce() -> Duration) -> ReplicationGate {
    let gate = |replication: &Replication| replication.gate(tables.all.len());
    let gate = tables.backups.replication.as_ref().map_or(ReplicationGate::OPEN, gate);
    let is_silent = tables.standing.as_ref().is_some_and(|standing| standing.is_silent(now()));
    // A backup of the owner before may go on without what is here.
    let holds = tables.standing.as_ref().is_some_and(|standing| standing.holds_any());
    let acknowledged = if holds { 0 } else { gate.acknowledged };
    ReplicationGate { acknowledged, is_silent, ..gate }
}

/// The backups are told the states of place 0 when the server is ready with it.
pub(crate) fn defer_states(tables: &mut ServerTables) {
    let replication =
        tables.backups.replication.as_mut().filter(|_| tables.places.has_taken(SCHEDULER_PLACE));
    if let Some(replication) = replication {
        replication.defer_states();
    }
}

/// How far the shards of this thread are, each with the name of its table.
pub(crate) fn positions(tables: &ServerTables) -> Positions {
    let of = |table: &ServerTable| {
        let shards = table.shards.iter().flat_map(Shards::positions);
        shards.map(|position| (table.schema.name.clone(), position)).collect::<Positions>()
    };
    tables.all.iter().flat_map(of).collect()
}

/// How many commands were told, if acknowledgements are kept apart from the answers that wait for no command.
pub(crate) fn told_apart(tables: &ServerTables) -> Option<u64> {
    tables.backups.replication.as_ref().and_then(Replication::told_apart)
}

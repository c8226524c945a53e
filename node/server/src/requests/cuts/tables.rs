//! What a cut knows of the tables of a thread.

use crate::peers::pusher::is_data;
use crate::server_tables::ServerTables;
use crate::tables::table::ServerTable;
use crate::tables::table_list::TableList;
use gannet_core::{Position, TableUid};
use gannet_wire::messages::cuts::{CutBaseV1, CutPushV1, CutStepV1, CutTableV1};

/// The push progress of all tables on a thread, except of data that is closed: nobody resends its pushes.
pub(crate) fn cut_pushes(tables: &TableList, place: impl Fn(usize) -> Option<u32>) -> Vec<CutPushV1> {
    let of = |(number, table): (usize, &ServerTable)| {
        let place = place(number)?;
        let pushes = table.shards.as_ref()?.push_progress();
        let open = pushes.into_iter().filter(|push| !(push.closed && is_data(push.pusher)));
        Some(open.map(move |push| CutPushV1::new(place, &push)).collect::<Vec<_>>())
    };
    tables.numbered().filter_map(of).flatten().collect()
}

/// The positions of the parent for one table.
pub(crate) fn positions_of_bases(bases: &[CutBaseV1], table: u32) -> Vec<Position> {
    let of = bases.iter().filter(|base| base.table == table);
    of.map(|&CutBaseV1 { uid, shard, birth, epoch, command, .. }| Position {
        table: TableUid(uid),
        shard,
        birth,
        epoch,
        command,
    })
    .collect()
}

/// In synchronous steps: the first step that a shard here lacks, and the first one that all shards here lack. After a
/// restart they may differ, until workers have made the steps between. Before a worker joins they are what the images
/// and step files say.
pub(crate) fn cut_steps(table: &ServerTable) -> Option<(u64, u64)> {
    table.shards.as_ref()?;
    match &table.group {
        Some(group) => group.sums.as_ref().map(|sums| (sums.at(), sums.entry())),
        None => table.recovered.reached(),
    }
}

/// A table as a cut knows it: once, or twice if its shards here are in different steps.
pub(crate) fn cut_tables(table: &ServerTable) -> impl Iterator<Item = CutTableV1> {
    let uid = table.shards.as_ref().map_or(TableUid([0; 16]), |shards| shards.identity().uid);
    let (name, schema) = (table.schema.name.clone(), table.schema.encode());
    let at = move |step| CutTableV1 { name: name.clone(), schema: schema.clone(), uid: uid.0, step };
    let steps = cut_steps(table);
    let ahead = steps.filter(|(low, high)| low != high).map(|(_, high)| Some(high));
    std::iter::once(steps.map(|(low, _)| low)).chain(ahead).map(at)
}

/// The step of each table of the cut; 0: it is not in synchronous steps.
pub(crate) fn steps_of_cut(tables: &ServerTables) -> Vec<CutStepV1> {
    let covered = tables.all.iter().filter(|table| tables.checkpoints.cuts.covers(table));
    let steps = covered.flat_map(cut_tables);
    steps.map(|table| CutStepV1 { table: table.name, step: table.step.unwrap_or(0) }).collect()
}

//! What a thread does for followers in each round: it ends the cuts of slow ones. If its server mirrors others, it
//! takes cuts over, each one within a round, so that nobody who asks reads a part of it.

use crate::peers::outcome::RequestFailure;
use crate::requests::cuts::follower::end_slow_followers;
use crate::requests::tables::drop_table;
use crate::server_tables::ServerTables;
use crate::tables::identities::IdentityClaim;
use crate::tables::mirror::MirrorChange;
use crate::thread::event_loop::ShardThread;
use gannet_core::{Schema, Shards, TableIdentity, TableUid};
use gannet_transport::Net;
use gannet_worker::{FollowedCut, FollowedRows};
use std::collections::HashSet;

/// Rows of a shard that are looked at once.
const PAGE: usize = 4096;

impl<N: Net> ShardThread<N> {
    /// Takes over the cut that has come, and ends those that are read too slowly.
    pub(crate) fn follow_and_feed(&mut self) {
        if !self.tables.checkpoints.cuts.released.is_empty() {
            end_slow_followers(&mut self.tables, self.net.now());
        }
        let Some(mirror) = self.tables.mirror.clone() else { return };
        if let Some(MirrorChange { cut, age, done }) = mirror.take() {
            let now = self.net.now();
            let taken =
                take_over(&mut self.tables, &cut).and_then(|()| match (&cut.snapshot, &mut self.runs) {
                    (Some(bytes), Some(runs)) => runs.mirror(bytes, now),
                    _ => Ok(()),
                });
            if taken.is_ok() {
                mirror.note(&cut, now, age);
            }
            // Who has gone does not wait for it.
            let _ = done.try_send(taken);
        }
    }
}

/// Makes the rows here those of a cut.
fn take_over(tables: &mut ServerTables, cut: &FollowedCut) -> Result<(), String> {
    let others = tables.names().into_iter().filter(|name| cut.tables.iter().all(|of| of.name != *name));
    others.collect::<Vec<_>>().iter().try_for_each(|name| drop_table(tables, name)).map_err(in_words)?;
    for (place, schema) in cut.tables.iter().enumerate() {
        let number = number_of(tables, schema)?;
        let Some(shards) = &mut tables.all[number].shards else { continue };
        let of_table = || cut.rows.iter().filter(|rows| rows.table == place);
        if cut.is_full {
            delete_others(shards, of_table());
        }
        for FollowedRows { keys, rows, .. } in of_table() {
            match rows {
                None => drop(shards.restore_deletions(keys)),
                Some(rows) => {
                    shards.restore_rows(keys, rows).map_err(|error| error.to_string())?;
                }
            }
        }
    }
    Ok(())
}

fn in_words(failure: RequestFailure) -> String {
    match failure {
        RequestFailure::Refused(_, text) => text,
        RequestFailure::Full | RequestFailure::Parked(_) => "the server cannot do it now".to_owned(),
    }
}

/// The number of the table with this schema. It is made if it is not there, or has another schema.
fn number_of(tables: &mut ServerTables, schema: &Schema) -> Result<usize, String> {
    let own = tables.all.numbered().find(|(_, own)| own.schema.name == schema.name);
    match own.map(|(number, own)| (number, own.schema == *schema)) {
        Some((number, true)) => return Ok(number),
        Some((_, false)) => drop_table(tables, &schema.name).map_err(in_words)?,
        None => {}
    }
    let identity = TableIdentity { uid: TableUid::NONE, server: 0, servers: 1 };
    let claim = IdentityClaim { identity, make_in: tables.home.incarnation };
    // Nobody but the follower makes tables here.
    let mirror = tables.mirror.take();
    let opened = tables.open(schema.clone(), claim);
    tables.mirror = mirror;
    opened.map_err(in_words)
}

/// Deletes the rows that are not among these.
fn delete_others<'a>(shards: &mut Shards, wanted: impl Iterator<Item = &'a FollowedRows>) {
    let wanted: HashSet<u64> =
        wanted.filter(|of| of.rows.is_some()).flat_map(|of| of.keys.iter().copied()).collect();
    let mut others = Vec::new();
    for shard in shards.set().clone().iter() {
        let (mut keys, mut rows, mut next) = (Vec::new(), Vec::new(), Some(0));
        while let Some(from) = next {
            keys.clear();
            rows.clear();
            next = shards.scan(shard, from, PAGE, &mut keys, &mut rows);
            others.extend(keys.iter().filter(|key| !wanted.contains(key)));
        }
    }
    shards.restore_deletions(&others);
}

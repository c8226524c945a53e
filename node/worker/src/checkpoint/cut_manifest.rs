//! The manifest of a cut: what all threads have said of it, put together and checked.

use crate::checkpoint::frozen::limits_of_lacking;
use crate::checkpoint::options::{CheckpointOptions, unexpected};
use crate::error::WorkerError;
use gannet_core::{
    Cursor, Draft, FileEntry, JobManifest, PushProgress, Schema, ShardCut, TableCut, TableUid,
};
use gannet_wire::messages::cuts::*;
use std::collections::{BTreeMap, BTreeSet};

/// The manifest of a cut whose files are written.
pub(crate) fn manifest(
    draft: &Draft,
    options: &CheckpointOptions,
    parent: Option<JobManifest>,
    tables: &[CutTableV1],
    marked: Vec<CutReplyV1>,
    files: Vec<CutFileV1>,
) -> Result<JobManifest, WorkerError> {
    let mut files: BTreeMap<(u32, u32), FileEntry> = files.into_iter().map(manifest_entry).collect();
    let MarkedCut { shards, pushers, states } = MarkedCut::of(marked, tables, &options.batch_tables)?;
    let increment = shards.values().any(|shard| shard.from > 0);
    let mut manifest = JobManifest::new(draft.number(), &options.run);
    manifest.notes.clone_from(&options.notes);
    manifest.parent = parent.filter(|_| increment).map(|parent| parent.number);
    manifest.states = draft.states(&states)?;
    for (place, table) in (0..).zip(tables) {
        let schema = Schema::decode(&table.schema).ok_or_else(|| {
            WorkerError::Call(format!("the schema of table {:?} cannot be read", table.name))
        })?;
        let cut = |shard: u32| {
            let marked = shards.get(&(place, shard))?;
            let &CutShardV1 { birth, epoch, from, to, .. } = marked;
            Some(ShardCut { shard, birth, epoch, from, to, file: files.remove(&(place, shard)) })
        };
        let cuts: Option<Vec<ShardCut>> = (0..schema.shards).map(cut).collect();
        let Some(shards) = cuts else {
            return Err(WorkerError::Cut(format!(
                "table {:?}: some shards are open on none of these servers: name all servers of the job; if one of them \
                 was started again, wait until a worker has opened the table there",
                table.name
            )));
        };
        let of = pushers.range((place, 0)..=(place, u64::MAX));
        let cursors = of.map(|(_, push)| cursor(push)).collect();
        manifest.tables.push(TableCut { schema, uid: TableUid(table.uid), shards, cursors });
    }
    Ok(manifest)
}

/// What all threads have said of a cut that they have marked.
pub(crate) struct MarkedCut {
    /// By the table's place in the mark, and by its number.
    pub(crate) shards: BTreeMap<(u32, u32), CutShardV1>,
    /// By the table's place in the mark, and by the pusher.
    pub(crate) pushers: BTreeMap<(u32, u64), PushProgress>,
    pub(crate) states: Vec<(String, Vec<u8>)>,
}

impl MarkedCut {
    /// Puts the replies together.
    ///
    /// # Errors
    /// The cut has a push, a batch or a step in a part only.
    pub(crate) fn of(
        marked: Vec<CutReplyV1>,
        tables: &[CutTableV1],
        batch_tables: &[String],
    ) -> Result<MarkedCut, WorkerError> {
        let (mut shards, mut pushers) = (BTreeMap::<(u32, u32), CutShardV1>::new(), BTreeMap::new());
        let mut states = Vec::<(String, Vec<u8>)>::new();
        let mut steps = BTreeMap::<String, BTreeSet<u64>>::new();
        for reply in marked {
            let CutReplyV1::Marked { shards: own, pushes, states: own_states, steps: own_steps } = reply
            else {
                return Err(unexpected(&reply));
            };
            for of in own_steps {
                steps.entry(of.table).or_default().insert(of.step);
            }
            shards.extend(own.into_iter().map(|shard| ((shard.table, shard.shard), shard)));
            for push in &pushes {
                let own = push.progress();
                let known = pushers.entry((push.table, push.pusher));
                known.and_modify(|known: &mut PushProgress| known.add(&own)).or_insert(own);
            }
            for (name, bytes) in own_states {
                if !states.iter().any(|(known, _)| *known == name) {
                    states.push((name, bytes));
                }
            }
        }
        check_whole(tables, batch_tables, &pushers, &steps)?;
        Ok(MarkedCut { shards, pushers, states })
    }
}

/// Checks that the cut has each push in all shards, each batch in all of these tables, and each step in all threads.
fn check_whole(
    tables: &[CutTableV1],
    batch_tables: &[String],
    pushers: &BTreeMap<(u32, u64), PushProgress>,
    steps: &BTreeMap<String, BTreeSet<u64>>,
) -> Result<(), WorkerError> {
    if let Some(push) = pushers.values().find(|push| !push.is_whole()) {
        let who = gannet_core::pusher_in_words(push.pusher);
        return Err(WorkerError::Cut(format!(
            "push {} of {who} is not complete at the cut: it was given up",
            push.seq
        )));
    }
    let name = |place: u32| tables.get(place as usize).map_or_else(String::new, |table| table.name.clone());
    let named = pushers.iter().map(|(&(place, pusher), push)| ((name(place), pusher), *push)).collect();
    if let Some(PushLimitV1 { table, pusher, seq, .. }) = limits_of_lacking(&named, batch_tables).first() {
        let who = gannet_core::pusher_in_words(*pusher);
        let why = format!("push {seq} of {who} is in other tables at the cut, and not in table {table:?}");
        return Err(WorkerError::Cut(why));
    }
    if let Some((table, _)) = steps.iter().find(|(_, steps)| steps.len() > 1) {
        return Err(WorkerError::Cut(format!(
            "the threads are in different steps of table {table:?} at the cut"
        )));
    }
    Ok(())
}

fn manifest_entry(file: CutFileV1) -> ((u32, u32), FileEntry) {
    let CutFileV1 { table, shard, name, bytes, crc, rows, deletions } = file;
    ((table, shard), FileEntry { name, bytes, crc, rows, deletions })
}

fn cursor(push: &PushProgress) -> Cursor {
    let PushProgress { pusher, incarnation, seq, closed, .. } = *push;
    Cursor { pusher, incarnation, seq, closed }
}

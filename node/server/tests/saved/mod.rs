//! Checkpoints that tests make with the library: a cut of a table's shards, written to files.

use gannet_core::{
    CheckpointDir, Cursor, CutProgress, JobManifest, Position, RowFileWriter, ShardCut, Shards, TableCut,
};
use std::collections::BTreeMap;

/// The rows of a table by key, with the bits of their floats.
pub type Rows = BTreeMap<u64, Vec<u32>>;

/// A job whose tables are in this process, and the last cut of each.
#[allow(dead_code, reason = "each test file uses what it needs")]
pub struct Saver {
    pub directory: CheckpointDir,
    pub run: String,
    pub states: Vec<(&'static str, Vec<u8>)>,
    parent: Option<u64>,
    cuts: Vec<Vec<Position>>,
}

#[allow(dead_code, reason = "each test file uses what it needs")]
impl Saver {
    pub fn new(folder: &std::path::Path) -> Saver {
        let directory = CheckpointDir::create(folder).unwrap();
        Saver { directory, run: "monday".into(), states: Vec::new(), parent: None, cuts: Vec::new() }
    }

    /// Saves a cut of whole tables: all rows, or what has changed since the last one. Returns its number.
    pub fn save(&mut self, tables: &mut [&mut Shards], full: bool) -> u64 {
        if full || self.parent.is_none() {
            (self.parent, self.cuts) = (None, vec![Vec::new(); tables.len()]);
        }
        let draft = self.directory.begin().unwrap();
        let mut manifest = JobManifest { parent: self.parent, ..JobManifest::new(draft.number(), &self.run) };
        for (table, from) in tables.iter_mut().zip(&mut self.cuts) {
            let marked = table.mark_cut(gannet_core::CutReader::Checkpoint, from);
            *from = marked.iter().map(|cut| cut.position).collect();
            let shards = marked.iter().map(|cut| ShardCut {
                shard: cut.position.shard,
                birth: cut.position.birth,
                epoch: cut.position.epoch,
                from: cut.from,
                to: cut.position.command,
                file: None,
            });
            let cursors = table.push_progress().into_iter().map(|progress| {
                assert!(progress.is_whole(), "{progress:?}");
                let gannet_core::PushProgress { pusher, incarnation, seq, closed, .. } = progress;
                Cursor { pusher, incarnation, seq, closed }
            });
            let (schema, uid) = (table.schema().clone(), table.identity().uid);
            let (shards, cursors) = (shards.collect(), cursors.collect());
            manifest.tables.push(TableCut { schema, uid, shards, cursors });
            let number = manifest.tables.len() - 1;
            for cut in marked {
                let shard = cut.position.shard;
                let head = manifest.row_file_head(number as u32, shard).unwrap();
                let mut writer = RowFileWriter::create(&self.directory, head, 1).unwrap();
                let write = |keys: &[u64], floats: &[f32]| writer.rows(keys, floats).unwrap();
                read_cut(table, shard, write);
                if !cut.deletions.is_empty() {
                    writer.deletions(&cut.deletions).unwrap();
                }
                if !cut.sketch.is_empty() {
                    writer.sketch(&cut.sketch).unwrap();
                }
                manifest.tables[number].shards[shard as usize].file = Some(writer.finish().unwrap());
            }
        }
        manifest.states = self.states.iter().map(|(name, bytes)| draft.state(name, bytes).unwrap()).collect();
        let number = draft.number();
        draft.publish(&manifest).unwrap();
        self.parent = Some(number);
        number
    }
}

fn read_cut(table: &mut Shards, shard: u32, mut write: impl FnMut(&[u64], &[f32])) {
    while table.read_cut(gannet_core::CutReader::Checkpoint, shard, 1000, &mut write) == CutProgress::More {}
}

/// The rows of these shards.
#[allow(dead_code, reason = "each test file uses what it needs")]
pub fn rows_of(table: &mut Shards) -> Rows {
    let (floats, mut rows) = (table.schema().floats(), Rows::new());
    for shard in table.set().clone().iter() {
        let (mut keys, mut values, mut next) = (Vec::new(), Vec::new(), Some(0));
        while let Some(from) = next {
            next = table.scan(shard, from, 1000, &mut keys, &mut values);
        }
        for (key, row) in keys.into_iter().zip(values.chunks(floats)) {
            let twice = rows.insert(key, row.iter().map(|float| float.to_bits()).collect());
            assert_eq!(twice, None, "key {key} has two rows");
        }
    }
    rows
}

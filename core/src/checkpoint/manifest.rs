//! The manifest of a job's checkpoint: which files belong to it, and which cut of the job they hold.

use crate::checkpoint::error::CheckpointDirError;
use crate::checkpoint::row_files::row_file::{RowFileHead, RowFileKind};
use crate::hash::mix;
use crate::push_name::Cursor;
use crate::schema::identity::TableUid;
use crate::schema::table_schema::Schema;
use std::collections::BTreeSet;
use std::path::Path;

/// What a checkpoint consists of.
///
/// ```
/// use gannet_core::{JobManifest, Cursor, Schema, ShardCut, TableCut, TableUid};
/// use gannet_optim::{Add, Rule};
///
/// let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
/// let empty = ShardCut { shard: 0, birth: 5, epoch: 1, from: 0, to: 0, file: None };
/// let cursors = vec![Cursor { pusher: 0, incarnation: 1, seq: 41, closed: false }];
/// let table = TableCut { schema, uid: TableUid([7; 16]), shards: vec![empty], cursors };
/// let manifest = JobManifest { tables: vec![table], ..JobManifest::new(1, "monday") };
/// assert_eq!(manifest.check(), Ok(()));
/// assert_eq!(JobManifest::decode(&manifest.encode()), Ok(manifest));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct JobManifest {
    /// The number of the checkpoint.
    pub number: u64,
    /// The checkpoint that an increment continues. `None`: this one stands alone.
    pub parent: Option<u64>,
    /// The run that saved it.
    pub run: String,
    /// Notes of the writer: (name, value).
    pub notes: Vec<(String, String)>,
    /// The state files.
    pub states: Vec<StateEntry>,
    /// The tables.
    pub tables: Vec<TableCut>,
}

/// A state file: bytes that only its writer understands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateEntry {
    /// Its name. The file is `NAME.state`.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
    /// CRC32C of all of them.
    pub crc: u32,
}

/// A table in a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct TableCut {
    /// The schema, with the table's name.
    pub schema: Schema,
    /// The table's id.
    pub uid: TableUid,
    /// A cut for each shard of the schema, in their order.
    pub shards: Vec<ShardCut>,
    /// The last whole push of each pusher in the cut, in the order of pushers.
    pub cursors: Vec<Cursor>,
}

/// A shard in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardCut {
    /// Its number.
    pub shard: u32,
    /// The birth of its image.
    pub birth: u64,
    /// The epoch of its history.
    pub epoch: u64,
    /// 0: the file has all rows. Else the number of the last command in the parent's cut; the file has what changed
    /// since.
    pub from: u64,
    /// The number of the last command in this cut.
    pub to: u64,
    /// Its row file. `None`: no rows, or nothing that changed.
    pub file: Option<FileEntry>,
}

/// A row file in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// Its name in the checkpoint's folder.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
    /// CRC32C of all of them.
    pub crc: u32,
    /// Rows in it.
    pub rows: u64,
    /// Deleted keys in it.
    pub deletions: u64,
}

impl JobManifest {
    /// The name of the note with the birth of the run.
    pub const RUN_BIRTH: &str = "run-birth";

    /// A manifest without tables and states.
    pub fn new(number: u64, run: &str) -> JobManifest {
        let (notes, states, tables) = (Vec::new(), Vec::new(), Vec::new());
        JobManifest { number, parent: None, run: run.into(), notes, states, tables }
    }

    /// The value of a note; `None` if there is no such note.
    pub fn note(&self, name: &str) -> Option<&str> {
        self.notes.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The birth of the run that saved it, in hexadecimal: it tells two runs of one name apart. `None`: the run had
    /// none.
    pub fn run_birth(&self) -> Option<&str> {
        self.note(JobManifest::RUN_BIRTH)
    }

    /// The note that [`JobManifest::run_birth`] reads: name and value. `None` for birth 0, which means: not known.
    pub fn run_birth_note(birth: u64) -> Option<(String, String)> {
        (birth != 0).then(|| (JobManifest::RUN_BIRTH.into(), format!("{birth:016x}")))
    }

    /// Refuses a checkpoint of another job that gave its run the same name. `birth` is that of the own run. Nothing is
    /// refused if one of the two is not known; an unknown `birth` is 0. `path` is the manifest or its folder.
    ///
    /// # Errors
    /// It is of another job.
    pub fn must_be_born(&self, birth: u64, path: &Path) -> Result<(), CheckpointDirError> {
        let own = JobManifest::run_birth_note(birth);
        match self.run_birth().zip(own) {
            Some((saved, (_, own))) if saved != own => {
                Err(CheckpointDirError::OtherJob { path: path.into(), run: self.run.clone() })
            }
            _ => Ok(()),
        }
    }

    /// The id that a table gets when it is restored from this checkpoint: all servers that restore it give it the same
    /// one. A server that has the table from another checkpoint, or from before, has another id. So no worker mixes
    /// their rows.
    pub fn restored_uid(&self, table: &TableCut) -> TableUid {
        let [low, high] = table.uid.words();
        let low = mix(low ^ mix(self.number));
        let high = mix(high ^ low) | 1; // never `TableUid::NONE`
        TableUid((u128::from(high) << 64 | u128::from(low)).to_le_bytes())
    }

    /// Whether rows of a table with this id are those of this checkpoint, or were restored from it.
    pub fn has_rows_of(&self, table: &str, uid: TableUid) -> bool {
        let saved = self.table(table).map(|(_, saved)| saved);
        saved.is_some_and(|saved| uid == saved.uid || uid == self.restored_uid(saved))
    }

    /// The table of this name, with its place in the manifest.
    pub fn table(&self, name: &str) -> Option<(u32, &TableCut)> {
        (0..).zip(&self.tables).find(|(_, table)| table.schema.name == name)
    }

    /// The row files of all tables.
    pub fn files(&self) -> impl Iterator<Item = &FileEntry> {
        self.tables.iter().flat_map(|table| &table.shards).filter_map(|shard| shard.file.as_ref())
    }

    /// Rows in all files.
    pub fn rows(&self) -> u64 {
        self.files().map(|file| file.rows).sum()
    }

    /// Deleted keys in all files.
    pub fn deletions(&self) -> u64 {
        self.files().map(|file| file.deletions).sum()
    }

    /// Bytes of all files but the manifest.
    pub fn bytes(&self) -> u64 {
        let states = self.states.iter().map(|state| state.bytes);
        self.files().map(|file| file.bytes).chain(states).fold(0, u64::saturating_add)
    }

    /// The head that the row file of a shard has. `None`: there is no such table or shard.
    pub fn row_file_head(&self, table: u32, shard: u32) -> Option<RowFileHead> {
        let cut = self.tables.get(table as usize)?;
        let kind = match cut.shards.get(shard as usize)?.from {
            0 => RowFileKind::Full,
            _ => RowFileKind::Increment,
        };
        let (number, shards, floats) = (self.number, cut.schema.shards, cut.schema.floats() as u32);
        Some(RowFileHead { number, uid: cut.uid, table, shard, shards, floats, kind })
    }

    /// Refuses a checkpoint of another run than `run`. `path` is its manifest or folder.
    ///
    /// # Errors
    /// It is of another run.
    pub fn must_be_of(&self, run: &str, path: &Path) -> Result<(), CheckpointDirError> {
        match self.run == run {
            true => Ok(()),
            false => Err(CheckpointDirError::OtherRun {
                path: path.into(),
                saved: self.run.clone(),
                asked: run.into(),
            }),
        }
    }

    /// Checks that the parts of the manifest fit each other.
    ///
    /// # Errors
    /// What does not fit, in words.
    pub fn check(&self) -> Result<(), String> {
        if self.number == 0 || self.parent.is_some_and(|parent| parent == 0 || parent >= self.number) {
            return Err(format!("checkpoint {} cannot have the parent {:?}", self.number, self.parent));
        }
        let mut names = BTreeSet::new();
        for state in &self.states {
            // A table's name and a state's name obey the same rule, so neither can leave the folder.
            let allowed = Schema::check_name(&state.name).is_ok();
            if !allowed || !names.insert(&state.name) {
                return Err(format!("the name {:?} of a state file is not allowed, or is twice", state.name));
            }
        }
        let mut names = BTreeSet::new();
        for (number, table) in (0..).zip(&self.tables) {
            let name = &table.schema.name;
            table.schema.check().map_err(|error| error.to_string())?;
            if !names.insert(name) {
                return Err(format!("table {name:?} is in it twice"));
            }
            self.check_shards(number, table).map_err(|why| format!("table {name:?}: {why}"))?;
            if !table.cursors.windows(2).all(|pair| pair[0].pusher < pair[1].pusher) {
                return Err(format!("table {name:?}: its cursors are not in the order of pushers"));
            }
        }
        Ok(())
    }

    fn check_shards(&self, number: u32, table: &TableCut) -> Result<(), String> {
        if table.shards.len() != table.schema.shards as usize {
            return Err(format!("{} shards instead of {}", table.shards.len(), table.schema.shards));
        }
        for (shard, cut) in (0..).zip(&table.shards) {
            let ShardCut { from, to, .. } = *cut;
            if cut.shard != shard {
                return Err(format!("shard {} stands where shard {shard} belongs", cut.shard));
            }
            if from > to || (from > 0 && self.parent.is_none()) {
                let parent = self.parent;
                return Err(format!("shard {shard} is from {from} to {to}, with the parent {parent:?}"));
            }
            let Some(file) = &cut.file else { continue };
            let head = self.row_file_head(number, shard);
            if head.is_none_or(|head| head.file_name() != file.name) || (from == 0 && file.deletions > 0) {
                return Err(format!("shard {shard} cannot have the file {:?}", file.name));
            }
        }
        Ok(())
    }

    /// Checks that this increment continues `parent`: the same run, and of each shard that is no full one the same
    /// table, birth and epoch, from the command where the parent ends.
    ///
    /// # Errors
    /// What does not fit, in words.
    pub fn check_follows(&self, parent: &JobManifest) -> Result<(), String> {
        let of = parent.number;
        if self.parent != Some(of) || self.run != parent.run {
            let (parent, ours, theirs) = (self.parent, &self.run, &parent.run);
            return Err(format!(
                "it is of run {ours:?} with the parent {parent:?}; checkpoint {of} is of run {theirs:?}"
            ));
        }
        for table in self.tables.iter().filter(|table| table.shards.iter().any(|cut| cut.from > 0)) {
            let name = &table.schema.name;
            let Some((_, before)) = parent.table(name) else {
                return Err(format!(
                    "its increment of table {name:?} needs it in checkpoint {of}, which has none"
                ));
            };
            if before.uid != table.uid {
                let (uid, was) = (table.uid, before.uid);
                return Err(format!(
                    "its table {name:?} is another one: id {uid}, but {was} in checkpoint {of}"
                ));
            }
            if before.schema != table.schema {
                let differs = before.schema.differences(&table.schema);
                return Err(format!("table {name:?} has another schema in checkpoint {of}: {differs}"));
            }
            for (cut, was) in table.shards.iter().zip(&before.shards).filter(|(cut, _)| cut.from > 0) {
                if (cut.birth, cut.epoch, cut.from) != (was.birth, was.epoch, was.to) {
                    return Err(format!(
                        "shard {} of table {name:?} continues birth {:x}, epoch {}, command {}, but checkpoint {of} \
                         ends at birth {:x}, epoch {}, command {}",
                        cut.shard, cut.birth, cut.epoch, cut.from, was.birth, was.epoch, was.to
                    ));
                }
            }
        }
        Ok(())
    }
}

//! The archive of a manifest, version 1, with the head before it. docs/checkpoint.md has the bytes.

use crate::checkpoint::manifest::{FileEntry, JobManifest, ShardCut, StateEntry, TableCut};
use crate::checkpoint::names::MANIFEST_BEGINNING as MAGIC;
use crate::push_name::Cursor;
use crate::schema::identity::TableUid;
use crate::schema::table_schema::Schema;

const VERSION: u32 = 1;
/// Bytes before the archive: magic, version, checksum, length.
const HEAD: usize = 24;

/// What a manifest says, version 1. Frozen: a change is a new struct.
#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
struct JobManifestV1 {
    number: u64,
    parent: Option<u64>,
    run: String,
    notes: Vec<(String, String)>,
    states: Vec<StateV1>,
    tables: Vec<TableV1>,
}

#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
struct StateV1 {
    name: String,
    bytes: u64,
    crc: u32,
}

#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
struct TableV1 {
    name: String,
    schema: Vec<u8>,
    uid: [u8; 16],
    shards: Vec<ShardV1>,
    cursors: Vec<CursorV1>,
}

#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
struct ShardV1 {
    shard: u32,
    birth: u64,
    epoch: u64,
    from: u64,
    to: u64,
    file: Option<RowFileV1>,
}

#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
struct RowFileV1 {
    name: String,
    bytes: u64,
    crc: u32,
    rows: u64,
    deletions: u64,
}

#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
struct CursorV1 {
    pusher: u64,
    incarnation: u64,
    seq: u64,
    closed: bool,
}

impl JobManifest {
    /// The manifest as the bytes of its file.
    pub fn encode(&self) -> Vec<u8> {
        let archive = rkyv::to_bytes::<rkyv::rancor::Error>(&archived(self));
        // It fails when the memory ends, and allocations abort then.
        let archive = archive.unwrap_or_default();
        let mut out = Vec::with_capacity(HEAD + archive.len());
        out.extend_from_slice(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend(crc32c::crc32c(&archive).to_le_bytes());
        out.extend((archive.len() as u64).to_le_bytes());
        out.extend_from_slice(&archive);
        out
    }

    /// The manifest that these bytes of a file hold.
    ///
    /// # Errors
    /// They are damaged, are not a manifest, or its parts do not fit each other. The error says which, in words.
    pub fn decode(bytes: &[u8]) -> Result<JobManifest, String> {
        let Some((head, body)) = bytes.split_at_checked(HEAD).filter(|(head, _)| head[..8] == *MAGIC) else {
            return Err("this is not the manifest of a job's checkpoint".into());
        };
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if word(8) != VERSION {
            let version = word(8);
            return Err(format!("its version is {version}, but this version of gannet reads {VERSION}"));
        }
        let length = u64::from(word(16)) | u64::from(word(20)) << 32;
        if length != body.len() as u64 || word(12) != crc32c::crc32c(body) {
            return Err("its length or checksum is wrong".into());
        }
        let mut aligned = rkyv::util::AlignedVec::<16>::with_capacity(body.len());
        aligned.extend_from_slice(body);
        let archive = rkyv::from_bytes::<JobManifestV1, rkyv::rancor::Error>(&aligned)
            .map_err(|error| format!("its archive is not valid: {error}"))?;
        let manifest = unarchived(archive)?;
        manifest.check()?;
        Ok(manifest)
    }
}

fn archived(manifest: &JobManifest) -> JobManifestV1 {
    let JobManifest { number, parent, run, notes, states, tables } = manifest.clone();
    let state = |StateEntry { name, bytes, crc }| StateV1 { name, bytes, crc };
    let file =
        |FileEntry { name, bytes, crc, rows, deletions }| RowFileV1 { name, bytes, crc, rows, deletions };
    let shard = |cut: ShardCut| {
        let ShardCut { shard, birth, epoch, from, to, file: own } = cut;
        ShardV1 { shard, birth, epoch, from, to, file: own.map(file) }
    };
    let cursor = |Cursor { pusher, incarnation, seq, closed }| CursorV1 { pusher, incarnation, seq, closed };
    let table = |cut: TableCut| TableV1 {
        name: cut.schema.name.clone(),
        schema: cut.schema.encode(),
        uid: cut.uid.0,
        shards: cut.shards.into_iter().map(shard).collect(),
        cursors: cut.cursors.into_iter().map(cursor).collect(),
    };
    let states = states.into_iter().map(state).collect();
    let tables = tables.into_iter().map(table).collect();
    JobManifestV1 { number, parent, run, notes, states, tables }
}

fn unarchived(archive: JobManifestV1) -> Result<JobManifest, String> {
    let JobManifestV1 { number, parent, run, notes, states, tables } = archive;
    let state = |StateV1 { name, bytes, crc }| StateEntry { name, bytes, crc };
    let file =
        |RowFileV1 { name, bytes, crc, rows, deletions }| FileEntry { name, bytes, crc, rows, deletions };
    let shard = |cut: ShardV1| {
        let ShardV1 { shard, birth, epoch, from, to, file: own } = cut;
        ShardCut { shard, birth, epoch, from, to, file: own.map(file) }
    };
    let cursor = |CursorV1 { pusher, incarnation, seq, closed }| Cursor { pusher, incarnation, seq, closed };
    let table = |cut: TableV1| {
        let schema = Schema::decode(&cut.schema).filter(|schema| schema.name == cut.name);
        let schema = schema.ok_or_else(|| format!("the schema of table {:?} is not valid", cut.name))?;
        Ok(TableCut {
            schema,
            uid: TableUid(cut.uid),
            shards: cut.shards.into_iter().map(shard).collect(),
            cursors: cut.cursors.into_iter().map(cursor).collect(),
        })
    };
    let states = states.into_iter().map(state).collect();
    let tables = tables.into_iter().map(table).collect::<Result<Vec<_>, String>>()?;
    Ok(JobManifest { number, parent, run, notes, states, tables })
}

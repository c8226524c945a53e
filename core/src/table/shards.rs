//! The shards of one table that one thread owns: opening, freeing, scanning and statistics. Pulls and pushes stand in
//! pull.rs and push.rs.

use crate::error::OpenError;
use crate::image::grower::Growth;
use crate::image::store::Store;
use crate::schema::identity::{Origin, TableIdentity};
use crate::schema::table_schema::Schema;
use crate::table::newest_incarnations::Incarnations;
use crate::table::pushers::{CLOSED, PusherEntry};
use crate::table::shard::Shard;
use gannet_optim::Cpu;
use std::ops::Range;
use std::os::fd::OwnedFd;

/// The slot handle of a key that has no row.
pub const NO_SLOT: u32 = crate::index::hash_index::NONE;

/// A contiguous range of a table's shards, owned by one thread (`Send`, not `Sync`).
pub struct Shards {
    pub(crate) schema: Schema,
    pub(crate) first: u32,
    pub(crate) shards: Vec<Shard>,
    pub(crate) scratch: CallBuffers,
    pub(crate) cpu: Cpu,
    pub(crate) incarnations: Incarnations,
    durable: bool,
}

/// Buffers that calls use again.
#[derive(Default)]
pub(crate) struct CallBuffers {
    pub(crate) row: Vec<f32>,
    pub(crate) init: Vec<f32>,
    pub(crate) slots: Vec<u32>,
    pub(crate) runs: Vec<(u32, u32)>,
}

/// Sizes of a range of shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Live rows.
    pub rows: u64,
    /// Bytes of memory or disk: headers, indexes and rows.
    pub bytes: u64,
    /// Shards.
    pub shards: u32,
}

/// What the shards remember of a pusher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PusherStatus {
    /// Who.
    pub pusher: u64,
    /// Which life of it.
    pub incarnation: u64,
    /// The highest push that any of the shards has heard of.
    pub seq: u64,
    /// The most rows of that push that one shard has.
    pub rows: u32,
    /// Whether it said that it is done.
    pub closed: bool,
}

impl Shards {
    /// Opens (or makes) the shards `range` of a table, as what the folder says that it holds. Images that are new in an empty
    /// folder, or in memory, have no table id and are born alike: for one process that shares them with nobody. Who must tell
    /// tables apart opens them [as something](Self::open_as).
    ///
    /// # Errors
    /// The schema or range is not sound; a shard is open already; the images are foreign, torn, of another schema or of an
    /// older boot; or the system refuses space.
    pub fn open(store: &Store, schema: &Schema, range: Range<u32>) -> Result<Shards, OpenError> {
        schema.check()?;
        let held = store.held(&schema.name)?;
        let identity = held.map_or(TableIdentity::NONE, |held| held.identity);
        Shards::open_as(store, schema, range, &Origin { identity, seed: 0 })
    }

    /// Opens (or makes) the shards `range` of a table whose identity is that of `origin`.
    ///
    /// # Errors
    /// As [`open`](Self::open); an image is of another table, or was there once and is gone.
    pub fn open_as(
        store: &Store,
        schema: &Schema,
        range: Range<u32>,
        origin: &Origin,
    ) -> Result<Shards, OpenError> {
        schema.check()?;
        if range.start >= range.end || range.end > schema.shards {
            let (table, shards) = (schema.name.clone(), schema.shards);
            return Err(OpenError::Range { table, shards, from: range.start, to: range.end });
        }
        if let Some(held) = store.held(&schema.name)? {
            held.must_have(store, &schema.name, range.clone())?;
        }
        let first = range.start;
        let shards = range.map(|n| store.shard(schema, n, origin)).collect::<Result<Vec<_>, _>>()?;
        store.sync_names(schema)?;
        shards.iter().for_each(|shard| shard.served_with(first));
        let floats = schema.floats();
        let scratch =
            CallBuffers { row: vec![0.0; floats], init: vec![0.0; floats + 1], ..CallBuffers::default() };
        let (schema, cpu, durable) = (schema.clone(), Cpu::detect(), store.durable());
        let incarnations = Incarnations::load(&shards);
        Ok(Shards { schema, first, shards, scratch, cpu, incarnations, durable })
    }

    /// Runs rules on this instruction set, or on a narrower one where it does not pay. Without this call the widest set of
    /// the CPU is used. The rows have the same bits on all of them.
    #[cfg(feature = "test-support")]
    pub fn set_cpu(&mut self, cpu: Cpu) {
        self.cpu = cpu;
    }

    /// Each shard's version counter: (shard, counter).
    #[cfg(feature = "test-support")]
    pub fn versions(&self) -> Vec<(u32, u64)> {
        self.shards.iter().map(|shard| (shard.number, shard.version)).collect()
    }

    /// The table's schema.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Which shards these are.
    pub fn range(&self) -> Range<u32> {
        self.first..self.first + self.shards.len() as u32
    }

    /// Whether the images outlive the process.
    pub fn durable(&self) -> bool {
        self.durable
    }

    /// Rows and bytes.
    pub fn stats(&self) -> Stats {
        self.shards.iter().fold(Stats::default(), |s, shard| Stats {
            rows: s.rows + shard.live(),
            bytes: s.bytes + shard.image.bytes(),
            shards: s.shards + 1,
        })
    }

    /// What growth has cost the thread that owns these shards.
    pub fn growth(&self) -> Growth {
        let mut all = Growth::default();
        self.shards.iter().for_each(|shard| all.add(shard.image.growth()));
        all
    }

    /// The shard's incarnation: it grows with every opening of its image.
    pub fn incarnation(&self) -> u64 {
        self.shards.iter().map(Shard::incarnation).max().unwrap_or(0)
    }

    /// Which table these are of.
    pub fn identity(&self) -> TableIdentity {
        self.shards.first().map_or(TableIdentity::NONE, Shard::identity)
    }

    /// What was drawn when the image of each was made: another image of the same shard has another birth.
    pub fn births(&self) -> Vec<u64> {
        self.shards.iter().map(Shard::birth).collect()
    }

    /// Notes in the images that all servers of the table have made theirs: from now on an image that is missing is gone.
    pub fn confirm(&self) {
        self.shards.iter().for_each(Shard::confirm);
    }

    /// What is remembered of each pusher, over all shards here.
    pub fn pushers(&self) -> Vec<PusherStatus> {
        let mut all = std::collections::BTreeMap::<u64, PusherStatus>::new();
        for shard in &self.shards {
            for i in 0..shard.pushers.len() {
                let e = PusherEntry::load(&shard.image, i);
                let closed = e.flags & CLOSED != 0;
                let PusherEntry { pusher, incarnation, seq, done: rows, .. } = e;
                let status = PusherStatus { pusher, incarnation, seq, rows, closed };
                let known = all.entry(e.pusher).or_insert(status);
                let newer = (incarnation, seq, rows) > (known.incarnation, known.seq, known.rows);
                let closed = if incarnation == known.incarnation { closed || known.closed } else { closed };
                if newer {
                    *known = status;
                    known.closed = closed;
                } else if incarnation == known.incarnation {
                    known.closed = closed;
                }
            }
        }
        all.into_values().collect()
    }

    /// Frees the row of `key`, so that its slot can be used again; `false` when it has none.
    pub fn free(&mut self, key: u64) -> bool {
        let shard = crate::hash::shard_of(crate::hash::hash(key), self.schema.shards);
        match self.shards.get_mut(shard.wrapping_sub(self.first) as usize) {
            Some(shard) => shard.free(key),
            None => false,
        }
    }

    /// Appends up to `most` rows of shard `shard` from `from` on (0 at first): keys, and the stored floats of each.
    /// Answers where to go on, or `None` at the end.
    pub fn scan(
        &mut self,
        shard: u32,
        from: u32,
        most: usize,
        keys: &mut Vec<u64>,
        rows: &mut Vec<f32>,
    ) -> Option<u32> {
        let floats = self.schema.floats();
        self.shards.get_mut(shard.wrapping_sub(self.first) as usize)?.scan(
            from,
            most,
            floats,
            |key, _, row| {
                keys.push(key);
                rows.extend_from_slice(row);
            },
        )
    }

    /// What another process on this host needs to read shards where they are ([`View`](crate::View)): of each of these its number,
    /// a descriptor of its image that can only be read from, and its incarnation.
    ///
    /// Whoever has such a descriptor reads every row, and cannot write one: its mappings can only be read from, and the file's
    /// mode lets no other user open it again for writing. A process of the same user could; it could trace this one as well.
    ///
    /// # Errors
    /// The system gives no descriptor (its limit, or /proc is not there).
    pub fn images(&self, of: Range<u32>) -> std::io::Result<Vec<(u32, OwnedFd, u64)>> {
        let image = |shard: &Shard| Ok((shard.number, shard.image.share()?, shard.incarnation()));
        self.shards.iter().filter(|shard| of.contains(&shard.number)).map(image).collect()
    }

    /// Tells those who read the images by themselves that all pushes of steps below `clock`, of all workers that keep step, have
    /// been applied; [`NO_CLOCK`] that none keep step.
    pub fn set_lowest(&self, clock: u64) {
        self.shards.iter().for_each(|shard| shard.set_lowest(clock));
    }

    /// From now on those who have mapped the images believe nothing of them. Dropping the shards does it too.
    pub fn stop_serving(&self) {
        self.shards.iter().for_each(Shard::stop_serving);
    }

    /// After this every image is on its medium and marked as closed in order, and does not grow until it is opened again.
    ///
    /// # Errors
    /// The system could not write; that image counts as not closed.
    pub fn mark_clean(&mut self) -> std::io::Result<()> {
        if self.durable {
            for shard in &mut self.shards {
                shard.mark_clean()?;
            }
        }
        Ok(())
    }
}

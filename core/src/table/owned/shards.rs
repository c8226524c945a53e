//! The shards of one table that one thread owns: opening, freeing, scanning and statistics. pull.rs and push.rs have
//! the pulls and pushes.

use crate::error::OpenError;
use crate::image::files::store::Store;
use crate::image::memory::grower::Growth;
use crate::push_name::CLIENTS;
use crate::schema::identity::{ImageOrigin, Origin, TableIdentity};
use crate::schema::shard_set::{ShardPlaces, ShardSet};
use crate::schema::table_schema::Schema;
use crate::table::commands::command::ShardCommand;
use crate::table::commands::command_record::Listener;
use crate::table::owned::shard::Shard;
use crate::table::progress::newest_incarnations::Incarnations;
use crate::table::progress::pushers::PusherEntry;
use gannet_optim::Cpu;
use std::os::fd::OwnedFd;

/// The value that stands for the slot of a key without a row.
pub const NO_SLOT: u32 = crate::index::hash_index::NONE;

/// Some of a table's shards, owned by one thread (`Send`, not `Sync`).
///
/// ```
/// use gannet_core::{PushName, Read, Schema, Shards, Store, Write};
/// use gannet_optim::{Rule, Sgd};
///
/// let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Sgd(Sgd { lr: 0.5 })) };
/// let mut shards = Shards::open(&Store::memory(), &schema, 0..1)?;
///
/// // Worker 1 pushes a gradient for two keys. A resend of the same name changes nothing.
/// let name = PushName { pusher: 1, incarnation: 1, seq: 1, row: 0 };
/// let done = shards.push(&name, Write::Gradient, &[7, 8], None, &[1.0, -1.0])?;
/// assert_eq!(done.applied, 2);
/// let again = shards.push(&name, Write::Gradient, &[7, 8], None, &[1.0, -1.0])?;
/// assert_eq!((again.applied, again.duplicate), (0, 2));
///
/// let mut weights = [0.0; 2];
/// shards.pull(&[7, 8], Read::Weights, &mut weights, None)?;
/// assert_eq!(weights, [-0.5, 0.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Shards {
    pub(crate) schema: Schema,
    pub(crate) set: ShardSet,
    /// Where each shard is in `shards`, which has the order of `set`.
    pub(crate) places: ShardPlaces,
    pub(crate) shards: Vec<Shard>,
    pub(crate) scratch: CallBuffers,
    pub(crate) cpu: Cpu,
    pub(crate) incarnations: Incarnations,
    pub(crate) listener: Listener,
    durable: bool,
}

/// Buffers that calls reuse.
#[derive(Default)]
pub(crate) struct CallBuffers {
    pub(crate) row: Vec<f32>,
    pub(crate) init: Vec<f32>,
    pub(crate) slots: Vec<u32>,
    pub(crate) runs: Vec<(u32, u32)>,
}

/// Sizes of some shards. [`Shards::stats`] has an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Live rows.
    pub rows: u64,
    /// Bytes of memory or disk: headers, indexes and rows.
    pub bytes: u64,
    /// Number of shards.
    pub shards: u32,
}

/// What the shards remember of a pusher. [`Shards::pushers`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PusherStatus {
    /// The pusher's number, as in [`PushName`](crate::PushName).
    pub pusher: u64,
    /// Its newest incarnation.
    pub incarnation: u64,
    /// The highest sequence number that any of the shards knows.
    pub seq: u64,
    /// The most rows of that push that one shard has.
    pub rows: u32,
    /// Whether the pusher said that it will push no more.
    pub closed: bool,
}

impl PusherStatus {
    /// Whether this is what a restore recorded ([`Shards::set_cursor`]), and nothing was pushed here since.
    pub fn is_restored(&self) -> bool {
        self.rows == u32::MAX
    }
}

impl Shards {
    /// Opens these shards of a table, and makes those that do not exist. New images get the identity of
    /// the images in the folder. In an empty folder, or in memory, new images get no table id: use this only in
    /// a process that shares its images with no other. Servers use [`open_as`](Self::open_as), which tells
    /// tables apart.
    ///
    /// # Errors
    /// The schema is not sound; the set is empty or has a shard that the table has not; a shard is already open; an
    /// image is foreign, torn, of another schema or of an older boot; or the system has no space.
    pub fn open(store: &Store, schema: &Schema, set: impl Into<ShardSet>) -> Result<Shards, OpenError> {
        schema.check()?;
        let held = store.held(&schema.name)?;
        let identity = held.map_or(TableIdentity::NONE, |held| held.identity);
        Shards::open_as(store, schema, set, &Origin { identity, seed: 0 })
    }

    /// Opens these shards of a table with the identity of `origin`, and makes those that do not exist.
    ///
    /// # Errors
    /// As [`open`](Self::open); or an image belongs to another table, or existed once and is gone.
    pub fn open_as(
        store: &Store,
        schema: &Schema,
        set: impl Into<ShardSet>,
        origin: &Origin,
    ) -> Result<Shards, OpenError> {
        let of_image = |number| ImageOrigin { identity: origin.identity, birth: origin.birth(number) };
        Shards::open_each(store, schema, set.into(), of_image)
    }

    /// Opens shards. `origin`: that of a shard if it is new.
    pub(crate) fn open_each(
        store: &Store,
        schema: &Schema,
        set: ShardSet,
        origin: impl Fn(u32) -> ImageOrigin,
    ) -> Result<Shards, OpenError> {
        schema.check()?;
        if set.numbers().last().is_none_or(|last| *last >= schema.shards) {
            let (table, shards) = (schema.name.clone(), schema.shards);
            return Err(OpenError::Shards { table, shards, set });
        }
        // The list first: another thread may make the first images of the table now, and list it.
        let was_listed = store.lists(&schema.name);
        match store.held(&schema.name)? {
            Some(held) => held.must_have(store, &schema.name, &set)?,
            None if was_listed => store.must_be_dropped(&schema.name)?,
            None => {}
        }
        let (first, places) = (set.numbers()[0], ShardPlaces::of(&set, schema.shards));
        let shards = set.iter().map(|n| store.shard(schema, n, origin(n))).collect::<Result<Vec<_>, _>>()?;
        if !shards.iter().all(|shard| shard.was_closed) {
            store.sync_names(schema)?;
        }
        store.list_table(&schema.name)?;
        shards.iter().for_each(|shard| shard.served_with(first));
        let floats = schema.floats();
        let scratch = CallBuffers {
            row: vec![0.0; floats],
            init: vec![0.0; schema.weights() + 1],
            ..CallBuffers::default()
        };
        let (schema, cpu, durable) = (schema.clone(), Cpu::detect(), store.durable());
        let incarnations = Incarnations::load(&shards);
        Ok(Shards {
            schema,
            set,
            places,
            shards,
            scratch,
            cpu,
            incarnations,
            listener: Listener::default(),
            durable,
        })
    }

    /// Runs rules on this instruction set, or on a narrower one where a wide one does not pay. Without this call the
    /// widest set of the CPU is used. The rows have the same bits on all of them.
    #[cfg(feature = "test-support")]
    pub fn set_cpu(&mut self, cpu: Cpu) {
        self.cpu = cpu;
    }

    /// The version counter of each shard: (shard, counter).
    #[cfg(feature = "test-support")]
    pub fn versions(&self) -> Vec<(u32, u64)> {
        self.shards.iter().map(|shard| (shard.number, shard.command)).collect()
    }

    /// The table's schema.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The numbers of these shards.
    pub fn set(&self) -> &ShardSet {
        &self.set
    }

    /// The shard of this number, if it is here.
    #[inline]
    pub(crate) fn shard_mut(&mut self, shard: u32) -> Option<&mut Shard> {
        self.shards.get_mut(self.places.place(shard) as usize)
    }

    /// Whether the images outlive the process.
    pub fn durable(&self) -> bool {
        self.durable
    }

    /// Rows, bytes and shards.
    ///
    /// ```
    /// # use gannet_core::{PushName, Read, Schema, Shards, Store, Write};
    /// # use gannet_optim::{Add, Rule};
    /// # let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
    /// # let mut shards = Shards::open(&Store::memory(), &schema, 0..1)?;
    /// # let name = PushName { pusher: 1, incarnation: 1, seq: 1, row: 0 };
    /// shards.push(&name, Write::Gradient, &[7, 8], None, &[1.0, 2.0])?;
    /// let stats = shards.stats();
    /// assert_eq!((stats.rows, stats.shards), (2, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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

    /// The highest incarnation of these shards. A shard's incarnation grows with every opening of its image.
    pub fn incarnation(&self) -> u64 {
        self.shards.iter().map(Shard::incarnation).max().unwrap_or(0)
    }

    /// The identity of the table, from the image of the first shard.
    pub fn identity(&self) -> TableIdentity {
        self.shards.first().map_or(TableIdentity::NONE, Shard::identity)
    }

    /// The birth of each image, in the order of the shards: a random number that was drawn when the image was made.
    pub fn births(&self) -> Vec<u64> {
        self.shards.iter().map(Shard::birth).collect()
    }

    /// Records in the images that all servers of the table have made their images. From now on, a missing image
    /// means lost rows.
    pub fn confirm(&self) {
        self.shards.iter().for_each(Shard::confirm);
    }

    /// The shards have another history from now on. Its epoch must be above all before.
    ///
    /// ```
    /// # use gannet_core::{Schema, Shards, Store};
    /// # use gannet_optim::{Add, Rule};
    /// let mut shards = Shards::open(&Store::memory(), &Schema::scalar("clicks", Rule::Add(Add)), 0..1)?;
    /// shards.begin_epoch(3);
    /// assert_eq!(shards.positions()[0].epoch, 3);
    /// # Ok::<(), gannet_core::OpenError>(())
    /// ```
    pub fn begin_epoch(&mut self, epoch: u64) {
        self.shards.iter_mut().for_each(|shard| shard.begin_epoch(epoch));
    }

    /// The births of all shards of the table as one number, as the first worker found them that opened the table at all
    /// servers. Another number now means that other shards were made anew since, and have lost rows. 0: no worker has
    /// opened the table since the shards here were made.
    ///
    /// ```
    /// # use gannet_core::{Schema, Shards, Store};
    /// # use gannet_optim::{Add, Rule};
    /// let shards = Shards::open(&Store::memory(), &Schema::scalar("clicks", Rule::Add(Add)), 0..1)?;
    /// assert_eq!(shards.all_births(), 0);
    /// shards.note_all_births(7);
    /// assert_eq!(shards.all_births(), 7);
    /// # Ok::<(), gannet_core::OpenError>(())
    /// ```
    pub fn all_births(&self) -> u64 {
        self.shards.iter().map(Shard::all_births).find(|births| *births != 0).unwrap_or(0)
    }

    /// Records the births of all shards of the table, in the images.
    pub fn note_all_births(&self, births: u64) {
        self.shards.iter().for_each(|shard| shard.note_all_births(births));
    }

    /// What all shards here remember of each pusher, in the order of the pushers' numbers.
    ///
    /// ```
    /// # use gannet_core::{PushName, Read, Schema, Shards, Store, Write};
    /// # use gannet_optim::{Add, Rule};
    /// # let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
    /// # let mut shards = Shards::open(&Store::memory(), &schema, 0..1)?;
    /// # let name = PushName { pusher: 1, incarnation: 1, seq: 1, row: 0 };
    /// shards.push(&name, Write::Gradient, &[7, 8], None, &[1.0, 2.0])?;
    /// let last = shards.pushers()[0];
    /// assert_eq!((last.pusher, last.seq, last.rows), (1, 1, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pushers(&self) -> Vec<PusherStatus> {
        let mut all = std::collections::BTreeMap::<u64, PusherStatus>::new();
        for shard in &self.shards {
            for e in shard.remembered_pushers().filter(|e| e.pusher != CLIENTS) {
                let closed = e.is_closed();
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

    /// Frees the row of `key`, so that its slot can be reused. Returns `false` when the key has no row here.
    ///
    /// ```
    /// # use gannet_core::{PushName, Read, Schema, Shards, Store, Write};
    /// # use gannet_optim::{Add, Rule};
    /// # let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
    /// # let mut shards = Shards::open(&Store::memory(), &schema, 0..1)?;
    /// # let name = PushName { pusher: 1, incarnation: 1, seq: 1, row: 0 };
    /// shards.push(&name, Write::Gradient, &[7], None, &[1.0])?;
    /// assert!(shards.free(7));
    /// assert!(!shards.free(7), "it has no row any more");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn free(&mut self, key: u64) -> bool {
        let shard = crate::hash::shard_of(crate::hash::hash(key), self.schema.shards);
        let at = self.places.place(shard) as usize;
        at < self.shards.len() && self.apply_at(at, ShardCommand::Delete(key)).unwrap_or(false)
    }

    /// Appends up to `most` rows of shard `shard`, starting at slot `from` (0 at first): their keys to `keys`, and
    /// [`Schema::floats`] floats for each to `rows`. Returns the slot to continue at, or `None` at the end.
    ///
    /// ```
    /// # use gannet_core::{PushName, Read, Schema, Shards, Store, Write};
    /// # use gannet_optim::{Add, Rule};
    /// # let schema = Schema { shards: 1, ..Schema::scalar("clicks", Rule::Add(Add)) };
    /// # let mut shards = Shards::open(&Store::memory(), &schema, 0..1)?;
    /// # let name = PushName { pusher: 1, incarnation: 1, seq: 1, row: 0 };
    /// shards.push(&name, Write::Gradient, &[7, 8], None, &[1.0, 2.0])?;
    /// let (mut keys, mut rows, mut next) = (Vec::new(), Vec::new(), Some(0));
    /// while let Some(from) = next {
    ///     next = shards.scan(0, from, 100, &mut keys, &mut rows);
    /// }
    /// assert_eq!((keys.len(), rows.iter().sum::<f32>()), (2, 3.0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scan(
        &mut self,
        shard: u32,
        from: u32,
        most: usize,
        keys: &mut Vec<u64>,
        rows: &mut Vec<f32>,
    ) -> Option<u32> {
        let floats = self.schema.floats();
        self.shard_mut(shard)?.scan(from, most, floats, |key, _, row| {
            keys.push(key);
            rows.extend_from_slice(row);
        })
    }

    /// What another process on this host needs to read these shards in place ([`MappedShards`](crate::MappedShards)).
    /// For each shard in `of`: its number, a read-only descriptor of its image, and its incarnation.
    ///
    /// A process with such a descriptor can read every row and cannot write one. Its mappings are read-only, and the
    /// file's mode lets no other user open it again for writing. A process of the same user could open it for writing,
    /// but such a process could also trace this one.
    ///
    /// # Errors
    /// The system gives no descriptor: its limit is reached, or /proc is missing.
    pub fn images(&self, of: &ShardSet) -> std::io::Result<Vec<(u32, OwnedFd, u64)>> {
        let image = |shard: &Shard| Ok((shard.number, shard.image.share()?, shard.incarnation()));
        self.shards.iter().filter(|shard| of.contains(shard.number)).map(image).collect()
    }

    /// Tells readers of the images the lowest clock of the workers that keep step: the pushes of all their
    /// steps below `clock` are applied. [`NO_CLOCK`](crate::NO_CLOCK) says that no workers keep step.
    pub fn set_lowest(&self, clock: u64) {
        self.shards.iter().for_each(|shard| shard.set_lowest(clock));
    }

    /// The number of the last command of each shard, in the order of the shards.
    pub fn commands(&self) -> Vec<u64> {
        self.shards.iter().map(|shard| shard.command).collect()
    }

    /// Tells readers of the images up to which command all backups have each shard. They do not believe rows that
    /// changed later: the death of this process could undo these changes. Before the first call they believe all rows.
    ///
    /// # Panics
    /// When there is not one number for each shard.
    pub fn set_acknowledged(&self, commands: &[u64]) {
        assert_eq!(commands.len(), self.shards.len(), "one for each shard");
        self.shards.iter().zip(commands).for_each(|(shard, command)| shard.set_acknowledged(*command));
    }

    /// Tells readers that have mapped the images not to use them any more. Dropping the shards does the same.
    pub fn stop_serving(&self) {
        self.shards.iter().for_each(Shard::stop_serving);
    }

    /// Syncs every image to its medium and marks it as closed in order. The images do not grow until they are
    /// opened again.
    ///
    /// # Errors
    /// The system could not write an image. That image counts as not closed.
    pub fn mark_clean(&mut self) -> std::io::Result<()> {
        if self.durable {
            for shard in &mut self.shards {
                shard.mark_clean()?;
            }
        }
        Ok(())
    }
}

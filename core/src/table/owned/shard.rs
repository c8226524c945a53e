//! One shard: opening, recovery, freeing, scanning. pull.rs and push_loop.rs have the hot paths.

use crate::error::{GrowError, OpenError};
use crate::hash::hash;
use crate::image::checksums::{self, Checksums};
use crate::image::files::filesystem::Medium;
use crate::image::files::open_shards::OpenShard;
use crate::image::head::{self, OtherHead, check_head, write_head};
use crate::image::journal::Journal;
use crate::image::layout::*;
use crate::image::memory::grower::Grower;
use crate::image::owned_image::Image;
use crate::image::row_version::LIVE;
use crate::index::expansion::ExpansionBuffers;
use crate::index::geometry::Geometry;
use crate::index::hash_index;
use crate::index::resolve::ShardIndex;
use crate::schema::identity::{ImageOrigin, TableIdentity};
use crate::schema::table_schema::Schema;
use crate::table::cuts::copy_state::CopyState;
use crate::table::cuts::saved_rows::Cut;
use crate::table::owned::page_versions::PageVersions;
use crate::table::owned::position::FIRST_EPOCH;
use crate::table::progress::pushers::{PusherEntry, Pushers, offset};
use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

pub(crate) struct Shard {
    pub(crate) image: Image,
    pub(crate) journal: Journal,
    pub(crate) geometry: Geometry,
    pub(crate) pushers: Pushers,
    /// The number of the last command, a copy of the image's word.
    pub(crate) command: u64,
    /// The last command before this process became the owner of the shard, or opened it.
    pub(crate) taken: u64,
    /// The last command before the part that was begun last.
    pub(crate) before_part: u64,
    /// Readers have skipped the numbers above the first up to the second, as the last ones that were skipped.
    pub(crate) skipped: (u64, u64),
    /// How much of its owner this shard has, if it is a copy.
    pub(crate) copy: CopyState,
    pub(crate) pages: PageVersions,
    /// The cuts that are being read, one of each reader.
    pub(crate) cuts: Vec<Cut>,
    /// The command at which a reader of changes set the last mark; 0: none did since the shard was opened.
    pub(crate) last_mark: u64,
    /// The version words of rows that last changed between the last mark and the current command: the first one, and
    /// how many there are. A version word is a command, shifted left by two bits for flags. The write of such a row has
    /// nothing to do first.
    pub(crate) plain: (u64, u64),
    /// The command at which the shard was opened, and those at which checkpoints were cut since: what a delta may begin
    /// at.
    pub(crate) bases: Vec<u64>,
    /// The commands at which followers cut last, in ascending order.
    pub(crate) followed: VecDeque<u64>,
    /// Those of the last life that closed the image in order, if there are some: they are told what changes.
    pub(crate) checksums: Option<Checksums>,
    /// The image's file, if it outlives the process.
    path: Option<PathBuf>,
    pub(crate) number: u32,
    /// The image had been closed in order when it was opened. So its name is on the medium.
    pub(crate) was_closed: bool,
    pub(crate) moved: ExpansionBuffers,
    /// The ends of the stretches of rows that are listed as readable, each with its address (readable_shard.rs).
    pub(crate) listed: Vec<(usize, usize)>,
    /// Released after the image is unmapped, because fields are dropped in their order.
    _claim: OpenShard,
}

/// Where a shard's file is, and what the code that opens it must know.
pub(crate) struct ShardFile<'a> {
    pub(crate) path: &'a Path,
    pub(crate) medium: Medium,
    /// The file outlives the process, so steps are journaled.
    pub(crate) durable: bool,
    pub(crate) boot: [u8; 16],
    pub(crate) grower: &'a Arc<Grower>,
    /// That of a new image. Another one must have the same identity.
    pub(crate) origin: ImageOrigin,
}

impl Shard {
    /// Makes a new image of an empty shard.
    pub(crate) fn create(
        file: File,
        place: &ShardFile<'_>,
        schema: &Schema,
        number: u32,
        claim: OpenShard,
    ) -> Result<Shard, OpenError> {
        let io = |source| OpenError::of_image("making the image", place.path, source);
        let sketch = schema.admission.sketch_bytes();
        let mut image =
            Image::create(file, schema.stride(), sketch, place.medium, place.durable, place.grower)
                .map_err(io)?;
        image.grow(Region::Index, 4096).map_err(|error| match error {
            GrowError::System(source) => io(source),
            source => OpenError::Limit { path: place.path.into(), source },
        })?;
        (0..2).for_each(|i| image.bucket(i).reset());
        image.word(INCARNATION).store(1, Relaxed);
        image.word(EPOCH).store(FIRST_EPOCH, Relaxed);
        write_head(&mut image, schema, number, place.origin);
        mark_open(&image, place);
        Shard::start(image, place, schema, number, claim)
    }

    /// Opens an existing image, and undoes the step that was in progress when its process died.
    pub(crate) fn reopen(
        file: File,
        place: &ShardFile<'_>,
        schema: &Schema,
        number: u32,
        claim: OpenShard,
    ) -> Result<Shard, OpenError> {
        let path = place.path;
        let io = |source| OpenError::of_image("opening the image", path, source);
        let torn = |why: String| OpenError::Torn { path: path.into(), why };
        let length = file.metadata().map_err(io)?.len();
        if length < crate::limits::CHUNK_BYTES as u64 {
            return Err(torn(format!("its {length} bytes are too short for a header")));
        }
        let mut image = Image::map(
            file,
            schema.stride(),
            schema.admission.sketch_bytes(),
            place.medium,
            place.durable,
            place.grower,
        )
        .map_err(io)?;
        check_image(&image, place, schema, number)?;
        image.check_extents(length).map_err(torn)?;
        image.map_extents().map_err(io)?;
        let checksums = next_life(&image, path);
        let was_closed = image.word(CLEAN).load(Relaxed) == CLOSED_IN_ORDER;
        // A reader that has mapped the previous incarnation must see its end before anything else in the image
        // changes.
        image.word(INCARNATION).fetch_add(1, Relaxed);
        fence(SeqCst);
        mark_open(&image, place);
        // The next process to open the image after a power loss must see the open flag. So this page is synced first.
        image.sync_head().map_err(io)?;
        let mut shard = Shard::start(image, place, schema, number, claim)?;
        if checksums.is_some() {
            // The first change of each row in this life is noted.
            shard.mark();
            shard.checksums = checksums;
        }
        shard.was_closed = was_closed;
        Ok(shard)
    }

    fn start(
        mut image: Image,
        place: &ShardFile<'_>,
        schema: &Schema,
        number: u32,
        claim: OpenShard,
    ) -> Result<Shard, OpenError> {
        let torn = |why: String| OpenError::Torn { path: place.path.into(), why };
        let journal = Journal::recover(&mut image, schema.stride(), place.durable).map_err(torn)?;
        settle_current(&image, journal.step());
        let geometry = Geometry::load(&image);
        geometry.check(&image).map_err(torn)?;
        let words = |at| image.word(at).load(Relaxed);
        if words(HIGH_WATER) > u64::from(image.slots())
            || words(LIVE_ROWS) > words(HIGH_WATER)
            || words(FREE_HEAD) > words(HIGH_WATER)
            || words(OVERFLOW_USED) as usize > image.overflow_buckets()
        {
            return Err(torn("its counters do not fit its regions".into()));
        }
        hash_index::check_links(&image, geometry).map_err(torn)?;
        image.word(LOWEST).store(NO_CLOCK, Release);
        image.word(ACKNOWLEDGED).store(NO_BACKUPS, Release);
        image.word(SERVING).store(1, Release);
        let pushers = Pushers::load(&image);
        let command = words(COMMAND);
        let pages = PageVersions::opened(words(HIGH_WATER));
        Ok(Shard {
            image,
            journal,
            geometry,
            pushers,
            command,
            taken: command,
            before_part: command,
            skipped: (command, command),
            copy: CopyState::default(),
            pages,
            cuts: Vec::new(),
            last_mark: 0,
            plain: (0, 0),
            bases: vec![command],
            followed: VecDeque::new(),
            checksums: None,
            path: place.durable.then(|| place.path.to_path_buf()),
            number,
            was_closed: false,
            moved: ExpansionBuffers::default(),
            listed: Vec::new(),
            _claim: claim,
        })
    }

    /// Live rows.
    pub(crate) fn live(&self) -> u64 {
        self.image.word(LIVE_ROWS).load(Relaxed)
    }

    /// The slots that have been in use are below this one.
    pub(crate) fn high_water(&self) -> u32 {
        self.image.word(HIGH_WATER).load(Relaxed) as u32
    }

    /// The slot of a key; `NONE` when it has no row.
    pub(crate) fn find(&self, key: u64) -> u32 {
        let h = hash(key);
        hash_index::find_slot(&self.image, self.geometry.home(h), h, key)
    }

    /// Counts a row of a part that changes nothing as a step.
    #[cold]
    pub(crate) fn skip_step(&mut self) {
        self.journal.settle(&self.image);
        self.journal.done();
        self.journal.settle(&self.image);
    }

    /// Calls `row` for up to `most` live rows from slot `from` on. Returns the slot to continue at, or `None` at the
    /// end.
    pub(crate) fn scan(
        &mut self,
        from: u32,
        most: usize,
        floats: usize,
        mut row: impl FnMut(u64, u64, &[f32]),
    ) -> Option<u32> {
        let end = self.high_water();
        let mut seen = 0;
        for slot in from..end {
            if seen == most {
                return Some(slot);
            }
            let r = self.image.row(slot);
            if r.version() & LIVE != 0 {
                row(r.key(), r.version() >> 2, r.floats(floats));
                seen += 1;
            }
        }
        None
    }

    /// Syncs the image to its medium, then marks it as closed in order. After this the image neither changes
    /// nor grows.
    pub(crate) fn mark_clean(&mut self) -> std::io::Result<()> {
        self.image.close();
        self.journal.settle(&self.image);
        if self.image.word(CLEAN).load(Relaxed) == UNSYNCED {
            return Err(std::io::Error::other("an earlier attempt to write the image to its medium failed"));
        }
        if let Err(error) = self.image.sync() {
            // The kernel reports the failure once and then counts the pages as written.
            self.image.word(CLEAN).store(UNSYNCED, Release);
            return Err(error);
        }
        if let Some(path) = &self.path
            && let Err(error) = self.write_checksums(path)
        {
            let image = path.display();
            tracing::warn!(%error, %image, "its checksums cannot be written: the next start does not check all of it");
        }
        crate::kill_point!();
        self.image.word(CLEAN).store(CLOSED_IN_ORDER, Release);
        self.image.sync()
    }

    fn write_checksums(&self, path: &Path) -> std::io::Result<()> {
        let (file, chunks) = (self.image.file(), self.image.file_chunks());
        checksums::write_checksums(&file, path, self.birth(), self.incarnation(), chunks)
    }

    /// Records the first shard of this owner. Shards with the same first shard stop being served together.
    pub(crate) fn served_with(&self, first: u32) {
        self.image.word(SERVED_WITH).store(u64::from(first), Release);
    }

    /// The shard has another history from now on.
    pub(crate) fn begin_epoch(&mut self, epoch: u64) {
        self.taken = self.command;
        self.image.word(EPOCH).store(epoch, Release);
    }

    /// Tells readers that have mapped the image not to use it any more.
    pub(crate) fn stop_serving(&self) {
        self.image.word(SERVING).store(0, Release);
    }

    /// Tells readers that have mapped the image which steps of all workers are in its rows.
    pub(crate) fn set_lowest(&self, clock: u64) {
        self.image.word(LOWEST).store(clock, Release);
    }

    /// Tells readers that have mapped the image up to which command all backups have the shard.
    pub(crate) fn set_acknowledged(&self, command: u64) {
        self.image.word(ACKNOWLEDGED).store(command, Release);
    }

    /// The table that the image belongs to, from its head.
    pub(crate) fn identity(&self) -> TableIdentity {
        head::identity_of(self.image.head())
    }

    /// The random number that was drawn when the image was made.
    pub(crate) fn birth(&self) -> u64 {
        head::birth_of(self.image.head())
    }

    /// Records that all servers of the table have made their images.
    pub(crate) fn confirm(&self) {
        self.image.word(CONFIRMED).store(1, Release);
    }

    /// The births of all shards of the table, as one number. 0: no worker has opened the table.
    pub(crate) fn all_births(&self) -> u64 {
        self.image.word(ALL_BIRTHS).load(Relaxed)
    }

    /// Records the births of all shards of the table.
    pub(crate) fn note_all_births(&self, births: u64) {
        self.image.word(ALL_BIRTHS).store(births, Release);
    }

    /// The shard's incarnation, which grows with every opening.
    pub(crate) fn incarnation(&self) -> u64 {
        self.image.word(INCARNATION).load(Relaxed)
    }
}

impl ShardIndex for Shard {
    #[inline(always)]
    fn locate(&self, hash: u64) -> usize {
        let home = self.geometry.home(hash);
        self.image.prefetch_bucket(home);
        home
    }

    #[inline(always)]
    fn candidate(&self, home: usize, hash: u64) -> u32 {
        hash_index::candidate(&self.image, home, hash)
    }

    #[inline(always)]
    fn second_candidate(&self, home: usize, hash: u64) -> u32 {
        hash_index::second_candidate(&self.image, home, hash)
    }

    #[inline(always)]
    fn prefetch_row(&self, slot: u32, bytes: usize) {
        self.image.prefetch_row(slot, bytes);
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.stop_serving();
    }
}

/// Records how many rows were applied of the push that was in progress.
fn settle_current(image: &Image, step: u64) {
    let current = image.word(CURRENT).load(Relaxed) as usize;
    if current != 0 && current <= crate::limits::PUSHERS_MAX {
        let mut entry = PusherEntry::load(image, current - 1);
        entry.done = step.wrapping_sub(entry.start).min(u64::from(entry.rows)) as u32;
        // One word: a kill here leaves either the old or the new word, and the next opening computes it again.
        image.word(offset(current - 1) + 24).store(entry.rows_word(), Release);
    }
    image.word(CURRENT).store(0, Release);
}

/// Marks the image as open in this boot. The flag is written last: until then the image still counts as closed.
fn mark_open(image: &Image, place: &ShardFile<'_>) {
    let [a, b] = boot_words(place.boot);
    image.word(BOOT).store(a, Release);
    image.word(BOOT + 8).store(b, Release);
    image.word(CLEAN).store(OPEN, Release);
}

fn boot_words(boot: [u8; 16]) -> [u64; 2] {
    let (a, b) = boot.split_at(8);
    [a, b].map(|half| u64::from_le_bytes(half.try_into().unwrap_or_default()))
}

/// The checksums of an image that gets another life. `None`: there are none, so nothing needs to be noted.
fn next_life(image: &Image, path: &Path) -> Option<Checksums> {
    let incarnation = image.word(INCARNATION).load(Relaxed);
    let closed = image.word(CLEAN).load(Relaxed) == CLOSED_IN_ORDER;
    let birth = head::birth_of(image.head());
    let mut sums = Checksums::load(path).filter(|sums| sums.are_of(birth, incarnation, closed))?;
    let begun = sums.begin_life(incarnation + 1);
    if let Err(error) = &begun {
        let image = path.display();
        tracing::warn!(%error, %image, "its checksums cannot be written: it is not checked after a kill");
    }
    begun.ok().map(|()| sums)
}

/// Checks that an image belongs to this shard and was closed in order.
fn check_image(image: &Image, place: &ShardFile<'_>, schema: &Schema, number: u32) -> Result<(), OpenError> {
    let path = || place.path.to_path_buf();
    check_head(image.head(), schema, number).map_err(|other| match other {
        OtherHead::Foreign(why) => OpenError::Foreign { path: path(), why },
        OtherHead::Torn(why) => OpenError::Torn { path: path(), why },
        OtherHead::Schema(how) => OpenError::OtherSchema { path: path(), how },
    })?;
    let (found, wanted) = (head::identity_of(image.head()), place.origin.identity);
    if found != wanted {
        return Err(OpenError::OtherTable { path: path(), found, wanted });
    }
    let boot = [image.word(BOOT).load(Relaxed), image.word(BOOT + 8).load(Relaxed)];
    let torn = |why: &str| Err(OpenError::Torn { path: path(), why: why.into() });
    match image.word(CLEAN).load(Relaxed) {
        _ if boot == [0, 0] => torn("it was never written whole: no boot id"),
        CLOSED_IN_ORDER => Ok(()),
        OPEN if boot == boot_words(place.boot) => Ok(()),
        OPEN => Err(OpenError::OlderBoot { path: path() }),
        UNSYNCED => torn("some of it could not be written to its medium when it was closed"),
        flag => torn(&format!("its clean flag has the unknown value {flag}")),
    }
}

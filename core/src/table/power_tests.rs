//! A power loss at any moment, on a model of a disk. The model keeps every version of each sector since the
//! last sync, and a power loss picks one of them. Opening must refuse an image that was open at a power loss,
//! with an error that names it. An image that was closed in order has exactly its rows. The names of new images
//! exist once their folders were synced. Before that, a note in the folder says that there are new ones.

use crate::error::OpenError;
use crate::image::files::durability::{Durable, observed};
use crate::image::files::store::{GrowthConfig, Store};
use crate::push_name::PushName;
use crate::schema::table_schema::Schema;
use crate::table::owned::shards::Shards;
use crate::table::pushes::read_write::Write;
use crate::*;
use gannet_optim::{Add, Rule};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const SECTOR: usize = 512;
const HEAD_SECTORS: usize = 4096 / SECTOR;

fn schema() -> Schema {
    Schema { shards: 1, ..Schema::scalar("t", Rule::Add(Add)) }
}

fn open(folder: &Path, boot: u8) -> Result<Shards, OpenError> {
    let store = Store::open_dir_as(folder, [boot; 16], GrowthConfig::default())?;
    Shards::open(&store, &schema(), 0..1)
}

fn name(seq: u64) -> PushName {
    PushName { pusher: 3, incarnation: 1, seq, row: 0 }
}

fn rows(table: &mut Shards) -> BTreeMap<u64, f32> {
    let (mut keys, mut floats) = (Vec::new(), Vec::new());
    assert_eq!(table.scan(0, 0, 1 << 20, &mut keys, &mut floats), None);
    keys.into_iter().zip(floats).collect()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn image_of(folder: &Path) -> PathBuf {
    folder.join("t/shard-0000.image")
}

fn note_of(folder: &Path) -> PathBuf {
    folder.join("UNSYNCED")
}

/// What the medium may have of one file: for each sector the versions since its last sync, oldest first.
#[derive(Default)]
struct Disk {
    sectors: Vec<Vec<[u8; SECTOR]>>,
    lengths: Vec<u64>,
}

impl Disk {
    /// Records the file as programs see it now: from now on this content may reach the medium.
    fn look(&mut self, file: &Path) {
        let bytes = std::fs::read(file).unwrap();
        self.lengths.push(bytes.len() as u64);
        self.sectors.resize_with(bytes.len().div_ceil(SECTOR), || vec![[0; SECTOR]]);
        for (versions, now) in self.sectors.iter_mut().zip(bytes.chunks_exact(SECTOR)) {
            if versions.last().unwrap() != now {
                versions.push(now.try_into().unwrap());
            }
        }
    }

    /// Records that the first `sectors` are on the medium as the last `look` recorded them.
    fn sync(&mut self, sectors: usize) {
        for versions in self.sectors.iter_mut().take(sectors) {
            versions.drain(..versions.len() - 1);
        }
        if sectors >= self.sectors.len() {
            self.lengths.drain(..self.lengths.len() - 1);
        }
    }

    /// Writes what a power loss may leave. `new` of 8 sectors get one of their later versions.
    fn lose(&self, to: &Path, new: u64, random: &mut Random) {
        let file = std::fs::File::create(to).unwrap();
        file.set_len(self.lengths[random.below(self.lengths.len())]).unwrap();
        for (at, versions) in self.sectors.iter().enumerate() {
            let later = versions.len() > 1 && random.next() % 8 < new;
            let sector = if later { &versions[1 + random.below(versions.len() - 1)] } else { &versions[0] };
            if sector.iter().any(|&byte| byte != 0) {
                file.write_all_at(sector, (at * SECTOR) as u64).unwrap();
            }
        }
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        mix(self.0)
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// What a power loss may make of the image.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Allowed {
    /// It does not exist: nothing in it was acknowledged.
    Absent,
    /// It is refused.
    Refused,
    /// It is refused, or has exactly its rows.
    RefusedOrExact,
    /// It has exactly its rows.
    Exact,
}

struct Machine {
    folder: PathBuf,
    copy: PathBuf,
    disk: Disk,
    rows: BTreeMap<u64, f32>,
    allowed: Allowed,
    /// Folders whose names were synced after the image got its name.
    named: Vec<PathBuf>,
    /// The note of new images is on the medium.
    note: bool,
    random: Random,
    seed: u64,
    /// How many images were opened after a power loss, and how many were refused.
    losses: (u32, u32),
}

impl Machine {
    fn new(seed: u64, folder: &Path, copy: &Path) -> Machine {
        let (disk, rows, named) = (Disk::default(), BTreeMap::new(), Vec::new());
        std::fs::create_dir_all(copy.join("t")).unwrap();
        let (folder, copy, allowed) = (folder.to_path_buf(), copy.to_path_buf(), Allowed::Absent);
        let random = Random(seed << 32);
        Machine { folder, copy, disk, rows, allowed, named, note: false, random, seed, losses: (0, 0) }
    }

    fn file(&self) -> PathBuf {
        let image = image_of(&self.folder);
        if image.exists() { image } else { image.with_extension("new") }
    }

    /// Called before a sync (`done` is false) and after it.
    fn synced(&mut self, what: &Durable, done: bool) {
        if let Durable::Folder(of) = what {
            if done && image_of(&self.folder).exists() {
                self.named.push(of.clone());
            }
            if done && *of == self.folder {
                self.note = note_of(&self.folder).exists();
            }
            return;
        }
        if *what == Durable::Note {
            return;
        }
        self.disk.look(&self.file());
        if !done {
            if *what == Durable::Head && self.allowed == Allowed::Exact {
                // The first page may be on its way to the medium, and nothing else.
                self.allowed = Allowed::RefusedOrExact;
            }
            return self.lose_power();
        }
        match what {
            Durable::Head => {
                self.disk.sync(HEAD_SECTORS);
                self.allowed = Allowed::Refused;
            }
            _ => {
                self.disk.sync(usize::MAX);
                self.allowed = match self.allowed {
                    // During a close the rows reach the medium first, then the flag.
                    Allowed::Refused => Allowed::RefusedOrExact,
                    Allowed::RefusedOrExact => Allowed::Exact,
                    other => other,
                };
            }
        }
        self.lose_power();
    }

    /// Loses power now, in several ways, and opens what is left in another boot.
    fn lose_power(&mut self) {
        if self.allowed == Allowed::Absent && !image_of(&self.folder).exists() {
            return;
        }
        if !self.is_named() {
            assert!(self.note, "the image may be missing, and no note says so: seed {}", self.seed);
            std::fs::write(note_of(&self.copy), [1; 16]).unwrap();
            let lost = open(&self.copy, 99).err().unwrap();
            assert!(matches!(&lost, OpenError::NewLost { note } if *note == note_of(&self.copy)), "{lost}");
            std::fs::remove_file(note_of(&self.copy)).unwrap();
        }
        for new in [[0, 4], [1, 8]][self.random.below(2)] {
            let image = image_of(&self.copy);
            self.disk.lose(&image, new, &mut self.random);
            let context = || format!("seed {}, {new} of 8 sectors, {:?}", self.seed, self.allowed);
            match (open(&self.copy, 99), self.allowed) {
                (Ok(mut table), Allowed::Exact | Allowed::RefusedOrExact) => {
                    assert!(rows(&mut table) == self.rows, "other rows: {}", context());
                    self.losses.0 += 1;
                }
                (Ok(_), _) => panic!("opened: {}", context()),
                (Err(refused), Allowed::Exact) => panic!("{refused}: {}", context()),
                (Err(OpenError::OlderBoot { path } | OpenError::Torn { path, .. }), _) => {
                    assert_eq!(path, image);
                    self.losses.1 += 1;
                }
                (Err(other), _) => panic!("not refused by name: {other}: {}", context()),
            }
            std::fs::remove_file(image).unwrap();
        }
    }

    /// Whether the name of the image is on the medium.
    fn is_named(&self) -> bool {
        let image = image_of(&self.folder);
        let is_synced = |folder: &Path| self.named.iter().any(|of| **of == *folder);
        [image.parent().unwrap(), &self.folder].into_iter().all(is_synced)
    }

    /// Notes that the shards are open: from now on, acknowledged rows must not be lost silently.
    fn is_open(&mut self) {
        self.allowed = Allowed::Refused;
        self.look();
    }

    fn look(&mut self) {
        self.disk.look(&self.file());
        self.lose_power();
    }
}

/// A history of openings, pushes, kills and closings, with a power loss around every sync and after every push.
fn history(seed: u64) -> (u32, u32) {
    let (own, other) = (folder(), folder());
    let machine = Rc::new(RefCell::new(Machine::new(seed, own.path(), other.path())));
    let watching = machine.clone();
    observed::set(Some(Box::new(move |what, done| {
        // Opening the copy also syncs. Those syncs do not belong to this image.
        if let Ok(mut machine) = watching.try_borrow_mut() {
            machine.synced(what, done);
        }
        Ok(())
    })));
    let (mut random, mut boot, mut seq) = (Random(seed), 1, 0);
    let mut table = open(own.path(), boot).unwrap();
    machine.borrow_mut().is_open();
    for _ in 0..10 {
        let action = random.below(8);
        if action < 5 {
            let keys: Vec<u64> = (0..1 + random.below(400)).map(|_| random.next() % 1000).collect();
            seq += 1;
            table.push(&name(seq), Write::Gradient, &keys, None, &vec![1.0; keys.len()]).unwrap();
            let mut machine = machine.borrow_mut();
            keys.iter().for_each(|&key| *machine.rows.entry(key).or_default() += 1.0);
            machine.look();
            continue;
        }
        if action < 7 {
            table.mark_clean().unwrap();
            assert_eq!(machine.borrow().allowed, Allowed::Exact);
            boot += random.below(2) as u8;
        }
        drop(table); // without mark_clean this acts as kill -9
        table = open(own.path(), boot).unwrap();
        machine.borrow_mut().is_open();
    }
    observed::set(None);
    machine.borrow().losses
}

#[test]
fn an_image_from_before_a_power_loss_is_refused_and_a_closed_one_is_exact() {
    let all = (0..8).map(history).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    assert!(all.0 > 30 && all.1 > 100, "{all:?}");
}

/// The disk has the first page of a clean image, and rows that a later incarnation wrote.
#[test]
fn a_clean_flag_from_before_a_power_loss_is_not_believed() {
    let (own, other) = (folder(), folder());
    let keys: Vec<u64> = (0..1000).collect();
    let mut table = open(own.path(), 1).unwrap();
    table.push(&name(1), Write::Gradient, &keys, None, &[1.0; 1000]).unwrap();
    table.mark_clean().unwrap();
    drop(table);
    let image = image_of(own.path());
    let closed = std::fs::read(&image).unwrap();
    // The medium has at least the page that was synced while the image was opened again.
    let synced = Rc::new(RefCell::new(closed.clone()));
    let (seen, file) = (synced.clone(), image.clone());
    observed::set(Some(Box::new(move |what, done| {
        if (what, done) == (&Durable::Head, true) {
            seen.borrow_mut()[..4096].copy_from_slice(&std::fs::read(&file).unwrap()[..4096]);
        }
        Ok(())
    })));
    let mut table = open(own.path(), 1).unwrap();
    observed::set(None);
    table.push(&name(2), Write::Gradient, &keys, None, &[1.0; 1000]).unwrap();
    let after = std::fs::read(&image).unwrap();
    let mut disk = synced.borrow().clone();
    let differs = |at: &usize| closed[*at..at + 4096] != after[*at..at + 4096];
    let page = (4096..closed.len()).step_by(4096).rev().find(differs).unwrap();
    disk[page..page + 4096].copy_from_slice(&after[page..page + 4096]);
    std::fs::create_dir(other.path().join("t")).unwrap();
    std::fs::write(image_of(other.path()), &disk).unwrap();
    assert!(matches!(open(other.path(), 2).err(), Some(OpenError::OlderBoot { .. })));
}

/// A new image is whole on the medium, with its boot id, before its file gets its final name.
#[test]
fn a_new_image_without_a_boot_id_is_torn() {
    let own = folder();
    drop(open(own.path(), 1).unwrap());
    let image = image_of(own.path());
    let mut bytes = std::fs::read(&image).unwrap();
    bytes[0x310..0x320].fill(0);
    for clean in [0u64, 1] {
        bytes[0x300..0x308].copy_from_slice(&clean.to_le_bytes());
        std::fs::write(&image, &bytes).unwrap();
        let refused = open(own.path(), 2).err().unwrap();
        assert!(matches!(refused, OpenError::Torn { .. }), "{refused}");
        assert!(refused.to_string().contains("never written whole"), "{refused}");
    }
}

/// The process that makes an image syncs its name when it ends, and then removes the note. If it cannot, or is killed,
/// the next process does it.
#[test]
fn names_of_new_images_are_synced_before_the_note_goes() {
    let own = folder();
    let table = own.path().join("t");
    failing(Durable::Folder(table.clone()), 1);
    drop(open(own.path(), 1).unwrap());
    assert!(image_of(own.path()).exists() && note_of(own.path()).exists());
    let seen = Rc::new(RefCell::new(Vec::new()));
    let all = seen.clone();
    observed::set(Some(Box::new(move |what, done| {
        if done {
            all.borrow_mut().push(what.clone());
        }
        Ok(())
    })));
    open(own.path(), 1).unwrap();
    observed::set(None);
    let folders = [own.path().parent().unwrap(), &table, own.path()];
    let [above, named, data] = folders.map(|path| Durable::Folder(path.into()));
    assert_eq!(*seen.borrow(), [above, Durable::Head, named, data.clone(), data]);
    assert!(!note_of(own.path()).exists());
}

/// Its process may have been killed before it synced the name of an image, and the note may be gone.
#[test]
fn the_name_of_an_image_that_was_not_closed_is_synced_when_it_is_opened() {
    let own = folder();
    drop(open(own.path(), 1).unwrap());
    failing(Durable::Folder(own.path().join("t")), 1);
    let refused = open(own.path(), 1).err().unwrap();
    assert!(matches!(&refused, OpenError::Io { path, .. } if *path == own.path().join("t")), "{refused}");
    observed::set(None);
    open(own.path(), 1).unwrap();
}

/// While its process lives, nothing of a new table need be on the medium but the note.
#[test]
fn a_new_table_that_a_power_loss_took_is_not_made_anew() {
    let (own, other) = (folder(), folder());
    let store = Store::open_dir_as(own.path(), [1; 16], GrowthConfig::default()).unwrap();
    let mut table = Shards::open(&store, &schema(), 0..1).unwrap();
    table.push(&name(1), Write::Gradient, &[1, 2], None, &[1.0; 2]).unwrap();
    std::fs::copy(note_of(own.path()), note_of(other.path())).unwrap();
    let lost = open(other.path(), 2).err().unwrap().to_string();
    assert!(lost.contains("UNSYNCED") && lost.contains("remove this file"), "{lost}");
    assert!(note_of(other.path()).exists() && !image_of(other.path()).exists());
    // Who only looks at the folder leaves it as it is.
    drop(Store::open_dir_as(other.path(), [1; 16], GrowthConfig::default()).unwrap());
    assert!(note_of(other.path()).exists());
    // A process of the same boot goes on: it was killed, and the machine has all files.
    std::fs::create_dir_all(other.path().join("t")).unwrap();
    std::fs::copy(image_of(own.path()), image_of(other.path())).unwrap();
    let mut again = open(other.path(), 1).unwrap();
    assert_eq!(rows(&mut again).len(), 2);
    assert!(!note_of(other.path()).exists());
    drop(again);
    // Without the note the list of tables says what is lost. Whoever removes both goes on with what is there.
    std::fs::remove_dir_all(other.path().join("t")).unwrap();
    let lost = open(other.path(), 2).err().unwrap();
    assert!(matches!(lost, OpenError::TableGone { .. }), "{lost}");
    std::fs::remove_file(other.path().join("TABLES")).unwrap();
    open(other.path(), 2).unwrap();
}

fn failing(of: Durable, from: u32) {
    let mut left = from;
    observed::set(Some(Box::new(move |what, done| {
        if *what == of && !done {
            left = left.saturating_sub(1);
            if left == 0 {
                return Err(io::Error::other("the medium is broken"));
            }
        }
        Ok(())
    })));
}

#[test]
fn an_image_whose_head_cannot_be_synced_is_not_opened() {
    let own = folder();
    drop(open(own.path(), 1).unwrap());
    failing(Durable::Head, 1);
    let refused = open(own.path(), 1).err().unwrap();
    observed::set(None);
    assert!(matches!(refused, OpenError::Io { .. }) && refused.to_string().contains("broken"), "{refused}");
    open(own.path(), 1).unwrap();
}

/// The kernel reports pages that it could not write only once. Afterwards they count as written.
#[test]
fn rows_that_could_not_be_synced_never_count_as_closed() {
    let own = folder();
    let mut table = open(own.path(), 1).unwrap();
    table.push(&name(1), Write::Gradient, &[1, 2], None, &[1.0; 2]).unwrap();
    failing(Durable::File, 1);
    table.mark_clean().unwrap_err();
    observed::set(None);
    table.mark_clean().unwrap_err();
    drop(table);
    let refused = open(own.path(), 1).err().unwrap();
    assert!(matches!(refused, OpenError::Torn { .. }), "{refused}");
    assert!(refused.to_string().contains("could not be written"), "{refused}");
}

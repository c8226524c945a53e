//! The note in a data folder that images there are new: not all of them have reached the medium. A server with
//! thousands of tables need not sync each image and each name then, as long as nobody trusts the folder after a power
//! loss.
//!
//! The note, `UNSYNCED`, has the id of the boot. It is on the medium before the first new image is made, and it goes
//! when the names of all images are there. If it is found by a later boot, the machine has lost power in between: an
//! image may be missing, together with its name. So no image is made in such a folder. What is there is checked as
//! always: an image that was open when the power was lost is refused, and so is one that is not whole.

use crate::error::OpenError;
use crate::image::files::durability::{self, Durable};
use crate::image::files::table_names;
use crate::own_files;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

const NOTE: &str = "UNSYNCED";
/// What the note begins with. The id of the boot follows.
const BEGINNING: &[u8] = b"gannet new images";

/// What the store knows of the new images of its folder.
pub(crate) struct NewImages {
    folder: PathBuf,
    boot: [u8; 16],
    state: Mutex<State>,
    /// The store has opened an image. A process that only looks at the folder leaves the note as it is.
    used: AtomicBool,
}

enum State {
    /// All names are on the medium.
    Synced,
    /// The note is on the medium. The tables have names that are perhaps not.
    Noted(BTreeSet<String>),
    /// The note is of another boot.
    LostPower,
}

impl NewImages {
    /// Looks for a note in the folder.
    pub(crate) fn open(folder: &Path, boot: [u8; 16]) -> io::Result<NewImages> {
        let state = match own_files::read_whole(&folder.join(NOTE))? {
            None => State::Synced,
            // The process of this boot was killed, and nobody knows which tables it has made.
            Some(of) if of == [BEGINNING, &boot].concat() => State::Noted(table_folders(folder)?),
            Some(of) if of.starts_with(BEGINNING) => State::LostPower,
            Some(_) => return Err(own_files::in_the_way(&folder.join(NOTE))),
        };
        Ok(NewImages { folder: folder.into(), boot, state: Mutex::new(state), used: AtomicBool::new(false) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether names of this table need no sync now: the note says that they are new.
    pub(crate) fn has(&self, table: &str) -> bool {
        matches!(&*self.lock(), State::Noted(tables) if tables.contains(table))
    }

    /// An image is opened.
    pub(crate) fn note_use(&self) {
        self.used.store(true, Relaxed);
    }

    /// Before a new image of a table is made: puts the note on the medium, unless it is there.
    ///
    /// # Errors
    /// The note is of another boot, or it cannot be written.
    pub(crate) fn note(&self, table: &str) -> Result<(), OpenError> {
        self.note_use();
        let note = self.folder.join(NOTE);
        let mut state = self.lock();
        if let State::Synced = *state {
            let written = write_note(&note, &self.boot).and_then(|()| durability::folder(&self.folder));
            written.map_err(|source| OpenError::Io {
                what: "noting new images in",
                path: note.clone(),
                source,
            })?;
            *state = State::Noted(BTreeSet::new());
        }
        match &mut *state {
            State::Noted(tables) => _ = tables.insert(table.to_owned()),
            _ => return Err(OpenError::NewLost { note }),
        }
        Ok(())
    }

    /// The table's folder was removed.
    pub(crate) fn forget(&self, table: &str) {
        if let State::Noted(tables) = &mut *self.lock() {
            tables.remove(table);
        }
    }

    /// Puts the names of all new images on the medium, and removes the note.
    fn settle(&self) -> io::Result<()> {
        let mut state = self.lock();
        let State::Noted(tables) = &*state else { return Ok(()) };
        if !self.used.load(Relaxed) {
            return Ok(());
        }
        for table in tables {
            match durability::folder(&self.folder.join(table)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        durability::folder(&self.folder)?;
        table_names::sync_table_names(&self.folder)?;
        own_files::remove_own(&self.folder.join(NOTE), &[BEGINNING])?;
        durability::folder(&self.folder)?;
        *state = State::Synced;
        Ok(())
    }
}

impl Drop for NewImages {
    /// The process ends in order. If it is killed, the note stays.
    fn drop(&mut self) {
        if let Err(error) = self.settle() {
            let folder = self.folder.display();
            tracing::warn!(%error, "{folder}: the names of new images are perhaps not on the disk, and {NOTE} stays");
        }
    }
}

fn write_note(note: &Path, boot: &[u8]) -> io::Result<()> {
    let new = own_files::new_name(note);
    let mut file = own_files::make_own(&new, BEGINNING)?;
    file.write_all(BEGINNING)?;
    file.write_all(boot)?;
    durability::during(&Durable::Note, || file.sync_all())?;
    crate::kill_point!();
    own_files::rename_new(&new, note)
}

/// The folders in a data folder.
fn table_folders(folder: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}

//! The list of the tables in a data folder. A folder that has lost a whole table would otherwise make it anew, and
//! serve rows of zeros. The file `TABLES` is text, so that a user who has removed a table can remove its line:
//!
//! ```text
//! gannet tables 1
//! + clicks
//! - clicks
//! x clicks
//! ```
//!
//! A line is added after the images of a new table (`+`), before those of a dropped one go (`-`), and after that (`x`).
//! The last line of a table counts. A last line without an end is none: its writer was killed before it acted upon it.

use crate::error::OpenError;
use crate::image::files::durability;
use crate::image::files::table_folder;
use crate::image::head::check_bytes;
use crate::image::layout::HEAD_BYTES;
use crate::own_files::{self, FileOwner};
use crate::schema::table_schema::Schema;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The name of the file.
pub(crate) const NAME: &str = "TABLES";
/// What all versions begin with.
const BEGINNING: &[u8] = b"gannet tables ";
const FIRST_LINE: &str = "gannet tables 1";

/// The tables of a data folder. Its threads share it.
pub(crate) struct TableNames {
    folder: PathBuf,
    listed: Mutex<Listed>,
}

#[derive(Default)]
struct Listed {
    names: BTreeSet<String>,
    /// The file, for lines at its end. `None`: it is not there.
    file: Option<File>,
}

impl TableNames {
    /// Reads the list of a folder, and ends drops that were interrupted. If there is no list, the tables are the
    /// folders with images.
    ///
    /// # Errors
    /// A table of the list has no image any more, or the list cannot be read.
    pub(crate) fn open(folder: &Path) -> Result<TableNames, OpenError> {
        let path = folder.join(NAME);
        let io = |what| {
            let path = path.clone();
            move |source| OpenError::Io { what, path, source }
        };
        let Some(bytes) = own_files::read_whole(&path).map_err(io("reading"))? else {
            let names = with_images(folder).map_err(io("looking for the tables of"))?;
            let mut listed = Listed { names, file: None };
            if !listed.names.is_empty() {
                listed.rewrite(&path).map_err(io("writing"))?;
            }
            return Ok(TableNames { folder: folder.into(), listed: Mutex::new(listed) });
        };
        let Lines { listed: mut names, dropped, mut is_short } =
            parse_table_names(&bytes).map_err(|why| OpenError::Tables { path: path.clone(), why })?;
        for name in &dropped {
            table_folder::remove_table_folder(&folder.join(name))
                .map_err(io("removing the dropped tables of"))?;
        }
        let gone = names.iter().find(|name| !table_folder::has_image_names(&folder.join(name)));
        if let Some(table) = gone {
            return Err(OpenError::TableGone {
                table: table.clone(),
                folder: folder.join(table),
                list: path,
            });
        }
        // A process that was killed has made their images and not listed them, or somebody has put them here.
        for name in with_images(folder).map_err(io("looking for the tables of"))? {
            is_short &= !names.insert(name);
        }
        let mut listed = Listed { names, file: None };
        match is_short {
            true => listed.file = Some(to_append(&path).map_err(io("opening"))?),
            false => listed.rewrite(&path).map_err(io("writing"))?,
        }
        Ok(TableNames { folder: folder.into(), listed: Mutex::new(listed) })
    }

    fn lock(&self) -> MutexGuard<'_, Listed> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tables, in the order of their names.
    pub(crate) fn names(&self) -> Vec<String> {
        self.lock().names.iter().cloned().collect()
    }

    /// Notes that the images of a table are there, and syncs the note if it must be on the medium now.
    pub(crate) fn add(&self, table: &str, synced: bool) -> io::Result<()> {
        self.lock().note(&self.folder.join(NAME), table, true, synced)
    }

    /// Whether the list has a table.
    pub(crate) fn has(&self, table: &str) -> bool {
        self.lock().names.contains(table)
    }

    /// Removes the images of a table. A kill in between leaves the line `-`, and the next start goes on. After the line
    /// `x` the drop is done: what somebody puts there later stays.
    pub(crate) fn remove(&self, table: &str) -> io::Result<()> {
        self.lock().note(&self.folder.join(NAME), table, false, true)?;
        table_folder::remove_table_folder(&self.folder.join(table))?;
        durability::folder(&self.folder)?;
        self.lock().note_end(table)
    }

    /// Moves all tables to another folder, as [`move_all`] does.
    pub(crate) fn move_all(&self, to: &Path) -> io::Result<()> {
        let mut listed = self.lock();
        *listed = Listed::default();
        move_all(&self.folder, to)
    }
}

/// Moves the tables of a folder to another folder, with their list, durably. After a kill in between, the folder has no
/// list, and [`TableNames::open`] finds the tables that are left by their images.
pub(crate) fn move_all(folder: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let list = folder.join(NAME);
    match own_files::owner(&to.join(NAME), &[BEGINNING]) {
        // A move that was killed has moved the list first, and this one is of what is left.
        FileOwner::Gannet => drop(own_files::remove_own(&list, &[BEGINNING])?),
        _ if own_files::owner(&list, &[BEGINNING]) == FileOwner::Gannet => {
            own_files::rename_new(&list, &to.join(NAME))?;
        }
        _ => {}
    }
    for name in with_images(folder)? {
        table_folder::move_to(&folder.join(&name), &to.join(&name))?;
    }
    durability::folder(to)?;
    durability::folder(folder)
}

/// Writes the list of a folder to its medium, if there is one.
pub(crate) fn sync_table_names(folder: &Path) -> io::Result<()> {
    match own_files::open_regular(&folder.join(NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        file => file?.sync_all(),
    }
}

/// Removes the tables of a folder that no store has open, and their list.
pub(crate) fn remove_all(folder: &Path) -> io::Result<()> {
    for name in with_images(folder)? {
        table_folder::remove_table_folder(&folder.join(name))?;
    }
    let list = folder.join(NAME);
    match own_files::owner(&list, &[BEGINNING]) {
        FileOwner::Gannet => own_files::remove_own(&list, &[BEGINNING]).map(drop),
        _ => Ok(()),
    }
}

impl Listed {
    /// Notes whether a table is there. After an error the list says what it said before, or the change.
    fn note(&mut self, path: &Path, table: &str, is_there: bool, synced: bool) -> io::Result<()> {
        if self.names.contains(table) == is_there {
            return Ok(());
        }
        if self.file.is_none() {
            self.rewrite(path)?;
        }
        self.append(if is_there { '+' } else { '-' }, table, synced)?;
        match is_there {
            true => self.names.insert(table.to_owned()),
            false => self.names.remove(table),
        };
        Ok(())
    }

    /// Notes that a drop is done. If there is no file, the next change writes one without the table.
    fn note_end(&mut self, table: &str) -> io::Result<()> {
        self.append('x', table, false)
    }

    fn append(&mut self, sign: char, table: &str, synced: bool) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let written = file.write_all(format!("{sign} {table}\n").as_bytes());
        let written = written.and_then(|()| if synced { file.sync_data() } else { Ok(()) });
        // A part of the line may be there: the next change writes the list anew.
        written.inspect_err(|_| self.file = None)
    }

    /// Writes the list anew, without tables that were dropped.
    fn rewrite(&mut self, path: &Path) -> io::Result<()> {
        let lines: String = self.names.iter().map(|name| format!("+ {name}\n")).collect();
        own_files::replace(path, BEGINNING, format!("{FIRST_LINE}\n{lines}").as_bytes())?;
        self.file = Some(to_append(path)?);
        Ok(())
    }
}

fn to_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).open(path)
}

/// The tables with images in a folder.
fn with_images(folder: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(names),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if let Ok(name) = entry.file_name().into_string()
            && Schema::check_name(&name).is_ok()
            && table_folder::has_images(&entry.path())
            && !is_copy(&entry.path(), &name)?
        {
            names.insert(name);
        }
    }
    Ok(names)
}

/// Whether the images in a folder are of another table than the folder's name says: somebody has copied them.
fn is_copy(folder: &Path, name: &str) -> io::Result<bool> {
    let Some(image) = table_folder::images_of_table(folder)?.into_iter().next() else { return Ok(false) };
    let mut bytes = [0; HEAD_BYTES];
    // Damage is named when the table is opened.
    let read = own_files::open_regular(&image).and_then(|file| file.read_exact_at(&mut bytes, 0));
    Ok(read.is_ok() && check_bytes(&bytes).is_ok_and(|schema| schema.name != name))
}

/// What a list says.
struct Lines {
    listed: BTreeSet<String>,
    dropped: BTreeSet<String>,
    /// Whether each line is of another table that is there, so that no shorter list says the same.
    is_short: bool,
}

fn parse_table_names(bytes: &[u8]) -> Result<Lines, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is no text".to_owned())?;
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let mut lines = whole.lines();
    match lines.next() {
        Some(FIRST_LINE) => {}
        Some(line) if line.as_bytes().starts_with(BEGINNING) => {
            return Err(format!("its first line is {line:?}: another version of gannet wrote it"));
        }
        _ => return Err(format!("it does not begin with the line {FIRST_LINE:?}")),
    }
    let (mut listed, mut dropped, mut count) = (BTreeSet::new(), BTreeSet::new(), 0);
    for line in lines {
        count += 1;
        match line.split_once(' ') {
            Some(("+", name)) if Schema::check_name(name).is_ok() => {
                dropped.remove(name);
                listed.insert(name.to_owned());
            }
            Some(("-", name)) if Schema::check_name(name).is_ok() => {
                listed.remove(name);
                dropped.insert(name.to_owned());
            }
            Some(("x", name)) if Schema::check_name(name).is_ok() => drop(dropped.remove(name)),
            _ => return Err(format!("its line {} is {line:?}, which is no \"+ TABLE\"", count + 1)),
        }
    }
    Ok(Lines { is_short: count == listed.len() && text.ends_with('\n'), listed, dropped })
}

#[cfg(test)]
#[path = "table_names_tests.rs"]
mod tests;

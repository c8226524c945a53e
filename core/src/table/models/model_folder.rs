//! Which files of a model folder Gannet has written.
//!
//! A file is Gannet's if the manifest lists it. An unfinished save has no manifest yet: before its first row file it
//! writes the file `SAVING`, which names its generation. A row file of that generation that begins with the head of its
//! shard is Gannet's, too. All other files stay as they are, whatever their names.

use crate::own_files::{self, FileOwner, first_bytes};
use crate::table::models::checkpoint::{
    Checkpoint, CheckpointError, HEAD, MANIFEST, MANIFEST_MAGIC, ROWS_MAGIC, model_io_error, write_synced,
};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Names the generation of a save that has begun.
const SAVING: &str = "SAVING";
/// The manifest of a save, before it replaces the older one.
pub(crate) const MANIFEST_NEW: &str = "MANIFEST.new";
const SAVING_MAGIC: &[u8; 8] = b"GANNETSV";
const SAVING_VERSION: u32 = 1;
/// Bytes of `SAVING`: magic, version, CRC32C of the generation, generation.
const SAVING_BYTES: usize = 24;

/// The name of the row file of a shard. A shard that is written again has more files, which are numbered from 1.
pub(crate) fn row_file(generation: u64, shard: u32, number: usize) -> String {
    let name = format!("rows-{generation:06}-{shard:04}");
    if number == 0 { name } else { format!("{name}-{number}") }
}

/// The generation and shard in the name of a row file; `None` if it is none.
fn parse_row_file(name: &str) -> Option<(u64, u32)> {
    let mut parts = name.strip_prefix("rows-")?.split('-');
    let (generation, shard) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let number = parts.next().map_or(Some(0), |number| number.parse().ok())?;
    (row_file(generation, shard, number) == name).then_some((generation, shard))
}

/// The names of a folder's entries. A folder that does not exist has none.
fn names_in_folder(folder: &Path) -> Result<Vec<String>, CheckpointError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(model_io_error("listing", folder))?,
    };
    let name = |entry: std::io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
    entries.map(name).collect::<Result<_, _>>().map_err(model_io_error("listing", folder))
}

/// The generation of a save that has begun in this folder and has not ended.
fn saving(folder: &Path) -> Option<u64> {
    let bytes: [u8; SAVING_BYTES] =
        first_bytes::<{ SAVING_BYTES + 1 }>(&folder.join(SAVING))?.try_into().ok()?;
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let sound =
        bytes[..8] == *SAVING_MAGIC && word(8) == SAVING_VERSION && word(12) == crc32c::crc32c(&bytes[16..]);
    sound.then(|| u64::from(word(16)) | u64::from(word(20)) << 32)
}

/// Whether a file is a row file of the unfinished save `saving`.
fn is_left(folder: &Path, name: &str, saving: Option<u64>) -> bool {
    let Some((generation, shard)) = parse_row_file(name) else { return false };
    let head =
        |bytes: Vec<u8>| bytes.len() == 16 && bytes[..8] == *ROWS_MAGIC && bytes[12..] == shard.to_le_bytes();
    saving == Some(generation) && first_bytes::<16>(&folder.join(name)).is_some_and(head)
}

/// Whether a save may replace a file: it does not exist, or begins as Gannet begins it. A save that was killed may have
/// left an empty one.
fn may_replace(path: &Path, magic: &[u8; 8], is_left: bool) -> bool {
    let owner = if is_left { own_files::owner_of_part } else { own_files::owner };
    owner(path, &[magic]) != FileOwner::User
}

/// Looks at the folder of a save before it begins. Returns the generation of the save: no file that is not Gannet's has
/// a name of that generation.
///
/// # Errors
/// A file that Gannet has not written has a name that a save must write to, or the folder cannot be listed.
pub(crate) fn next_generation(folder: &Path) -> Result<u64, CheckpointError> {
    let in_the_way = |path: PathBuf| Err(CheckpointError::InTheWay { path });
    let (manifest, names) = (folder.join(MANIFEST), names_in_folder(folder)?);
    let (before, listed) = match Checkpoint::open(folder) {
        Ok(old) => (old.generation(), old.files()),
        // A link that leads nowhere is there, too.
        Err(CheckpointError::Missing(_)) if own_files::owner(&manifest, &[]) == FileOwner::Nobody => {
            (0, Vec::new())
        }
        Err(_) => return in_the_way(manifest),
    };
    let saving = saving(folder);
    for (name, magic) in [(MANIFEST_NEW, MANIFEST_MAGIC), (SAVING, SAVING_MAGIC)] {
        if !may_replace(&folder.join(name), magic, saving.is_some() && name == MANIFEST_NEW) {
            return in_the_way(folder.join(name));
        }
    }
    let foreign = |name: &&String| !listed.contains(name) && !is_left(folder, name, saving);
    let foreign: Vec<&String> =
        names.iter().filter(|name| name.starts_with("rows-")).filter(foreign).collect();
    let is_free = |generation: &u64| {
        let prefix = format!("rows-{generation:06}-");
        !foreign.iter().any(|name| name.starts_with(&prefix))
    };
    Ok((before + 1..).find(is_free).unwrap_or(before + 1))
}

/// Begins to save: removes what an unfinished save has left, and names this one.
///
/// # Errors
/// A file cannot be removed or written.
pub(crate) fn begin_save(folder: &Path, generation: u64) -> Result<(), CheckpointError> {
    remove_left(folder)?;
    let number = generation.to_le_bytes();
    let crc = crc32c::crc32c(&number).to_le_bytes();
    // The file is never there without its bytes, so an empty one is the user's.
    let (path, new) = (folder.join(SAVING), free_name(folder)?);
    let parts: [&[u8]; 4] = [SAVING_MAGIC, &SAVING_VERSION.to_le_bytes(), &crc, &number];
    let written = write_synced(&new, File::create_new, &parts)
        .and_then(|()| own_files::rename(&new, &path).map_err(model_io_error("naming", &path)));
    if written.is_err() {
        // On a full disk it may have only some of its bytes, or none.
        let _ = own_files::remove_part(&new, &[SAVING_MAGIC]);
    }
    written
}

/// A name for the file that becomes [`SAVING`]. A process that was killed, perhaps one with the number of this one, may
/// have left such a file. It goes if it is whole; one without all its bytes could be the user's, and stays.
fn free_name(folder: &Path) -> Result<PathBuf, CheckpointError> {
    let prefix = format!("{SAVING}.");
    let is_number = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    let is_such = |name: &&String| name.strip_prefix(&prefix).is_some_and(is_number);
    for name in names_in_folder(folder)?.iter().filter(is_such) {
        let _ = own_files::remove_own(&folder.join(name), &[SAVING_MAGIC]);
    }
    let own = format!("{prefix}{}", std::process::id());
    let mut names = (0..).map(|n: u32| folder.join(if n == 0 { own.clone() } else { format!("{own}-{n}") }));
    Ok(names
        .find(|path| own_files::owner(path, &[]) == FileOwner::Nobody)
        .unwrap_or_else(|| folder.join(own)))
}

/// Ends a save, whose manifest is published: removes the files of the model before it. A file that remains only takes
/// space.
pub(crate) fn end_save(folder: &Path, before: &[String], now: &[String]) {
    for name in before.iter().filter(|name| parse_row_file(name).is_some() && !now.contains(name)) {
        let _ = own_files::remove_listed(&folder.join(name));
    }
    let _ = own_files::remove_own(&folder.join(SAVING), &[SAVING_MAGIC]);
}

/// Removes the row files of an unfinished save.
fn remove_left(folder: &Path) -> Result<(), CheckpointError> {
    let saving = saving(folder);
    let listed = Checkpoint::open(folder).map(|there| there.files()).unwrap_or_default();
    for name in
        names_in_folder(folder)?.iter().filter(|name| !listed.contains(name) && is_left(folder, name, saving))
    {
        let path = folder.join(name);
        own_files::remove_listed(&path).map_err(model_io_error("removing", &path))?;
    }
    Ok(())
}

/// An entry of the folder of a model that Gannet has not written: a file, or a folder that is no table of this model.
/// `None` if there is none, or no folder.
///
/// # Errors
/// The folder cannot be listed.
pub fn foreign_entry(folder: &Path) -> Result<Option<PathBuf>, CheckpointError> {
    let (there, saving) = (Checkpoint::open(folder).ok(), saving(folder));
    let listed = there.as_ref().map(Checkpoint::files).unwrap_or_default();
    let is_table = |path: &Path| there.as_ref().is_some_and(|there| is_table_of(path, there));
    for name in names_in_folder(folder)? {
        let path = folder.join(&name);
        let is_ours = match &*name {
            MANIFEST => there.is_some(),
            SAVING => saving.is_some(),
            MANIFEST_NEW => may_replace(&path, MANIFEST_MAGIC, saving.is_some()),
            _ if listed.contains(&name) || is_left(folder, &name, saving) => true,
            _ if is_table(&path) => match foreign_entry(&path)? {
                None => true,
                foreign => return Ok(foreign),
            },
            _ => false,
        };
        if !is_ours {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Whether a path is a folder, and no link to one.
fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|there| there.is_dir())
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Whether a folder in the folder of `model` has another table of it. Such a folder has the table's name and the save
/// of the model (note "save"). A model of one table has no such note.
pub fn is_table_of(folder: &Path, model: &Checkpoint) -> bool {
    let (name, Some(save)) = (name_of(folder), model.note("save")) else { return false };
    is_folder(folder)
        && name.ends_with(&format!("-{save}"))
        && match Checkpoint::open(folder) {
            Ok(table) => table.note("save") == Some(save) && name == table_name(&table, save),
            Err(_) => is_empty(folder),
        }
}

/// Whether a folder has a table of any save that has ended or was killed, so that a later save may remove it.
pub fn is_left_table(folder: &Path) -> bool {
    is_folder(folder)
        && match Checkpoint::open(folder) {
            Ok(table) => table.note("save").is_some_and(|save| name_of(folder) == table_name(&table, save)),
            Err(_) => saving(folder).is_some() || is_empty(folder),
        }
}

fn table_name(table: &Checkpoint, save: &str) -> String {
    format!("{}-{save}", table.schema().name)
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

/// Removes a saved model: the files that its manifest lists or that its unfinished save has left, and the folders of
/// its other tables. A folder goes only if that leaves it empty. Files that Gannet has not written stay.
///
/// # Errors
/// The folder cannot be listed, or a file of the model cannot be removed.
pub fn remove_model(folder: &Path) -> Result<(), CheckpointError> {
    let there = Checkpoint::open(folder).ok();
    for path in names_in_folder(folder)?.iter().map(|name| folder.join(name)) {
        if there.as_ref().is_some_and(|there| is_table_of(&path, there)) {
            remove_model(&path)?;
        }
    }
    remove_left(folder)?;
    let mut ours = there.as_ref().map(Checkpoint::files).unwrap_or_default();
    ours.retain(|name| parse_row_file(name).is_some());
    let is_manifest =
        |name: &str| own_files::owner(&folder.join(name), &[MANIFEST_MAGIC]) == FileOwner::Gannet;
    ours.extend([MANIFEST_NEW, MANIFEST].into_iter().filter(|name| is_manifest(name)).map(String::from));
    // The manifest goes last: while it is there, another try knows which files are the model's.
    ours.extend(saving(folder).map(|_| SAVING.to_owned()));
    for path in ours.iter().map(|name| folder.join(name)) {
        own_files::remove_listed(&path).map_err(model_io_error("removing", &path))?;
    }
    let _ = own_files::remove_folder(folder);
    Ok(())
}

/// The bytes of a manifest or row file before its content must hold what this module looks at.
const _: () = assert!(HEAD >= 16);

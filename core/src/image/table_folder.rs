//! The files of a table in its folder: images, and the step files beside them. Other files there are the user's.

use crate::image::checksums;
use crate::image::durability;
use crate::own_files::{self, FileOwner};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What an image begins with.
pub(crate) const IMAGE_BEGINNING: &[u8] = b"GANNETIM";
/// What step files of all versions begin with.
const STEP_BEGINNING: &[u8] = b"GNTSTEP";

/// What a file of this name in the folder of a table can begin with, if it is the table's. Nothing: no file of a table
/// has such a name.
fn beginnings(name: &str) -> &'static [&'static [u8]] {
    match name {
        _ if name.starts_with("shard-") => &[IMAGE_BEGINNING, checksums::BEGINNING],
        _ if name.starts_with("step-") => &[STEP_BEGINNING],
        _ => &[],
    }
}

fn beginnings_of(path: &Path) -> &'static [&'static [u8]] {
    path.file_name().and_then(|name| name.to_str()).map_or(&[], beginnings)
}

/// The files of a table in its folder, in the order of their names. There are none if the folder does not exist.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let beginnings = beginnings_of(&path);
        if !beginnings.is_empty() && own_files::owner_of_part(&path, beginnings) == FileOwner::Gannet {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Whether a folder has images of a table. A link is no folder.
pub(crate) fn has_images(folder: &Path) -> bool {
    let is_folder = fs::symlink_metadata(folder).is_ok_and(|there| there.is_dir());
    let is_image = |entry: fs::DirEntry| {
        entry.file_name().to_str().is_some_and(is_image_name)
            && own_files::owner(&entry.path(), &[IMAGE_BEGINNING]) == FileOwner::Gannet
    };
    is_folder && fs::read_dir(folder).is_ok_and(|entries| entries.flatten().any(is_image))
}

/// The images in the folder of a table, whatever their bytes, in the order of their names.
pub(crate) fn images(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut images = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_image_name) {
            images.push(entry.path());
        }
    }
    images.sort();
    Ok(images)
}

/// Whether a folder has files with names of images, whatever their bytes.
pub(crate) fn has_image_names(folder: &Path) -> bool {
    let is_image = |entry: fs::DirEntry| entry.file_name().to_str().is_some_and(is_image_name);
    fs::read_dir(folder).is_ok_and(|entries| entries.flatten().any(is_image))
}

fn is_image_name(name: &str) -> bool {
    name.starts_with("shard-") && name.ends_with(".image")
}

/// Removes the files of a table, and its folder if that leaves it empty.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    for file in files(folder)? {
        own_files::remove_part(&file, beginnings_of(&file))?;
    }
    own_files::remove_folder(folder)?;
    Ok(())
}

/// Moves the files of a table to another folder, durably. Removes the former folder if that leaves it empty.
pub(crate) fn move_to(folder: &Path, to: &Path) -> io::Result<()> {
    let files = files(folder)?;
    if files.is_empty() {
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for file in files {
        let Some(target) = file.file_name().map(|name| to.join(name)) else { continue };
        own_files::rename_new(&file, &target)?;
    }
    durability::folder(to)?;
    if !own_files::remove_folder(folder)? {
        durability::folder(folder)?;
    }
    Ok(())
}

//! The files of a table in its folder: images, and the step files beside them. Other files there are the user's.

use crate::image::checksums;
use crate::image::files::durability;
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
    let is_number = |text: &str| text.len() >= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    let shard = name.strip_prefix("shard-").and_then(|name| name.split_once('.'));
    match shard.filter(|(number, _)| is_number(number)) {
        Some((_, "image")) => return &[IMAGE_BEGINNING],
        Some((_, "sums")) => return &[checksums::BEGINNING],
        Some((_, "new")) => return &[IMAGE_BEGINNING, checksums::BEGINNING],
        _ => {}
    }
    let step = name.strip_prefix("step-").and_then(|name| name.split_once('-'));
    let is_set = |text: &str| {
        let sum = text.strip_suffix(".0").or_else(|| text.strip_suffix(".1"));
        sum.is_some_and(|sum| sum.len() == 8 && sum.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    match step.is_some_and(|(number, set)| is_number(number) && is_set(set)) {
        true => &[STEP_BEGINNING],
        false => &[],
    }
}

/// Who has written a file in the folder of a table. Only under its first name a file may have a part of its beginning.
fn owner_of(path: &Path) -> FileOwner {
    let beginnings = path.file_name().and_then(|name| name.to_str()).map_or(&[][..], beginnings);
    match path.extension().is_some_and(|kind| kind == "new") {
        _ if beginnings.is_empty() => FileOwner::User,
        true => own_files::owner_of_part(path, beginnings),
        false => own_files::owner(path, beginnings),
    }
}

/// The files of a table in its folder, in the order of their names. There are none if the folder does not exist.
fn files_of_table(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if owner_of(&path) == FileOwner::Gannet {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Whether a folder, or one to which a link leads, has images of a table.
pub fn has_images(folder: &Path) -> bool {
    let is_image = |entry: fs::DirEntry| {
        entry.file_name().to_str().is_some_and(is_image_name)
            && own_files::owner(&entry.path(), &[IMAGE_BEGINNING]) == FileOwner::Gannet
    };
    fs::read_dir(folder).is_ok_and(|entries| entries.flatten().any(is_image))
}

/// The images in the folder of a table, whatever their bytes, in the order of their names.
pub(crate) fn images_of_table(folder: &Path) -> io::Result<Vec<PathBuf>> {
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
    beginnings(name) == [IMAGE_BEGINNING]
}

/// Removes the files of a table, and its folder if that leaves it empty. A link to a folder stays.
pub(crate) fn remove_table_folder(folder: &Path) -> io::Result<()> {
    for file in files_of_table(folder)? {
        own_files::remove_listed(&file)?;
    }
    own_files::remove_folder(folder)?;
    Ok(())
}

/// Moves the files of a table to another folder, durably. Removes the former folder if that leaves it empty.
pub(crate) fn move_to(folder: &Path, to: &Path) -> io::Result<()> {
    if fs::symlink_metadata(folder).is_ok_and(|there| there.is_symlink()) {
        return own_files::rename_new(folder, to); // the rows stay where the link leads
    }
    let files = files_of_table(folder)?;
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

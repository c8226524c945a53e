//! The highest incarnation of any pusher that the images of a folder remember, read from the images' headers
//! without opening them.

use crate::error::OpenError;
use crate::image::files::store::Store;
use crate::image::layout::*;
use crate::limits::PUSHERS_MAX;
use crate::own_files;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

impl Store {
    /// The highest incarnation below `limit` of any pusher that the images here remember; 0 if they remember none.
    /// `None` if there is no image, or if images live in memory. Files that are not images of this format are skipped:
    /// no table can be opened on them.
    ///
    /// # Errors
    /// The folder or an image cannot be read.
    pub fn highest_incarnation(&self, limit: u64) -> Result<Option<u64>, OpenError> {
        let Some(folder) = self.folder() else { return Ok(None) };
        let mut highest = None;
        for image in images_in(folder)? {
            let io =
                |source| OpenError::Io { what: "looking for incarnations in", path: image.clone(), source };
            let file = own_files::open_regular(&image).map_err(io)?;
            highest = highest.max(highest_in(&file, limit).map_err(io)?);
        }
        Ok(highest)
    }
}

/// The images of all tables of a folder.
fn images_in(folder: &Path) -> Result<Vec<PathBuf>, OpenError> {
    let entries = |path: &Path| -> Result<Vec<fs::DirEntry>, OpenError> {
        let io = |source| OpenError::Io { what: "looking for images in", path: path.into(), source };
        fs::read_dir(path).map_err(io)?.map(|entry| entry.map_err(io)).collect()
    };
    let mut images = Vec::new();
    for table in entries(folder)? {
        if table.file_type().is_ok_and(|kind| kind.is_dir()) {
            let files = entries(&table.path())?.into_iter().map(|file| file.path());
            images.extend(files.filter(|file| file.extension().is_some_and(|name| name == "image")));
        }
    }
    Ok(images)
}

fn highest_in(image: &File, limit: u64) -> io::Result<Option<u64>> {
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 8).map_or(0, |word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
    };
    let head = read_at(image, 0, PUSHERS_USED + 8)?;
    let format = word(&head, 8) as u32;
    if word(&head, 0) != MAGIC || format != FORMAT {
        return Ok(None);
    }
    let used = usize::try_from(word(&head, PUSHERS_USED)).map_or(PUSHERS_MAX, |used| used.min(PUSHERS_MAX));
    let entries = read_at(image, PUSHERS, used * PUSHER_BYTES)?;
    // The second word of an entry. While an entry is written or undone, the word may be too high, which only
    // skips numbers.
    let incarnations = entries.chunks(PUSHER_BYTES).map(|entry| word(entry, 8));
    Ok(incarnations.filter(|incarnation| *incarnation < limit).max().or(Some(0)))
}

/// The bytes from `at` on, or fewer at the end of the file.
fn read_at(file: &File, at: usize, bytes: usize) -> io::Result<Vec<u8>> {
    let (mut buffer, mut got) = (vec![0; bytes], 0);
    while got < bytes {
        match file.read_at(&mut buffer[got..], (at + got) as u64) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer.truncate(got);
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::layout::MAGIC;
    use crate::push_name::PushName;
    use crate::schema::table_schema::Schema;
    use crate::table::owned::shards::Shards;
    use crate::table::pushes::read_write::Write;
    use gannet_optim::{Add, Rule};

    #[test]
    fn what_images_remember_is_found_without_opening_them() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_dir(folder.path()).unwrap();
        assert_eq!(store.highest_incarnation(u64::MAX).unwrap(), None);
        for (name, pusher, incarnation) in [("a", 1, 7), ("b", 2, 41), ("b", 3, 40), ("c", 4, 1 << 60)] {
            let schema = Schema { shards: 4, ..Schema::scalar(name, Rule::Add(Add)) };
            let mut shards = Shards::open(&store, &schema, 0..4).unwrap();
            let name = PushName { pusher, incarnation, seq: 1, row: 0 };
            shards.push(&name, Write::Gradient, &[5], None, &[1.0]).unwrap();
        }
        assert_eq!(store.highest_incarnation(1 << 50).unwrap(), Some(41));
        assert_eq!(store.highest_incarnation(u64::MAX).unwrap(), Some(1 << 60));
        // A file that is no image is skipped, and so is an image that was cut short.
        fs::remove_dir_all(folder.path().join("c")).unwrap();
        fs::write(folder.path().join("a/shard-9999.image"), vec![0xFF; 20_000]).unwrap();
        fs::write(folder.path().join("a/shard-9998.image"), MAGIC.to_le_bytes()).unwrap();
        assert_eq!(store.highest_incarnation(u64::MAX).unwrap(), Some(41));
        assert_eq!(Store::memory().highest_incarnation(u64::MAX).unwrap(), None);
    }
}

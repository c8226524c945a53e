//! The images of a table that a data folder holds, read from their heads without opening them.

use crate::error::OpenError;
use crate::image::files::store::Store;
use crate::image::files::table_folder;
use crate::image::head::{OtherHead, birth_of, check_bytes, check_head, identity_of};
use crate::image::layout::*;
use crate::own_files;
use crate::schema::identity::TableIdentity;
use crate::schema::shard_set::ShardSet;
use crate::schema::table_schema::Schema;
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The images of a table in a store's folder, as their heads describe them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldTable {
    /// The table, and which of its servers made the images.
    pub identity: TableIdentity,
    /// Number of shards of the whole table.
    pub shards: u32,
    /// Whether all servers of the table have made their images. Before that there cannot have been pushes.
    pub confirmed: bool,
    /// The shards that have an image here, with the birth of each.
    pub births: BTreeMap<u32, u64>,
}

/// The file name of a shard's image in its table's folder.
pub(crate) fn image_name(number: u32) -> String {
    format!("shard-{number:04}.image")
}

impl HeldTable {
    /// Checks that no image of these shards is lost.
    ///
    /// # Errors
    /// An image that existed is gone, and its rows with it.
    pub fn must_have(&self, store: &Store, table: &str, shards: &ShardSet) -> Result<(), OpenError> {
        let gone = shards.iter().find(|shard| self.confirmed && !self.births.contains_key(shard));
        match (gone, store.folder()) {
            (Some(shard), Some(folder)) => {
                let path = folder.join(table).join(image_name(shard));
                Err(OpenError::Gone { path, table: table.to_owned(), shard })
            }
            _ => Ok(()),
        }
    }
}

impl Store {
    /// The images that the folder has of a table, without opening them. `None` when it has none, or when images
    /// are in memory.
    ///
    /// # Errors
    /// An image cannot be read, is not an image of this program, is torn, or belongs to another table than the
    /// others.
    pub fn held(&self, table: &str) -> Result<Option<HeldTable>, OpenError> {
        let Some(folder) = self.folder().map(|folder| folder.join(table)) else { return Ok(None) };
        let mut held: Option<HeldTable> = None;
        for number in image_numbers(&folder)? {
            let path = folder.join(image_name(number));
            let (identity, birth, confirmed, schema) = read_image_head(&path, table, number)?;
            let all = held.get_or_insert_with(|| {
                let births = BTreeMap::new();
                HeldTable { identity, shards: schema.shards, confirmed: false, births }
            });
            if all.identity != identity {
                return Err(OpenError::OtherTable { path, found: identity, wanted: all.identity });
            }
            all.confirmed |= confirmed;
            all.births.insert(number, birth);
        }
        Ok(held)
    }

    /// The schema of a table, from the first of its images in the folder. `None` as for [`held`](Self::held).
    ///
    /// ```
    /// # use gannet_core::{Schema, Shards, Store};
    /// # use gannet_optim::{Add, Rule};
    /// # let folder = tempfile::tempdir()?;
    /// let store = Store::open_dir(folder.path())?;
    /// let schema = Schema { shards: 2, ..Schema::scalar("clicks", Rule::Add(Add)) };
    /// assert_eq!(store.held_schema("clicks")?, None);
    /// drop(Shards::open(&store, &schema, 0..1)?);
    /// assert_eq!(store.held_schema("clicks")?, Some(schema));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for `held`.
    pub fn held_schema(&self, table: &str) -> Result<Option<Schema>, OpenError> {
        let Some(folder) = self.folder().map(|folder| folder.join(table)) else { return Ok(None) };
        let first = image_numbers(&folder)?.first().copied();
        let head = |number| read_image_head(&folder.join(image_name(number)), table, number);
        first.map(|number| Ok(head(number)?.3)).transpose()
    }
}

/// Whether a folder is the data folder of a server: a server has it open now, or it has images of a table. A folder
/// that cannot be read is none.
///
/// ```
/// # use gannet_core::{Store, is_data_folder};
/// # let folder = tempfile::tempdir()?;
/// assert!(!is_data_folder(folder.path()));
/// let store = Store::open_dir(folder.path())?;
/// assert!(is_data_folder(folder.path()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn is_data_folder(folder: &Path) -> bool {
    let is_locked = |file: File| {
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
    };
    let is_open = own_files::open_regular(&folder.join("LOCK")).is_ok_and(is_locked);
    let mut entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    is_open || entries.any(|entry| table_folder::has_images(&entry.path()))
}

/// The shards that have an image in the folder of a table, in ascending order.
fn image_numbers(folder: &Path) -> Result<Vec<u32>, OpenError> {
    let io = |source| OpenError::Io { what: "reading", path: folder.into(), source };
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(io)?,
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry.map_err(io)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("shard-")?.strip_suffix(".image"));
        numbers.extend(number.and_then(|number| number.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Reads the head of the image of a shard: table identity, birth, whether it is confirmed, and the table's schema.
fn read_image_head(
    path: &Path,
    table: &str,
    number: u32,
) -> Result<(TableIdentity, u64, bool, Schema), OpenError> {
    let io = |source| OpenError::Io { what: "reading", path: path.into(), source };
    let torn = |why: String| OpenError::Torn { path: path.into(), why };
    let mut bytes = [0; CONFIRMED + 8];
    let read = own_files::open_regular(path).and_then(|file| file.read_exact_at(&mut bytes, 0));
    match read {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            let length = std::fs::metadata(path).map_err(io)?.len();
            return Err(torn(format!("its {length} bytes are too short for a header")));
        }
        read => read.map_err(io)?,
    }
    let checked = check_bytes(&bytes).and_then(|schema| check_head(&bytes, &schema, number).map(|()| schema));
    let schema = checked.map_err(|other| match other {
        OtherHead::Foreign(why) => OpenError::Foreign { path: path.into(), why },
        OtherHead::Torn(why) => torn(why),
        OtherHead::Schema(how) => OpenError::OtherSchema { path: path.into(), how },
    })?;
    if schema.name != table {
        let how = format!("its name is {:?}, but {table:?} was requested", schema.name);
        return Err(OpenError::OtherSchema { path: path.into(), how });
    }
    let confirmed = bytes[CONFIRMED..] == 1u64.to_le_bytes();
    Ok((identity_of(&bytes), birth_of(&bytes), confirmed, schema))
}
